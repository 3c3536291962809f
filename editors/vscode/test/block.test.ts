/** The block around a line, in the layouts that languages have. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { blockAround } from "../src/block";

const PYTHON = ["import os", "", "def f(x):", "    y = 1", "", "    return y", "", "print(f(1))", ""];
const BRACES = ["function f() {", "  g();", "}", "h();"];

test("anywhere in a function: the whole function", () => {
  for (const line of [2, 3, 4, 5]) assert.deepEqual(blockAround(PYTHON, line), { first: 2, last: 5 });
});

test("a closing brace belongs to its block", () => {
  for (const line of [0, 1]) assert.deepEqual(blockAround(BRACES, line), { first: 0, last: 2 });
});

test("a line outside of blocks stays alone", () => {
  assert.deepEqual(blockAround(PYTHON, 0), { first: 0, last: 0 });
  assert.deepEqual(blockAround(PYTHON, 7), { first: 7, last: 7 });
  assert.deepEqual(blockAround(BRACES, 3), { first: 3, last: 3 });
  assert.deepEqual(blockAround([""], 0), { first: 0, last: 0 });
});

test("the line itself is always inside", () => {
  for (const lines of [PYTHON, BRACES]) {
    for (const line of lines.keys()) {
      const { first, last } = blockAround(lines, line);
      assert.ok(first <= line && line <= last && last < lines.length);
    }
  }
});
