/** Questions about a file, and explanations of a selection: streamed into a page beside the editor. */

import * as vscode from "vscode";
import { ProgressType } from "vscode-languageclient/node";
import { targetOf } from "./edit";
import { ASK, EXPLAIN, type AnswerResult, type Source } from "./protocol";
import { explained, type Server } from "./server";
import type { Pages } from "./pages";

export async function askAboutFile(server: Server, pages: Pages): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const question = await vscode.window.showInputBox({
    title: "Draftline: Ask About This File",
    placeHolder: "What do you want to know?",
  });
  const range = editor.selection.isEmpty ? undefined : editor.selection;
  if (question?.trim()) await answer(server, pages, editor, ASK, question.trim(), range);
}

export async function explainSelection(server: Server, pages: Pages): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const range = await targetOf(editor);
  const title = `Lines ${range.start.line + 1} to ${range.end.line + 1}`;
  await answer(server, pages, editor, EXPLAIN, title, range);
}

async function answer(
  server: Server,
  pages: Pages,
  { document }: vscode.TextEditor,
  method: typeof ASK | typeof EXPLAIN,
  title: string,
  range: vscode.Range | undefined,
): Promise<void> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return;
  }
  const name = document.uri.path.split("/").at(-1) ?? "";
  const heading = `# ${title}\n\n${vscode.workspace.asRelativePath(document.uri)}\n\n`;
  const page = await pages.open(`Draftline: ${name}`, heading);
  const partialResultToken = `draftline-ask-${Date.now()}`;
  const parameters = {
    textDocument: client.code2ProtocolConverter.asVersionedTextDocumentIdentifier(document),
    range: range && client.code2ProtocolConverter.asRange(range),
    partialResultToken,
    ...(method === ASK ? { question: title } : {}),
  };
  let streamed = "";
  const partial = client.onProgress(new ProgressType<{ text: string }>(), partialResultToken, ({ text }) => {
    streamed += text;
    pages.add(page, text);
  });
  const ask = (_: unknown, token: vscode.CancellationToken): Thenable<AnswerResult> =>
    client.sendRequest<AnswerResult>(method, parameters, token);
  const location = vscode.ProgressLocation.Notification;
  try {
    const options = { location, title: "Draftline answers", cancellable: true };
    const result = await vscode.window.withProgress(options, ask);
    if (!streamed) pages.add(page, result.answer);
    pages.add(page, "\n");
    addSources(pages, page, result.sources);
  } catch (error) {
    pages.add(page, `\n\n(${explained(error) ?? "stopped"})\n`);
  } finally {
    partial.dispose();
  }
}

/** Lists the places that the answer was copied from, as links. */
function addSources(pages: Pages, page: vscode.Uri, sources: readonly Source[]): void {
  if (sources.length === 0) return;
  pages.add(page, "\n## Copied from\n\n");
  for (const { uri, range } of sources) {
    const place = vscode.Uri.parse(uri, true);
    const fragment = `L${range.start.line + 1},${range.start.character + 1}`;
    const label = `- ${vscode.workspace.asRelativePath(place)}:${range.start.line + 1}`;
    pages.addLink(page, label, place.with({ fragment }));
  }
}
