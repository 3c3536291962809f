/** Edits in several files: asks what to change and where, and shows all changes in the refactor preview. */

import * as vscode from "vscode";
import { ProgressType, type LanguageClient } from "vscode-languageclient/node";
import { askInstruction } from "./edit";
import { previewRename, renamedByEditor } from "./editorRename";
import { EDIT_FILES, FIND_FILES, type EditedFile, type EditFilesResult, type FoundFile } from "./protocol";
import { preview } from "./refactorPreview";
import { explained, type Server } from "./server";

const MAX_LISTED = 5000; // files of the workspace, beside those that were found

interface FileItem extends vscode.QuickPickItem {
  uri?: vscode.Uri; // separators have none
}

/** Asks for an instruction and files, has them edited, and shows the refactor preview. */
export async function editFiles(server: Server, memory: vscode.Memento): Promise<void> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return;
  }
  const own = vscode.window.activeTextEditor?.document;
  const instruction = await askInstruction(memory);
  if (!instruction) return;
  const renamed = own && (await renamedByEditor(server, client, own, undefined, instruction));
  if (renamed) {
    await previewRename(renamed);
    return;
  }
  const uris = await chooseFiles(client, instruction, own);
  if (!uris?.length) return;
  try {
    const result = await ask(client, instruction, uris);
    tell(client, result.files, instruction);
    if (!result.edit) return;
    if (isCurrent(client, result)) await preview(client, result.edit);
    else void vscode.window.showErrorMessage("Draftline: a file was changed meanwhile: ask again.");
  } catch (error) {
    const message = explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  }
}

/** The files that the user picks of those found for the instruction, which are picked already, and the others. */
function chooseFiles(
  client: LanguageClient,
  instruction: string,
  own: vscode.TextDocument | undefined,
): Promise<vscode.Uri[] | undefined> {
  const pick = vscode.window.createQuickPick<FileItem>();
  pick.title = `Draftline: files for "${instruction}"`;
  pick.placeholder = "Choose the files to edit; type to find others of the workspace";
  pick.canSelectMany = true;
  pick.matchOnDescription = true;
  pick.busy = true;
  const stop = new vscode.CancellationTokenSource();
  const show = (found: readonly FileItem[], listed: readonly vscode.Uri[]): void => {
    const known = new Set(found.map(keyOf));
    const picked = new Set([...pick.selectedItems.map(keyOf), ...known]);
    const rest = listed.map((uri) => item(uri)).filter((each) => !known.has(keyOf(each)));
    pick.items = [separator("found"), ...found, separator("others of the workspace"), ...sorted(rest)];
    pick.selectedItems = pick.items.filter((each) => each.uri && picked.has(keyOf(each)));
  };
  const fill = async (): Promise<void> => {
    const textDocument = own && client.code2ProtocolConverter.asTextDocumentIdentifier(own);
    const asked = client.sendRequest<{ files: FoundFile[] }>(FIND_FILES, { instruction, textDocument }, stop.token);
    const answer = asked.then(({ files }) => files, (error: unknown) => {
      if (!stop.token.isCancellationRequested) void vscode.window.showWarningMessage(`Draftline: ${explained(error) ?? "stopped"}`);
      return [];
    });
    const listed = await vscode.workspace.findFiles("**/*", undefined, MAX_LISTED, stop.token);
    if (!stop.token.isCancellationRequested) show([], listed);
    const found = await answer;
    if (stop.token.isCancellationRequested) return;
    show(found.map(({ uri, reason }) => item(client.protocol2CodeConverter.asUri(uri), reason)), listed);
    pick.busy = false;
  };
  return new Promise((resolve) => {
    pick.onDidAccept(() => {
      resolve(pick.selectedItems.flatMap(({ uri }) => (uri ? [uri] : [])));
      pick.hide();
    });
    pick.onDidHide(() => { resolve(undefined); stop.cancel(); pick.dispose(); });
    pick.show();
    void fill();
  });
}

