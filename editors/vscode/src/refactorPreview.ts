/** VS Code's refactor preview, in which every edit is ticked. */

import * as vscode from "vscode";
import type { LanguageClient, WorkspaceEdit } from "vscode-languageclient/node";

const NOWHERE = vscode.Uri.from({ scheme: "draftline-nowhere", path: "/none.ipynb" });

/** Shows edits in the preview, where all are ticked; the user makes those that stay so. */
export async function preview(client: LanguageClient, edit: WorkspaceEdit): Promise<void> {
  for (const note of Object.values(edit.changeAnnotations ?? {})) note.needsConfirmation = false;
  await show(await client.protocol2CodeConverter.asWorkspaceEdit(edit));
}

export async function show(edit: vscode.WorkspaceEdit): Promise<void> {
  // The preview comes only where an edit needs confirmation, and leaves that one unticked. This one is of a
  // notebook that does not exist: it is not listed and not made.
  const nothing = vscode.NotebookEdit.updateNotebookMetadata({});
  edit.set(NOWHERE, [[nothing, { label: "Draftline", needsConfirmation: true }]]);
  if (await vscode.workspace.applyEdit(edit, { isRefactoring: true })) return;
  void vscode.window.showErrorMessage("VS Code did not apply the edits: look whether a file has changed, and ask again.");
}
