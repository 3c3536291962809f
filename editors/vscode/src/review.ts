/**
 * An edit that is made in a document, accepted or rejected change by change.
 *
 * The document has the new text. Accepting a change leaves it there, rejecting it puts its old text back.
 * Above each change a CodeLens has both, with their keys, and shows what was there; a hint in its first line does
 * where these are off, and in the diff of the old text and the document, which is another view of the same
 * changes. The hint of the first change says what is known of the whole edit.
 */

import * as vscode from "vscode";
import { applied, lineOf, lineStarts } from "./hunks";
import { followed, takenBack, type Pending } from "./pending";
import { DOCUMENTS } from "./server";
import { deletedLines, described, shortened } from "./words";
import { editorOf, replaceIn, type Made } from "./writing";

const REVIEWING = "draftline.reviewing"; // context key: the active editor has changes to decide
const SCHEME = "draftline-before";
const ATTEMPTS = 20; // to change a document that changes at the same time
const LENS = 100; // characters of deleted lines
const FIRST = 45; // characters of these beside the links for all changes
const HINT = 60; // characters of deleted lines
const TITLE = 100; // characters of what is known of the whole edit
const KEYS = process.platform === "darwin" ? "Cmd+Alt" : "Alt"; // Ctrl+Alt is AltGr
const ALL = process.platform === "darwin" ? "Cmd+Enter" : "Ctrl+Enter";

export interface Proposal {
  document: vscode.TextDocument;
  title: string;
  mark: string; // what to know of the whole edit; "" for nothing
  warnings: readonly string[]; // what was to be checked when the edit was made
  before: string; // the text without the edit
  pending: Pending[];
}

