/** The pure parts of the chat. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { contextOfAll, kept, MAX_KEPT_TURNS, messagesOf, newNotes, turnOf } from "../src/chat/conversation";
import { rendered } from "../src/chat/markdown";
import { matching, mentionOf, mentionsIn, typedMention } from "../src/chat/mentions";
import { fromPage } from "../src/chat/messages";

const HOSTILE = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "[a](javascript:alert(1))",
  "[a](command:workbench.action.quit)",
  "[a](vscode://x) [b](data:text/html,x) [c](file:///etc/passwd)",
  "![a](https://example.org/x.png)",
  "```<b onclick=x>\n</code></pre><script>\n```",
  "```x\" onclick=\"alert(1)\n1\n```",
  "    </pre><iframe src=x>",
  '[a](https://example.org "\\"><script>")',
  "<https://example.org/\"onmouseover=alert(1)>",
];
const TAGS = new Set(
  "p h1 h2 h3 h4 h5 h6 em strong s code pre div span button a ul ol li blockquote hr br table thead tbody tr th td".split(" "),
);

test("no HTML, image or address of an answer gets into the page", () => {
  for (const text of [...HOSTILE, ...HOSTILE.map((each) => `- ${each}\n\n> ${each}\n\n| a |\n|-|\n| ${each} |`)]) {
    const html = rendered(text);
    for (const [, name = ""] of html.matchAll(/<\/?([a-z0-9]+)/gi)) assert.ok(TAGS.has(name), `${name} in ${html}`);
    for (const [tag] of html.matchAll(/<[a-z][^>]*>/gi)) {
      assert.doesNotMatch(tag.replace(/"[^"]*"/g, '""'), /\son\w+|<.*</i, tag);
    }
    for (const [, url = ""] of html.matchAll(/(?:href|src)="([^"]*)"/g)) assert.match(url, /^https?:/);
  }
});

test("a block of code keeps its text, and has a language and buttons", () => {
  const code = 'if a < b && c == "d":\n    pass\n';
  const html = rendered(`Like this:\n\n\`\`\`python title\n${code}\`\`\`\n`);
  assert.match(html, /<span>python<\/span>/);
  for (const name of ["copy", "insert", "apply"]) assert.match(html, new RegExp(`data-code="${name}"`));
  const shown = /<code>([^]*)<\/code>/.exec(html)?.[1] ?? "";
  const plain = shown.replaceAll("&lt;", "<").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
  assert.equal(plain, code);
});

test("messages of the page are checked", () => {
  const good = [
    { type: "ready" },
    { type: "send", text: "why?" },
    { type: "apply", code: "x = 1" },
    { type: "open", turn: 0, link: 1 },
    { type: "files", id: 3, query: "" },
  ];
  for (const each of good) assert.deepEqual(fromPage(each), each);
  const bad = [null, 1, "ready", [], {}, { type: "eval" }, { type: "send" }, { type: "send", text: 1 }, { type: "toString" },
    { type: "open", turn: 0.5, link: 1 }, { type: "files", id: "1", query: "" }, { type: "files", id: 1 }];
  for (const each of bad) assert.equal(fromPage(each), undefined, JSON.stringify(each));
});

test("a question names files, the selection and problems", () => {
  const found = mentionsIn('What does @src/app.ts do with (@a.py), @"my file.md" and #selection? See #problems, a@b.de, #problemsome.');
  assert.deepEqual(found, { files: ["src/app.ts", "a.py", "my file.md"], selection: true, problems: true });
  assert.deepEqual(mentionsIn("x # selection, c#selection"), { files: [], selection: false, problems: false });
});

test("a file that is named is found again", () => {
  for (const file of ["a.py", "src/a b.py", "odd.", "docs/x(1).md", "ü/é.ts"]) {
    assert.deepEqual(mentionsIn(`Explain ${mentionOf(file)}, please.`).files, [file]);
  }
});

test("a mention is completed while it is typed", () => {
  assert.deepEqual(typedMention("see @src/a", 10), { start: 4, mark: "@", query: "src/a" });
  assert.deepEqual(typedMention("#", 1), { start: 0, mark: "#", query: "" });
  for (const text of ["a@b", "@a ", "no"]) assert.equal(typedMention(text, text.length), undefined);
});

test("files that match best come first", () => {
  const files = ["src/lib/shop.ts", "shop.py", "src/workshop.ts", "README.md", "s/h/o/p.c"];
  assert.deepEqual(matching(files, "shop", 9), ["shop.py", "src/lib/shop.ts", "src/workshop.ts", "s/h/o/p.c"]);
  assert.equal(matching(files, "", 2).length, 2);
  assert.deepEqual(matching(files, "zzz", 9), []);
});

test("a follow-up carries what came before", () => {
  const range = { start: { line: 1, character: 0 }, end: { line: 2, character: 0 } };
  const first = { ...turnOf("one?", [{ uri: "a" }, { uri: "b", range }]), answer: "One.", notes: ["long"] };
  const failed = { ...turnOf("two?", [{ uri: "a" }]), error: "Stopped." };
  const turns = [first, failed, turnOf("three?", [{ uri: "c" }])];
  assert.deepEqual(
    messagesOf(turns).map(({ role, content }) => [role, content]),
    [["user", "one?"], ["assistant", "One."], ["user", "two?"], ["user", "three?"]],
  );
  assert.deepEqual(contextOfAll(turns, 9), [{ uri: "a" }, { uri: "b", range }, { uri: "c" }]);
  assert.deepEqual(newNotes(turns, ["long", "new"]), ["new"]);
  assert.deepEqual(kept(turns), [first, failed]);
  assert.equal(kept(Array<typeof first>(99).fill(first)).length, MAX_KEPT_TURNS);
});
