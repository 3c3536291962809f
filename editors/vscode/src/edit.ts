/** Edits by instruction: prompts for it, asks the server and opens the preview. */

import * as vscode from "vscode";
import { ProgressType, type LanguageClient, type WorkspaceEdit } from "vscode-languageclient/node";
import { blockAround } from "./block";
import { onlyIn, previewRename, renamedByEditor } from "./editorRename";
import { toChanges, type TextEdit } from "./hunks";
import type { LiveEdits } from "./liveEdits";
import type { Preview } from "./preview";
import { EDIT, type EditResult, type Target } from "./protocol";
import type { Review } from "./review";
import { explained, type Server } from "./server";
import type { Made, Writing } from "./writing";

const HISTORY = "draftline.instructions";
const REMEMBERED = 30;

/** The text edits that `edit` makes to `uri`. */
export function editsOf(edit: WorkspaceEdit, uri: string): TextEdit[] {
  const documents = edit.documentChanges ?? [];
  const versioned = documents.flatMap((each) =>
    "textDocument" in each && each.textDocument.uri === uri ? each.edits : [],
  );
  const edits = edit.documentChanges ? versioned : (edit.changes?.[uri] ?? []);
  return edits.map((each) => {
    if (!("newText" in each)) throw new Error("the server answered with a snippet");
    return { range: each.range, newText: each.newText };
  });
}

/** Prompts for an instruction, offering earlier ones; undefined if dismissed. */
export async function askInstruction(memory: vscode.Memento): Promise<string | undefined> {
  const earlier = memory.get<string[]>(HISTORY, []);
  const pick = vscode.window.createQuickPick();
  pick.title = "Draftline: Edit";
  pick.placeholder = "What should change? For example: rename path to source";
  const items = (typed: string): vscode.QuickPickItem[] => [
    ...(typed ? [{ label: typed, description: "↵", alwaysShow: true }] : []),
    ...earlier.filter((each) => each !== typed).map((label) => ({ label, iconPath: new vscode.ThemeIcon("history") })),
  ];
  pick.items = items("");
  pick.onDidChangeValue((value) => { pick.items = items(value.trim()); });
  const instruction = await new Promise<string | undefined>((resolve) => {
    let listed = ""; // the typed text that the list shows as an item
    pick.onDidChangeActive(([active]) => { if (active && !active.iconPath) listed = active.label; });
    pick.onDidAccept(() => {
      // Enter may be pressed before the list shows the typed text: nobody has chosen from it then.
      const active = pick.activeItems[0];
      const typed = pick.value.trim();
      resolve(active?.iconPath && (!typed || listed === typed) ? active.label : typed);
      pick.hide();
    });
    pick.onDidHide(() => { resolve(undefined); pick.dispose(); });
    pick.show();
  });
  if (!instruction) return undefined;
  const kept = [instruction, ...earlier.filter((each) => each !== instruction)];
  await memory.update(HISTORY, kept.slice(0, REMEMBERED));
  return instruction;
}

/** The selection or, without one, the function or block around the cursor, which gets selected. */
export async function targetOf(editor: vscode.TextEditor): Promise<vscode.Range> {
  const { document, selection } = editor;
  if (!selection.isEmpty) return selection;
  const symbol = await functionAround(document, selection.active);
  const lines = document.getText().split(/\r\n|\r|\n/);
  const block = blockAround(lines, selection.active.line);
  const last = document.lineAt(symbol?.end.line ?? block.last).range.end;
  const range = new vscode.Range(symbol?.start.line ?? block.first, 0, last.line, last.character);
  editor.selection = new vscode.Selection(range.start, range.end);
  return range;
}

async function functionAround(document: vscode.TextDocument, at: vscode.Position): Promise<vscode.Range | undefined> {
  const command = "vscode.executeDocumentSymbolProvider";
  const found = await vscode.commands.executeCommand<vscode.DocumentSymbol[] | undefined>(command, document.uri);
  const functions = [vscode.SymbolKind.Function, vscode.SymbolKind.Method, vscode.SymbolKind.Constructor];
  const inside = (symbols: vscode.DocumentSymbol[]): vscode.Range | undefined => {
    // Some providers answer with the older SymbolInformation, which has no children and no range.
    const around = symbols.find((each) => "children" in each && each.range.contains(at));
    if (!around) return undefined;
    return inside(around.children) ?? (functions.includes(around.kind) ? around.range : undefined);
  };
  return inside(found ?? []);
}

