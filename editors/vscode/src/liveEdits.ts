/** The edits that are being written, one a document: their events, decorations and how they are stopped. */

import * as vscode from "vscode";
import type { Region } from "./region";
import { editorOf, Writing } from "./writing";

const STREAMING = "draftline.streaming"; // context key: Escape stops the edit in the active editor

export class LiveEdits implements vscode.Disposable {
  private readonly live = new Map<vscode.TextDocument, Writing>();
  private readonly written = vscode.window.createTextEditorDecorationType({
    backgroundColor: new vscode.ThemeColor("diffEditor.insertedTextBackground"),
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedOpen, // what is written next belongs to it at once
  });
  private readonly rest = vscode.window.createTextEditorDecorationType({
    opacity: "0.4",
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed,
  });
  private readonly disposables = vscode.Disposable.from(
    vscode.workspace.onDidChangeTextDocument((event) => { this.live.get(event.document)?.changed(event); }),
    vscode.workspace.onWillSaveTextDocument((event) => {
      const writing = this.live.get(event.document);
      if (writing?.streams) event.waitUntil(writing.pause());
    }),
    vscode.workspace.onDidSaveTextDocument((document) => { this.live.get(document)?.resume(); }),
    vscode.workspace.onDidCloseTextDocument((document) => { this.live.get(document)?.stop("the file was closed"); }),
    vscode.workspace.onWillRenameFiles((event) => {
      event.waitUntil(this.leave(event.files.map(({ oldUri }) => oldUri), "the file was renamed, so the edit was stopped"));
    }),
    vscode.workspace.onWillDeleteFiles((event) => {
      event.waitUntil(this.leave(event.files, "the file was deleted, so the edit was stopped"));
    }),
    vscode.window.onDidChangeVisibleTextEditors(() => { for (const each of this.live.values()) this.draw(each); }),
    vscode.window.onDidChangeActiveTextEditor(() => { this.tell(); }),
    this.written,
    this.rest,
  );

  dispose(): void {
    for (const each of this.live.values()) each.dispose();
    this.disposables.dispose();
  }

  /** Whether an edit is being written into `document`. */
  has(document: vscode.TextDocument): boolean {
    return this.live.has(document);
  }

  /** Begins an edit of a range, or of the whole document. `streams`: whether it shows what is written. */
  async begin(document: vscode.TextDocument, range: vscode.Range | undefined, streams: boolean): Promise<Writing> {
    await this.stop(document);
    const start = range ? document.offsetAt(range.start) : 0;
    const end = range ? document.offsetAt(range.end) : document.getText().length;
    const editor = streams ? editorOf(document) : undefined;
    if (editor) { // a selection would hide what is new and what is old
      const at = document.positionAt(start);
      editor.selection = new vscode.Selection(at, at);
    }
    const writing = new Writing(document, { start, end }, streams, (each) => { this.draw(each); });
    this.live.set(document, writing);
    this.tell();
    return writing;
  }

  /** Stops the edit that is being written into `document`, whose old text is back then. */
  async stop(document: vscode.TextDocument): Promise<void> {
    const writing = this.live.get(document);
    writing?.stop();
    await writing?.restore();
  }

  end(writing: Writing): void {
    if (this.live.get(writing.document) === writing) this.live.delete(writing.document);
    this.draw(writing);
    this.tell();
    writing.dispose();
  }

  /** Escape: stops the edit in the active editor. */
  stopActive(): void {
    const document = vscode.window.activeTextEditor?.document;
    if (document) this.live.get(document)?.stop();
  }

  /** Puts back the old text of documents whose files go elsewhere. */
  private async leave(files: readonly vscode.Uri[], why: string): Promise<void> {
    const isIn = (path: string): boolean => files.some((each) => path === each.path || path.startsWith(`${each.path}/`));
    for (const writing of this.live.values()) {
      if (!isIn(writing.document.uri.path)) continue;
      writing.stop(why);
      await writing.restore();
    }
  }

  private tell(): void {
    const document = vscode.window.activeTextEditor?.document;
    const streams = document !== undefined && this.live.get(document)?.streams === true;
    void vscode.commands.executeCommand("setContext", STREAMING, streams);
  }

  private draw(writing: Writing): void {
    const { document } = writing;
    const parts = this.live.get(document) === writing ? writing.parts : undefined;
    const ranges = (region: Region | undefined): vscode.Range[] =>
      region && region.start < region.end
        ? [new vscode.Range(document.positionAt(region.start), document.positionAt(region.end))]
        : [];
    for (const editor of vscode.window.visibleTextEditors) {
      if (editor.document !== document) continue;
      editor.setDecorations(this.written, ranges(parts?.written));
      editor.setDecorations(this.rest, ranges(parts?.rest));
    }
  }
}
