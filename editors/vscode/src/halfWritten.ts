/** What is shown in the place of an old text while the new one is written: pure functions of text. */

import { splitLines } from "./hunks";

const LINES_AHEAD = 50; // in which an unchanged line is looked for

export interface HalfWritten {
  text: string;
  newStart: number; // where the new part of `text` begins
  newEnd: number;
  restStart: number; // where the rest of the old text begins
}

/**
 * The new text so far and the rest of the old one.
 *
 * A new line takes the place of an old one. A line that is in both says how many were added or removed
 * before it. Blank lines at the start stay: the server does not let the model write them. `written` has
 * the line ends of `old`.
 */
export function halfWritten(old: string, written: string, lineEnd: string): HalfWritten {
  const all = splitLines(old);
  const blank = Math.max(0, all.findIndex((line) => line.trim()));
  const head = written ? all.slice(0, blank).join("") : "";
  const lines = all.slice(written ? blank : 0);
  let text = head + written;
  const rest = lines.slice(replaced(lines, splitLines(written))).join("");
  if (written && !/[\r\n]$/.test(text) && (rest || /[\r\n]$/.test(old))) text += lineEnd;
  return { text: text + rest, newStart: head.length, newEnd: head.length + written.length, restStart: text.length };
}

/** How many of the old lines the new ones stand for. */
function replaced(old: readonly string[], written: readonly string[]): number {
  let next = 0; // the old line that the next new one stands for
  let least = 0; // the first old line behind the latest one that is in both
  for (const line of written) {
    const found = line.trim() ? nearest(old, line, least, next) : undefined;
    next = 1 + (found ?? next);
    if (found !== undefined) least = next;
  }
  return next;
}

/** The old line nearest to `expected` that equals `line`, if there is one from `least` on. */
function nearest(old: readonly string[], line: string, least: number, expected: number): number | undefined {
  for (let away = 0; away <= LINES_AHEAD; away += 1) {
    for (const at of [expected + away, expected - away]) if (at >= least && old[at] === line) return at;
  }
  return undefined;
}
