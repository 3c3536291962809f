/** Read-only Markdown documents that may grow while shown: answers and statistics. */

import * as vscode from "vscode";

const SCHEME = "draftline-text";
const REFRESH_INTERVAL_MS = 100; // of a growing document

interface Page {
  text: string;
  links: { line: number; target: vscode.Uri }[];
  timer: NodeJS.Timeout | undefined;
}

export class Pages implements vscode.Disposable, vscode.TextDocumentContentProvider, vscode.DocumentLinkProvider {
  private readonly pages = new Map<string, Page>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly disposables = [
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
    vscode.languages.registerDocumentLinkProvider({ scheme: SCHEME }, this),
    vscode.workspace.onDidCloseTextDocument(({ uri }) => {
      clearTimeout(this.pages.get(uri.toString())?.timer);
      this.pages.delete(uri.toString());
    }),
    this.changed,
  ];
  private count = 0;

  dispose(): void {
    for (const { timer } of this.pages.values()) clearTimeout(timer);
    for (const each of this.disposables) each.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.pages.get(uri.toString())?.text ?? "";
  }

  provideDocumentLinks(document: vscode.TextDocument): vscode.DocumentLink[] {
    const links = this.pages.get(document.uri.toString())?.links ?? [];
    return links.map(({ line, target }) => new vscode.DocumentLink(document.lineAt(line).range, target));
  }

  /** Opens a page beside the editor and answers its URI. */
  async open(name: string, text: string): Promise<vscode.Uri> {
    this.count += 1;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name}.md`, query: String(this.count) });
    this.pages.set(uri.toString(), { text, links: [], timer: undefined });
    const document = await vscode.workspace.openTextDocument(uri);
    const options = { viewColumn: vscode.ViewColumn.Beside, preview: true, preserveFocus: true };
    await vscode.window.showTextDocument(document, options);
    return uri;
  }

  add(uri: vscode.Uri, text: string): void {
    const page = this.pages.get(uri.toString());
    if (!page) return;
    page.text += text;
    page.timer ??= setTimeout(() => {
      page.timer = undefined;
      this.changed.fire(uri);
    }, REFRESH_INTERVAL_MS);
  }

  /** Adds one line that links to `target`; the page so far must end with a line end. */
  addLink(uri: vscode.Uri, label: string, target: vscode.Uri): void {
    const page = this.pages.get(uri.toString());
    if (!page) return;
    page.links.push({ line: page.text.split("\n").length - 1, target });
    this.add(uri, `${label}\n`);
  }
}
