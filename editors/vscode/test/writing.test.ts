/** Laws of an edit that is being written, on random texts and changes; oracles mark characters. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { halfWritten } from "../src/halfWritten";
import { applied, splitLines, toHunks, wholeLines, type Change } from "../src/hunks";
import { followed, pending, takenBack } from "../src/pending";
import { difference, moved, shifted, stretched, type Region } from "../src/region";

type Roll = (below: number) => number;

/** Numbers in [0, below), the same ones in every run (mulberry32). */
function dice(seed: number): Roll {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const SEEDS = Array.from({ length: 3000 }, (_, seed) => seed);
const PIECES = ["a", "def f(x):", "\n", "\n", "\n", "  ", "😋", "return", "\u2028", "}"];

function randomText(roll: Roll, length: number): string {
  return Array.from({ length }, () => PIECES[roll(PIECES.length)] ?? "").join("");
}

/** Whether no surrogate pair is cut in two. */
function isWhole(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

/** One change of a text of `length` characters, between `from` and `to`. */
function randomChange(roll: Roll, from: number, to: number): Change {
  const [start = 0, end = 0] = [from + roll(to - from + 1), from + roll(to - from + 1)].sort((one, other) => one - other);
  return { start, end, text: randomText(roll, roll(3)) };
}

/** Changes of `text` that do not touch each other. */
function randomChanges(roll: Roll, text: string): Change[] {
  const ends = [...new Set(Array.from({ length: 2 * roll(5) }, () => roll(text.length + 1)))].sort((a, b) => a - b);
  const changes: Change[] = [];
  for (let at = 0; at + 1 < ends.length; at += 2) {
    const [start = 0, end = 0] = [ends[at], ends[at + 1]];
    changes.push({ start, end, text: randomText(roll, roll(4)) });
  }
  return changes.filter((each) => text.slice(each.start, each.end) !== each.text);
}

test("a region keeps its text through changes outside it, and only through these", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const text = randomText(roll, 8);
    const region = randomChange(roll, 0, text.length);
    const change = randomChange(roll, 0, text.length);
    const after = applied(text, [[change]]);
    const isOutside = change.end <= region.start || change.start >= region.end;
    const found = shifted(region, change);
    assert.equal(found !== undefined, isOutside);
    if (found) assert.equal(after.slice(found.start, found.end), text.slice(region.start, region.end));
  }
});

test("what is left of a region is its own text and what was typed inside it", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const text = randomText(roll, 8);
    const region = randomChange(roll, 0, text.length);
    const change = randomChange(roll, 0, text.length);
    if (shifted(region, change)) continue;
    const left = stretched(region, change);
    const isInside = change.start >= region.start && change.end <= region.end;
    const own = (from: number, to: number): string => text.slice(Math.max(from, region.start), Math.min(to, region.end));
    const wanted = own(0, change.start) + (isInside ? change.text : "") + own(change.end, text.length);
    const shown = left && applied(text, [[change]]).slice(left.start, left.end);
    assert.equal(shown ?? "", wanted);
  }
});

test("an answer that is moved through the user's changes is both", () => {
  let refused = 0;
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const head = randomText(roll, 4);
    const own = randomText(roll, 4);
    const tail = randomText(roll, 4);
    const region: Region = { start: head.length, end: head.length + own.length };
    const inside = { ...region, text: randomText(roll, 5) };
    const outside = randomChange(roll, 0, head.length);
    const others = outside.end < region.start && outside.end > outside.start ? [outside] : [];
    // The user changes the head and the tail apart from the region.
    const log: Change[] = [];
    let [before, after] = [head, tail];
    for (let left = roll(4); left > 0; left -= 1) {
      if (roll(2)) {
        const change = randomChange(roll, 0, before.length);
        before = applied(before, [[change]]);
        log.push(change);
      } else {
        const change = randomChange(roll, 0, after.length);
        after = applied(after, [[change]]);
        const by = before.length + own.length;
        log.push({ ...change, start: change.start + by, end: change.end + by });
      }
    }
    const found = moved([...others, inside], region, before.length, log);
    if (!found) {
      refused += 1;
      assert.notEqual(others.length, 0); // only the place outside can be refused
      continue;
    }
    const result = applied(before + own + after, [found]);
    const end = result.length - after.length;
    assert.equal(result.slice(end - inside.text.length, end), inside.text);
    if (others.length === 0) assert.equal(result, before + inside.text + after);
    if (log.length === 0) assert.equal(result, applied(head + own + tail, [[...others, inside]]));
  }
  assert.ok(refused > 50, String(refused));
});

