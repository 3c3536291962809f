/**
 * Proposed edits as a diff of the file and the proposal, accepted or rejected change by change.
 *
 * An accepted change is applied at once; a rejected one is removed from the proposal. A file that has
 * changed meanwhile is never edited: a message says so, and the proposal stays.
 */

import * as vscode from "vscode";
import { applied, hunkAt, proposedLines, withoutApplied, type Hunk } from "./hunks";

const SCHEME = "draftline-proposal";

interface Proposal {
  document: vscode.Uri;
  base: string; // the file's text that the hunks fit
  hunks: Hunk[];
  goTo: number | undefined; // the hunk to show once the right side has its text
}

export class Preview implements vscode.Disposable, vscode.TextDocumentContentProvider {
  private readonly proposals = new Map<string, Proposal>(); // by the right side's URI
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly hint = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), margin: "0 0 0 1em" },
  });
  private readonly disposables: vscode.Disposable;
  private count = 0;
  private turn: Promise<void> = Promise.resolve(); // decisions are made one after the other

  constructor() {
    this.disposables = vscode.Disposable.from(
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.tabGroups.onDidChangeTabs(({ closed }) => { closed.forEach((tab) => { this.forget(tab); }); }),
      vscode.window.onDidChangeVisibleTextEditors(() => { this.refresh(); }),
      vscode.workspace.onDidChangeTextDocument(() => { this.refresh(); }),
      this.changed,
      this.hint,
    );
  }

  dispose(): void {
    this.disposables.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const proposal = this.proposals.get(uri.toString());
    return proposal ? applied(proposal.base, proposal.hunks) : "";
  }

  /** Shows the proposal beside the file. `base` is the file's text at the time of the request. */
  async show(document: vscode.Uri, base: string, hunks: Hunk[], title: string): Promise<void> {
    this.count += 1;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: document.path, query: String(this.count) });
    this.proposals.set(uri.toString(), { document, base, hunks, goTo: 0 });
    await vscode.commands.executeCommand("setContext", "draftline.hasProposal", true);
    const options: vscode.TextDocumentShowOptions = { preview: false };
    await vscode.commands.executeCommand("vscode.diff", document, uri, title, options);
    this.refresh();
  }

  /** Accepts or rejects the change at the cursor, or the next one below it. */
  decideHunk(accept: boolean): Promise<void> {
    return this.inTurn(() => this.hunkDecided(accept));
  }

  /** Accepts or rejects all changes that remain, and closes the diff. */
  decideAll(accept: boolean): Promise<void> {
    return this.inTurn(() => this.allDecided(accept));
  }

  private inTurn(decide: () => Promise<void>): Promise<void> {
    const decided = this.turn.then(decide);
    this.turn = decided.catch(() => undefined); // the caller sees the error
    return decided;
  }

  private async hunkDecided(accept: boolean): Promise<void> {
    const current = this.current();
    if (!current) return;
    const { uri, proposal } = current;
    const { base, hunks } = proposal;
    const index = hunkAt(proposedLines(base, hunks), lineInProposal(uri));
    const hunk = hunks[index];
    if (!hunk) return;
    if (accept) {
      if (!(await this.apply(proposal, [hunk]))) return;
      proposal.base = applied(base, [hunk]);
      proposal.hunks = withoutApplied(hunks, index);
    } else {
      proposal.hunks = hunks.filter((each) => each !== hunk);
    }
    if (proposal.hunks.length === 0) {
      await this.close(uri, proposal);
    } else {
      proposal.goTo = Math.min(index, proposal.hunks.length - 1);
      this.changed.fire(uri);
      this.refresh();
    }
  }

  private async allDecided(accept: boolean): Promise<void> {
    const current = this.current();
    if (!current) return;
    if (accept && !(await this.apply(current.proposal, current.proposal.hunks))) return;
    await this.close(current.uri, current.proposal);
  }

  /** The proposal in the active tab, and the right side's URI. */
  private current(): { uri: vscode.Uri; proposal: Proposal } | undefined {
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    const uri = input instanceof vscode.TabInputTextDiff ? input.modified : undefined;
    const proposal = uri && this.proposals.get(uri.toString());
    return proposal && { uri, proposal };
  }

  private async apply(proposal: Proposal, hunks: Hunk[]): Promise<boolean> {
    const document = await vscode.workspace.openTextDocument(proposal.document);
    if (document.getText() !== proposal.base) {
      void vscode.window.showWarningMessage(
        `${vscode.workspace.asRelativePath(document.uri)} changed after this proposal was made, so ` +
          `nothing was applied. Undo your changes and accept again, or ask again.`,
      );
      return false;
    }
    const edit = new vscode.WorkspaceEdit();
    for (const { start, end, text } of hunks.flat()) {
      const range = new vscode.Range(document.positionAt(start), document.positionAt(end));
      edit.replace(document.uri, range, text);
    }
    if (await vscode.workspace.applyEdit(edit)) return true;
    void vscode.window.showErrorMessage(`VS Code could not change ${document.uri.fsPath}; the proposal stays.`);
    return false;
  }

  private async close(uri: vscode.Uri, proposal: Proposal): Promise<void> {
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
    await vscode.window.tabGroups.close(tabs.filter((tab) => modified(tab) === uri.toString()));
    await vscode.window.showTextDocument(proposal.document);
  }

  private forget(tab: vscode.Tab): void {
    this.proposals.delete(modified(tab) ?? "");
    void vscode.commands.executeCommand("setContext", "draftline.hasProposal", this.proposals.size > 0);
  }

  /** Where the right side has its text: how to decide each change, and the cursor to the next one. */
  private refresh(): void {
    const keys = process.platform === "darwin" ? "Cmd+Alt" : "Alt"; // Ctrl+Alt is AltGr
    const contentText = `✓ ${keys}+Y  ✗ ${keys}+N`;
    for (const [key, proposal] of this.proposals) {
      const editor = editorOf(vscode.Uri.parse(key));
      if (editor?.document.getText() !== applied(proposal.base, proposal.hunks)) continue;
      const lines = proposedLines(proposal.base, proposal.hunks);
      const ranges = lines.map(({ first }) => editor.document.lineAt(first).range);
      editor.setDecorations(this.hint, ranges.map((range) => ({ range, renderOptions: { after: { contentText } } })));
      if (proposal.goTo === undefined) continue;
      const line = lines[proposal.goTo]?.first ?? 0;
      proposal.goTo = undefined;
      editor.selection = new vscode.Selection(line, 0, line, 0);
      editor.revealRange(editor.selection, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
    }
  }
}

function modified(tab: vscode.Tab): string | undefined {
  return tab.input instanceof vscode.TabInputTextDiff ? tab.input.modified.toString() : undefined;
}

function editorOf(uri: vscode.Uri): vscode.TextEditor | undefined {
  return vscode.window.visibleTextEditors.find(({ document }) => document.uri.toString() === uri.toString());
}

function lineInProposal(uri: vscode.Uri): number {
  return editorOf(uri)?.selection.active.line ?? 0;
}
