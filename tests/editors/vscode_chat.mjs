/**
 * The chat in the side bar, and commit messages: scenarios for vscode.mjs, which has the others.
 * Whether the model's answers are good is not looked at, only what becomes of them.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { until } from "./browser.mjs";

const MESSAGE = ".notifications-toasts .notification-list-item-message";
const ACTION = ".action-widget .monaco-list-row.action";
const PROBLEM = "body {\n  colr: red;\n}\n";
const REPEAT = "Repeat this code word for word in one block of code.";

/** The scenarios in the window of `editor`; `place` is what vscode.mjs was called with. */
export function chatScenarios(editor, place) {
  const { page } = editor;
  const chat = page.frameLocator("iframe.webview:visible").frameLocator("#active-frame");
  const answers = chat.locator(".answer");

  async function open() {
    await editor.command("Draftline: Open Chat");
    await chat.locator("#text").waitFor();
    await until("the question box to have the focus", () => chat.locator("#text").evaluate((box) => box === document.activeElement));
  }

  /** Types a question and waits for the end of its answer. */
  async function ask(question) {
    await chat.locator("#text").fill(question);
    await chat.locator("#text").press("Enter");
    await ended();
  }

  async function ended() {
    await chat.locator("#send", { hasText: "Stop" }).waitFor().catch(() => undefined);
    await chat.locator("#send", { hasText: "Send" }).waitFor();
    assert.deepEqual(await chat.locator(".error").allInnerTexts(), []);
  }

  /** Of all the text that is shown: 0 is black, 1 is white. */
  function brightness() {
    return chat.locator("body").evaluate((body) => {
      const shown = [...body.querySelectorAll("*")].filter((each) => each.checkVisibility() && !each.closest("button") && each.innerText?.trim());
      const colours = shown.map((each) => getComputedStyle(each).color.match(/[\d.]+/g).slice(0, 3).map(Number));
      return colours.map(([red, green, blue]) => (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255);
    });
  }

  return {
    async "chat"() {
      await editor.openFile("shop.py", "1:1");
      await open();
      await editor.shot("chat-empty");
      await until("the active file", async () => (await chat.locator(".chip").allInnerTexts()).includes("shop.py"));
      await ask(REPEAT);
      await chat.locator(".code code").first().waitFor();
      await chat.locator(".link").first().waitFor();
      await editor.shot("chat");
      await ask("And which parameters does it have?"); // it knows what "it" is
      assert.equal(await answers.count(), 2);
      assert.notEqual((await answers.last().innerText()).trim(), "");
      await editor.shot("chat-follow-up");
    },

    async "chat: places"() {
      await chat.locator(".link").first().click();
      await editor.typesInto("shop.py");
      const selected = page.locator(".statusbar-item", { hasText: /selected/ });
      await selected.first().waitFor();
      await editor.shot("chat-place");
    },

    async "chat: apply"() {
      const before = editor.disk("stock.py");
      await editor.openFile("stock.py", "1:1");
      await editor.press("Control+a");
      await chat.locator('[data-code="apply"]').first().click();
      await until("a proposal, or that nothing is to be changed", async () =>
        (await page.locator(".monaco-diff-editor").count()) > 0 ||
        (await editor.texts(MESSAGE)).some((text) => /has this code already/.test(text)));
      await editor.shot("chat-apply");
      if (await page.locator(".monaco-diff-editor").count()) await editor.command("Draftline: Reject All");
      await editor.gone(".monaco-diff-editor");
      const other = editor.disk("toll.py");
      await editor.openFile("toll.py", "2:5"); // in a function
      await chat.locator('[data-code="apply"]').first().click();
      await page.waitForSelector(".monaco-diff-editor");
      await until("new lines", async () => (await editor.lines(".editor.modified")).length > other.split("\n").length);
      assert.ok((await editor.lines(".editor.modified")).join("\n").startsWith(other.trimEnd())); // they are behind it
      await editor.shot("chat-apply-behind");
      await editor.command("Draftline: Reject All");
      await editor.gone(".monaco-diff-editor");
      await editor.savesAs("toll.py", other);
      await editor.openFile("stock.py", "1:1");
      await chat.locator('[data-code="insert"]').first().click();
      const code = await chat.locator(".code code").first().innerText();
      await until("the code", async () => (await editor.lines(".editor-instance"))[0] === code.split("\n")[0]);
      await editor.typesInto("stock.py");
      await editor.press("Control+z");
      assert.equal(await editor.saved("stock.py"), before);
    },

    async "chat: files are named"() {
      await open();
      await chat.locator("#text").pressSequentially("What is in @tax");
      await chat.locator("#offers li", { hasText: "tax.py" }).waitFor();
      await editor.shot("chat-offers");
      await chat.locator("#text").press("Tab");
      assert.equal(await chat.locator("#text").inputValue(), "What is in @tax.py ");
      await chat.locator("#text").press("Enter");
      await ended();
    },

    async "chat: stop and begin anew"() {
      await chat.locator("#text").fill("Write a long story about a shop.");
      await chat.locator("#text").press("Enter");
      await until("an answer to begin", async () => (await answers.last().innerText()).trim().length > 0);
      await chat.locator("#text").press("Escape");
      await chat.locator(".error", { hasText: "Stopped" }).waitFor();
      await chat.locator("#text").fill("a draft");
      await editor.command("View: Show Explorer");
      await open();
      assert.equal(await chat.locator("#text").inputValue(), "a draft");
      assert.ok((await chat.locator(".turn").count()) > 0); // kept while it was hidden
      await editor.shot("chat-stopped");
      await editor.command("Draftline: New Chat");
      await chat.locator(".welcome").waitFor();
      await chat.locator("#text").fill("");
    },

    async "explain"() {
      await editor.openFile("shop.py", "1:1");
      await editor.command("Draftline: Explain Selection");
      await chat.locator(".question", { hasText: "Explain briefly" }).waitFor();
      await ended();
      writeFileSync(path.join(place.workspace, "page.css"), PROBLEM); // mended by a scenario before
      await editor.openFile("page.css", "2:4");
      await page.waitForSelector(".squiggly-warning");
      await editor.press("Control+.");
      await editor.see(ACTION, /Explain with Draftline: Unknown property/);
      await editor.shot("explain-actions");
      await page.locator(ACTION, { hasText: /Explain with Draftline: Unknown property/ }).click();
      await chat.locator(".question", { hasText: "Unknown property" }).waitFor();
      await ended();
      await editor.shot("explain");
    },

    async "chat in a dark and a light theme"() {
      for (const [name, kind, bright] of [["Dark", "vs-dark", true], ["Light", "vs", false]]) {
        const settings = { ...JSON.parse(place.defaults), "workbench.colorTheme": `Default ${name} Modern` };
        writeFileSync(place.settings, JSON.stringify(settings));
        await page.locator(`.monaco-workbench.${kind}`).waitFor();
        await until(`the chat's text in ${name}`, async () => (await brightness()).every((each) => each > 0.5 === bright));
        await editor.settle();
        await editor.shot(`chat-${name.toLowerCase()}`);
      }
    },

    async "commit message"() {
      const git = (...args) => execFileSync("git", ["-C", place.workspace, ...args]);
      git("init", "-q");
      git("add", "shop.py");
      // The list stays at its top, where the message is, however many files there are.
      const enabled = { ...JSON.parse(place.defaults), "git.enabled": true, "scm.autoReveal": false };
      writeFileSync(place.settings, JSON.stringify(enabled));
      await page.locator(".statusbar-item", { hasText: /master|main/ }).first().waitFor(); // git's
      await editor.command("Source Control: Focus on Changes View");
      const input = page.locator(".scm-view .scm-editor .view-lines");
      await input.waitFor();
      await page.locator('.pane-header [aria-label^="Write a Commit Message"], .scm-view [aria-label^="Write a Commit Message"]').first().click();
      const written = await until("a message", async () => (await input.innerText()).trim());
      await editor.shot("commit-message");
      await page.locator(".notifications-toasts .monaco-button", { hasText: "Undo" }).click();
      await until("the message to go", async () => (await input.innerText()).trim() !== written);
      await editor.command("Draftline: Write a Commit Message");
      await until("another one", async () => (await input.innerText()).trim());
      git("reset", "-q");
      await editor.command("Notifications: Clear All Notifications");
      await until("that nothing is staged", async () => {
        await editor.command("Draftline: Write a Commit Message");
        return editor.see(MESSAGE, /nothing is staged/, 5_000).catch(() => false);
      });
      writeFileSync(place.settings, place.defaults);
      await editor.command("View: Show Explorer");
      await page.waitForSelector(`.explorer-folders-view .monaco-list-row[aria-label*="${path.basename("shop.py")}"]`);
    },
  };
}
