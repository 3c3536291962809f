/** Laws of hunks on random texts and edits; the oracle applies edits one by one from the end. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { applied, lineOf, lineStarts, toChanges, toHunks, wholeWords, type Hunk, type TextEdit } from "../src/hunks";

/** Numbers in [0, below), the same ones in every run (mulberry32). */
function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const PIECES = ["a", "def f(x):", "\n", "\n", "\n", "  ", "😋", "\f", "return", "\u2028", "}"];

function randomText(roll: (below: number) => number, length: number): string {
  return Array.from({ length }, () => PIECES[roll(PIECES.length)] ?? "").join("");
}

/** Positions counted naively, and edits that do not overlap. */
function randomEdits(roll: (below: number) => number, text: string): TextEdit[] {
  const place = (offset: number): { line: number; character: number } => {
    const before = text.slice(0, offset).split("\n");
    return { line: before.length - 1, character: before.at(-1)?.length ?? 0 };
  };
  const ends = Array.from({ length: 2 * roll(6) }, () => roll(text.length + 1)).sort((one, other) => one - other);
  const edits: TextEdit[] = [];
  for (let at = 0; at < ends.length; at += 2) {
    const range = { start: place(ends[at] ?? 0), end: place(ends[at + 1] ?? 0) };
    edits.push({ range, newText: randomText(roll, roll(4)) });
  }
  return edits;
}

function oracle(text: string, edits: readonly TextEdit[]): string {
  const lines = text.split("\n");
  const offset = ({ line, character }: { line: number; character: number }): number =>
    lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0) + character;
  // Of two insertions at one place, the first stays first.
  return edits.reduceRight((result, { range, newText }) =>
    result.slice(0, offset(range.start)) + newText + result.slice(offset(range.end)), text);
}

function cases(): { text: string; edits: TextEdit[]; hunks: Hunk[]; roll: (below: number) => number }[] {
  return Array.from({ length: 2000 }, (_, seed) => {
    const roll = dice(seed);
    const text = randomText(roll, roll(30));
    const edits = randomEdits(roll, text);
    return { text, edits, hunks: toHunks(text, toChanges(text, edits)), roll };
  });
}

test("all hunks together are the edit", () => {
  for (const { text, edits, hunks } of cases()) assert.equal(applied(text, hunks), oracle(text, edits));
});

test("no hunk is the text, and an edit that changes nothing has no hunk", () => {
  assert.equal(applied("a\nb", []), "a\nb");
  const same = { range: { start: { line: 1, character: 0 }, end: { line: 1, character: 1 } }, newText: "b" };
  assert.deepEqual(toChanges("a\nb", [same]), []);
});

test("a rejected hunk leaves its lines alone and the others as they were", () => {
  for (const { text, hunks, roll } of cases()) {
    if (hunks.length < 2) continue;
    const gone = roll(hunks.length);
    const left = hunks.filter((_, index) => index !== gone);
    const expected = [...left].reverse().reduce((result, hunk) => applied(result, [hunk]), text);
    assert.equal(applied(text, left), expected);
  }
});

test("hunks are apart by at least one line", () => {
  for (const { text, hunks } of cases()) {
    const starts = lineStarts(text);
    for (const [index, hunk] of hunks.entries()) {
      const before = hunks[index - 1]?.at(-1);
      if (before) assert.ok(lineOf(starts, before.end) + 1 < lineOf(starts, hunk[0]?.start ?? 0), JSON.stringify(text));
    }
  }
});

test("new text takes the line ends of the document", () => {
  const at = { line: 1, character: 0 };
  const edits = [{ range: { start: at, end: at }, newText: "x\ny\n" }];
  assert.equal(applied("a\r\nb\r\n", [toChanges("a\r\nb\r\n", edits)]), "a\r\nx\r\ny\r\nb\r\n");
});

test("in whole words an edit is the same edit", () => {
  for (const { text, edits } of cases()) {
    const changes = wholeWords(text, toChanges(text, edits));
    assert.equal(applied(text, [changes]), oracle(text, edits));
  }
  const change = { start: 1, end: 3, text: "brea" };
  assert.deepEqual(wholeWords("(width)", [change]), [{ start: 1, end: 6, text: "breadth" }]);
});

test("edits that overlap are refused", () => {
  const range = (start: number, end: number): TextEdit["range"] =>
    ({ start: { line: 0, character: start }, end: { line: 0, character: end } });
  const edits = [{ range: range(0, 3), newText: "" }, { range: range(2, 4), newText: "" }];
  assert.throws(() => toChanges("abcdef", edits), /overlap/);
});
