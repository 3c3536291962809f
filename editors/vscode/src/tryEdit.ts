/** Runs a command of the user on an edit that is shown, such as a test. */

import * as vscode from "vscode";
import { TRY_EDIT, type TriedEdit } from "./protocol";
import type { Review } from "./review";
import { explained, type Server } from "./server";
import { known } from "./words";

const LAST = "draftline.lastCheck"; // in the workspace's memory: the command that was typed last

/** Asks for the command, and shows with the edit in the active editor what it found. */
export async function tryEdit(server: Server, review: Review, memory: vscode.Memento): Promise<void> {
  const client = server.running;
  const proposal = review.active();
  if (!client || !proposal) return;
  const { document, before, warnings } = proposal;
  const command = await vscode.window.showInputBox({
    title: "Draftline: Check This Edit",
    prompt: "The command that tests it. It runs beside the workspace and not in it: no shell, no network, 60 seconds.",
    placeHolder: "pytest -q tests/test_x.py",
    value: memory.get<string>(LAST, "") || vscode.workspace.getConfiguration("draftline", document).get<string>("check", ""),
    ignoreFocusOut: true,
  });
  if (!command?.trim()) return;
  await memory.update(LAST, command);
  const textDocument = client.code2ProtocolConverter.asVersionedTextDocumentIdentifier(document);
  const location = vscode.ProgressLocation.Notification;
  try {
    const asked = client.sendRequest<TriedEdit>(TRY_EDIT, { textDocument, before, command, warnings });
    const found = await vscode.window.withProgress({ location, title: `Draftline: ${command}` }, () => asked);
    review.mark(proposal, known(found.seen, "", found.warnings).mark);
    void vscode.window.showInformationMessage(`Draftline: ${found.seen}`);
  } catch (error) {
    const message = explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  }
}
