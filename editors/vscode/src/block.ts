/** The block of lines around a line, by indentation. */

function indentation(line: string): number {
  return line.trim() ? line.length - line.trimStart().length : Infinity; // blank lines are part of a block
}

/** The first and last line of the innermost block (a header and the indented lines below it). */
export function blockAround(lines: readonly string[], line: number): { first: number; last: number } {
  const at = (index: number): string => lines[index] ?? "";
  let first = line;
  while (first > 0 && !at(first).trim()) first -= 1;
  const own = indentation(at(first));
  const startsBlock = (index: number): boolean => {
    let below = index + 1;
    while (below < lines.length && !at(below).trim()) below += 1;
    return below < lines.length && indentation(at(below)) > indentation(at(index));
  };
  if (!startsBlock(first)) {
    let header = first;
    while (header > 0 && indentation(at(header)) >= own) header -= 1;
    if (own > 0 && indentation(at(header)) < own) first = header;
  }
  const head = indentation(at(first));
  let last = first;
  for (let below = first + 1; below < lines.length && indentation(at(below)) > head; below += 1) {
    if (at(below).trim()) last = below;
  }
  const closes = last > first && /^\s*[})\]]/.test(at(last + 1)) && indentation(at(last + 1)) === head;
  return { first, last: Math.max(last + (closes ? 1 : 0), line) };
}