export class Review implements vscode.Disposable, vscode.CodeLensProvider, vscode.TextDocumentContentProvider {
  private readonly proposals = new Map<vscode.TextDocument, Proposal>();
  private restoring: vscode.TextDocument | undefined;
  private readonly lenses = new vscode.EventEmitter<void>();
  readonly onDidChangeCodeLenses = this.lenses.event;
  private readonly olds = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.olds.event;
  private readonly added = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("diffEditor.insertedLineBackground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.addedForeground"),
  });
  private readonly removed = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    borderWidth: "1px 0 0 0",
    borderStyle: "solid",
    borderColor: new vscode.ThemeColor("editorOverviewRuler.deletedForeground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.deletedForeground"),
  });
  private readonly hint = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), margin: "0 0 0 1em" },
  });
  private readonly disposables = vscode.Disposable.from(
    vscode.languages.registerCodeLensProvider(DOCUMENTS, this),
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
    vscode.workspace.onDidChangeTextDocument((event) => { this.follow(event); }),
    vscode.workspace.onDidCloseTextDocument((document) => { this.end(document); }),
    vscode.workspace.onDidChangeConfiguration(() => { this.draw(); }),
    vscode.window.onDidChangeVisibleTextEditors(() => { this.draw(); }),
    vscode.window.onDidChangeActiveTextEditor(() => { this.draw(); }),
    this.lenses,
    this.olds,
    this.added,
    this.removed,
    this.hint,
  );

  dispose(): void {
    this.disposables.dispose();
  }

  /** Whether `document` has changes to decide, or one of them is being taken back. */
  has(document: vscode.TextDocument): boolean {
    return this.proposals.has(document) || this.restoring === document;
  }

  /** Whether the active editor has changes to decide. */
  get isActive(): boolean {
    return this.active() !== undefined;
  }

  /** Shows an edit that was made in `document`. */
  show(document: vscode.TextDocument, { before, pending }: Made, title: string, mark: string, warnings: readonly string[]): void {
    this.proposals.set(document, { document, title, mark, warnings, before, pending });
    this.draw(); // the cursor stays: the user may be typing elsewhere
  }

  /** Says what is known of an edit now, if it is still shown; in the diff's title, too. */
  mark(proposal: Proposal, mark: string): void {
    if (this.proposals.get(proposal.document) !== proposal) return;
    proposal.mark = mark;
    if (diffsOf(proposal.document).some(({ isActive }) => isActive)) void this.compare();
    else this.draw();
  }

  /** Accepts what is left to decide in `document`. */
  end(document: vscode.TextDocument): void {
    if (this.proposals.delete(document)) void this.conclude(document);
  }

  /** Accepts or rejects the change `id`, or the one at the cursor or the next one below it. */
  async decideHunk(accept: boolean, id?: unknown): Promise<void> {
    const proposal = this.active();
    if (!proposal) return;
    const chosen = typeof id !== "number" ? atCursor(proposal) : proposal.pending.find((each) => each.id === id);
    if (!chosen) return; // decided meanwhile
    const { document } = proposal;
    if (!(await this.decide(proposal, accept, [chosen.id]))) return;
    const next = proposal.pending.find((each) => each.start >= chosen.start) ?? proposal.pending.at(-1);
    this.goTo(document, next?.start);
  }

  /** Accepts or rejects all changes that remain. */
  async decideAll(accept: boolean): Promise<void> {
    const proposal = this.active();
    if (proposal) await this.decide(proposal, accept, proposal.pending.map(({ id }) => id));
  }

  /** Shows the text without what is left to decide beside the document. */
  async compare(): Promise<void> {
    const proposal = this.active();
    if (!proposal) return;
    const { uri } = proposal.document;
    this.olds.fire(oldOf(uri));
    const title = `${proposal.title}${proposal.mark && ` (${shortened(proposal.mark, TITLE)})`}`;
    await vscode.commands.executeCommand("vscode.diff", oldOf(uri), uri, title);
    this.draw();
  }

  provideTextDocumentContent({ query }: vscode.Uri): string {
    for (const { document, pending } of this.proposals.values()) {
      if (document.uri.toString() === query) return applied(document.getText(), [pending.map(takenBack)]);
    }
    return vscode.workspace.textDocuments.find(({ uri }) => uri.toString() === query)?.getText() ?? "";
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const proposal = this.proposals.get(document);
    if (!proposal) return [];
    const { pending } = proposal;
    return pending.flatMap((each, index) => {
      const text = document.getText().slice(each.start, each.end);
      const lenses: [string, string][] = [
        [`$(check) Accept ${KEYS}+Y`, "draftline.acceptHunk"],
        [`$(close) Reject ${KEYS}+N`, "draftline.rejectHunk"],
      ];
      const hasAll = index === 0 && pending.length > 1;
      if (hasAll) {
        lenses.push([`$(check-all) Accept All ${ALL}`, "draftline.acceptAll"], ["$(close-all) Reject All", "draftline.rejectAll"]);
      }
      lenses.push([plain(described(each.old, text, hasAll ? FIRST : LENS)), "draftline.compareEdit"]);
      const at = document.positionAt(each.start);
      const range = new vscode.Range(at, at);
      return lenses.map(([title, command]) => {
        const isOne = command.endsWith("Hunk");
        const tooltip = TOOLTIPS[command];
        const lens = { title, command, ...(tooltip && { tooltip }), ...(isOne && { arguments: [each.id] }) };
        return new vscode.CodeLens(range, lens);
      });
    });
  }

  private async decide(proposal: Proposal, accept: boolean, ids: readonly number[]): Promise<boolean> {
    const { document } = proposal;
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const chosen = proposal.pending.filter(({ id }) => ids.includes(id));
      const others = proposal.pending.filter(({ id }) => !ids.includes(id));
      if (accept) {
        proposal.pending = others;
      } else if (!(await this.restore(document, chosen))) {
        continue;
      } else {
        proposal.pending = proposal.pending.filter(({ id }) => !ids.includes(id)); // those followed the change
      }
      if (proposal.pending.length === 0) this.end(document);
      else this.draw();
      return true;
    }
    void vscode.window.showErrorMessage(`VS Code refused to change ${document.uri.fsPath}; is it read-only?`);
    return false;
  }

  private async restore(document: vscode.TextDocument, chosen: readonly Pending[]): Promise<boolean> {
    const stops = { undoStopBefore: true, undoStopAfter: true };
    this.restoring = document;
    try {
      return await replaceIn(document, editorOf(document), chosen.map(takenBack), stops);
    } finally {
      this.restoring = undefined;
    }
  }

  /** The proposal in the active editor. */
  active(): Proposal | undefined {
    const document = vscode.window.activeTextEditor?.document;
    return document && this.proposals.get(document);
  }

  private follow({ document, contentChanges, reason }: vscode.TextDocumentChangeEvent): void {
    const proposal = this.proposals.get(document);
    if (!proposal || contentChanges.length === 0) return;
    for (const { rangeOffset, rangeLength, text } of contentChanges) {
      proposal.pending = followed(proposal.pending, { start: rangeOffset, end: rangeOffset + rangeLength, text });
    }
    const isUndone = reason !== undefined && document.getText() === proposal.before;
    if (isUndone || proposal.pending.length === 0) this.end(document);
    else this.draw();
  }

  /** Shows that nothing is left to decide: the document, where the diff was. */
  private async conclude(document: vscode.TextDocument): Promise<void> {
    this.draw();
    const tabs = diffsOf(document);
    if (tabs.length === 0) return;
    if (tabs.some(({ isActive }) => isActive)) await vscode.window.showTextDocument(document);
    await vscode.window.tabGroups.close(tabs, true);
  }

  private goTo(document: vscode.TextDocument, offset: number | undefined): void {
    const editor = reviewed(document);
    if (!editor || offset === undefined) return;
    const at = document.positionAt(offset);
    editor.selection = new vscode.Selection(at, at);
    editor.revealRange(editor.selection, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  }

  private draw(): void {
    void vscode.commands.executeCommand("setContext", REVIEWING, this.isActive);
    this.lenses.fire();
    for (const { uri } of this.proposals.keys()) this.olds.fire(oldOf(uri));
    for (const editor of vscode.window.visibleTextEditors) {
      const { document } = editor;
      const pending = this.proposals.get(document)?.pending ?? [];
      const range = (from: number, to: number): vscode.Range =>
        new vscode.Range(document.positionAt(from), document.positionAt(to));
      const text = document.getText();
      const hasLenses = vscode.workspace.getConfiguration("editor", document).get<boolean>("codeLens", true);
      const isInDiff = editor.viewColumn === undefined;
      const mark = this.proposals.get(document)?.mark ?? "";
      const hints = pending.flatMap((each, index) => {
        const what = isInDiff ? "" : described(each.old, text.slice(each.start, each.end), HINT);
        const keys = hasLenses && !isInDiff ? [] : [`✓ ${KEYS}+Y  ✗ ${KEYS}+N`, what];
        const contentText = [...keys, index === 0 ? mark : ""].filter((part) => part).join("  ");
        const line = document.lineAt(document.positionAt(each.start).line).range;
        return contentText ? [{ range: line, renderOptions: { after: { contentText } } }] : [];
      });
      // A line end belongs to its line.
      const options = (each: Pending, end: number): vscode.DecorationOptions =>
        ({ range: range(each.start, end), hoverMessage: deleted(each.old, text.slice(each.start, each.end)) });
      const added = pending.filter((each) => each.start < each.end).map((each) => options(each, each.end - 1));
      const removed = pending.filter((each) => each.start === each.end).map((each) => options(each, each.start));
      editor.setDecorations(this.added, added);
      editor.setDecorations(this.removed, removed);
      editor.setDecorations(this.hint, hints);
    }
  }
}

