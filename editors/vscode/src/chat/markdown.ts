/** Markdown of a model as HTML: no HTML of its own, no images, and links only to web pages. */

import MarkdownIt from "markdown-it";

const markdown = new MarkdownIt({ html: false, linkify: false });
const escapeHtml = (text: string): string => markdown.utils.escapeHtml(text);
markdown.disable("image");
markdown.validateLink = (url) => /^https?:\/\//i.test(url);

const BUTTONS = ["Copy", "Insert", "Apply"].map(
  (label) => `<button type="button" data-code="${label.toLowerCase()}">${label}</button>`,
);

/** A block of code with its language and buttons. */
function block(code: string, language: string): string {
  const name = escapeHtml(language || "code");
  return (
    `<div class="code" role="group" aria-label="${name}"><div class="code-bar"><span>${name}</span>` +
    `${BUTTONS.join("")}</div><pre tabindex="0"><code>${escapeHtml(code)}</code></pre></div>`
  );
}

markdown.renderer.rules["fence"] = (tokens, index) => {
  const { content = "", info = "" } = tokens[index] ?? {};
  return block(content, info.trim().split(/\s+/)[0] ?? "");
};
markdown.renderer.rules["code_block"] = (tokens, index) => block(tokens[index]?.content ?? "", "");

export function rendered(text: string): string {
  return markdown.render(text);
}
