/** Renames by the language server that the editor has already, which are exact and span the workspace. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import { RENAME_PLACES, type RenamePlaces } from "./protocol";
import { show } from "./refactorPreview";
import type { Server } from "./server";

const PATIENCE_MS = 10_000; // for all answers of the language server

/** A rename that a language server made. */
export interface EditorRename {
  edits: [vscode.Uri, vscode.TextEdit[]][];
  title: string; // what was done
}

/**
 * The rename that `instruction` asks for in a range, or in the whole document. Undefined if it asks for
 * anything else, if no language server makes it, and if the document changes meanwhile.
 */
export async function renamedByEditor(
  server: Server,
  client: LanguageClient,
  document: vscode.TextDocument,
  range: vscode.Range | undefined,
  instruction: string,
): Promise<EditorRename | undefined> {
  const { version } = document;
  const convert = client.code2ProtocolConverter;
  const textDocument = convert.asVersionedTextDocumentIdentifier(document);
  const parameters = { textDocument, range: range && convert.asRange(range), instruction };
  const location = vscode.ProgressLocation.Window;
  try {
    const wanted = await client.sendRequest<RenamePlaces | null>(RENAME_PLACES, parameters);
    if (!wanted) return undefined;
    const options = { location, title: `Draftline: renaming ${wanted.old}` };
    const renamed = await vscode.window.withProgress(options, () => inTime(rename(client, document.uri, wanted)));
    return document.version === version ? renamed : undefined;
  } catch (error) {
    server.log(`no language server renames for "${instruction}": ${String(error)}`);
    return undefined;
  }
}

/** Asks at each place that no edit has reached yet. */
async function rename(client: LanguageClient, uri: vscode.Uri, wanted: RenamePlaces): Promise<EditorRename> {
  const found = new Map<string, [vscode.Uri, vscode.TextEdit[]]>();
  for (const place of wanted.places) {
    const at = client.protocol2CodeConverter.asRange(place).start;
    const reached = found.get(uri.toString())?.[1] ?? [];
    if (reached.some(({ range }) => range.contains(at))) continue;
    const command = "vscode.executeDocumentRenameProvider";
    const edit = await vscode.commands.executeCommand<vscode.WorkspaceEdit | undefined>(command, uri, at, wanted.new);
    const entries = edit?.entries() ?? [];
    if (entries.length === 0) throw new Error(`nothing to rename in line ${at.line + 1}`);
    for (const [each, edits] of entries) {
      found.set(each.toString(), [each, [...(found.get(each.toString())?.[1] ?? []), ...edits]]);
    }
  }
  const edits = [...found.values()];
  const count = edits.reduce((sum, [, each]) => sum + each.length, 0);
  const where = edits.length > 1 ? ` of ${edits.length} files` : "";
  return { edits, title: `\`${wanted.old}\` renamed to \`${wanted.new}\` in ${count} place${count === 1 ? "" : "s"}${where}` };
}

function inTime<T>(answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => { reject(new Error(`no answer in ${PATIENCE_MS / 1000} s`)); }, PATIENCE_MS);
    void answer.then(resolve, reject).finally(() => { clearTimeout(timer); });
  });
}

/** The edits of `document`, if the rename is in no other one. */
export function onlyIn(document: vscode.TextDocument, { edits }: EditorRename): vscode.TextEdit[] | undefined {
  const [first, ...others] = edits;
  return first && others.length === 0 && first[0].toString() === document.uri.toString() ? first[1] : undefined;
}

/** Shows a rename in VS Code's refactor preview. */
export async function previewRename({ edits, title }: EditorRename): Promise<void> {
  const label = `by the language server: ${title}`;
  const shown = new vscode.WorkspaceEdit();
  for (const [uri, each] of edits) {
    for (const { range, newText } of each) shown.replace(uri, range, newText, { label, needsConfirmation: false });
  }
  void vscode.window.showInformationMessage(`Draftline: ${label}.`);
  await show(shown);
}
