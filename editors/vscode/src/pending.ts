/** Changes that are made already and may still be taken back one by one: pure functions of text. */

import type { Change } from "./hunks";
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
