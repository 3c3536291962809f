/**
 * A document, its name, a question and a model whose texts are full of markup and scripts: on the
 * page they are text, and nothing of them runs. The model answers everything with `said`.
 */

import assert from "node:assert/strict";
import { Browser, run, until } from "./browsing.mjs";

const place = JSON.parse(process.argv[2]);
const { said, named, names, document } = place;
const browser = await Browser.open(place);

/** Nothing ran, and nothing became an element; `where` shows `text` as it is. */
async function harmless(window, where, text) {
  const flat = (one) => one.replace(/\s+/g, "");
  const shown = () => window.at(where).evaluateAll((all) => all.map((one) => one.textContent).join("\n"));
  await until(`${where} to show ${text}`, async () => flat(await shown()).includes(flat(text)));
  const made = await window.page.evaluate((where) =>
    [...document.querySelectorAll(where)].flatMap((one) => [...one.querySelectorAll(
      "script, img:not(.page), iframe, svg:not(.plot), object, template, base, meta, form, math, " +
      "[onerror], [onload], [onfocus], [onmouseover], a[href^='javascript' i]",
    )]).map((one) => one.outerHTML.slice(0, 200)), where);
  assert.deepEqual(made.filter((one) => !one.includes("gradio-hidden")), [], where);
  assert.equal(await window.page.evaluate(() => window.ran), undefined, where);
}

const SCENARIOS = {
  async "on the tab Ask"() {
    const window = await browser.window();
    await window.load();
    await window.drop("ask", [document, { name: `${named}.pdf`, text: said }]);
    await harmless(window, "#ask-documents", named);
    await harmless(window, "#ask-arriving", `${named}.pdf`);
    const question = `When does the bell ring? ${said.slice(0, 1000)}`;
    await window.ask(question);
    await harmless(window, "#ask-answer .asked", question);
    await harmless(window, "#ask-answer .drafted", said);
    await harmless(window, "#ask-answer .answer", said.slice(0, 20));
    await window.at("#ask-answer a.cite").first().click();
    await harmless(window, "#ask-sources .sources", named);
    await window.shot("hostile-ask");
    await window.ask("When does the bell ring?");
    await harmless(window, "#ask-earlier", said);
    await window.load();
    await harmless(window, "#ask-answer", said);
    for (const kind of ["md", "json"]) assert.ok((await window.download(`#ask-${kind}`)).text.length > said.length);
    await window.close();
  },

  async "on the tab Summarize"() {
    const window = await browser.window();
    await window.load();
    await window.tab("Summarize");
    await window.drop("sum", [document]);
    await window.at("#sum-start").click();
    await window.answered("sum");
    await harmless(window, "#sum-answer .asked", named);
    await harmless(window, "#tab-summarize, #sum-answer", said.slice(0, 20));
    await window.close();
  },

  async "on the tab Edit"() {
    const window = await browser.window();
    await window.load();
    await window.tab("Edit");
    const buffer = Buffer.from(`${said}\none line\n`);
    const [chooser] = await Promise.all([window.page.waitForEvent("filechooser"), window.at("#edit-open").click()]);
    await chooser.setFiles({ name: "page.html", mimeType: "text/html", buffer });
    await harmless(window, "#edit-text .cm-content", said);
    await window.at("#edit-name textarea, #edit-name input").first().fill(named);
    await window.at("#edit-instruction textarea").fill(said.slice(0, 500));
    await window.page.keyboard.press("Enter");
    await until("the end", async () =>
      (await window.text("#edit-message")) + (await window.text("#edit-diff")) !== "" && await window.at("#edit-go").isEnabled());
    await harmless(window, "#edit-answer", said);
    await window.shot("hostile-edit");
    await window.close();
  },

  async "on the tab Speed"() {
    const window = await browser.window();
    await window.load();
    await window.tab("Speed");
    await window.page.getByLabel("Free chat").check();
    await window.at("#speed-asked textarea").fill(said.slice(0, 500));
    await window.at("#speed-go").click();
    await until("both runs", () => window.at("#speed-head .equal").isVisible());
    await harmless(window, "#speed-drafted", said);
    await harmless(window, "#speed-plain", said);
    await window.close();
  },

  /** All of them are listed; the texts differ, since the same text is kept once. */
  async "file names"() {
    const window = await browser.window();
    await window.load();
    await window.drop("ask", names.map((name, at) => ({ name, text: `${at} ${said}` })));
    for (const name of names) await harmless(window, "#ask-documents", name);
    await window.close();
  },

  /** If a text did become an element, the browser would still not run or fetch anything. */
  async "the second wall"() {
    const window = await browser.window({ expected: [/Content Security Policy/, /ERR_BLOCKED|404/, /asks elsewhere/] });
    await window.load();
    const found = await window.page.evaluate(async () => {
      document.body.insertAdjacentHTML("beforeend",
        "<img src=none onerror='window.ran=1'><svg onload='window.ran=2'></svg><a id=js href='javascript:window.ran=3'>x</a>");
      const elsewhere = await fetch("http://localhost:9/").then(() => "sent", () => "refused");
      await new Promise((done) => {
        const image = new Image();
        image.onload = image.onerror = done;
        image.src = "http://localhost:9/a.png";
      });
      await new Promise((done) => setTimeout(done, 300));
      return { ran: window.ran, elsewhere };
    });
    assert.deepEqual(found, { ran: undefined, elsewhere: "refused" });
    await window.close();
  },
};

await run(browser, SCENARIOS);
