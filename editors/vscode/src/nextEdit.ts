/**
 * Next-edit suggestions: after each change the server is asked what to change next, in any document.
 *
 * A hint names the place; Tab goes there and shows the change, Tab again applies it. Escape or typing
 * dismisses it. A document that has changed since the request is never edited.
 */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import { editsOf } from "./edit";
import { toChanges, wholeWords, type Change } from "./hunks";
import { NEXT_EDIT, type NextEditPlace, type NextEditResult } from "./protocol";
import { DOCUMENTS, type Server } from "./server";

/** Milliseconds after the last change, by the setting draftline.eagerness. */
const DEBOUNCE_MS: Readonly<Record<string, number>> = { low: 1000, medium: 300, high: 100 };

interface NextEdit {
  asked: vscode.TextDocument; // where the cursor was
  document: vscode.TextDocument;
  base: string; // its text, which the changes fit
  changes: Change[];
  reason: string;
  others: NextEditPlace[];
  shown: boolean; // whether the change itself is shown: after the first Tab
}

interface PlaceItem extends vscode.QuickPickItem {
  place?: NextEditPlace; // none: what is offered
}

export class NextEdits implements vscode.Disposable {
  private offered: NextEdit | undefined;
  private timer: NodeJS.Timeout | undefined;
  private asked: vscode.CancellationTokenSource | undefined;
  private told = ""; // the last failure that was logged
  private readonly hint = vscode.window.createTextEditorDecorationType({
    after: {
      color: new vscode.ThemeColor("editorGhostText.foreground"),
      border: "1px solid",
      borderColor: new vscode.ThemeColor("editorGhostText.foreground"),
      margin: "0 0 0 2em",
    },
  });
  private readonly place = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.modifiedForeground"),
    backgroundColor: new vscode.ThemeColor("diffEditor.unchangedRegionBackground"),
  });
  private readonly removed = vscode.window.createTextEditorDecorationType({
    textDecoration: "line-through",
    backgroundColor: new vscode.ThemeColor("diffEditor.removedTextBackground"),
  });
  private readonly added = vscode.window.createTextEditorDecorationType({
    after: {
      backgroundColor: new vscode.ThemeColor("diffEditor.insertedTextBackground"),
      color: new vscode.ThemeColor("editor.foreground"),
    },
  });
  private readonly disposables: vscode.Disposable;

  constructor(private readonly server: Server, private readonly isEdited: (document: vscode.TextDocument) => boolean) {
    this.disposables = vscode.Disposable.from(
      vscode.workspace.onDidChangeTextDocument((event) => { this.onChange(event); }),
      vscode.window.onDidChangeActiveTextEditor((editor) => { this.onLeave(editor); }),
      vscode.window.onDidChangeTextEditorSelection(() => { if (this.offered) this.draw(); }),
      vscode.workspace.onDidCloseTextDocument((closed) => {
        if (closed === this.offered?.document) this.dismiss();
      }),
      this.hint,
      this.place,
      this.removed,
      this.added,
    );
  }

  dispose(): void {
    this.dismiss();
    this.disposables.dispose();
  }

  /** Drops the suggestion and cancels the request for one. */
  dismiss(): void {
    clearTimeout(this.timer);
    this.asked?.cancel();
    this.asked = undefined;
    this.offer(undefined);
  }

  /** Tab: goes to the place and shows the change; if it is shown already, applies it. */
  async tab(): Promise<void> {
    const next = this.offered;
    if (!next) return;
    if (next.document.getText() !== next.base) {
      this.dismiss();
    } else if (next.shown) {
      await this.make(next);
    } else {
      const editor = await vscode.window.showTextDocument(next.document);
      const at = next.document.positionAt(next.changes[0]?.start ?? 0);
      editor.selection = new vscode.Selection(at, at);
      editor.revealRange(editor.selection, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      next.shown = true;
      this.draw();
    }
  }

  /** Lists the next edit and further places; asks for them if none is offered. */
  async list(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const client = this.server.running;
    if (!client || !editor) return;
    if (!this.offered) await this.ask(client, editor);
    const next = this.offered;
    if (!next) {
      void vscode.window.showInformationMessage("Draftline: nothing that was changed lately asks for another change.");
      return;
    }
    const first: PlaceItem = item(next.document.uri, next.document.positionAt(next.changes[0]?.start ?? 0).line, next.reason);
    const asUri = (uri: string): vscode.Uri => client.protocol2CodeConverter.asUri(uri);
    const others = next.others.map((place): PlaceItem => ({ ...item(asUri(place.uri), place.range.start.line, place.label), place }));
    const title = "Draftline: next edits";
    const chosen = await vscode.window.showQuickPick([first, ...others], { title, matchOnDescription: true });
    if (!chosen) return;
    if (chosen.place) await this.goTo(client, chosen.place);
    else if (this.offered === next && !next.shown) await this.tab();
  }

  /** Goes to a place and asks for the change there. */
  private async goTo(client: LanguageClient, place: NextEditPlace): Promise<void> {
    this.dismiss();
    const range = client.protocol2CodeConverter.asRange(place.range);
    const at = new vscode.Range(range.start, range.start);
    const editor = await vscode.window.showTextDocument(client.protocol2CodeConverter.asUri(place.uri), { selection: at });
    await this.ask(client, editor);
  }

  private async make({ document, changes }: NextEdit): Promise<void> {
    const edit = new vscode.WorkspaceEdit();
    for (const each of changes) edit.replace(document.uri, rangeOf(document, each), each.text);
    this.dismiss();
    if (!(await vscode.workspace.applyEdit(edit))) {
      void vscode.window.showErrorMessage(`VS Code could not change ${document.uri.fsPath}.`);
    }
  }

  private onChange({ document, contentChanges, reason }: vscode.TextDocumentChangeEvent): void {
    if (contentChanges.length === 0 || !vscode.languages.match(DOCUMENTS, document)) return;
    this.dismiss();
    const editor = vscode.window.activeTextEditor;
    if (reason !== undefined || editor?.document !== document) return; // not after an undo or redo
    if (this.isEdited(document)) return; // nor while an edit is written or reviewed
    const eagerness = vscode.workspace.getConfiguration("draftline", document).get("eagerness", "medium");
    this.timer = setTimeout(() => {
      if (this.server.running) void this.ask(this.server.running, editor);
    }, DEBOUNCE_MS[eagerness] ?? DEBOUNCE_MS.medium);
  }

  /** Dismisses the suggestion in other documents, where Tab must be a plain Tab. */
  private onLeave(editor: vscode.TextEditor | undefined): void {
    const next = this.offered;
    if (next && editor && editor.document !== next.document && editor.document !== next.asked) this.dismiss();
    else this.draw();
  }

  private async ask(client: LanguageClient, { document, selection }: vscode.TextEditor): Promise<void> {
    const source = new vscode.CancellationTokenSource();
    this.asked = source;
    const { version } = document;
    const converter = client.code2ProtocolConverter;
    const parameters = {
      textDocument: converter.asVersionedTextDocumentIdentifier(document),
      position: converter.asPosition(selection.active),
    };
    try {
      const result = await client.sendRequest<NextEditResult>(NEXT_EDIT, parameters, source.token);
      if (source.token.isCancellationRequested || document.version !== version) return;
      await this.take(client, document, result, source.token);
    } catch (error) {
      if (source.token.isCancellationRequested || String(error) === this.told) return;
      this.told = String(error);
      this.server.log(`next edit: ${this.told}`);
    } finally {
      source.dispose();
    }
  }

  private async take(
    client: LanguageClient,
    asked: vscode.TextDocument,
    result: NextEditResult,
    token: vscode.CancellationToken,
  ): Promise<void> {
    if (!result.edit || !result.location) return;
    const { uri } = result.location;
    const document = await vscode.workspace.openTextDocument(client.protocol2CodeConverter.asUri(uri));
    if (token.isCancellationRequested) return;
    const base = document.getText();
    const changes = wholeWords(base, toChanges(base, editsOf(result.edit, uri)));
    if (changes.length > 0) this.offer({ asked, document, base, changes, reason: result.reason, others: result.others, shown: false });
  }

  private offer(next: NextEdit | undefined): void {
    if (!next && !this.offered) return;
    this.offered = next;
    void vscode.commands.executeCommand("setContext", "draftline.nextEditVisible", next !== undefined);
    this.draw();
  }

  private draw(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      for (const each of [this.hint, this.place, this.removed, this.added]) editor.setDecorations(each, []);
    }
    const next = this.offered;
    const editor = vscode.window.activeTextEditor;
    if (!next || !editor) return;
    const line = editor.document.lineAt(editor.selection.active.line).range;
    const contentText = ` ${hintText(next, editor.document)} `;
    const hover = new vscode.MarkdownString().appendText(next.reason);
    editor.setDecorations(this.hint, [{ range: line, hoverMessage: hover, renderOptions: { after: { contentText } } }]);
    if (editor.document !== next.document) return;
    if (next.shown) this.drawChange(editor, next);
    else editor.setDecorations(this.place, next.changes.map((each) => rangeOf(next.document, each)));
  }

  /** Strikes out the old text and shows the new text behind it; ⏎ marks the line ends in it. */
  private drawChange(editor: vscode.TextEditor, { document, changes }: NextEdit): void {
    const ranges = changes.map((each) => rangeOf(document, each));
    editor.setDecorations(this.removed, ranges.filter((range) => !range.isEmpty));
    const added = changes.flatMap(({ text, end }) => {
      const at = document.positionAt(end);
      const contentText = text.replace(/(\r\n|\r|\n)$/, "").replaceAll(/\r\n|\r|\n/g, " ⏎ ").replaceAll(" ", "\u00a0");
      return contentText ? [{ range: new vscode.Range(at, at), renderOptions: { after: { contentText } } }] : [];
    });
    editor.setDecorations(this.added, added);
  }
}

function item(uri: vscode.Uri, line: number, reason: string): PlaceItem {
  return { label: `${uri.path.split("/").at(-1) ?? ""}:${line + 1}`, description: reason, detail: vscode.workspace.asRelativePath(uri) };
}

function rangeOf(document: vscode.TextDocument, { start, end }: Change): vscode.Range {
  return new vscode.Range(document.positionAt(start), document.positionAt(end));
}

function hintText({ document, changes, shown }: NextEdit, here: vscode.TextDocument): string {
  if (shown && document === here) return "Tab: accept · Esc: dismiss";
  const line = document.positionAt(changes[0]?.start ?? 0).line + 1;
  const name = document.uri.path.split("/").at(-1) ?? "";
  return `Tab: go to next edit, ${document === here ? "" : `${name} `}line ${line}`;
}
