/**
 * One edit that is being written into a document, while the user may go on typing around it.
 *
 * The region of the edit shows the new text so far and the rest of the old one. Changes of others outside
 * the region move it and are remembered; one inside stops the edit. One undo takes the whole edit back: its
 * steps are one element of the undo stack or, if something came between them, the old text is put back
 * first and the edit is made at once.
 */

import * as vscode from "vscode";
import { halfWritten, type HalfWritten } from "./halfWritten";
import { applied, toHunks, wholeLines, type Change } from "./hunks";
import { followed, pending, type Pending } from "./pending";
import { difference, moved, shifted, stretched, type Region } from "./region";

const INTERVAL_MS = 60; // between two steps
const ATTEMPTS = 20; // to change a document that changes at the same time

/** The text before an edit, the edit in whole lines, and where these are in the document. */
export interface Made {
  before: string;
  changes: Change[];
  pending: Pending[];
}

/** A change of the document that this edit asked for and whose event has not come yet. */
interface Step {
  text: string; // of the document
  region: Region;
  shown: string;
  half: HalfWritten | undefined;
  isLast: boolean;
}

export class Writing implements vscode.Disposable {
  why: string | undefined; // why the edit was stopped, for the user; undefined also where the user stopped it
  private readonly source = new vscode.CancellationTokenSource();
  private readonly lineEnd: string;
  private region: Region;
  private old: string; // the text of the region without the edit
  private shown: string; // the text of the region
  private half: HalfWritten | undefined;
  private written = "";
  private readonly log: Change[] = []; // of others, in the text without the edit
  private later: Change[] | undefined; // of others, since the edit is complete
  private step: Step | undefined;
  private isOneElement = true; // of the undo stack, as far as it is made
  private isOnTop = false; // of the undo stack
  private isPaused = false;
  private timer: NodeJS.Timeout | undefined;
  private turn: Promise<unknown> = Promise.resolve(); // steps are made one after the other

  /** `streams`: whether the parts are shown in the document; `onStep` is called after each. */
  constructor(
    readonly document: vscode.TextDocument,
    private readonly asked: Region,
    readonly streams: boolean,
    private readonly onStep: (writing: Writing) => void,
  ) {
    this.region = asked;
    this.shown = this.old = document.getText().slice(asked.start, asked.end);
    this.lineEnd = document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n";
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.source.dispose();
  }

  /** Cancelled when the edit is to stop. */
  get token(): vscode.CancellationToken {
    return this.source.token;
  }

  /** The new text so far and the rest of the old one, in the document. */
  get parts(): { written: Region; rest: Region } | undefined {
    if (!this.half) return undefined;
    const { start, end } = this.region;
    const { newStart, newEnd, restStart } = this.half;
    return { written: { start: start + newStart, end: start + newEnd }, rest: { start: start + restStart, end } };
  }

  /** Adds a part of the new text. */
  add(text: string, restart: boolean): void {
    this.written = restart ? text : this.written + text;
    if (this.streams) this.timer ??= setTimeout(() => { void this.inTurn(() => this.show()); }, INTERVAL_MS);
  }

  /** Asks the edit to stop: `restore` comes next. `why` is for the user. */
  stop(why?: string): void {
    if (this.token.isCancellationRequested || this.later) return;
    this.why = why;
    this.source.cancel();
  }

  /** Puts the old text back until `resume`, so that no half-written text is saved. */
  pause(): Promise<void> {
    this.isPaused = true;
    this.isOneElement = this.isOnTop = false; // VS Code closes the element when it saves
    return this.restore();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    if (this.written) this.add("", false);
  }

  /** Puts the old text back. */
  restore(): Promise<void> {
    return this.inTurn(async () => {
      clearTimeout(this.timer);
      this.timer = undefined;
      for (let attempt = 0; attempt < ATTEMPTS && !this.document.isClosed && !this.later; attempt += 1) {
        if (await this.put(this.old)) break;
      }
      this.onStep(this);
    });
  }

  /**
   * Makes the edit: `changes` of the text at the time of the request. Returns undefined if it was
   * stopped; `why` says the reason.
   */
  finish(changes: readonly Change[]): Promise<Made | undefined> {
    return this.inTurn(async () => {
      clearTimeout(this.timer);
      for (let attempt = 0; attempt < ATTEMPTS && !this.token.isCancellationRequested; attempt += 1) {
        const here = moved(changes, this.asked, this.region.start, this.log);
        if (!here) {
          this.stop("a place outside the selection that this edit would change was changed meanwhile; ask again");
          break;
        }
        const before = this.before();
        const made = wholeLines(before, toHunks(before, here));
        if (await this.make(made)) {
          const changed = this.later ?? [];
          return { before, changes: made, pending: changed.reduce(followed, pending(before, made)) };
        }
      }
      this.stop("VS Code refused to change the file; is it read-only?");
      return undefined;
    });
  }

  /** Follows a change of the document. */
  changed({ document, contentChanges }: vscode.TextDocumentChangeEvent): void {
    if (contentChanges.length === 0) return; // it became dirty or clean
    if (this.step?.text === document.getText()) {
      const { region, shown, half, isLast } = this.step;
      this.region = region;
      this.shown = shown;
      this.half = half;
      this.isOnTop = true;
      this.step = undefined;
      if (isLast) this.later = [];
      return;
    }
    if (this.shown !== this.old) this.isOneElement = false;
    this.isOnTop = false;
    for (const { rangeOffset, rangeLength, text } of contentChanges) {
      const change = { start: rangeOffset, end: rangeOffset + rangeLength, text };
      if (this.later) this.later.push(change);
      else this.follow(change);
    }
  }

