/** What the chat's page and the extension send each other. The page is checked: it shows what a model wrote. */

import type { Range } from "vscode-languageclient/node";

/** A file, or a part of it, that a question is about. */
export interface ContextItem {
  uri: string;
  range?: Range;
}

/** A place that an answer was copied from. */
export interface Link {
  label: string;
  uri: string;
  range: Range;
}

/** A question and its answer. */
export interface Turn {
  question: string;
  answer: string;
  context: ContextItem[];
  links: Link[];
  notes: string[];
  error: string;
}

export interface State {
  turns: Turn[];
  isBusy: boolean;
  status: string; // why there is no answer yet; "" for nothing to say
  isAsking: boolean; // which model is to be downloaded
  file: string; // the active file, or the lines selected in it; "" for none
  isFileUsed: boolean;
  hasSelection: boolean;
  problems: number; // that the editor reports in the active file
}

export type ToPage =
  | { type: "state"; state: State }
  | { type: "part"; text: string }
  | { type: "files"; id: number; files: string[] }
  | { type: "focus" };

export type FromPage =
  | { type: "ready" | "stop" | "toggleFile" | "download" }
  | { type: "send"; text: string }
  | { type: "copy" | "insert" | "apply"; code: string }
  | { type: "open"; turn: number; link: number }
  | { type: "files"; id: number; query: string };

const TEXT: Record<string, string> = { send: "text", copy: "code", insert: "code", apply: "code", files: "query" };
const NUMBERS: Record<string, string[]> = { open: ["turn", "link"], files: ["id"] };
const PLAIN = ["ready", "stop", "toggleFile", "download"];

/** A message of the page; undefined for anything else. */
export function fromPage(value: unknown): FromPage | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const fields = value as Record<string, unknown>;
  const { type } = fields;
  if (typeof type !== "string" || !(PLAIN.includes(type) || type in TEXT || type in NUMBERS)) return undefined;
  const text = TEXT[type];
  if (text !== undefined && typeof fields[text] !== "string") return undefined;
  if ((NUMBERS[type] ?? []).some((name) => !Number.isSafeInteger(fields[name]))) return undefined;
  return value as FromPage;
}
