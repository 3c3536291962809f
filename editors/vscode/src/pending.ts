/** Changes that are made already and may still be taken back one by one: pure functions of text. */

import { splitLines, type Change } from "./hunks";
import { growth, shifted, stretched, type Region } from "./region";

/** The text of the region is new, and `old` was in its place. */
export interface Pending extends Region {
  id: number;
  old: string;
}

/** The changes of `text`, where they are once all are made. */
export function pending(text: string, changes: readonly Change[]): Pending[] {
  let by = 0;
  return changes.map((change, id) => {
    const start = change.start + by;
    by += growth(change);
    return { id, start, end: start + change.text.length, old: text.slice(change.start, change.end) };
  });
}

/** What is pending after the text was changed by somebody else; what was replaced is pending no more. */
export function followed(all: readonly Pending[], change: Change): Pending[] {
  return all.flatMap((each) => {
    const isBack = each.start === each.end && change.start === each.start && change.text === each.old;
    const region = isBack ? undefined : (shifted(each, change) ?? stretched(each, change));
    return region ? [{ ...each, ...region }] : [];
  });
}

/** The change that takes one back. */
export function takenBack({ start, end, old }: Pending): Change {
  return { start, end, text: old };
}

/** What a hunk did to the old text, in a few words. */
export function described(old: string, text: string): string {
  const count = (lines: number): string => (lines === 1 ? "1 line" : `${lines} lines`);
  const before = splitLines(old);
  if (!old) return `added ${count(splitLines(text).length)}`;
  if (!text) return `removed ${count(before.length)}`;
  const line = before[0]?.trim() ?? "";
  return before.length === 1 && line ? `was: ${shortened(line, 50)}` : `replaced ${count(before.length)}`;
}

/** `text` in at most `length` characters. */
export function shortened(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
