/** Where an edit is while the text around it changes: pure functions of offsets. */

import type { Change } from "./hunks";

/** From `start` up to `end`, in UTF-16 code units. */
export interface Region {
  start: number;
  end: number;
}

/** `region` after a change outside it, also one that touches its start or end; undefined if inside. */
export function shifted(region: Region, change: Change): Region | undefined {
  const by = growth(change);
  if (change.end <= region.start) return { start: region.start + by, end: region.end + by };
  if (change.start >= region.end) return region;
  return undefined;
}

/** What is left of `region` after a change inside it or across its ends; undefined if nothing is. */
export function stretched(region: Region, change: Change): Region | undefined {
  const by = growth(change);
  if (change.start >= region.start && change.end <= region.end) return { start: region.start, end: region.end + by };
  if (change.start < region.start && change.end >= region.end) return undefined;
  if (change.start < region.start) return { start: change.start + change.text.length, end: region.end + by };
  return { start: region.start, end: change.start };
}

/** How much longer a change makes the text. */
export function growth(change: Change): number {
  return change.text.length - (change.end - change.start);
}

/**
 * `changes` of an older text in the text that the changes of `log`, one after the other, made of it.
 *
 * The log has none inside `region` of the older text, which starts at `start` now. Returns undefined if it
 * has one where one of the others is to be made.
 */
export function moved(
  changes: readonly Change[],
  region: Region,
  start: number,
  log: readonly Change[],
): Change[] | undefined {
  const found: Change[] = [];
  for (const change of changes) {
    let place: Region | undefined = change;
    if (change.start >= region.start && change.end <= region.end) {
      place = { start: change.start - region.start + start, end: change.end - region.start + start };
    } else {
      for (const each of log) place &&= shifted(place, each);
    }
    if (!place) return undefined;
    found.push({ ...place, text: change.text });
  }
  return found.sort((one, other) => one.start - other.start || one.end - other.end);
}

/** The one change that turns `old` into `text`, as short as possible; undefined if they are equal. */
export function difference(old: string, text: string): Change | undefined {
  if (old === text) return undefined;
  const most = Math.min(old.length, text.length);
  let head = 0;
  while (head < most && old[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === text[text.length - 1 - tail]) tail += 1;
  // Neither a surrogate pair nor a line end of two characters is cut in two.
  while (head > 0 && isCut(old, text, head)) head -= 1;
  while (tail > 0 && isCut(old, text, old.length - tail, text.length - tail)) tail -= 1;
  return { start: head, end: old.length - tail, text: text.slice(head, text.length - tail) };
}

function isCut(old: string, text: string, at: number, other = at): boolean {
  const pair = /[\ud800-\udbff][\udc00-\udfff]|\r\n/;
  return pair.test(old.slice(Math.max(0, at - 1), at + 1)) || pair.test(text.slice(Math.max(0, other - 1), other + 1));
}
