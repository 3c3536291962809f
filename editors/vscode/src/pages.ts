/** Read-only Markdown documents: statistics. */

import * as vscode from "vscode";

const SCHEME = "draftline-text";

export class Pages implements vscode.Disposable, vscode.TextDocumentContentProvider {
  private readonly pages = new Map<string, string>();
  private readonly disposables = [
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
    vscode.workspace.onDidCloseTextDocument(({ uri }) => { this.pages.delete(uri.toString()); }),
  ];
  private count = 0;

  dispose(): void {
    for (const each of this.disposables) each.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.pages.get(uri.toString()) ?? "";
  }

  /** Opens a page beside the editor. */
  async open(name: string, text: string): Promise<void> {
    this.count += 1;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name}.md`, query: String(this.count) });
    this.pages.set(uri.toString(), text);
    const document = await vscode.workspace.openTextDocument(uri);
    const options = { viewColumn: vscode.ViewColumn.Beside, preview: true, preserveFocus: true };
    await vscode.window.showTextDocument(document, options);
  }
}
