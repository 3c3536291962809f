/**
 * What a person does with Draftline in VS Code: one scenario after the other in one window. Writes
 * one JSON line a scenario: {"name", "error"}. A failed one leaves a screenshot and the others run.
 * Whether the model's answers are good is not looked at, only what becomes of them.
 */

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { Editor, until } from "./browser.mjs";
import { chatScenarios } from "./vscode_chat.mjs";
import { editScenarios } from "./vscode_edit.mjs";

const { missing, ...place } = JSON.parse(process.argv[2]);
const { settings } = place;
const BAR = '[id="draftline.draftline.draftline"]';
const TOAST = ".notifications-toasts .notification-list-item";
const MESSAGE = `${TOAST}-message`;
const LEFT = ".editor.original";
const PAGE = ".monaco-editor[data-uri^='draftline-text:']";
const RIGHT = ".editor.modified";
const WALKTHROUGH = ".gettingStartedContainer";
const ROW = ".quick-input-list .monaco-list-row";
const ACTION = ".action-widget .monaco-list-row.action";
const REFACTORING = ".bulk-edit-panel .monaco-list-row";
const DIALOG = ".monaco-dialog-box";
const HINT = /✓ Alt\+Y/;

const editor = await Editor.open(place);
const { page } = editor;

/** The figures of Draftline: Show Statistics. */
async function stats() {
  await editor.command("Draftline: Show Statistics");
  const isFigures = (lines) => lines.some((line) => line.startsWith("- running"));
  const lines = await until("the statistics", async () => {
    const found = await editor.lines(PAGE);
    return isFigures(found) && found;
  });
  const text = lines.join("").replace(/\s+/g, " "); // long lines are wrapped
  await editor.command("View: Close Editors in Other Groups");
  const figure = (of, name) => Number(new RegExp(`- ${of}:[^}]*"${name}": ?([\\d.]+)`).exec(text)?.[1] ?? 0);
  return { cancelled: figure("answers", "cancelled"), accepted: figure("completions", "accepted") };
}

/** Asks for an edit at `line` of `name` and waits for the proposal. */
async function propose(name, line, instruction) {
  await editor.openFile(name, `${line}:1`);
  await editor.press("Alt+k");
  await editor.choose(instruction);
  await editor.seeDecoration(HINT);
  await editor.settle();
}

/** Waits until the server answers nothing any more, and what it answered is shown. */
async function idle() {
  await editor.gone(`${BAR} .codicon-sync`);
  await editor.settle();
}

/** Dismisses ghost text, which would take the key Tab: also what is still to come. */
async function noGhost() {
  await idle();
  if (!(await editor.ghost())) return;
  await editor.press("Escape");
  await until("the ghost text to go", async () => !(await editor.ghost()));
}

async function click(title, timeout) {
  await page.locator(`.editor-actions [aria-label^="${title}"]`).first().click({ timeout });
}

/** Takes the code action that `wanted` matches at `place` of `name`, once `ready` is there: the list shows
 * what is known when it opens. */
async function act(name, place, wanted, shot, ready = ".view-line") {
  await editor.openFile(name, place);
  await page.waitForSelector(ready);
  await editor.press("Control+.");
  await editor.see(ACTION, wanted);
  await editor.shot(shot);
  await page.locator(ACTION, { hasText: wanted }).click();
}

/** What is told beside the progress of an edit, which stays for a moment when the edit is there. */
function told() {
  const running = page.locator(".monaco-button", { hasText: "Cancel" });
  return page.locator(TOAST).filter({ hasNot: running }).allInnerTexts();
}

/** Accepts the proposal that is to come, and answers the file as it is then. */
async function accepted(name, shot) {
  const before = editor.disk(name);
  await editor.seeDecoration(HINT);
  await editor.settle();
  await editor.shot(shot);
  assert.notDeepEqual(await editor.lines(LEFT), await editor.lines(RIGHT));
  assert.deepEqual(await told(), []);
  await click("Accept All");
  await editor.gone(".monaco-diff-editor");
  return until("the change", async () => {
    const text = await editor.saved(name);
    return text !== before && text;
  });
}

/** Sees that everything in the refactor preview is ticked. */
async function ticked() {
  const boxes = page.locator(`${REFACTORING} [role=checkbox]`);
  const states = await boxes.evaluateAll((all) => all.map((each) => each.getAttribute("aria-checked")));
  assert.ok(states.length >= 2);
  assert.deepEqual([...new Set(states)], ["true"]);
}

