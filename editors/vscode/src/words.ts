/** What is said of edits and errors, in a few words: pure functions of text. */

import { splitLines } from "./hunks";

/** What a hunk did to the old text: the lines that it deleted, as far as `length` characters go. */
export function described(old: string, text: string, length: number): string {
  const count = (lines: number): string => (lines === 1 ? "1 line" : `${lines} lines`);
  if (!old) return `added ${count(splitLines(text).length)}`;
  const lines = deletedLines(old, text).map((line) => line.trim()).filter((line) => line);
  const isReplaced = deletedLines(text, old).some((line) => line.trim());
  if (lines.length === 0) return isReplaced ? "blank lines replaced" : "blank lines removed";
  const [first = "", ...more] = lines;
  let shown = shortened(first, length);
  while (more[0] !== undefined && shown.length + more[0].length < length) shown += ` \u23ce ${more.shift() ?? ""}`;
  return `${isReplaced ? "was" : "removed"}: ${shown}${more.length > 0 ? ` \u23ce \u2026 ${count(more.length)} more` : ""}`;
}

/** The lines of an old text that the new one does not have any more. */
export function deletedLines(old: string, text: string): string[] {
  const left = splitLines(text);
  return splitLines(old).filter((line) => {
    const at = left.indexOf(line);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** `text` in at most `length` characters. */
export function shortened(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}\u2026` : text;
}

/** A message of the kind "reason: remedy" in its two parts. */
export function inTwo(message: string): { reason: string; remedy: string } {
  const at = Math.max(message.lastIndexOf(": "), message.lastIndexOf("; "));
  return at < 0 ? { reason: message, remedy: "" } : { reason: message.slice(0, at), remedy: message.slice(at + 2) };
}

/** What is known of an edit, and the warning that this does not say; both may be "". */
export function known(seen: string, rule: string, warnings: readonly string[]): { mark: string; warning: string } {
  const warning = warnings.join("; ");
  const mark = seen ? [seen, rule].filter((each) => each).join(": ") : warning ? `check: ${warning}` : rule && `by rule: ${rule}`;
  const isSaid = seen.startsWith("check this");
  return { mark: warning || isSaid ? `\u26a0 ${mark}` : mark, warning: isSaid ? "" : warning };
}
