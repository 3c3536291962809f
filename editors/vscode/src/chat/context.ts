/** What a question is about: the active file or its selection, the files it names, the editor's problems. */

import * as vscode from "vscode";
import type { LanguageClient, Range } from "vscode-languageclient/node";
import { DOCUMENTS } from "../server";
import { mentionsIn } from "./mentions";
import type { ContextItem } from "./messages";

const MAX_FILES = 5_000; // that are offered after @
const MAX_PROBLEMS = 20;

export interface Problem {
  uri: string;
  range: Range;
  message: string;
}

export interface Asked {
  items: ContextItem[];
  problems: Problem[];
  missing: string[]; // files that the question names and that do not exist
}

/** The editor that questions are about. */
export function activeEditor(): vscode.TextEditor | undefined {
  const editor = vscode.window.activeTextEditor;
  return editor && vscode.languages.match(DOCUMENTS, editor.document) ? editor : undefined;
}

/** The name of the active file, with the lines that are selected in it. */
export function activeLabel(): string {
  const editor = activeEditor();
  if (!editor) return "";
  const { start, end, isEmpty } = editor.selection;
  const lines = start.line === end.line ? `${start.line + 1}` : `${start.line + 1}-${end.line + 1}`;
  return `${nameOf(editor.document.uri)}${isEmpty ? "" : `:${lines}`}`;
}

export function nameOf(uri: vscode.Uri): string {
  return uri.path.split("/").at(-1) ?? "";
}

/** The active file, or what is selected in it. */
function activeItem(client: LanguageClient, editor: vscode.TextEditor): ContextItem {
  const uri = client.code2ProtocolConverter.asUri(editor.document.uri);
  return editor.selection.isEmpty ? { uri } : { uri, range: client.code2ProtocolConverter.asRange(editor.selection) };
}

/** The context of a question. `useFile`: with the active file, even if the question does not name it. */
export async function contextOf(client: LanguageClient, question: string, useFile: boolean): Promise<Asked> {
  const editor = activeEditor();
  const named = mentionsIn(question);
  const items: ContextItem[] = [];
  const missing: string[] = [];
  for (const file of named.files) {
    const uri = await fileNamed(file);
    if (uri) items.push({ uri: client.code2ProtocolConverter.asUri(uri) });
    else if (/[./]/.test(file)) missing.push(file); // else it is a decorator, or a person
  }
  if (editor && (useFile || named.selection)) items.push(activeItem(client, editor));
  return { items, problems: editor && named.problems ? problemsOf(client, editor) : [], missing };
}

/** What is left of the files and lines that earlier questions were about. */
export async function stillThere(client: LanguageClient, items: readonly ContextItem[]): Promise<ContextItem[]> {
  const found: ContextItem[] = [];
  for (const item of items) {
    const uri = client.protocol2CodeConverter.asUri(item.uri);
    const open = vscode.workspace.textDocuments.find((each) => each.uri.toString() === uri.toString());
    const isThere = open ? !item.range || item.range.end.line < open.lineCount : await isFile(uri);
    if (isThere) found.push(item);
  }
  return found;
}

async function isFile(uri: vscode.Uri): Promise<boolean> {
  const { type } = await Promise.resolve(vscode.workspace.fs.stat(uri)).catch(() => ({ type: vscode.FileType.Unknown }));
  return (type & vscode.FileType.File) !== 0;
}

/** What the editor reports in the selection or, without one, in the file. */
function problemsOf(client: LanguageClient, { document, selection }: vscode.TextEditor): Problem[] {
  const uri = client.code2ProtocolConverter.asUri(document.uri);
  return vscode.languages
    .getDiagnostics(document.uri)
    .filter(({ range }) => selection.isEmpty || selection.intersection(range))
    .slice(0, MAX_PROBLEMS)
    .map(({ range, message }) => ({ uri, range: client.code2ProtocolConverter.asRange(range), message }));
}

/** The file of the workspace with a path that is relative to a folder, or begins with the folder's name. */
async function fileNamed(path: string): Promise<vscode.Uri | undefined> {
  const parts = path.split("/");
  if (parts.includes("..")) return undefined;
  for (const { uri, name } of vscode.workspace.workspaceFolders ?? []) {
    const inside = parts[0] === name ? [path, parts.slice(1).join("/")] : [path];
    for (const each of inside) {
      const found = vscode.Uri.joinPath(uri, each);
      if (await isFile(found)) return found;
    }
  }
  return undefined;
}

/** The paths of the workspace's files, as `fileNamed` takes them. */
export async function workspaceFiles(): Promise<string[]> {
  const found = await vscode.workspace.findFiles("**/*", "**/{node_modules,.git,.venv,dist,build,__pycache__}/**", MAX_FILES);
  return found.map((uri) => vscode.workspace.asRelativePath(uri));
}