  /** Follows a change of somebody else. */
  private follow(change: Change): void {
    const region = shifted(this.region, change);
    if (region) {
      const by = region === this.region ? this.old.length - this.shown.length : 0; // behind it
      this.log.push({ ...change, start: change.start + by, end: change.end + by });
      this.region = region;
      return;
    }
    this.keep(change);
    const left = stretched(this.region, change);
    this.region = left ?? { start: change.start + change.text.length, end: change.start + change.text.length };
    const text = this.document.getText().slice(this.region.start, this.region.end);
    if (!left) this.old = text; // the whole place was replaced: there is nothing to put back
    this.shown = text;
    this.half = undefined;
    this.stop("you changed the place that was being edited, so the edit was stopped and the old text is back");
  }

  /** Makes a change inside the rest of the old text in the old text, too. */
  private keep(change: Change): void {
    const restStart = this.half ? this.half.restStart : 0;
    const inOld = this.old.length - this.shown.length - this.region.start;
    if (change.start < this.region.start + restStart || change.end > this.region.end) return;
    this.old = applied(this.old, [[{ ...change, start: change.start + inOld, end: change.end + inOld }]]);
  }

  /** The document's text without the edit. */
  private before(): string {
    const text = this.document.getText();
    return text.slice(0, this.region.start) + this.old + text.slice(this.region.end);
  }

  /** Shows what is written so far. */
  private async show(): Promise<void> {
    this.timer = undefined;
    if (this.isPaused || this.later || this.token.isCancellationRequested) return;
    const written = this.written.replace(/\r$/, "").replace(/\r\n|\r|\n/g, this.lineEnd);
    if (!this.editor) return; // it is shown with the next part, once the document is visible again
    const half = halfWritten(this.old, written, this.lineEnd);
    if (await this.put(half.text, half)) this.onStep(this);
    else this.add("", false);
  }

  /** Makes the complete edit, in whole lines of the text without it; false if that is to be tried again. */
  private async make(changes: Change[]): Promise<boolean> {
    const { start } = this.region;
    const isInside = changes.every((each) => each.start >= start && each.end <= start + this.old.length);
    const isOne = this.isOneElement && this.editor !== undefined;
    if (isOne && isInside) {
      const inside = changes.map((each) => ({ ...each, start: each.start - start, end: each.end - start }));
      return this.put(applied(this.old, [inside]), undefined, true);
    }
    if (this.shown !== this.old) {
      await this.put(this.old);
      return false; // now the text is the one that the changes fit, unless it has changed meanwhile
    }
    const step = { region: this.region, shown: this.shown, half: undefined, isLast: true };
    return this.replace(changes, step, isOne && this.isOnTop);
  }

  /** Puts `shown` into the region; false if the document changed at the same time. */
  private put(shown: string, half?: HalfWritten, isLast = false): Promise<boolean> {
    const { start } = this.region;
    const change = difference(this.shown, shown);
    if (change) {
      const here = { ...change, start: change.start + start, end: change.end + start };
      const region = { start, end: start + shown.length };
      return this.replace([here], { region, shown, half, isLast }, this.isOnTop);
    }
    this.half = half;
    if (isLast) this.later = [];
    return Promise.resolve(true);
  }

  /** Changes the document; false if it changed at the same time. `joins` the top of the undo stack. */
  private async replace(changes: Change[], step: Omit<Step, "text">, joins: boolean): Promise<boolean> {
    const { document, editor } = this;
    this.step = { ...step, text: applied(document.getText(), [changes]) };
    try {
      return await replaceIn(document, editor, changes, { undoStopBefore: !joins, undoStopAfter: step.isLast });
    } finally {
      this.step = undefined;
    }
  }

  private get editor(): vscode.TextEditor | undefined {
    return editorOf(this.document);
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.turn.then(work);
    this.turn = done.catch(() => undefined); // the caller sees the error
    return done;
  }
}

/** The visible editor of a document, if there is one. */
export function editorOf(document: vscode.TextDocument): vscode.TextEditor | undefined {
  return vscode.window.visibleTextEditors.find((each) => each.document === document);
}

/**
 * Changes a document; false if it changed at the same time or is read-only. Only with an editor does VS Code
 * heed the undo stops; without one the changes are an element of the undo stack.
 */
export async function replaceIn(
  document: vscode.TextDocument,
  editor: vscode.TextEditor | undefined,
  changes: readonly Change[],
  stops: { undoStopBefore: boolean; undoStopAfter: boolean },
): Promise<boolean> {
  const range = ({ start, end }: Change): vscode.Range =>
    new vscode.Range(document.positionAt(start), document.positionAt(end));
  if (!editor) {
    const edit = new vscode.WorkspaceEdit();
    for (const each of changes) edit.replace(document.uri, range(each), each.text);
    return vscode.workspace.applyEdit(edit);
  }
  try {
    return await editor.edit((builder) => { for (const each of changes) builder.replace(range(each), each.text); }, stops);
  } catch (error) {
    if (editorOf(document) !== editor) return false; // it was closed meanwhile
    throw error;
  }
}
