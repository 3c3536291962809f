/** What is said of edits and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { described, inTwo, known, shortened } from "../src/words";

test("a change shows the lines that it deleted", () => {
  assert.equal(described("    return x\n", "    return y\n", 99), "was: return x");
  assert.equal(described("", "a\nb\n", 99), "added 2 lines");
  assert.equal(described("a\n", "", 99), "removed: a");
  assert.equal(described("a\n\n  b\nc\n", "d\n", 99), "was: a ⏎ b ⏎ c");
  assert.equal(described("a\nb\nc\n", "", 3), "removed: a ⏎ b ⏎ … 1 line more");
  assert.equal(described("a\nb\nc\n", "b\n", 99), "removed: a ⏎ c"); // what stays is not shown
  assert.equal(described("a\na\n", "a\n", 99), "removed: a");
  assert.equal(described("\n", "d\n", 99), "blank lines replaced");
  assert.equal(described("\n", "", 99), "blank lines removed");
  assert.equal(shortened("abcdef", 4), "abc…");
});

test("however long it is, what is shown of deleted lines is short, and counts the others", () => {
  for (let lines = 1; lines < 40; lines += 1) {
    const old = Array.from({ length: lines }, (_, at) => `line ${at}\n`).join("");
    const shown = described(old, "", 60);
    assert.ok(shown.length < 100);
    const more = Number(/(\d+) lines? more$/.exec(shown)?.[1] ?? 0);
    assert.equal((shown.match(/line \d+ |line \d+$/g) ?? []).length + more, lines, shown);
  }
});

test("a message is a reason and its remedy", () => {
  assert.deepEqual(inTwo("m: the download was cancelled: restart it"), { reason: "m: the download was cancelled", remedy: "restart it" });
  assert.deepEqual(inTwo("it ended; start it"), { reason: "it ended", remedy: "start it" });
  assert.deepEqual(inTwo("no reason"), { reason: "no reason", remedy: "" });
});

test("what was seen of an edit is said once", () => {
  assert.deepEqual(known("", "", []), { mark: "", warning: "" });
  assert.deepEqual(known("", "a to b", []), { mark: "by rule: a to b", warning: "" });
  assert.deepEqual(known("", "", ["x is lost", "y too"]), { mark: "⚠ check: x is lost; y too", warning: "x is lost; y too" });
  assert.deepEqual(known("made by rule", "a to b", []), { mark: "made by rule: a to b", warning: "" });
  assert.deepEqual(known("checked by pytest -q", "", []), { mark: "checked by pytest -q", warning: "" });
  assert.deepEqual(known("check this: x is lost", "", ["x is lost"]), { mark: "⚠ check this: x is lost", warning: "" });
});
