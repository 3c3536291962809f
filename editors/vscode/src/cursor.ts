/** Sends the cursor's place to the server, which reads the text there before anything is typed. */

import * as vscode from "vscode";
import { CURSOR, type Status } from "./protocol";
import { DOCUMENTS, type Server } from "./server";

interface Place {
  document: vscode.TextDocument;
  version: number;
  line: number;
}

export class Cursor implements vscode.Disposable {
  private latest: Place | undefined;
  private isReady = false; // the model is loaded
  private readonly disposables: vscode.Disposable;

  constructor(private readonly server: Server) {
    this.disposables = vscode.Disposable.from(
      vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => { this.onMove(textEditor); }),
      vscode.window.onDidChangeActiveTextEditor((editor) => { if (editor) this.onMove(editor); }),
    );
  }

  /** Sends the cursor's place once the server reports that it is ready. */
  follow(status: Status): void {
    const wasReady = this.isReady;
    this.isReady = status.state === "ready" || status.state === "busy";
    const editor = vscode.window.activeTextEditor;
    if (this.isReady && !wasReady && editor) this.send(editor);
  }

  dispose(): void {
    this.disposables.dispose();
  }

  /** Sends a move to another line or document; typing moves the cursor, too. */
  private onMove(editor: vscode.TextEditor): void {
    const before = this.latest;
    const { document } = editor;
    const line = editor.selection.active.line;
    this.latest = { document, version: document.version, line };
    if (before?.document === document && (line === before.line || document.version !== before.version)) return;
    this.send(editor);
  }

  private send(editor: vscode.TextEditor): void {
    const client = this.server.running;
    const { document, selection } = editor;
    if (!client || !vscode.languages.match(DOCUMENTS, document)) return;
    const convert = client.code2ProtocolConverter;
    const textDocument = convert.asTextDocumentIdentifier(document);
    void client.sendNotification(CURSOR, { textDocument, position: convert.asPosition(selection.active) });
  }
}
