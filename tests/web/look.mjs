/**
 * How the page is reached with keys alone, what a screen reader is told, and how it looks: wide and
 * narrow, light and dark. The pictures go to the folder of shots, to be looked at.
 */

import assert from "node:assert/strict";
import { Browser, QUOTE, run, until } from "./browsing.mjs";

const place = JSON.parse(process.argv[2]);
const browser = await Browser.open(place);

/** What the README shows: no more than the window, from where it is interesting. */
async function pictures(window) {
  for (const [tab, top] of Object.entries({ Ask: "#tabs", Summarize: "#tabs", Edit: "#edit-diff", Speed: "#speed-head" })) {
    await window.tab(tab);
    await window.at(top).evaluate((one) => one.scrollIntoView({ block: "start" }));
    await window.shot(`web-${tab.toLowerCase()}`, false);
  }
}

const SCENARIOS = {
  async "with the keyboard alone"() {
    const window = await browser.ready();
    const { keyboard } = window.page;
    /** Tab until what has the focus matches; in the order of the page. */
    const reach = async (wanted) => {
      const seen = [];
      for (let at = 0; at < 60; at++) {
        const found = await window.page.evaluate((wanted) => {
          const one = document.activeElement;
          return one.matches(wanted) || one.outerHTML.slice(0, 80);
        }, wanted);
        if (found === true) return;
        seen.push(found);
        await keyboard.press("Tab");
      }
      throw new Error(`never at ${wanted}: ${seen.join("\n")}`);
    };
    await reach("#ask-files");
    await reach("#ask-documents input, #ask-documents select, #ask-documents button");
    await reach("#ask-question textarea");
    await keyboard.type("What does the guide");
    await keyboard.press("Shift+Enter");
    await keyboard.type("say about ladders? Quote it.");
    await keyboard.press("Enter");
    const article = await window.answered("ask");
    assert.ok((await article.locator(".asked").innerText()).includes("ladders"));
    await reach("#ask-answer a.cite");
    await keyboard.press("Enter");
    await until("the passage", () => window.at("#ask-sources details.source[open] mark").first().isVisible());
    assert.ok(await window.page.evaluate(() => document.activeElement.matches("details.source summary")));
    await keyboard.press("Enter");
    await until("it to close", async () => (await window.at("#ask-sources details.source[open]").count()) === 0);
    await window.page.getByRole("tab", { name: "Ask" }).focus();
    await keyboard.press("Tab");
    await keyboard.press("Enter");
    await until("the next tab", () => window.at("#sum-start").isVisible());
    await window.close();
  },

  async "everything has a name"() {
    for (const width of [1280, 390]) {
      const window = await browser.ready({ width });
      for (const tab of ["Ask", "Summarize", "Edit", "Speed"]) {
        await window.tab(tab);
        const nameless = await window.page.evaluate(() => {
          const shown = (one) => one.checkVisibility?.() ?? one.offsetParent !== null;
          const named = (one) => one.getAttribute("aria-label") || one.getAttribute("title") ||
            (one.getAttribute("aria-labelledby") && document.getElementById(one.getAttribute("aria-labelledby"))) ||
            [...(one.labels ?? [])].some((label) => label.textContent.trim()) || one.closest("label")?.textContent.trim() ||
            (!one.matches("input, textarea, select") && one.textContent.trim());
          const all = document.querySelectorAll("button, a[href], input, textarea, select, [role=button], [contenteditable=true]");
          return [...all].filter((one) => shown(one) && !named(one)).map((one) => one.outerHTML.slice(0, 200));
        });
        assert.deepEqual(nameless, [], `${tab} at ${width}`);
        const wide = await window.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${tab} at ${width}: ${wide} pixels too wide`);
      }
      const twice = await window.page.evaluate(() => {
        const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
        return ids.filter((one, at) => ids.indexOf(one) !== at && /^(ask|sum|edit|speed)-/.test(one));
      });
      assert.deepEqual(twice, []);
      assert.equal(await window.page.locator("html").getAttribute("lang"), "en");
      assert.equal(await window.page.locator("h1").count(), 1);
      const images = await window.page.locator("img:not([alt])").count();
      assert.equal(images, 0);
      await window.close();
    }
  },

  /** The contrast of all texts is part of it, in both themes. */
  async "axe finds nothing serious"() {
    for (const [width, scheme] of [[1280, "light"], [390, "dark"]]) {
      const window = await browser.window({ width, scheme });
      await window.load();
      await window.accessible(`${scheme}, empty`);
      await window.drop("ask", [place.files.guide, place.files.broken]);
      const article = await window.ask(QUOTE);
      await article.locator("a.cite").first().click();
      await window.at("#ask-answer .figures summary").click();
      await window.page.getByText("Answer settings", { exact: true }).click();
      await window.accessible(`${scheme}, answered`);
      await window.at("#ask-new").click();
      await until("a line", async () => (await window.at("#ask-sources .topic").count()) === 1);
      await window.accessible(`${scheme}, a new question`);
      await window.ask(QUOTE);
      await window.accessible(`${scheme}, two answers`);
      await window.tab("Summarize");
      await window.at("#sum-start").click();
      await window.answered("sum");
      await window.accessible(`${scheme}, Summarize`);
      await window.tab("Edit");
      await window.at("#edit-example").click();
      await until("the sample", async () => (await window.at("#edit-instruction textarea").inputValue()) !== "");
      await window.at("#edit-go").click();
      await until("changes", async () => (await window.at("#edit-diff .hunk").count()) > 0);
      await until("the end", async () =>
        await window.at("#edit-go").isEnabled() && await window.at("#edit-stop").isDisabled());
      await window.accessible(`${scheme}, Edit`);
      await window.tab("Speed");
      await window.accessible(`${scheme}, Speed`);
      await window.close();
    }
  },

  /** Gradio's colors of code are too pale in the light theme, so style.css darkens them. */
  async "code can be read"() {
    const window = await browser.ready();
    await window.tab("Edit");
    await window.at("#edit-example").click();
    await until("the sample", async () => (await window.at("#edit-text .cm-line span").count()) > 20);
    const contrasts = await window.at("#edit-text .cm-line span").evaluateAll((all) => all.map((one) => {
      const darker = Number(/brightness\(([\d.]+)\)/.exec(getComputedStyle(one).filter)?.[1] ?? 1);
      const [red, green, blue] = getComputedStyle(one).color.match(/\d+/g).map((value) => {
        const share = (value / 255) * darker;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05); // to white
    }));
    assert.ok(Math.min(...contrasts) >= 4.5, contrasts);
    await window.close();
  },

  async "how it looks"() {
    for (const width of [1920, 1280, 390])
      for (const scheme of ["light", "dark"]) {
        const window = await browser.ready({ width, scheme });
        const name = (tab) => `${tab}-${width}-${scheme}`;
        await window.shot(name("empty"));
        const article = await window.ask(QUOTE);
        await article.locator("a.cite").first().click();
        await window.page.waitForTimeout(600); // it scrolls
        await window.shot(name("ask"));
        await window.tab("Summarize");
        await window.page.getByLabel("short", { exact: true }).check();
        await window.at("#sum-start").click();
        await window.answered("sum");
        await window.shot(name("summarize"));
        await window.tab("Edit");
        await window.at("#edit-example").click();
        await until("the sample", async () => (await window.at("#edit-instruction textarea").inputValue()) !== "");
        await window.at("#edit-go").click();
        await until("changes", async () => (await window.at("#edit-diff .hunk").count()) > 0);
        await until("the end", () => window.at("#edit-go").isEnabled());
        await window.page.waitForTimeout(300);
        await window.shot(name("edit"));
        await window.tab("Speed");
        await window.at("#speed-go").click();
        await until("both runs", () => window.at("#speed-head .equal").isVisible(), 600_000);
        await until("the end", () => window.at("#speed-go").isEnabled());
        await window.shot(name("speed"));
        if (width === 1280 && scheme === "light") await pictures(window);
        await window.close();
      }
  },
};

await run(browser, SCENARIOS);
