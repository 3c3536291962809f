/** Code of an answer in the active file: inserted at the cursor, or proposed as a change. */

import * as vscode from "vscode";
import type { LanguageClient, WorkspaceEdit } from "vscode-languageclient/node";
import { editsOf, proposeEdits, type Views } from "../edit";
import { PLACE_CODE } from "../protocol";
import { explained } from "../server";
import { activeEditor, nameOf } from "./context";

const NO_FILE = "Draftline: open the file for this code first.";

/** Inserts code at the cursor, in place of what is selected. */
export async function insertCode(code: string): Promise<void> {
  const editor = activeEditor();
  if (!editor) {
    void vscode.window.showWarningMessage(NO_FILE);
    return;
  }
  const text = code.replace(/\r?\n$/, "");
  const done = await editor.edit((builder) => { builder.replace(editor.selection, text); });
  if (!done) void vscode.window.showWarningMessage(`Draftline: ${nameOf(editor.document.uri)} cannot be changed.`);
  await vscode.window.showTextDocument(editor.document, editor.viewColumn);
}

/** Proposes code as a change of the active file: in place of what is selected, or where the server finds that it belongs. */
export async function applyCode(client: LanguageClient, views: Views, code: string): Promise<void> {
  const editor = activeEditor();
  if (!editor) {
    void vscode.window.showWarningMessage(NO_FILE);
    return;
  }
  const { document } = editor;
  const convert = client.code2ProtocolConverter;
  const textDocument = convert.asVersionedTextDocumentIdentifier(document);
  const asked = { textDocument, range: convert.asRange(editor.selection), code };
  try {
    const { edit } = await client.sendRequest<{ edit: WorkspaceEdit | null }>(PLACE_CODE, asked);
    const edits = edit ? editsOf(edit, textDocument.uri) : [];
    if (document.version !== textDocument.version) throw new Error(`${nameOf(document.uri)} changed meanwhile: apply it again`);
    await vscode.window.showTextDocument(document, editor.viewColumn);
    if (!(await proposeEdits(views, document, edits, `${nameOf(document.uri)}: from the chat`))) {
      void vscode.window.showInformationMessage(`Draftline: ${nameOf(document.uri)} has this code already.`);
    }
  } catch (error) {
    const message = explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  }
}
