/** The messages between extension and server beyond the Language Server Protocol. */

import type { Location, Range, WorkspaceEdit } from "vscode-languageclient/node";

export interface Status {
  state: "loading" | "ready" | "busy" | "error" | "off";
  message: string;
  model: string;
  device: string;
  tokensPerSecond: number | null;
  acceptedShare: number | null;
  files: number | null;
  tokens: number | null;
  downloads?: Download[]; // of which the user must choose one, or none
}

export interface Download {
  model: string;
  bytes: number; // 0: only the hub knows
}

/** Whether the user is asked which model is to be downloaded. */
export function isAsking({ downloads }: Status): boolean {
  return downloads !== undefined && downloads.length > 0;
}

export interface DocumentId {
  uri: string;
  version: number;
}

/**
 * A range to edit; also the argument of the command `draftline.editWithInstruction`. Code actions have
 * an instruction and a title; without an instruction the user is prompted.
 */
export interface Target {
  textDocument: DocumentId;
  range: Range;
  instruction?: string;
  keepDefinitions?: boolean;
  title?: string;
}

export interface EditStats {
  tokens: number;
  seconds: number;
  tokensPerSecond: number;
  acceptedShare: number;
  rule?: string; // what a rule did without the model
}

export interface EditResult {
  edit: WorkspaceEdit | null;
  stats: EditStats;
  warnings: string[]; // what to check before accepting
  seen?: string | null; // how far the edit was checked, in one line
  note: string | null; // why nothing changed
}

/** How far an edit was checked by a command of the user. */
export interface TriedEdit {
  seen: string;
  warnings: string[];
}

/** The one rename that an instruction asks for, and all places that may be meant. */
export interface RenamePlaces {
  old: string;
  new: string;
  places: Range[];
}

export interface NextEditResult {
  edit: WorkspaceEdit | null;
  location: Location | null;
  reason: string;
  others: NextEditPlace[];
}

/** A further place that may have to change, which the model has not been asked about. */
export interface NextEditPlace {
  uri: string;
  range: Range;
  label: string;
}

export interface FoundFile {
  uri: string;
  reason: string;
}

export interface EditedFile {
  uri: string;
  changed: boolean;
  rule: string | null; // what a rule did without the model
  warnings: string[]; // what to check before accepting
  seen?: string | null; // how far the edit was checked, in one line
  note: string | null;
  error: string | null; // why it was not edited
}

export interface EditFilesResult {
  edit: WorkspaceEdit | null;
  files: EditedFile[];
}

export interface ChatResult {
  text: string;
  citations: { start: number; end: number; uri: string; range: Range }[]; // offsets in `text`
  notes: string[]; // what was left out
}

export interface CommitMessageResult {
  text: string;
}

/** What to explain in the chat, and the problems there; the argument of the command `draftline.explain`. */
export interface Explanation {
  textDocument: DocumentId;
  range: Range;
  diagnostics: { uri: string; range: Range; message: string }[];
}

export const EDIT = "draftline/edit";
export const RENAME_PLACES = "draftline/renamePlaces";
export const EDIT_TARGET = "draftline/editTarget";
export const PLACE_CODE = "draftline/placeCode";
export const TRY_EDIT = "draftline/tryEdit";
export const NEXT_EDIT = "draftline/nextEdit";
export const CURSOR = "draftline/cursor";
export const FIND_FILES = "draftline/findFiles";
export const EDIT_FILES = "draftline/editFiles";
export const CHAT = "draftline/chat";
export const COMMIT_MESSAGE = "draftline/commitMessage";
export const STATUS = "draftline/status";
export const MODELS = "draftline/models";