/** Asks the server, and has what it writes shown; Escape or the message's button cancel. */
async function ask(client: LanguageClient, writing: Writing, title: string, parameters: object): Promise<EditResult> {
  const location = vscode.ProgressLocation.Notification;
  const options = { location, title: `Draftline: ${title}`, cancellable: true };
  return vscode.window.withProgress(options, async (progress, button) => {
    const partialResultToken = `draftline-edit-${Date.now()}`;
    const parts = new ProgressType<{ text: string; restart?: boolean }>();
    let line = "";
    const subscriptions = vscode.Disposable.from(
      button.onCancellationRequested(() => { writing.stop(); }),
      client.onProgress(parts, partialResultToken, ({ text, restart }) => {
        writing.add(text, restart ?? false);
        line = `${restart ? "" : line}${text}`.trimEnd().split("\n").at(-1) ?? "";
        progress.report({ message: line.trim().slice(0, 60) });
      }),
    );
    try {
      // The document has what is written: the server is not to take that for changes by the user.
      const owned = { ...parameters, ownsRange: true, partialResultToken };
      return await client.sendRequest<EditResult>(EDIT, owned, writing.token);
    } finally {
      subscriptions.dispose();
    }
  });
}

/** The changes of a document, and what to say of them. */
interface Answer {
  edits: readonly TextEdit[];
  warning: string; // what to check before accepting; "" for nothing
  by: string; // what made the edit without the model, and what it did; "" if the model made it
  note: string | null; // why nothing changed
}

function answerOf({ edit, stats, warnings, note }: EditResult, uri: string): Answer {
  const edits = edit ? editsOf(edit, uri) : [];
  return { edits, warning: warnings.join("; "), by: stats.rule ? `by rule: ${stats.rule}` : "", note };
}

/** Shows an edit that is made, or with `draftline.editView` as a diff that is to be made. */
async function show(views: Views, { document, streams }: Writing, made: Made, title: string, answer: Answer): Promise<void> {
  const { warning, by } = answer;
  if (streams) {
    views.review.show(document, made, title, warning ? `\u26a0 check: ${warning}` : by);
  } else {
    const hunks = made.changes.map((change) => [change]);
    const label = `${warning ? "\u26a0 " : ""}${title}${by && ` (${by.split(":", 1).join()})`}`;
    await views.preview.show(document.uri, made.before, hunks, label);
  }
  if (warning) void vscode.window.showWarningMessage(`Draftline: check this edit: ${warning}.`);
}

/** What an edit needs: the places where it is written and shown. */
export interface Views {
  live: LiveEdits;
  review: Review;
  preview: Preview;
}

/** Requests an edit of `target`, or of the active editor's selection, and shows it as a proposal. */
export async function edit(server: Server, views: Views, memory: vscode.Memento, target?: Target): Promise<void> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return;
  }
  const document = target
    ? await vscode.workspace.openTextDocument(client.protocol2CodeConverter.asUri(target.textDocument.uri))
    : vscode.window.activeTextEditor?.document;
  if (!document) return;
  await views.live.stop(document); // the place may be in what is written there
  const editor = vscode.window.visibleTextEditors.find((each) => each.document === document);
  const asked = target?.range ? client.protocol2CodeConverter.asRange(target.range) : editor && (await targetOf(editor));
  const instruction = target?.instruction ?? (await askInstruction(memory));
  if (!instruction) return;
  const title = target?.title ?? instruction;
  const name = document.uri.path.split("/").at(-1) ?? "";

  const { version } = document;
  const renamed = await renamedByEditor(server, client, document, asked, instruction);
  const own = renamed && onlyIn(document, renamed);
  if (renamed && !own) {
    await previewRename(renamed);
    return;
  }
  if (document.version !== version) {
    void vscode.window.showErrorMessage(`Draftline: ${name} changed meanwhile: ask again.`);
    return;
  }

  const isInline = vscode.workspace.getConfiguration("draftline", document).get<string>("editView") !== "diff";
  views.review.end(document); // what is left of an earlier edit stays
  const writing = await views.live.begin(document, asked, isInline);
  const textDocument = target?.textDocument ?? client.code2ProtocolConverter.asVersionedTextDocumentIdentifier(document);
  const range = asked && client.code2ProtocolConverter.asRange(asked);
  const parameters = { textDocument, range, instruction, keepDefinitions: target?.keepDefinitions ?? false };
  try {
    const base = document.getText();
    const answer = own
      ? { edits: own, warning: "", by: `by the language server: ${renamed.title}`, note: null }
      : answerOf(await ask(client, writing, title, parameters), textDocument.uri);
    const changes = toChanges(base, answer.edits);
    if (changes.length === 0) {
      await writing.restore();
      const why = answer.note ? `: ${answer.note}` : "";
      void vscode.window.showInformationMessage(`Draftline changed nothing for "${title}"${why}.`);
      return;
    }
    const made = await writing.finish(changes);
    if (!made) throw new vscode.CancellationError();
    await show(views, writing, made, `${name}: ${title}`, answer);
  } catch (error) {
    await writing.restore();
    const message = writing.why ? `${name}: ${writing.why}.` : explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  } finally {
    views.live.end(writing);
  }
}
