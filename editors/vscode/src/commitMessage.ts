/** Writes a commit message for what is staged into the input box of VS Code's own git extension. */

import * as vscode from "vscode";
import { COMMIT_MESSAGE, type CommitMessageResult } from "./protocol";
import { explained, type Server } from "./server";

/** What is used of the git extension's API. */
interface Repository {
  rootUri: vscode.Uri;
  inputBox: { value: string };
  ui: { selected: boolean };
  diff(cached: boolean): Promise<string>;
}
interface GitExtension {
  getAPI(version: 1): { repositories: Repository[] };
}

const REPLACE = "Replace It";
const BELOW = "Write Below It";

/** The repository that was clicked, the one that is selected, or the only one. */
async function repositoryOf(root: vscode.Uri | undefined): Promise<Repository | undefined> {
  const git = vscode.extensions.getExtension<GitExtension>("vscode.git");
  if (!git) return undefined;
  const { repositories } = (await git.activate()).getAPI(1);
  const clicked = repositories.find(({ rootUri }) => rootUri.toString() === root?.toString());
  return clicked ?? repositories.find(({ ui }) => ui.selected) ?? repositories[0];
}

export async function writeCommitMessage(server: Server, source?: { rootUri?: vscode.Uri }): Promise<void> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return;
  }
  try {
    const repository = await repositoryOf(source?.rootUri);
    if (!repository) {
      void vscode.window.showWarningMessage("Draftline: there is no git repository here, or the setting git.enabled is off.");
      return;
    }
    const diff = await repository.diff(true);
    if (!diff.trim()) {
      void vscode.window.showWarningMessage("Draftline: nothing is staged. Stage the changes that you want to commit first.");
      return;
    }
    const before = repository.inputBox.value;
    const keep = before.trim() ? await vscode.window.showInformationMessage("The commit message has a text already.", REPLACE, BELOW) : REPLACE;
    if (!keep) return;
    const options = { location: vscode.ProgressLocation.SourceControl, title: "Draftline writes a commit message", cancellable: true };
    const { text } = await vscode.window.withProgress(options, (_, token) =>
      client.sendRequest<CommitMessageResult>(COMMIT_MESSAGE, { diff }, token),
    );
    if (repository.inputBox.value !== before) {
      void vscode.window.showWarningMessage("Draftline: the commit message was changed meanwhile, so nothing was written. Try again.");
      return;
    }
    const message = keep === BELOW ? `${before.trimEnd()}\n\n${text}` : text;
    repository.inputBox.value = message;
    await offerUndo(repository, before, message);
  } catch (error) {
    const message = explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  }
}

/** The input box forgets what it had when an extension writes into it: this brings it back. */
async function offerUndo({ inputBox }: Repository, before: string, message: string): Promise<void> {
  const undo = await vscode.window.showInformationMessage("Draftline wrote the commit message.", "Undo");
  if (undo && inputBox.value === message) inputBox.value = before;
}
