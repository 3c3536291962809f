/**
 * A proposed edit as hunks that are accepted or rejected one by one: pure functions of text.
 *
 * Positions count UTF-16 code units, as JavaScript's strings do. Lines end in \n, \r\n or \r.
 */

export interface Place {
  line: number;
  character: number;
}

export interface TextEdit {
  range: { start: Place; end: Place };
  newText: string;
}

/** Replace `start` to `end` of the text by `text`. */
export interface Change {
  start: number;
  end: number;
  text: string;
}

/** Changes in the same or neighbouring lines, accepted or rejected together. */
export type Hunk = Change[];

/** Where each line starts. */
export function lineStarts(text: string): number[] {
  const starts = [0];
  for (const match of text.matchAll(/\r\n|\r|\n/g)) starts.push(match.index + match[0].length);
  return starts;
}

/** The lines of a text with their ends. */
export function splitLines(text: string): string[] {
  return text.match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+/g) ?? [];
}

/** The line of `offset`, from 0. */
export function lineOf(starts: number[], offset: number): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((starts[middle] ?? 0) <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

function offsetOf(starts: number[], text: string, place: Place): number {
  const start = starts[place.line];
  if (start === undefined) return text.length;
  const next = starts[place.line + 1] ?? text.length;
  return Math.min(start + place.character, next);
}

/** The server's edits as changes in order, their line ends as in `text`. Empty ones are left out. */
export function toChanges(text: string, edits: readonly TextEdit[]): Change[] {
  const starts = lineStarts(text);
  const end = /\r\n|\r|\n/.exec(text)?.[0];
  const changes = edits.map(({ range, newText }) => ({
    start: offsetOf(starts, text, range.start),
    end: offsetOf(starts, text, range.end),
    text: end ? newText.replace(/\r\n|\r|\n/g, end) : newText,
  }));
  changes.sort((one, other) => one.start - other.start || one.end - other.end);
  for (const [index, change] of changes.entries()) {
    const before = changes[index - 1];
    if (before && before.end > change.start) throw new Error("the server's edits overlap");
  }
  return changes.filter((change) => text.slice(change.start, change.end) !== change.text);
}

/** The same edit in whole words, as a person reads it: "wi" to "brea" in "width" is no answer. */
export function wholeWords(text: string, changes: readonly Change[]): Change[] {
  const isInside = (at: number): boolean =>
    /[\p{L}\p{N}_]/u.test(text[at - 1] ?? "") && /[\p{L}\p{N}_]/u.test(text[at] ?? "");
  const words: Change[] = [];
  for (const change of changes) {
    let { start, end } = change;
    while (isInside(start)) start -= 1;
    while (isInside(end)) end += 1;
    const before = words.at(-1);
    const rest = change.text + text.slice(change.end, end);
    if (before && before.end > start) { // both are in one word
      const kept = before.text.slice(0, before.text.length - (before.end - change.start));
      words[words.length - 1] = { start: before.start, end: Math.max(end, before.end), text: kept + rest };
    } else {
      words.push({ start, end, text: text.slice(start, change.start) + rest });
    }
  }
  return words;
}

/** Changes whose lines are the same or neighbours become one hunk. */
export function toHunks(text: string, changes: readonly Change[]): Hunk[] {
  const starts = lineStarts(text);
  const hunks: Hunk[] = [];
  let last = -2; // the last line of the latest hunk
  for (const change of changes) {
    const latest = hunks.at(-1);
    if (latest && lineOf(starts, change.start) <= last + 1) latest.push(change);
    else hunks.push([change]);
    last = lineOf(starts, change.end);
  }
  return hunks;
}

/** `text` after all changes of `hunks`. */
export function applied(text: string, hunks: readonly Hunk[]): string {
  let result = "";
  let from = 0;
  for (const change of hunks.flat()) {
    result += text.slice(from, change.start) + change.text;
    from = change.end;
  }
  return result + text.slice(from);
}

/** Each hunk as one change of whole lines, without those at its start and end that stay as they are. */
export function wholeLines(text: string, hunks: readonly Hunk[]): Change[] {
  const starts = lineStarts(text);
  return hunks.flatMap((hunk) => {
    let start = starts[lineOf(starts, hunk[0]?.start ?? 0)] ?? 0;
    let end = starts[lineOf(starts, hunk.at(-1)?.end ?? 0) + 1] ?? text.length;
    const inside = hunk.map((each) => ({ ...each, start: each.start - start, end: each.end - start }));
    const before = splitLines(text.slice(start, end));
    const after = splitLines(applied(text.slice(start, end), [inside]));
    while (before.length > 0 && before[0] === after[0]) {
      start += before.shift()?.length ?? 0;
      after.shift();
    }
    while (before.length > 0 && before.at(-1) === after.at(-1)) {
      end -= before.pop()?.length ?? 0;
      after.pop();
    }
    return start === end && after.length === 0 ? [] : [{ start, end, text: after.join("") }];
  });
}
