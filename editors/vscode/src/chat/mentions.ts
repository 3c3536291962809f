/** Files and other things that a question names: `@src/app.ts`, `@"a b.txt"`, `#selection`, `#problems`. */

export const TOPICS = ["selection", "problems"];
const FILE = /(?<![\w@])@(?:"([^"\n]+)"|([^\s"@]+))/g;
const TOPIC = /(?<![\w#])#(selection|problems)\b/g;
const TYPED = /(?<![\w@#])([@#])("?[^\s"@#]*)$/;

export interface Mentions {
  files: string[];
  selection: boolean;
  problems: boolean;
}

export function mentionsIn(text: string): Mentions {
  const files = [...text.matchAll(FILE)].map(([, quoted, bare = ""]) => quoted ?? bare.replace(/[.,;:!?)\]}'`]+$/, ""));
  const topics = [...text.matchAll(TOPIC)].map(([, name]) => name);
  return {
    files: [...new Set(files.filter((each) => each !== ""))],
    selection: topics.includes("selection"),
    problems: topics.includes("problems"),
  };
}

/** A file as it is named in a question. */
export function mentionOf(file: string): string {
  return /^[^\s"@]*[^\s"@.,;:!?)\]}'`]$/.test(file) ? `@${file}` : `@"${file}"`;
}

/** The mention that is being typed before the caret. */
export function typedMention(text: string, caret: number): { start: number; mark: string; query: string } | undefined {
  const found = TYPED.exec(text.slice(0, caret));
  const [, mark, query] = found ?? [];
  if (!found || mark === undefined || query === undefined) return undefined;
  return { start: found.index, mark, query: query.replace(/^"/, "") };
}

/** The files whose path has the letters of `query` in order, those with the letters in the name first. */
export function matching(files: readonly string[], query: string, limit: number): string[] {
  const wanted = query.toLowerCase();
  const rank = (file: string): number => {
    const path = file.toLowerCase();
    const name = path.slice(path.lastIndexOf("/") + 1);
    if (name.startsWith(wanted)) return 0;
    if (name.includes(wanted)) return 1;
    if (path.includes(wanted)) return 2;
    let at = 0;
    for (const letter of path) if (letter === wanted[at]) at += 1;
    return at === wanted.length ? 3 : 4;
  };
  const ranked = files.map((file) => ({ file, rank: rank(file) })).filter((each) => each.rank < 4);
  ranked.sort((one, other) => one.rank - other.rank || one.file.length - other.file.length);
  return ranked.slice(0, limit).map(({ file }) => file);
}
