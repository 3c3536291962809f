/** The chat's page: draws the conversation and sends what the user does. Runs in the web view. */

/// <reference lib="dom" />
/// <reference lib="dom.iterable" />

import type { FromPage, State, ToPage, Turn } from "../messages";
import { rendered } from "../markdown";
import { Offers } from "./offers";

interface Host {
  postMessage(message: FromPage): void;
  getState(): unknown;
  setState(state: unknown): void;
}
declare function acquireVsCodeApi(): Host;

const BOTTOM = 40; // pixels from the end within which the log follows the answer
const host = acquireVsCodeApi();
const log = element("log");
const box = element("text") as HTMLTextAreaElement;
const chips = element("chips");
const send = element("send") as HTMLButtonElement;
const status = element("status");
const said = element("said");
let state: State | undefined;
let isDrawn = true;

const offers = new Offers(element("offers"), box, (id, query) => { host.postMessage({ type: "files", id, query }); });

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/** A new element with text. */
function make(tag: string, name: string, text = ""): HTMLElement {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

// -- the conversation ------------------------------------------------------------------------------

/** A turn as an element. What it shows of the model went through `rendered`, all else is plain text. */
function drawn(turn: Turn, at: number): HTMLElement {
  const article = make("article", "turn");
  article.setAttribute("aria-label", `Question ${at + 1}`);
  article.append(make("div", "question", turn.question));
  const answer = make("div", "answer");
  answer.innerHTML = rendered(turn.answer);
  article.append(answer);
  for (const note of turn.notes) article.append(make("p", "note", note));
  if (turn.error) {
    const error = make("p", "error", turn.error);
    error.setAttribute("role", "alert");
    article.append(error);
  }
  if (turn.links.length > 0) article.append(linksOf(turn, at));
  return article;
}

function linksOf(turn: Turn, at: number): HTMLElement {
  const list = make("div", "links", "Copied from ");
  turn.links.forEach(({ label }, number) => {
    const link = make("button", "link", label) as HTMLButtonElement;
    link.type = "button";
    link.addEventListener("click", () => { host.postMessage({ type: "open", turn: at, link: number }); });
    list.append(link, " ");
  });
  return list;
}

function welcome(): HTMLElement {
  const made = make("div", "welcome");
  made.append(make("h2", "", "Ask about your code"));
  made.append(make("p", "", "Answers come from the model on this machine, with links to the places they are copied from."));
  made.append(make("p", "", "The active file, or what is selected in it, is read with your question."));
  return made;
}

/** Draws what changed: earlier turns stay as they are, with the focus and the selection in them. */
function draw(before: State | undefined, now: State): void {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < BOTTOM;
  const isSame = (at: number): boolean => {
    const [one, other] = [before?.turns[at], now.turns[at]];
    return one !== undefined && JSON.stringify(one) === JSON.stringify(other);
  };
  if (now.turns.length === 0) {
    log.replaceChildren(welcome());
  } else {
    log.querySelector(".welcome")?.remove();
    while (log.children.length > now.turns.length) log.lastElementChild?.remove();
    now.turns.forEach((turn, at) => {
      if (isSame(at) && log.children[at]) return;
      const made = drawn(turn, at);
      if (log.children[at]) log.children[at].replaceWith(made);
      else log.append(made);
    });
  }
  const isNew = now.turns.length > (before?.turns.length ?? 0);
  if (atEnd || isNew) log.scrollTop = log.scrollHeight;
}

/** Draws the answer that is being written, at most once a frame. */
function drawSoon(): void {
  if (!isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    const turn = state?.turns.at(-1);
    const answer = log.lastElementChild?.querySelector(".answer");
    if (!turn || !answer) return;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < BOTTOM;
    answer.innerHTML = rendered(turn.answer);
    if (atEnd) log.scrollTop = log.scrollHeight;
  });
}

// -- the question ----------------------------------------------------------------------------------

function chip(label: string, title: string, act: () => void): HTMLButtonElement {
  const made = make("button", "chip", label) as HTMLButtonElement;
  made.type = "button";
  made.title = title;
  made.addEventListener("click", act);
  return made;
}

function drawChips(now: State): void {
  const made: HTMLElement[] = [];
  if (now.file) {
    const title = now.isFileUsed ? "Read with the question. Click to leave it out." : "Left out. Click to read it with the question.";
    const file = chip(now.file, title, () => { host.postMessage({ type: "toggleFile" }); });
    file.setAttribute("aria-pressed", String(now.isFileUsed));
    made.push(file);
  }
  if (now.hasSelection) made.push(chip("#selection", "Name the selection in the question", () => { type("#selection "); }));
  if (now.problems > 0) made.push(chip(`#problems (${now.problems})`, "Name the file's problems in the question", () => { type("#problems "); }));
  const focused = [...chips.children].indexOf(document.activeElement ?? chips);
  chips.replaceChildren(...made);
  if (focused >= 0) (chips.children[focused] as HTMLElement | undefined)?.focus();
}

/** Types a text where the cursor is. */
function type(text: string): void {
  box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
  box.focus();
  grow();
}

/** As high as its text, and kept for the next time the view is shown. */
function grow(): void {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
  host.setState({ draft: box.value });
}

function submit(): void {
  if (state?.isBusy) {
    host.postMessage({ type: "stop" });
  } else if (box.value.trim()) {
    host.postMessage({ type: "send", text: box.value });
    box.value = "";
    grow();
  }
}

box.addEventListener("input", () => { grow(); offers.follow(); });
box.addEventListener("keydown", (event) => {
  if (event.isComposing || offers.take(event)) return;
  if (event.key === "Enter" && !event.shiftKey && !state?.isBusy) {
    event.preventDefault();
    submit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state?.isBusy && !event.defaultPrevented) host.postMessage({ type: "stop" });
});
element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
log.addEventListener("click", (event) => {
  const button = (event.target as Element).closest<HTMLElement>("button[data-code]");
  const act = button?.dataset["code"];
  const code = button?.closest(".code")?.querySelector("code")?.textContent;
  if (!button || code === undefined || (act !== "copy" && act !== "insert" && act !== "apply")) return;
  host.postMessage({ type: act, code });
  if (act === "copy") said.textContent = "Copied.";
});

function drawStatus(now: State): void {
  status.textContent = now.status || (now.isBusy ? "Answering…" : "");
  if (!now.isAsking) return;
  const download = chip("Download…", "Choose the model to download", () => { host.postMessage({ type: "download" }); });
  status.append(" ", download);
}

function update(now: State): void {
  const before = state;
  state = now;
  draw(before, now);
  drawChips(now);
  send.textContent = now.isBusy ? "Stop" : "Send";
  send.title = now.isBusy ? "Stop (Escape)" : "Send (Enter)";
  if (before?.status !== now.status || before.isBusy !== now.isBusy) drawStatus(now);
  if (before?.isBusy && !now.isBusy) {
    const last = now.turns.at(-1);
    said.textContent = last && !last.error ? `Answer: ${last.answer}` : ""; // errors are alerts
  }
}

window.addEventListener("message", ({ data }: MessageEvent<ToPage>) => {
  if (data.type === "state") update(data.state);
  else if (data.type === "files") offers.show(data.id, data.files);
  else if (data.type === "focus") box.focus();
  else if (state) {
    const last = state.turns.at(-1);
    if (last) last.answer += data.text;
    drawSoon();
  }
});

const saved = host.getState() as { draft?: unknown } | undefined;
if (typeof saved?.draft === "string") box.value = saved.draft;
grow();
host.postMessage({ type: "ready" });
