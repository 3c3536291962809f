/** Edits by instruction: prompts for it, asks the server and opens the preview. */

import * as vscode from "vscode";
import { ProgressType, type LanguageClient, type Range, type WorkspaceEdit } from "vscode-languageclient/node";
import { onlyIn, previewRename, renamedByEditor } from "./editorRename";
import { toChanges, type Change, type TextEdit } from "./hunks";
import type { LiveEdits } from "./liveEdits";
import { EDIT, EDIT_TARGET, type EditResult, type Target } from "./protocol";
import type { Review } from "./review";
import { explained, type Server } from "./server";
import { known } from "./words";
import type { Writing } from "./writing";

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

/** The selection or, without one, the definition around the cursor, which gets selected. */
export async function targetOf(client: LanguageClient, editor: vscode.TextEditor): Promise<vscode.Range> {
  const { document, selection } = editor;
  if (!selection.isEmpty) return selection;
  const convert = client.code2ProtocolConverter;
  const textDocument = convert.asVersionedTextDocumentIdentifier(document);
  const asked = { textDocument, position: convert.asPosition(selection.active) };
  const found = await client.sendRequest<{ range: Range }>(EDIT_TARGET, asked);
  const range = client.protocol2CodeConverter.asRange(found.range);
  editor.selection = new vscode.Selection(range.start, range.end);
  return range;
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
  mark: string; // what is known of the edit: who made it, how far it was checked; "" for nothing
  warning: string; // what the mark does not say, in a message of its own
  warnings: readonly string[];
  note: string | null; // why nothing changed
}

function answerOf({ edit, stats, seen, warnings, note }: EditResult, uri: string): Answer {
  const edits = edit ? editsOf(edit, uri) : [];
  return { edits, ...known(seen ?? "", stats.rule ?? "", warnings), warnings, note };
}

/** What an edit needs: the places where it is written and shown. */
export interface Views {
  live: LiveEdits;
  review: Review;
}

/** Makes an edit and shows what is to be accepted: in the file, or with `draftline.editView` in a diff. */
async function propose(views: Views, writing: Writing, changes: readonly Change[], title: string, mark: string, warnings: readonly string[] = []): Promise<void> {
  const made = await writing.finish(changes);
  if (!made) throw new vscode.CancellationError();
  views.review.show(writing.document, made, title, mark, warnings);
  if (!isInline(writing.document)) await views.review.compare();
}

/** Proposes an edit of a visible document that is known already. */
export async function proposeEdits(views: Views, document: vscode.TextDocument, edits: readonly TextEdit[], title: string): Promise<boolean> {
  const changes = toChanges(document.getText(), edits);
  if (changes.length === 0) return false;
  views.review.end(document); // what is left of an earlier edit stays
  const writing = await views.live.begin(document, undefined, false);
  try {
    await propose(views, writing, changes, title, "");
  } finally {
    views.live.end(writing);
  }
  return true;
}

function isInline(document: vscode.TextDocument): boolean {
  return vscode.workspace.getConfiguration("draftline", document).get<string>("editView") !== "diff";
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
  const asked = target?.range ? client.protocol2CodeConverter.asRange(target.range) : editor && (await targetOf(client, editor));
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

  views.review.end(document); // what is left of an earlier edit stays
  const writing = await views.live.begin(document, asked, isInline(document));
  const textDocument = target?.textDocument ?? client.code2ProtocolConverter.asVersionedTextDocumentIdentifier(document);
  const range = asked && client.code2ProtocolConverter.asRange(asked);
  const parameters = { textDocument, range, instruction, keepDefinitions: target?.keepDefinitions ?? false };
  try {
    const base = document.getText();
    const answer = own
      ? { edits: own, mark: `by the language server: ${renamed.title}`, warning: "", warnings: [], note: null }
      : answerOf(await ask(client, writing, title, parameters), textDocument.uri);
    const changes = toChanges(base, answer.edits);
    if (changes.length === 0) {
      await writing.restore();
      const why = answer.note ? `: ${answer.note}` : "";
      void vscode.window.showInformationMessage(`Draftline changed nothing for "${title}"${why}.`);
      return;
    }
    await propose(views, writing, changes, `${name}: ${title}`, answer.mark, answer.warnings);
    if (answer.warning) void vscode.window.showWarningMessage(`Draftline: check this edit: ${answer.warning}.`);
  } catch (error) {
    await writing.restore();
    const message = writing.why ? `${name}: ${writing.why}.` : explained(error);
    if (message !== undefined) void vscode.window.showErrorMessage(`Draftline: ${message}`);
  } finally {
    views.live.end(writing);
  }
}
