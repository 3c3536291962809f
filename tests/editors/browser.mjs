/**
 * VS Code in headless Chromium, driven as a person would: keys, what is on the screen, files on disk.
 * Knows VS Code's own parts, nothing of Draftline.
 */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const PATIENCE = 300_000; // milliseconds: generous, since the machine may be busy and an answer long
const INPUT = ".quick-input-widget:not([style*='display: none'])";
const PAUSE = 250; // milliseconds for the editor to settle where nothing on the screen tells it

/** Calls `look` until it answers something true, and answers that. */
export async function until(what, look, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited ${patience / 1000} s for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export class Editor {
  constructor(browser, page, workspace, shots) {
    Object.assign(this, { browser, page, workspace, shots });
  }

  /** Opens VS Code at `url`, with playwright-core from `cache`. */
  static async open({ cache, chromium, url, workspace, shots }) {
    const playwright = createRequire(path.join(cache, "package.json"))("playwright-core");
    const browser = await playwright.chromium.launch({ executablePath: chromium, args: FLAGS });
    const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
    page.setDefaultTimeout(PATIENCE); // of clicks and loading, too
    const editor = new Editor(browser, page, workspace, shots);
    await page.goto(url);
    await page.waitForSelector(".monaco-workbench");
    await page.waitForSelector(".explorer-folders-view .monaco-list-row");
    return editor;
  }

  async close() {
    await this.browser.close();
  }

  async shot(name) {
    await this.page.screenshot({ path: path.join(this.shots, `vscode-${name}.png`) });
  }

  async press(...keys) {
    for (const key of keys) {
      await this.page.keyboard.press(key);
      await this.settle();
    }
  }

  settle() {
    return this.page.waitForTimeout(PAUSE);
  }

  /** Types like a person who makes `perMinute` keystrokes. */
  async type(text, perMinute = 1200) {
    await this.page.keyboard.type(text, { delay: 60_000 / perMinute });
  }

  /** Types into the input on top, and Enter. */
  async choose(text) {
    await this.page.waitForSelector(`${INPUT} input`);
    await this.settle();
    await this.type(text);
    await this.press("Enter");
  }

  /** Opens a list on top by `key` and takes `listed`, which `text` finds. Now and then a list that is
   * asked while VS Code is busy stays empty: then it is opened again. */
  async pick(key, text, listed) {
    const row = this.page.locator(`${INPUT} .monaco-list-row.focused`, { hasText: listed }).first();
    await until(`${listed} to be listed`, async () => {
      await this.press(key);
      await this.page.waitForSelector(`${INPUT} input`);
      await this.settle();
      await this.type(text);
      const found = await row.waitFor({ timeout: 15_000 }).then(() => true, () => false);
      if (!found) await this.press("Escape");
      return found;
    });
    await this.press("Enter");
  }

  /** Opens a file of the workspace as the only editor and puts the cursor at `line:column`. */
  async openFile(name, place) {
    await this.command("View: Close All Editors");
    await this.pick("Control+p", `${name}:${place}`, path.basename(name));
    await this.typesInto(name);
  }

  /** Waits until the keys go to a file's editor: its tab is there before its text. */
  async typesInto(name) {
    const file = path.basename(name);
    await this.page.waitForSelector(`.tab.active[data-resource-name="${file}"]`);
    await this.page.waitForSelector(`.editor-instance .monaco-editor.focused[data-uri$="/${file}"] .view-line`);
    await this.settle();
  }

  async command(title) {
    await this.pick("F1", title, title);
  }

  /** Saves the active editor and answers what is on disk then. */
  async saved(name) {
    await until(`${name} to be saved`, async () => {
      await this.press("Control+s"); // again: where the keys go may change with what a key did
      return (await this.page.locator(".tab.dirty").count()) === 0;
    });
    return this.disk(name);
  }

  /** Saves until the file is `wanted`: what a key did may show later than the next key. */
  async savesAs(name, wanted) {
    await until(`${name} to be saved as ${JSON.stringify(wanted)}`, async () => (await this.saved(name)) === wanted);
  }

  disk(name) {
    return readFileSync(path.join(this.workspace, name), "utf8");
  }

  /** What the selector's elements show, with ordinary spaces. */
  async texts(selector) {
    const texts = await this.page.locator(selector).allInnerTexts();
    return texts.map((text) => text.replaceAll("\u00a0", " ").replaceAll("\u200b", ""));
  }

  /** Waits until `selector` shows a text that `wanted` (a pattern) matches, and answers it. */
  async see(selector, wanted, patience) {
    const find = async () => (await this.texts(selector)).find((text) => wanted.test(text));
    return until(`${selector} to show ${wanted}`, find, patience);
  }

  /** The ghost text, which has one element per colour; "" while there is none. */
  async ghost() {
    return (await this.texts("[class*=ghost-text]")).join("");
  }

  /** The lines of the editor that `selector` names, as far as they are on the screen. */
  async lines(selector) {
    const lines = await this.page.locator(`${selector} .view-line`).evaluateAll((all) =>
      all.map((each) => [parseFloat(each.style.top), each.textContent]));
    lines.sort(([one], [other]) => one - other);
    return lines.map(([, text]) => text.replaceAll("\u00a0", " ").replaceAll("\u200b", ""));
  }

  /** Waits until nothing matches `selector`. */
  async gone(selector) {
    await until(`${selector} to go`, async () => (await this.page.locator(selector).count()) === 0);
  }

  /** The decorations of an extension are CSS `content`: all that can be seen of them now. */
  decorations() {
    return this.page.evaluate(() =>
      [...document.querySelectorAll(".view-line span[class*=ced-]")]
        .map((each) => getComputedStyle(each, "::after").content)
        .filter((content) => content !== "none" && content !== "normal")
        .map((content) => content.slice(1, -1).replaceAll("\u00a0", " ")),
    );
  }

  async seeDecoration(wanted) {
    const find = async () => (await this.decorations()).find((text) => wanted.test(text));
    return until(`a decoration like ${wanted}`, find);
  }
}