function keyOf({ uri }: FileItem): string {
  return uri?.toString() ?? "";
}

function separator(label: string): FileItem {
  return { label, kind: vscode.QuickPickItemKind.Separator };
}

function item(uri: vscode.Uri, reason?: string): FileItem {
  const label = uri.path.split("/").at(-1) ?? uri.path;
  return { uri, label, description: [vscode.workspace.asRelativePath(uri), reason].filter(Boolean).join(" · ") };
}

function sorted(items: readonly FileItem[]): FileItem[] {
  return [...items].sort((one, other) => (one.description ?? "").localeCompare(other.description ?? ""));
}

function ask(client: LanguageClient, instruction: string, uris: readonly vscode.Uri[]): Thenable<EditFilesResult> {
  const partialResultToken = `draftline-files-${Date.now()}`;
  const files = uris.map((uri) => client.code2ProtocolConverter.asUri(uri));
  const options = {
    location: vscode.ProgressLocation.Notification,
    title: `Draftline: ${instruction}`,
    cancellable: true,
  };
  return vscode.window.withProgress(options, async (progress, token) => {
    const parts = new ProgressType<{ file?: string; index: number; of: number }>();
    const partial = client.onProgress(parts, partialResultToken, ({ file, index, of }) => {
      if (file !== undefined) progress.report({ message: `${nameOf(file)}, ${index} of ${of}` });
    });
    try {
      return await client.sendRequest<EditFilesResult>(EDIT_FILES, { instruction, files, partialResultToken }, token);
    } finally {
      partial.dispose();
    }
  });
}

/** Whether the open files are still those that were edited. */
function isCurrent(client: LanguageClient, { edit }: EditFilesResult): boolean {
  const versions = new Map<string, number | null>();
  for (const each of edit?.documentChanges ?? []) {
    if ("textDocument" in each) versions.set(each.textDocument.uri, each.textDocument.version);
  }
  return vscode.workspace.textDocuments.every((document) => {
    const version = versions.get(client.code2ProtocolConverter.asUri(document.uri));
    return version === undefined || version === null || version === document.version;
  });
}

/** Tells what was not done, or is to be checked: one message for all files, and a list of them. */
function tell(client: LanguageClient, files: readonly EditedFile[], instruction: string): void {
  const failed = files.filter(({ error }) => error !== null).length;
  const warned = files.filter(({ warnings }) => warnings.length > 0).length;
  const changed = files.filter((file) => file.changed).length;
  const notes = files.some(({ note, error }) => note !== null && error === null);
  if (failed + warned === 0 && changed > 0 && !notes) return;
  const parts = [
    changed === 0 ? `nothing changed for "${instruction}"` : `changes for ${changed} of ${files.length} files`,
    ...(failed > 0 ? [`${failed} could not be edited`] : []),
    ...(warned > 0 ? [`${warned} to check`] : []),
  ];
  const show = failed + warned > 0 ? vscode.window.showWarningMessage : vscode.window.showInformationMessage;
  void show(`Draftline: ${parts.join(", ")}.`, "Show Files").then((answer) => {
    if (answer !== undefined) void list(client, files);
  });
}

/** Lists what became of each file; one that is chosen is opened. */
async function list(client: LanguageClient, files: readonly EditedFile[]): Promise<void> {
  const items = files.map((file) => ({
    uri: client.protocol2CodeConverter.asUri(file.uri),
    label: `$(${file.error !== null ? "error" : file.warnings.length > 0 ? "warning" : file.changed ? "edit" : "dash"}) ${nameOf(file.uri)}`,
    detail: file.error ?? ([...(file.seen ? [file.seen] : file.warnings), file.rule, file.note].filter(Boolean).join("; ") || "changed"),
  }));
  const chosen = await vscode.window.showQuickPick(items, { title: "Draftline: edited files", matchOnDetail: true });
  if (chosen) await vscode.window.showTextDocument(chosen.uri);
}

function nameOf(uri: string): string {
  return decodeURIComponent(uri.split("/").at(-1) ?? uri);
}