test("the shortest difference makes the text and cuts no character in two", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const old = randomText(roll, roll(8)).replaceAll("\n", roll(2) ? "\n" : "\r\n");
    const text = applied(old, [randomChanges(roll, old)]);
    const change = difference(old, text);
    if (!change) {
      assert.equal(old, text);
      continue;
    }
    assert.equal(applied(old, [[change]]), text);
    if (isWhole(old) && isWhole(text)) assert.ok(isWhole(change.text));
    for (const at of [change.start, change.end]) assert.notEqual(old.slice(at - 1, at + 1), "\r\n");
  }
  assert.deepEqual(difference("one\ntwo\n", "one\n2\n"), { start: 4, end: 7, text: "2" });
});

test("what is half-written is the new text and lines of the old one's end", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const lineEnd = roll(2) ? "\n" : "\r\n";
    const old = randomText(roll, 12).replaceAll("\n", lineEnd);
    const full = applied(old, [randomChanges(roll, old)]);
    const written = full.slice(0, roll(full.length + 1)).replace(/\r$/, "");
    const { text, newStart, newEnd, restStart } = halfWritten(old, written, lineEnd);
    assert.equal(text.slice(newStart, newEnd), written);
    assert.equal(text.slice(0, newStart).trim(), "");
    assert.ok(old.endsWith(text.slice(restStart)));
    assert.ok(["", lineEnd].includes(text.slice(newEnd, restStart)));
    const ends = splitLines(old).reduce((all, line) => [...all, (all.at(-1) ?? 0) + line.length], [0]);
    assert.ok(ends.includes(old.length - (text.length - restStart))); // whole lines remain
  }
});

test("before the first part all is old, and a copy of the old text replaces it line by line", () => {
  const old = "def f():\n    a = 1\n    return a\n";
  assert.equal(halfWritten(old, "", "\n").text, old);
  for (let end = 1; end <= old.length; end += 1) {
    const { text, restStart } = halfWritten(old, old.slice(0, end), "\n");
    const begun = splitLines(old.slice(0, end)).length;
    assert.equal(text.slice(restStart), splitLines(old).slice(begun).join(""));
    assert.equal(splitLines(text).length, 3);
  }
});

test("lines that are added keep the old ones below them", () => {
  const old = "def f():\n    a = 1\n    return a\n";
  const { text } = halfWritten(old, 'def f():\n    """One."""\n\n    a = 1\n', "\n");
  assert.equal(text, 'def f():\n    """One."""\n\n    a = 1\n    return a\n');
});

test("whole lines are the same edit, and have no line in common at their ends", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const text = randomText(roll, roll(20));
    const changes = randomChanges(roll, text);
    const lines = wholeLines(text, toHunks(text, changes));
    assert.equal(applied(text, [lines]), applied(text, [changes]));
    for (const { start, end, text: made } of lines) {
      const [old, own] = [splitLines(text.slice(start, end)), splitLines(made)];
      assert.ok(start === 0 || text[start - 1] === "\n");
      assert.ok(end === text.length || text[end - 1] === "\n" || start === end);
      if (old.length && own.length) assert.ok(old[0] !== own[0] && old.at(-1) !== own.at(-1));
    }
  }
});

test("each change can be taken back, in any order, while others type elsewhere", () => {
  for (const seed of SEEDS) {
    const roll = dice(seed);
    const text = randomText(roll, 20);
    const changes = wholeLines(text, toHunks(text, randomChanges(roll, text)));
    let now = applied(text, [changes]);
    let left = pending(text, changes);
    for (const [id, each] of left.entries()) assert.equal(now.slice(each.start, each.end), changes[id]?.text);
    const accepted = new Set<number>();
    while (left.length > 0) {
      const chosen = left[roll(left.length)];
      if (!chosen) break;
      if (roll(2)) {
        accepted.add(chosen.id);
        left = left.filter((each) => each !== chosen);
      } else {
        const change = takenBack(chosen);
        now = applied(now, [[change]]);
        left = followed(left.filter((each) => each !== chosen), change);
      }
      // A line at the start of the text, which somebody else writes and takes away.
      const typed = { start: 0, end: 0, text: "typed" };
      const untyped = { start: 0, end: 5, text: "" };
      left = followed(followed(left, typed), untyped);
    }
    assert.equal(now, applied(text, [changes.filter((_, id) => accepted.has(id))]));
  }
});

test("what somebody else replaces is pending no more, and neither is what is undone", () => {
  const all = pending("a\nb\nc\n", [{ start: 2, end: 4, text: "B\n" }]);
  assert.deepEqual(followed(all, { start: 0, end: 6, text: "" }), []);
  const removed = pending("a\nb\nc\n", [{ start: 2, end: 4, text: "" }]);
  assert.deepEqual(followed(removed, { start: 2, end: 2, text: "b\n" }), []);
  assert.equal(followed(removed, { start: 2, end: 2, text: "x" }).length, 1);
});
