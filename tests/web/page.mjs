/**
 * What a person does on Draftline's page, with the default model: one scenario after the other, each
 * in a window of its own, on one server. Whether the model's answers are good is not looked at, only
 * what becomes of them.
 */

import assert from "node:assert/strict";
import { Browser, QUOTE, run, until } from "./browsing.mjs";

const place = JSON.parse(process.argv[2]);
const { guide, notes, broken, long } = place.files;
const browser = await Browser.open(place);
const LONG = "What do the notes on the workshop say? Quote every sentence of them.";

/** The text as it is shown, of one line. */
const flat = (text) => text.replace(/\s+/g, " ").trim();
/** It without Markdown. */
const letters = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");

const SCENARIOS = {
  async "the page is there"() {
    const window = await browser.window();
    const times = {};
    for (const which of ["cold", "warm"]) {
      const began = Date.now();
      await window.load();
      times[which] = Date.now() - began;
    }
    console.error(`page ready: ${JSON.stringify(times)} ms`);
    assert.equal(await window.page.title(), "Draftline");
    for (const tab of ["Summarize", "Edit", "Speed", "Ask"]) await window.tab(tab);
    await window.close();
  },

  /** Before any script runs, in both themes. */
  async "an outline is there at once"() {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.chromium.newContext({ javaScriptEnabled: false, colorScheme });
      const page = await context.newPage();
      await page.goto(new URL("/ui/", place.url).href);
      assert.match(await page.locator("#shell").innerText(), /Draftline\s+Loading the page/);
      await page.screenshot({ path: `${place.shots}/outline-${colorScheme}.png` });
      await context.close();
    }
  },

  async "many files at once"() {
    const window = await browser.window();
    await window.load();
    await window.drop("ask", [broken, guide, { name: "empty.pdf", text: "" }, notes]);
    assert.deepEqual((await window.names("ask")).sort(), [guide.name, notes.name].sort());
    assert.match(await window.text("#ask-arriving"), /2 added, 2 not/);
    const told = await window.at("#ask-arriving li.failed").allInnerTexts();
    assert.equal(told.length, 2);
    assert.ok(told.some((one) => one.startsWith(`${broken.name}:`)), told);
    await window.shot("files-errors");
    await window.at("#ask-arriving button[name=dismiss]").click();
    await until("the list to go", async () => (await window.at("#ask-arriving li").count()) === 0);
    await window.close();
  },

  async "dropped with the mouse"() {
    const window = await browser.ready();
    const data = await window.page.evaluateHandle(() => {
      const made = new DataTransfer();
      made.items.add(new File(["A dropped note: the bell rings at noon."], "dropped.txt"));
      return made;
    });
    for (const type of ["dragenter", "dragover", "drop"])
      await window.page.dispatchEvent("#ask-drop .drop", type, { dataTransfer: data });
    await until("the file", async () => (await window.names("ask")).includes("dropped.txt"));
    await window.at('#ask-documents button[aria-label="remove dropped.txt"]').click();
    await until("it to go", async () => !(await window.names("ask")).includes("dropped.txt"));
    await window.close();
  },

  async "an answer streams"() {
    const window = await browser.ready();
    await window.undrafted(); // a drafted answer may be there in two steps
    // The page counts what it shows: a look from here, now and then, would miss some of it.
    await window.page.evaluate(() => {
      window.lengths = new Set();
      new MutationObserver(() => {
        const answer = document.querySelector("#ask-answer article[aria-busy] .answer");
        if (answer) window.lengths.add(answer.innerText.length);
      }).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    await window.at("#ask-question textarea").fill(QUOTE);
    await window.page.keyboard.press("Enter");
    const article = await window.answered("ask");
    const lengths = await window.page.evaluate(() => [...window.lengths]);
    assert.ok(lengths.length > 2, `only ${lengths} was seen of it`);
    assert.equal(flat(await article.locator(".asked").innerText()), QUOTE);
    assert.match(await article.locator(".figures summary").innerText(), /tokens\/s/);
    assert.equal(await article.locator("svg.plot").count(), 1);
    await window.close();
  },

  async "a citation opens its passage"() {
    const window = await browser.ready();
    const article = await window.ask(QUOTE);
    const link = article.locator("a.cite:has(sup)").first();
    const number = await link.locator("sup").innerText();
    const words = flat((await link.innerText()).replace(new RegExp(`${number}\\s*$`), ""));
    const source = window.at("#ask-sources details.source").nth(Number(number) - 1);
    await source.locator("summary").click(); // the first passage is open
    assert.equal(await source.getAttribute("open"), null);
    await link.click();
    const mark = source.locator("mark");
    await until("the passage in view", () => mark.evaluate((one) => {
      const { top, bottom } = one.getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight && getComputedStyle(one).backgroundColor !== "rgba(0, 0, 0, 0)";
    }));
    assert.ok(flat(await mark.innerText()).includes(words));
    assert.match(await source.locator("summary").innerText(), /guide\.pdf, page 2/);
    await window.shot("citation");
    assert.ok(await article.locator(".drafted").isHidden());
    await article.locator(".figures summary").click();
    assert.ok(await article.locator(".drafted").isVisible());
    await window.close();
  },

  /** Its answer is kept, of which a line says what is missing. */
  async "a document is removed whose page is shown"() {
    const removed = /\b404\b.*(page\.png|Not Found)/;
    const window = await browser.ready({ expected: [removed] });
    await window.page.route("**/page.png?*", (route) => route.continue()); // past the browser's cache
    await window.ask(QUOTE);
    const picture = window.at("#ask-sources .source[open] img.page");
    await until("the page", () => picture.evaluate((one) => one.complete && one.naturalWidth > 0));
    await window.at(`#ask-documents button[aria-label="remove ${guide.name}"]`).click();
    await until("it to go", async () => !(await window.names("ask")).includes(guide.name));
    await window.load();
    const note = window.at("#ask-sources .source[open] p.note");
    await until("the note", async () => (await note.count()) > 0);
    assert.equal(await note.first().innerText(), "The page cannot be shown: add the document again.");
    assert.equal(await window.at("#ask-sources .source[open] img.page").count(), 0);
    assert.ok((await window.text("#ask-sources .source[open] mark")).length > 0, "its text is still there");
    await window.shot("removed");
    await window.drop("ask", [guide]);
    await window.close();
  },

  async "stopped midway"() {
    const window = await browser.ready();
    await window.undrafted(); // it would be over too soon
    await window.at("#ask-question textarea").fill(LONG);
    await window.at("#ask-ask").click();
    const before = flat(await window.stopAfter(20)).replace(/^From notes\.md: ?/, ""); // of the prompt
    const article = await window.answered("ask");
    const answer = await article.locator(".drafted .answer").textContent();
    assert.ok(letters(answer).startsWith(letters(before)), `${before} ... ${answer}`);
    assert.match(await article.innerText(), /Stopped/);
    await until("the next question", () => window.at("#ask-ask").isEnabled());
    await window.close();
  },

  async "regenerated"() {
    const window = await browser.ready();
    const text = async (article) => flat(await article.locator(".drafted .answer").textContent());
    const first = await text(await window.ask(QUOTE));
    await window.at("#ask-again").click();
    await until("it to say so", async () => /same text again/.test(await window.text("#ask-note")));
    assert.equal(await text(await window.answered("ask")), first);
    assert.equal(await window.at("#ask-earlier article").count(), 0); // it replaces the other
    await window.close();
  },

  async "history, and its export"() {
    const window = await browser.ready();
    await window.ask(QUOTE);
    await window.ask("When is the library open?");
    await window.load();
    assert.equal(flat(await window.text("#ask-answer .asked")), "When is the library open?");
    const earlier = window.at("#ask-earlier article");
    await until("the question before", async () => (await earlier.count()) === 1);
    const [above, below] = [await earlier.boundingBox(), await window.at("#ask-answer article").boundingBox()];
    assert.ok(above.y < below.y, "the newest is at the bottom");
    const md = await window.download("#ask-md");
    assert.match(md.name, /\.md$/);
    assert.ok(flat(md.text).includes("ladders") && md.text.includes("## When is the library open"));
    const json = await window.download("#ask-json");
    const { entries } = JSON.parse(json.text);
    assert.deepEqual(entries.map((one) => one.asked), [QUOTE, "When is the library open?"]);
    for (const { text, citations } of entries)
      for (const one of citations) {
        assert.ok(text.includes(one.text));
        assert.equal(flat(one.quote).toLowerCase(), flat(one.text).toLowerCase());
      }
    assert.ok(entries[0].citations.length > 0);
    await window.at("#ask-clear").click();
    await until("it to be empty", async () => (await window.at("article").count()) === 0);
    await window.close();
  },

  async "the sample and its questions"() {
    const window = await browser.window();
    await window.load();
    for (const name of await window.names("ask"))
      await window.at(`#ask-documents button[aria-label="remove ${name}"]`).click();
    await window.at("#ask-hint button[name=sample]").click();
    const question = window.at("#ask-hint button[name=question]").first();
    const asked = await question.innerText();
    await question.click();
    await until("it to be asked", async () => (await window.at("#ask-answer .asked").count()) === 1);
    const article = await window.answered("ask");
    assert.equal(flat(await article.locator(".asked").innerText()), asked);
    await window.at('#ask-documents button[aria-label="remove Sample lease.md"]').click();
    await until("it to go", async () => (await window.names("ask")).length === 0);
    await window.close();
  },

  async "one window does not see another's"() {
    const [one, other] = [await browser.ready(), await browser.ready()];
    await one.ask(QUOTE);
    await other.load();
    assert.equal(await other.at("#ask-answer article").count(), 0);
    await one.close();
    await other.close();
  },

  async "a summary"() {
    const window = await browser.ready();
    await window.tab("Summarize");
    await window.at("#sum-documents label", { hasText: notes.name }).click();
    await until("it to be chosen", () => window.at(`#sum-documents li:has-text("${notes.name}") input`).isChecked());
    await window.page.getByLabel("short", { exact: true }).check();
    await window.at("#sum-start").click();
    const article = await window.answered("sum");
    assert.equal(flat(await article.locator(".asked").innerText()), notes.name);
    assert.ok((await article.locator(".answer").first().innerText()).length > 20);
    const { text } = await window.download("#sum-md");
    assert.ok(text.startsWith("# Summary"));
    await window.close();
  },

  async "a summary that is stopped has all but the statement"() {
    const window = await browser.ready();
    await window.tab("Summarize");
    await window.drop("sum", [long]);
    await window.at("#sum-start").click();
    const isShown = async () => (await window.text("#sum-answer")).length > 200;
    await until("the sentences", isShown);
    await window.at("#sum-stop").click({ timeout: 2000 }).catch(() => {}); // unless it is done
    await window.answered("sum");
    assert.ok(await isShown());
    await window.load(); // a reload loses nothing
    await window.tab("Summarize");
    await window.at("#sum-documents label", { hasText: long.name }).click();
    await until("the same summary", isShown);
    await window.at(`#sum-documents button[aria-label="remove ${long.name}"]`).click();
    await until("it to go", async () => !(await window.names("sum")).includes(long.name));
    await window.close();
  },

  async "an edit, accepted in part"() {
    const window = await browser.ready();
    await window.tab("Edit");
    await window.at("#edit-example").click();
    await until("the sample", async () => /class|def /.test(await window.text("#edit-text .cm-content")) &&
      (await window.at("#edit-instruction textarea").inputValue()) !== "");
    await window.at("#edit-instruction textarea").focus();
    await window.page.keyboard.press("Enter");
    const boxes = window.at("#edit-diff input[data-hunk]");
    await until("changes", async () => (await boxes.count()) > 0 && (await window.at("#edit-go").isEnabled()));
    const many = await boxes.count();
    const result = () => window.at("#edit-result pre").textContent();
    const counted = (taken) => until(`${taken} accepted`, async () =>
      (await window.text("#edit-count")).includes(`${taken} of ${many} changes accepted`));
    await counted(many);
    const all = await result();
    await window.at("#edit-diff button[data-all='0']").click();
    await counted(0);
    const none = await until("the text as it was", async () => (await result()) !== all && (await result()));
    await boxes.first().check();
    await counted(1);
    const one = await until("the first change", async () => (await result()) !== none && (await result()));
    if (many > 1) assert.notEqual(one, all);
    const saved = await window.download("#edit-download");
    assert.equal(saved.text, one);
    await window.at("#edit-on").click();
    await until("it to be the text", async () => (await window.at("#edit-diff .hunk").count()) === 0);
    await window.at("#edit-undo").click();
    await window.close();
  },

  async "the same text, sooner"() {
    const window = await browser.ready();
    await window.tab("Speed");
    await window.at("#speed-go").click();
    await until("both runs", () => window.at("#speed-head .equal").isVisible(), 600_000);
    assert.match(await window.text("#speed-head .equal"), /letter for letter/);
    const texts = ["#speed-drafted", "#speed-plain"].map((one) => window.at(`${one} .answer`).textContent());
    const [drafted, plain] = await Promise.all(texts);
    assert.equal(drafted, plain);
    assert.ok(plain.length > 20);
    await window.close();
  },

};

await run(browser, SCENARIOS);
