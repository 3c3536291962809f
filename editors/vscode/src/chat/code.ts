/** Code of an answer in the active file: inserted at the cursor, or proposed as a change. */

import * as vscode from "vscode";
import { toChanges, type TextEdit } from "../hunks";
import type { Preview } from "../preview";
import { activeEditor, nameOf } from "./context";
import { indented, replacements } from "./place";

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

/** Proposes code as a change of the active file: of the selection, of the definitions with the same names, or as new
 * lines at the cursor. */
export async function applyCode(preview: Preview, code: string): Promise<void> {
  const editor = activeEditor();
  if (!editor) {
    void vscode.window.showWarningMessage(NO_FILE);
    return;
  }
  const { document } = editor;
  const base = document.getText();
  const changes = toChanges(base, editsOf(editor, code));
  if (changes.length === 0) {
    void vscode.window.showInformationMessage(`Draftline: ${nameOf(document.uri)} has this code already.`);
    return;
  }
  const hunks = changes.map((change) => [change]);
  await preview.show(document.uri, base, hunks, `${nameOf(document.uri)}: from the chat`);
}

function editsOf({ document, selection }: vscode.TextEditor, code: string): TextEdit[] {
  const newline = document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n";
  const lines = document.getText().split(/\r\n|\r|\n/);
  const edit = (start: vscode.Position, end: vscode.Position, text: string): TextEdit => ({
    range: { start: { line: start.line, character: start.character }, end: { line: end.line, character: end.character } },
    newText: text.replace(/\r\n|\r|\n/g, newline),
  });
  const own = code.replace(/\s+$/, "").split(/\r\n|\r|\n/);
  if (!selection.isEmpty) {
    const { start, end } = selection;
    const last = end.character === 0 && end.line > start.line ? document.lineAt(end.line - 1) : document.lineAt(end.line);
    const first = document.lineAt(start.line);
    return [edit(first.range.start, last.range.end, indented(own, first.text).join("\n"))];
  }
  const found = replacements(lines, code);
  if (found) {
    return found.map(({ first, last, text }) => edit(document.lineAt(first).range.start, document.lineAt(last).range.end, text));
  }
  const { line } = selection.active;
  const here = document.lineAt(line);
  const text = indented(own, here.text).join("\n");
  return here.isEmptyOrWhitespace
    ? [edit(here.range.start, here.range.end, text)]
    : [edit(here.range.end, here.range.end, `\n${text}`)];
}
