/**
 * Draftline's page in headless Chromium. What a page must never do is looked at all the time: ask
 * another server, log an error, get an answer that says no, open a dialog. Knows the page's ids.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import { until } from "../editors/browser.mjs";

export { until };
export const QUOTE = "What does the guide say about ladders? Quote it.";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
const IDS = { Ask: "ask-ask", Summarize: "sum-start", Edit: "edit-go", Speed: "speed-go" };
const PATIENCE = 300_000; // milliseconds: generous, since the machine may be busy

const LEAVING = [/abort/i, /Connection errored out/, /Failed to fetch/, /network error/i]; // streams that end with a page

export class Browser {
  static async open(place) {
    const playwright = createRequire(path.join(place.cache, "package.json"))("playwright-core");
    const chromium = await playwright.chromium.launch({ executablePath: place.chromium, args: FLAGS });
    return Object.assign(new Browser(), { place, chromium });
  }

  /** A window of its own: nothing is shared with others. */
  async window({ width = 1280, scheme = "light", expected = [] } = {}) {
    const context = await this.chromium.newContext({
      viewport: { width, height: width < 600 ? 844 : 900 }, colorScheme: scheme, acceptDownloads: true,
    });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    return new Window(this.place, page, expected);
  }

  /** A window with the page loaded and a few documents there. */
  async ready(options = {}) {
    const window = await this.window(options);
    await window.load();
    const { guide, notes } = this.place.files;
    if (!(await window.names("ask")).length) await window.drop("ask", [guide, notes]);
    return window;
  }

  async close() {
    await this.chromium.close();
  }
}

export class Window {
  constructor(place, page, expected) {
    Object.assign(this, { place, page, faults: [] });
    const fault = (text) =>
      [...expected, ...(this.leaving ? LEAVING : [])].some((one) => one.test(text)) || this.faults.push(text);
    const own = new URL(place.url).origin;
    page.on("request", (one) => {
      const { protocol, origin } = new URL(one.url());
      if (!["data:", "blob:"].includes(protocol) && origin !== own) fault(`asks elsewhere: ${one.url()}`);
    });
    page.on("response", (one) => one.status() >= 400 && fault(`${one.status()}: ${one.url()}`));
    page.on("console", (one) => one.type() === "error" && fault(`console: ${one.text()}`));
    page.on("pageerror", (one) => fault(`error: ${one.message}`));
    page.on("dialog", (one) => {
      fault(`dialog: ${one.message()}`);
      one.dismiss();
    });
  }

  async load(where = "/") {
    this.leaving = true;
    await this.page.goto(new URL(where, this.place.url).href);
    this.leaving = false;
    await this.page.getByRole("tab", { name: "Ask" }).waitFor();
    await this.there();
  }

  /** Waits until the page is there, and what the server knows of it: the hint comes with that. */
  async there() {
    await this.at("#ask-question textarea").waitFor();
    await until("the hint", async () => (await this.at("#ask-hint p").count()) > 0);
  }

  /** Ends well: nothing went wrong while it was open. */
  async close() {
    assert.deepEqual(this.faults, []);
    await this.page.context().close();
  }

  async shot(name, fullPage = true) {
    await this.page.screenshot({ path: path.join(this.place.shots, `${name}.png`), fullPage });
  }

  /** Opens a tab. A narrow page keeps some of them in a menu. */
  async tab(title) {
    const tab = this.page.getByRole("tab", { name: title });
    if (await tab.first().isVisible()) await tab.first().click();
    else {
      await this.at("#tabs .overflow-menu > button").click();
      await this.at("#tabs .overflow-dropdown button", { hasText: title }).click();
    }
    await this.at(`#${IDS[title]}`).waitFor();
  }

  at(selector, options) {
    return this.page.locator(selector, options);
  }

  text(selector) {
    return this.at(selector).innerText();
  }

  /** Drops files, given as {name, text} or {name, base64}, on a tab's zone, and waits for the end. */
  async drop(prefix, files) {
    const given = files.map(({ name, text, base64 }) => ({
      name, mimeType: "application/octet-stream", buffer: Buffer.from(base64 ?? text, base64 ? "base64" : "utf8"),
    }));
    await this.page.setInputFiles(`#${prefix}-files`, given);
    await until("the files to be read", async () => / added/.test(await this.text(`#${prefix}-arriving`)));
  }

  names(prefix) {
    return this.at(`#${prefix}-documents li .name`).allInnerTexts();
  }

  /** Ask writes its answers a token at a time. */
  async undrafted() {
    await this.page.getByText("Answer settings", { exact: true }).click();
    await this.at("#ask-more input[type=checkbox]").last().uncheck();
  }

  /**
   * Clicks Stop as soon as the answer has this many characters, and answers what it said then. It
   * does so within the page: the answer is short, and may be whole before this process is asked.
   */
  async stopAfter(characters) {
    const stopped = await this.page.waitForFunction((enough) => {
      const text = document.querySelector("#ask-answer article[aria-busy] .answer")?.innerText ?? "";
      if (text.trim().length <= enough) return false;
      document.querySelector("#ask-stop").click();
      return text;
    }, characters, { timeout: PATIENCE });
    return stopped.jsonValue();
  }

  /**
   * What axe says of the page once no color changes: nothing that matters. It is not asked about the editor, a
   * component of Gradio's whose scroller it takes for unreachable, and whose filter it does not see.
   */
  async accessible(what) {
    const { source } = createRequire(path.join(this.place.cache, "package.json"))("axe-core");
    await this.page.evaluate(source);
    await this.page.evaluate(() => Promise.allSettled(
      document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished)));
    const found = await this.page.evaluate(() => window.axe.run({ exclude: [".cm-editor"] }));
    const bad = found.violations.filter((one) => one.impact !== "minor");
    assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.map((one) => one.html.slice(0, 200))]), [], what);
  }

  /** Asks, and answers the last article when it is whole. */
  async ask(question) {
    await this.at("#ask-question textarea").fill(question);
    await this.page.keyboard.press("Enter");
    const flat = (text) => text.replace(/\s+/g, "");
    await until("the question", async () =>
      flat((await this.at("#ask-answer .asked").allTextContents()).join("")) === flat(question));
    return this.answered("ask");
  }

  /** Waits until what runs has begun and ended. */
  async answered(prefix) {
    const article = this.at(`#${prefix}-answer article`);
    await until("it to end", async () => {
      const ended = await article.count() === 1 && await article.getAttribute("aria-busy") === null;
      return ended && await this.at(`#${prefix}-stop`).isHidden();
    }, PATIENCE * 2);
    return article;
  }

  /** Clicks, and answers the downloaded file's name and text. */
  async download(selector) {
    const [download] = await Promise.all([this.page.waitForEvent("download"), this.at(selector).click()]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return { name: download.suggestedFilename(), text: Buffer.concat(chunks).toString("utf8") };
  }
}

/** Runs those of the scenarios that are wanted; a JSON line each: {"name", "error"}. */
export async function run(browser, scenarios) {
  for (const [name, scenario] of Object.entries(scenarios)) {
    if (!browser.place.wanted.includes(name)) continue;
    let error = null;
    try {
      await scenario();
    } catch (problem) {
      error = problem.stack;
      const pages = browser.chromium.contexts().flatMap((one) => one.pages());
      for (const [at, page] of pages.entries())
        await page.screenshot({ path: path.join(browser.place.shots, `failed-${name}-${at}.png`) }).catch(() => {});
    }
    for (const one of browser.chromium.contexts()) await one.close();
    console.log(JSON.stringify({ name, error }));
  }
  await browser.close();
}
