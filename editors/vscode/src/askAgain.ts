/** Asks for ghost text again when the model is ready, if the user typed while it was loaded. */

import * as vscode from "vscode";
import type { Status } from "./protocol";

export class AskAgain implements vscode.Disposable {
  private isLoading = true;
  private hasTyped = false;
  private readonly typing = vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
    const isActive = document === vscode.window.activeTextEditor?.document;
    if (this.isLoading && isActive && contentChanges.length > 0) this.hasTyped = true;
  });

  /** The server reports its state. */
  follow(status: Status): void {
    const isReady = status.state === "ready" || status.state === "busy";
    if (this.isLoading && isReady && this.hasTyped) {
      void vscode.commands.executeCommand("editor.action.inlineSuggest.trigger");
    }
    this.isLoading = status.state === "loading";
    if (!this.isLoading) this.hasTyped = false;
  }

  dispose(): void {
    this.typing.dispose();
  }
}