/** Opens the menu of the status bar item and chooses the row that begins with `text`. */
async function choose(text) {
  await page.locator(BAR).click();
  await editor.see(ROW, /Ghost text/);
  await editor.shot("menu-switches");
  await editor.type(text);
  await editor.see(`${ROW}.focused`, new RegExp(text));
  await editor.press("Enter");
}

const SCENARIOS = {
  async walkthrough() {
    await editor.see(WALKTHROUGH, /Get started with Draftline[^]*Choose a model/);
    await editor.see(BAR, /Draftline · loading/);
    writeFileSync(place.go, ""); // the server waits for it: it would be ready before one looks
    await editor.see(`${WALKTHROUGH} [aria-checked="true"], ${WALKTHROUGH} .codicon-getting-started-step-checked`, /^/);
    await editor.shot("walkthrough");
    await editor.command("View: Close All Editors");
    await editor.gone(WALKTHROUGH);
  },

  async status() {
    await editor.see(BAR, /^\s*Draftline\s*$/);
    await until("its tooltip", async () => { // which goes when the index has more to tell
      await page.mouse.move(640, 500);
      await page.locator(BAR).hover();
      return editor.see(".monaco-hover", /Draftline: ready[^]*Model: qwen2.5-coder-/, 10_000).catch(() => false);
    });
    await editor.shot("status");
    await page.mouse.move(640, 500); // the tooltip goes
  },

  async switches() {
    await editor.openFile("numbers.py", "10:1");
    await choose("Ghost text in python");
    await editor.see(`${ROW}.focused`, /Ghost text in python[^]*off/); // in the menu, which stays
    await editor.shot("switches");
    await editor.press("Escape");
    await editor.see(BAR, /no ghost text/);
    await editor.openFile("numbers.py", "10:1");
    await editor.type("x", 300);
    await editor.command("Draftline: Why Was Nothing Offered?");
    await editor.see(MESSAGE, /draftline.ghostText is off for 'python'/);
    await editor.shot("ghost-off");
    await editor.command("Notifications: Clear All Notifications");
    await choose("Ghost text in python");
    await editor.see(`${ROW}.focused`, /Ghost text in python[^]*on/);
    await editor.press("Escape");
    await until("ghost text to be on", async () => !(await editor.texts(BAR)).some((text) => /no ghost/.test(text)));
    await editor.openFile("numbers.py", "10:2");
    await editor.press("Backspace");
    await editor.saved("numbers.py");
  },

  async ghost() {
    const before = editor.disk("numbers.py");
    const typed = "    ret";
    await editor.openFile("numbers.py", "10:1");
    await editor.type(typed, 300);
    await until("ghost text", () => editor.ghost());
    await editor.see(BAR, /Draftline · \d+ tok\/s/);
    await idle(); // what is shown first may be of the keys before
    const shown = await until("ghost text", () => editor.ghost());
    await editor.shot("ghost");
    await editor.press("Tab");
    const lines = before.split("\n");
    lines[9] = typed + shown;
    await editor.savesAs("numbers.py", lines.join("\n"));
  },

  async "accepted is told"() {
    await editor.openFile("numbers.py", "1:1");
    assert.equal((await stats()).accepted, 1);
  },

  async "typing cancels"() {
    await editor.openFile("numbers.py", "1:1");
    const before = (await stats()).cancelled;
    await editor.press("Control+End");
    await editor.type("# Seven wild zebras quietly juggle", 300);
    await until("a cancelled answer", async () => (await stats()).cancelled > before);
    await editor.saved("numbers.py");
  },

  async "accept all"() {
    const before = editor.disk("shop.py");
    await propose("shop.py", 9, "Rename the parameter amount to count"); // in a block of the function
    await editor.shot("edit");
    await editor.see(".tab.active", /Rename the parameter amount to count \(.*by rule/); // not a key is lost
    const proposed = await editor.lines(RIGHT);
    assert.notDeepEqual(proposed, await editor.lines(LEFT));
    assert.equal((await editor.lines(LEFT)).join("\n"), before);
    await click("Accept All");
    await editor.gone(".monaco-diff-editor");
    await editor.savesAs("shop.py", proposed.join("\n"));
  },

  async "one by one"() {
    const before = editor.disk("stock.py").split("\n");
    await propose("stock.py", 1, "Rename the parameter amount to count");
    const proposed = await editor.lines(RIGHT);
    const first = proposed.findIndex((line, at) => line !== before[at]);
    await editor.press("Alt+n");
    await until("the first change to go", async () => (await editor.lines(RIGHT))[first] === before[first]);
    await editor.seeDecoration(HINT); // others remain
    await editor.shot("hunks");
    const left = await editor.lines(RIGHT);
    await editor.press("Alt+y");
    await until("the change to be made", async () => (await editor.lines(LEFT)).join() !== before.join());
    await until("the others to be made", async () => { // if there are any: the diff closes with the last one
      if ((await page.locator(".monaco-diff-editor").count()) === 0) return true;
      await click("Accept All", 5_000).catch(() => undefined);
      return false;
    });
    await editor.savesAs("stock.py", left.join("\n"));
  },

  async "typing beside an edit"() {
    const before = editor.disk("moved.py");
    await propose("moved.py", 1, "Rename the parameter amount to count");
    await page.locator(`${RIGHT} .view-line`).first().click();
    await editor.press("Control+End");
    await editor.type("# mine");
    await click("Reject All");
    await editor.gone(".monaco-diff-editor");
    await editor.typesInto("moved.py");
    await editor.savesAs("moved.py", `${before}# mine`);
  },

  async "cancel an edit"() {
    await editor.openFile("long.py", "1:1");
    const before = (await stats()).cancelled;
    await editor.press("Control+a", "Alt+k");
    await editor.choose("Rewrite every function as a class with a method named call");
    const progress = page.locator(TOAST, { hasText: "Rewrite every function" });
    await progress.locator(".monaco-button", { hasText: "Cancel" }).click();
    await until("the edit to be cancelled", async () => (await stats()).cancelled > before);
    assert.equal(await page.locator(".monaco-diff-editor").count(), 0);
  },

  async "code action"() {
    await act("tax.py", "2:5", /Add a docstring/, "actions");
    const after = await accepted("tax.py", "docstring");
    assert.match(after, /def net\(amount, rate\):\n {4}["']{3}/);
    assert.match(after, /return amount \* \(1 - rate\)/);
  },

  async "quick fix"() {
    await act("page.css", "2:4", /Fix with Draftline: Unknown property/, "quick-fix", ".squiggly-warning");
    await accepted("page.css", "quick-fix-shown");
  },

  async "an instruction from the menu"() {
    await act("bill.py", "4:1", /Edit with instruction/, "menu");
    await editor.choose("Rename the parameter amount to count");
    await editor.seeDecoration(HINT);
    await editor.settle();
    assert.deepEqual(await told(), []);
    await click("Reject All");
    await editor.gone(".monaco-diff-editor");
  },

  async "edit in files"() {
    const names = ["circle.py", "ring.py"];
    const before = names.map((name) => editor.disk(name));
    const wanted = before.map((text) => text.replaceAll("circumference", "perimeter"));
    await editor.openFile("circle.py", "1:1");
    await editor.command("Draftline: Edit in Files…");
    await editor.choose("Rename circumference to perimeter");
    await editor.see(ROW, /circle\.py.*defines/s);
    await editor.see(ROW, /ring\.py.*uses/s);
    await editor.settle();
    await editor.shot("files-chosen");
    await editor.press("Enter");
    await editor.see(REFACTORING, /^ring\.py/);
    await editor.settle();
    await editor.shot("files-preview");
    assert.deepEqual(names.map((name) => editor.disk(name)), before); // nothing happens before it is accepted
    await ticked();
    await page.locator(".bulk-edit-panel .monaco-button", { hasText: "Apply" }).click();
    await until("both files to change", () => names.every((name, at) => editor.disk(name) === wanted[at]));
    await editor.settle();
    await editor.shot("files-edited");
  },

  async "a rename by the language server"() { // TypeScript's, which VS Code has
    const before = editor.disk("cart.ts");
    await editor.openFile("cart.ts", "1:1");
    await page.waitForSelector(".squiggly-error"); // the language server is ready
    await propose("cart.ts", 2, "Rename total to amount");
    await editor.see(".tab.active", /Rename total to amount \(by the language server/);
    await editor.shot("renamed-by-typescript");
    await click("Accept All");
    await editor.gone(".monaco-diff-editor");
    await editor.savesAs("cart.ts", before.replaceAll("total", "amount"));
  },

  async "a rename by the language server in several files"() {
    const names = ["cart.ts", "order.ts"];
    const wanted = names.map((name) => editor.disk(name).replaceAll("sum", "add"));
    await editor.openFile("cart.ts", "1:1");
    await page.waitForSelector(".squiggly-error"); // the language server is ready
    await editor.command("Draftline: Edit in Files…");
    await editor.choose("Rename sum to add");
    await editor.see(REFACTORING, /order\.ts/);
    await editor.see(MESSAGE, /by the language server: `sum` renamed to `add` in 3 places of 2 files/);
    await editor.settle();
    await editor.shot("renamed-in-several-files");
    await ticked();
    await page.locator(".bulk-edit-panel .monaco-button", { hasText: "Apply" }).click();
    await until("both files to change", () => names.every((name, at) => editor.disk(name) === wanted[at]));
    await editor.settle();
  },

  async "next edit in a closed file"() {
    const before = editor.disk("ring.py");
    const [, name] = /def (\w+)/.exec(editor.disk("circle.py"));
    await editor.openFile("circle.py", "1:5");
    for (const line of [1, 5]) { // everywhere in the file itself
      await editor.pick("Control+p", `circle.py:${line}:${line === 1 ? 5 : 7}`, "circle.py");
      await editor.typesInto("circle.py");
      for (let left = name.length; left > 0; left -= 1) await page.keyboard.press("Delete");
      await editor.type("round", 300);
    }
    await editor.press("Control+End");
    await editor.seeDecoration(/Tab: go to next edit, ring.py line \d/);
    await editor.command("Draftline: Show Next Edits…");
    await editor.see(ROW, /ring\.py:\d/);
    await editor.settle();
    await editor.shot("next-edits");
    await editor.press("Enter");
    await editor.typesInto("ring.py");
    await editor.seeDecoration(/Tab: accept/);
    await editor.shot("next-edit-closed");
    await noGhost();
    await editor.press("Tab");
    const made = await until("the change", async () => {
      const text = await editor.saved("ring.py");
      return text !== before && text;
    });
    assert.match(made, /round/);
  },

  async "next edit elsewhere"() {
    const before = editor.disk("bill.py");
    await editor.openFile("bill.py", "1:1");
    await editor.command("View: Keep Editor");
    await editor.pick("Control+p", "tax.py:1:5", "tax.py");
    await editor.typesInto("tax.py");
    for (let left = "net".length; left > 0; left -= 1) await page.keyboard.press("Delete");
    await editor.type("after_tax", 300);
    await editor.seeDecoration(/Tab: go to next edit, bill.py line \d/);
    await editor.shot("next-edit-elsewhere");
    await noGhost();
    await editor.press("Tab");
    await editor.typesInto("bill.py");
    await editor.seeDecoration(/Tab: accept/);
    await editor.shot("next-edit-elsewhere-shown");
    await editor.press("Tab");
    const made = await until("the change", async () => {
      const text = await editor.saved("bill.py");
      return text !== before && text;
    });
    assert.match(made, /after_tax/);
  },

  async "next edit"() {
    const before = editor.disk("room.py");
    await editor.openFile("room.py", "1:10");
    for (let left = "width".length; left > 0; left -= 1) await page.keyboard.press("Delete");
    await editor.type("breadth", 300);
    await editor.seeDecoration(/Tab: go to next edit/);
    await editor.shot("next-edit");
    await noGhost();
    await editor.press("Tab");
    await editor.seeDecoration(/Tab: accept/);
    await editor.shot("next-edit-shown");
    const kept = before.replace("width", "breadth");
    await editor.press("Tab");
    const made = await until("the change", async () => {
      const text = await editor.saved("room.py");
      return text !== kept && text;
    });
    assert.equal(made.split("breadth").length, kept.split("breadth").length + 1);
  },

  ...chatScenarios(editor, place),
  ...editScenarios(editor, place),

  async "find the server"() {
    await editor.command("Draftline: Find or Install the Server");
    await editor.see(ROW, /\.venv\/bin\/draftline[^]*in this workspace/);
    await editor.see(ROW, /Install with uv…/);
    await editor.shot("find-server");
    await editor.press("Escape");
  },

  async "choose a model"() {
    for (const [name, shown] of [["smollm2-135m", /smollm2-135m/], ["the default", /qwen2.5-coder/]]) {
      await editor.command("Draftline: Choose Model");
      await editor.see(ROW, /smollm2-135m[^]*MB on disk \(Draftline\)/);
      await editor.shot(`models-${name.replaceAll(" ", "-")}`);
      await editor.type(name);
      await editor.see(`${ROW}.focused`, new RegExp(name));
      await editor.press("Enter");
      await page.locator(BAR).click();
      await until(`${name} to be ready`, async () => {
        const row = (await editor.texts(ROW)).find((text) => shown.test(text) && /ready/.test(text));
        if (row) return true;
        await editor.press("Escape");
        await page.locator(BAR).click();
        return false;
      });
      await editor.press("Escape");
    }
  },

  async "a model that is not here"() {
    const model = "zed-industries/zeta-2.1";
    writeFileSync(settings, JSON.stringify({ ...JSON.parse(place.defaults), "draftline.model": model }));
    await editor.see(BAR, /Download…/);
    await until("nothing to spin", async () => (await page.locator(".statusbar .codicon-modifier-spin").count()) === 0);
    await editor.settle();
    await editor.shot("download-bar");
    await page.locator(BAR).click();
    await editor.see(`${ROW}.focused`, /^\s*Download…/);
    await editor.shot("download-menu");
    await editor.press("Escape");
    await editor.openFile("shop.py", "1:1");
    await editor.press("Alt+k");
    await editor.see(ROW, /Download zed-industries\/zeta-2\.1[^]*1[67] GB/);
    await editor.shot("download-edit");
    await editor.press("Escape");
    await editor.command("Draftline: Open Chat");
    const chat = page.frameLocator("iframe.webview:visible").frameLocator("#active-frame");
    await chat.locator("#status button", { hasText: "Download…" }).click();
    await editor.see(ROW, /Download zed-industries/);
    await editor.shot("download-chat");
    await editor.press("Escape");
    await editor.command("View: Show Explorer");
    await editor.command("Notifications: Show Notifications");
    await page.locator(".notifications-center .monaco-button", { hasText: "Not Now" }).click();
    await until("the reason to be the menu's first row", async () => {
      await page.locator(BAR).click();
      const found = await editor.see(`${ROW}.focused`, /not on this machine[^]*restart the server/, 10_000).catch(() => false);
      await editor.shot("error-menu");
      await editor.press("Escape");
      return found;
    });
    writeFileSync(settings, place.defaults);
    await until("the model to be back", async () =>
      (await editor.texts(BAR)).every((text) => !/Download|loading/.test(text)) &&
      (await page.locator(`${BAR} .codicon-error`).count()) === 0);
    await editor.command("Notifications: Clear All Notifications");
  },

  async "a missing program"() {
    const command = { "draftline.command": [missing] };
    writeFileSync(settings, JSON.stringify({ ...JSON.parse(place.defaults), ...command }));
    await until("the missing program to be told", async () => { // once the editor knows the new setting
      await editor.command("Draftline: Restart Server");
      return editor.see(MESSAGE, new RegExp(`no program "${missing}".*pipx install`), 10_000).catch(() => false);
    });
    await editor.settle();
    await editor.shot("missing");
    await page.locator(BAR).click();
    await editor.see(`${ROW}.focused`, /no program[^]*find or install it/);
    await editor.press("Escape");
    assert.deepEqual((await editor.texts(MESSAGE)).filter((text) => /no such setting/.test(text)), []);
  },

  async "install the server"() {
    await editor.command("Draftline: Find or Install the Server");
    for (const choice of [/Install with uv…/, /A wheel…/]) {
      await editor.see(ROW, choice);
      await editor.choose(choice.source);
    }
    await editor.see(".quick-input-title", /A wheel of Draftline/);
    await editor.press("Control+a");
    await editor.choose(place.wheel);
    await editor.see(DIALOG, new RegExp(`Install Draftline from ${place.wheel}\\?[^]*draftline\\.draftline`));
    await editor.shot("install-server");
    await editor.press("Enter");
    const program = await until("the installed program to be used", () => {
      const [found] = JSON.parse(readFileSync(settings, "utf8"))["draftline.command"];
      return found.endsWith("/draftline.draftline/bin/draftline") && found;
    });
    const passed = readFileSync(place.uvLog, "utf8").trim().split("\n");
    assert.deepEqual(passed.slice(0, -1), ["tool", "install", "--force", "--python", ">=3.12"]);
    assert.ok([place.wheel, `${place.wheel}[gpu]`].includes(passed.at(-1))); // by whether a card is here
    assert.ok(existsSync(program));
    await editor.see(BAR, /^\s*Draftline\s*$/);
  },
};

for (const [name, scenario] of Object.entries(SCENARIOS).filter(([each]) => place.wanted.includes(each))) {
  let error = null;
  try {
    await scenario();
  } catch (problem) {
    error = String(problem.stack);
    await editor.shot(`failed-${name.replaceAll(/[ :]+/g, "-")}`);
  }
  await editor.press("Escape");
  console.log(JSON.stringify({ name, error }));
  if (error && ["walkthrough", "status"].includes(name)) break; // without the server all others would wait in vain
}
await editor.close();
