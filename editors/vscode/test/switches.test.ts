/** Switches by language. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { flipped, isOn, OTHERS, type Switch } from "../src/switches";

const VALUES: Switch[] = [{}, { "*": true }, { "*": false }, { go: true }, { go: false, "*": true }, { go: true, "*": false }];

test("a language decides before the others, which are on unless they are off", () => {
  for (const value of VALUES) {
    for (const language of ["go", "rust", OTHERS]) {
      assert.equal(isOn(value, language), language in value ? value[language] : (value[OTHERS] ?? true));
    }
  }
});

test("flipping turns one language and leaves what is said of others", () => {
  for (const value of VALUES) {
    for (const language of ["go", "rust", OTHERS]) {
      const after = flipped(value, language);
      assert.equal(isOn(after, language), !isOn(value, language));
      for (const other of Object.keys(value).filter((each) => each !== language)) {
        assert.equal(after[other], value[other]);
      }
      assert.equal(isOn(flipped(after, language), language), isOn(value, language));
    }
  }
});
