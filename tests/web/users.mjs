/** Two users of one server: a password opens the page, and what one keeps there the other never sees. */

import assert from "node:assert/strict";
import { Browser, run, until } from "./browsing.mjs";

const place = JSON.parse(process.argv[2]);
const [ann, ben] = place.users;
const browser = await Browser.open(place);
const REFUSED = [/400/, /401/, /Incorrect|credentials/i];

/** A window in which a user tried to log in. */
async function entered([name, password], expected = []) {
  const window = await browser.window({ expected });
  await window.page.goto(place.url);
  await window.page.getByLabel("username").fill(name);
  await window.page.getByLabel("password").fill(password);
  await window.page.keyboard.press("Enter");
  return window;
}

const SCENARIOS = {
  async "only a password opens"() {
    const window = await entered([ann[0], ben[1]], REFUSED);
    await until("it to say so", async () => /incorrect/i.test(await window.page.innerText("body")));
    assert.equal(await window.at("#ask-question").count(), 0);
    assert.ok(!(await window.page.content()).includes("Summarize"));
    await window.shot("login");
    await window.close();
  },

  async "each has documents of their own"() {
    const one = await entered(ann, [/401/]);
    await one.there();
    await one.drop("ask", [{ name: "diary.txt", text: "Only Ann knows this: the bell rings at noon." }]);
    assert.deepEqual(await one.names("ask"), ["diary.txt"]);
    const other = await entered(ben, [/401/]);
    await other.there();
    assert.deepEqual(await other.names("ask"), []);
    await other.at("#ask-question textarea").fill("When does the bell ring?");
    await other.page.keyboard.press("Enter");
    await until("it to know of none", async () => /no documents yet/.test(await other.text("#ask-note")));
    await one.load();
    await until("it to be there still", async () => (await one.names("ask")).includes("diary.txt"));
    await one.close();
    await other.close();
  },
};

await run(browser, SCENARIOS);
