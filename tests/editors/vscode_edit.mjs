/**
 * Edits by instruction that are written into the file: scenarios for vscode.mjs, which has the others.
 * Whether the model's answers are good is not looked at, only what becomes of them and of the old text.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { until } from "./browser.mjs";

const LENS = ".codelens-decoration a";
const MESSAGE = ".notifications-toasts .notification-list-item-message";
const CANCEL = ".notifications-toasts .monaco-button";
const LINES = ".editor-instance";
const REWRITE = "Rewrite every function as a class with a method named call";
const RENAME = "Rename the parameter amount to count";

/** The scenarios in the window of `editor`; `place` is what vscode.mjs was called with. */
export function editScenarios(editor, place) {
  const { page } = editor;

  /** Writes settings beside the usual ones, and waits until the window has them: then it has no minimap. */
  async function set(more) {
    const usual = JSON.parse(place.defaults);
    const settings = { ...usual, "draftline.editView": "inline", "editor.minimap.enabled": false, ...more };
    writeFileSync(place.settings, JSON.stringify(settings));
    await until("the settings", async () => (await page.locator(".minimap:visible").count()) === 0);
    await editor.settle();
  }

  /** Asks for an edit of `name`, at `line` or of everything. */
  async function ask(name, instruction, line) {
    await editor.openFile(name, `${line ?? 1}:1`);
    await editor.command("Notifications: Clear All Notifications");
    await editor.typesInto(name);
    if (!line) await editor.press("Control+a");
    await editor.press("Alt+k");
    await editor.choose(instruction);
  }

  /** Waits until an edit is half-written: new text, and old text that is dimmed. */
  async function halfWritten(before) {
    await until("new text above dimmed text", async () => {
      const opacities = await page.locator(`${LINES} .view-line span[class*=ced-]`).evaluateAll((all) =>
        all.map((each) => getComputedStyle(each).opacity));
      const shown = await editor.lines(LINES);
      return opacities.includes("0.4") && shown.some((line) => line && !before.split("\n").includes(line));
    });
  }

  /** Waits until an edit is complete: what is to decide has its CodeLens, and the message is gone. */
  async function complete() {
    await editor.see(LENS, /Accept/);
    await editor.gone(`${CANCEL}:has-text("Cancel")`);
    await editor.settle();
  }

  async function click(title, at = 0) {
    await page.locator(LENS, { hasText: title }).nth(at).click();
    await editor.settle();
  }

  /** The cursor to `line` of the file that is edited, without leaving it. */
  async function goTo(line) {
    await editor.press("Control+g");
    await editor.choose(String(line));
  }

  /** The processes of the server that this window started. */
  function servers() {
    const processes = readdirSync("/proc").filter((each) => /^\d+$/.test(each)).flatMap((pid) => {
      try {
        const parent = /\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))[1];
        return [{ pid: Number(pid), parent: Number(parent), command: readFileSync(`/proc/${pid}/cmdline`, "utf8") }];
      } catch {
        return []; // it ended
      }
    });
    const family = new Set([place.codeServer]);
    for (let size = 0; size < family.size;) {
      size = family.size;
      for (const each of processes) if (family.has(each.parent)) family.add(each.pid);
    }
    return processes.filter(({ pid, command }) => family.has(pid) && command.includes("lsp_server"));
  }

  return {
    async "edit: written into the file"() {
      await set({ "draftline.speculation": false }); // so that it takes long
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE);
      await halfWritten(before);
      await editor.shot("edit-streaming");
      await complete();
      await editor.shot("edit-review");
      assert.equal(editor.disk("stream.py"), before);
      await editor.press("Control+z"); // once
      await editor.gone(LENS);
      await editor.savesAs("stream.py", before);
    },

    async "edit: Escape puts the old text back"() {
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE);
      await halfWritten(before);
      await editor.press("Escape");
      await editor.gone(`${CANCEL}:has-text("Cancel")`);
      await editor.savesAs("stream.py", before);
      assert.equal(await page.locator(LENS).count(), 0);
    },

    async "edit: typing above it"() {
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE, 15); // the function there
      await halfWritten(before);
      await goTo(1);
      await editor.type("# mine ");
      await complete();
      await editor.shot("edit-typed-above");
      await click("Accept All");
      await editor.gone(LENS);
      const after = await editor.saved("stream.py");
      const first = before.split("def total_1")[0];
      assert.ok(after.startsWith(`# mine ${first}`), after);
      assert.ok(after.endsWith(before.slice(before.indexOf("def total_2"))), after);
      assert.notEqual(after, `# mine ${before}`);
      await editor.press("Control+z"); // once
      await editor.savesAs("stream.py", `# mine ${before}`);
      await goTo(1);
      for (let left = "# mine ".length; left > 0; left -= 1) await page.keyboard.press("Delete");
      await editor.savesAs("stream.py", before);
    },

    async "edit: typing into it"() {
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE);
      await halfWritten(before);
      await editor.press("Control+End");
      await editor.press("ArrowUp", "ArrowUp", "End");
      await editor.type("0");
      await editor.see(MESSAGE, /you changed the place that was being edited/);
      await editor.shot("edit-typed-into");
      const lines = before.split("\n");
      lines[lines.length - 3] += "0"; // what was typed stays
      await editor.savesAs("stream.py", lines.join("\n"));
      await editor.press("Control+End", "ArrowUp", "ArrowUp", "End", "Backspace");
      await editor.savesAs("stream.py", before);
    },

    async "edit: saving what is half-written"() {
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE);
      await halfWritten(before);
      await goTo(1);
      await editor.type("#");
      await editor.press("Control+s");
      await until("the file to be saved", () => editor.disk("stream.py") !== before);
      assert.equal(editor.disk("stream.py"), `#${before}`);
      await complete(); // it goes on
      assert.equal(editor.disk("stream.py"), `#${before}`);
      await editor.press("Control+z");
      await editor.savesAs("stream.py", `#${before}`);
      await goTo(1);
      await editor.press("Delete");
      await editor.savesAs("stream.py", before);
    },

    async "edit: change by change"() {
      await set({});
      const before = editor.disk("shelf.py").split("\n");
      await ask("shelf.py", RENAME, 1);
      await complete();
      await editor.shot("edit-by-rule");
      const made = await editor.lines(LINES);
      const changed = before.flatMap((line, at) => (line === made[at] ? [] : [at]));
      assert.ok(changed.length >= 3, made.join("\n"));
      await editor.seeDecoration(/by rule/);
      await editor.see(LENS, /was: def total\(amount, price\):/);
      await click("Reject"); // the first one
      await until("its old text", async () => (await editor.lines(LINES))[changed[0]] === before[changed[0]]);
      await editor.press("Alt+y"); // the second one, where the cursor is now
      await until("one to be left", async () => (await editor.texts(LENS)).filter((each) => /Reject/.test(each)).length === 1);
      await editor.shot("edit-one-left");
      await click("was:");
      await page.waitForSelector(".monaco-diff-editor");
      await editor.settle();
      await editor.shot("edit-compared");
      await page.locator(".editor-actions a[aria-label^='Check This Edit']").click();
      await editor.choose("grep -q count shelf.py");
      await editor.seeDecoration(/checked by grep -q count shelf.py/);
      await editor.settle();
      await editor.shot("edit-checked");
      await editor.press("Alt+n");
      await editor.gone(LENS);
      const wanted = [...before];
      wanted[changed[1]] = made[changed[1]];
      await editor.savesAs("shelf.py", wanted.join("\n"));
    },

    async "edit: deleted lines are shown"() {
      await set({});
      const before = editor.disk("unused.py");
      await ask("unused.py", "Remove unused imports");
      await complete();
      await editor.see(LENS, /removed: import os ⏎ import re/);
      await editor.see(LENS, /Accept Alt\+Y/);
      await editor.see(LENS, /Reject Alt\+N/);
      await editor.shot("edit-deleted");
      await editor.press("Control+z");
      await editor.gone(LENS);
      await editor.savesAs("unused.py", before);
    },

    async "edit: a hint where CodeLens is off"() {
      await set({ "editor.codeLens": false });
      const before = editor.disk("rack.py");
      await ask("rack.py", RENAME, 1);
      await editor.seeDecoration(/✓ Alt\+Y {2}✗ Alt\+N/);
      await editor.settle();
      await editor.shot("edit-hints");
      await editor.press("Control+Enter");
      await until("all to be accepted", async () => !(await editor.decorations()).some((each) => /Alt/.test(each)));
      assert.notEqual(await editor.saved("rack.py"), before);
      await editor.press("Control+z");
      await editor.savesAs("rack.py", before);
      await set({});
    },

    async "edit: a code action in the file"() {
      const before = editor.disk("toll.py");
      await editor.openFile("toll.py", "2:5");
      await editor.press("Control+.");
      await page.locator(".action-widget .monaco-list-row.action", { hasText: "Add a docstring" }).click();
      await complete();
      await editor.shot("edit-docstring");
      await editor.see(LENS, /added \d+ line|was:|replaced/);
      await editor.command("Draftline: Reject All");
      await editor.gone(LENS);
      await editor.savesAs("toll.py", before);
    },

    async "edit: a file that is renamed meanwhile"() {
      const before = editor.disk("parting.py");
      await ask("parting.py", REWRITE);
      await halfWritten(before);
      await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "parting.py" }).click();
      await page.keyboard.press("F2");
      await page.waitForSelector(".explorer-item-edited input");
      await page.locator(".explorer-item-edited input").fill("parted.py");
      await page.keyboard.press("Enter");
      await editor.see(MESSAGE, /the file was renamed, so the edit was stopped/);
      await page.locator(`${LINES} .monaco-editor[data-uri$="/parted.py"] .view-line`).first().click();
      await editor.savesAs("parted.py", before);
    },

    async "edit: a server that ends meanwhile"() {
      const before = editor.disk("stream.py");
      await ask("stream.py", REWRITE);
      await halfWritten(before);
      const running = servers();
      assert.notEqual(running.length, 0);
      for (const { pid } of running) process.kill(pid, "SIGKILL");
      await editor.see(MESSAGE, /the server ended before it answered/);
      await editor.shot("edit-server-ended");
      await editor.savesAs("stream.py", before);
      writeFileSync(place.settings, place.defaults);
    },
  };
}
