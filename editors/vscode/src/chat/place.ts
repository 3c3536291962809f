/** Where a block of code of an answer belongs in a file. */

import { blockAround } from "../block";

const DEFINITION =
  /^(\s*)(?:export\s+)?(?:default\s+)?(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?(?:def|class|function\*?|func|fn|interface|struct|enum|trait|impl|type|const|let|var)\s+(?:\([^)]*\)\s*)?([A-Za-z_$][\w$]*)/;

/** New text for the lines `first` to `last`, counted from 0. */
export interface Replacement {
  first: number;
  last: number;
  text: string;
}

/** What replaces the definitions in `lines` by those in `code`; undefined unless all of `code` is definitions and
 * each is there exactly once. */
export function replacements(lines: readonly string[], code: string): Replacement[] | undefined {
  const parts = definitions(code.replace(/\s+$/, "").split(/\r\n|\r|\n/));
  if (!parts) return undefined;
  const found: Replacement[] = [];
  for (const { name, text } of parts) {
    const places = lines.flatMap((line, at) => (DEFINITION.exec(line)?.[2] === name ? [at] : []));
    const [at] = places;
    if (at === undefined || places.length > 1) return undefined;
    const { first, last } = blockAround(lines, at);
    if (first !== at) return undefined;
    let top = first;
    while (text[0]?.trimStart().startsWith("@") && lines[top - 1]?.trim().startsWith("@")) top -= 1;
    found.push({ first: top, last, text: indented(text, lines[at] ?? "").join("\n") });
  }
  found.sort((one, other) => one.first - other.first);
  const overlaps = found.some((each, at) => at > 0 && each.first <= (found[at - 1]?.last ?? -1));
  return overlaps ? undefined : found;
}

/** The definitions of a text that has nothing else, each with what is directly above it. */
function definitions(lines: readonly string[]): { name: string; text: string[] }[] | undefined {
  const found: { name: string; text: string[] }[] = [];
  let from = 0;
  while (from < lines.length) {
    let at = from;
    while (at < lines.length && /^\s*(@|#|\/\/|$)/.test(lines[at] ?? "")) at += 1;
    const name = DEFINITION.exec(lines[at] ?? "")?.[2];
    const { first, last } = blockAround(lines, at);
    if (name === undefined || first !== at) return undefined;
    while (from < at && !lines[from]?.trim()) from += 1;
    found.push({ name, text: lines.slice(from, last + 1) });
    from = last + 1;
  }
  return found.length > 0 ? found : undefined;
}

/** Lines with the indentation of `model`. */
export function indented(lines: readonly string[], model: string): string[] {
  const wanted = /^\s*/.exec(model)?.[0] ?? "";
  const own = /^\s*/.exec(lines.find((line) => line.trim()) ?? "")?.[0] ?? "";
  return lines.map((line) => (line.trim() ? wanted + (line.startsWith(own) ? line.slice(own.length) : line.trimStart()) : ""));
}