const TOOLTIPS: Record<string, string> = {
  "draftline.acceptHunk": "Accept this change",
  "draftline.rejectHunk": "Put the old text back",
  "draftline.compareEdit": "Compare with the old text",
};

/** The editor in which a document's changes are decided: it may be shown in a diff, too. */
function reviewed(document: vscode.TextDocument): vscode.TextEditor | undefined {
  const active = vscode.window.activeTextEditor;
  return active?.document === document ? active : editorOf(document);
}

/** The document's text without what is left to decide. */
function oldOf(uri: vscode.Uri): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: uri.path, query: uri.toString() });
}

/** The tabs that show a document beside its text without the edit. */
function diffsOf({ uri }: vscode.TextDocument): vscode.Tab[] {
  return vscode.window.tabGroups.all.flatMap((group) => group.tabs).filter(({ input }) =>
    input instanceof vscode.TabInputTextDiff && input.original.toString() === oldOf(uri).toString());
}

/** A text of the file in a CodeLens, where `$(name)` would be an icon. */
function plain(text: string): string {
  return text.replaceAll("$(", "\\$(");
}

/** All deleted lines, for the hover. */
function deleted(old: string, text: string): vscode.MarkdownString {
  const lines = deletedLines(old, text).map((line) => `- ${line.replace(/[\r\n]+$/, "")}\n`);
  const shown = new vscode.MarkdownString();
  return lines.length > 0 ? shown.appendCodeblock(lines.join(""), "diff") : shown;
}

/** The change at the cursor, else the next one below it, else the last. */
function atCursor({ document, pending }: Proposal): Pending | undefined {
  const starts = lineStarts(document.getText());
  const line = reviewed(document)?.selection.active.line ?? 0;
  return pending.find(({ start, end }) => lineOf(starts, Math.max(start, end - 1)) >= line) ?? pending.at(-1);
}
