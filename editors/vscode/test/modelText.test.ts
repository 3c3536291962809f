/** Models in words. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { describeModel, size, type Model } from "../src/modelText";

const MODEL: Model = {
  name: "small",
  default: true,
  where: "Draftline",
  bytes: 491_400_064,
  present: true,
  memoryBytes: 1_600_000_000,
  fits: "yes",
  licence: "Apache-2.0",
};

test("sizes have two digits at most after the unit is chosen", () => {
  const expected: [number, string][] = [
    [98_362_432, "98 MB"],
    [491_400_064, "491 MB"],
    [999_400_000, "999 MB"],
    [999_999_999, "1.0 GB"],
    [1_117_320_768, "1.1 GB"],
    [9_960_000_000, "10 GB"],
    [15_230_000_000, "15 GB"],
  ];
  for (const [bytes, text] of expected) assert.equal(size(bytes), text);
});

test("a model that is there, and one that is to be fetched", () => {
  const there = describeModel(MODEL);
  assert.deepEqual(there, {
    description: "the default",
    detail: "491 MB on disk (Draftline) · takes 1.6 GB of memory · Apache-2.0",
  });
  const other = describeModel({ ...MODEL, default: false, present: false, fits: "no", licence: "", tokensPerSecond: 9 });
  assert.deepEqual(other, {
    description: "",
    detail: "downloads 491 MB · takes 1.6 GB of memory (more than this machine has) · about 9 tokens/s",
  });
});
