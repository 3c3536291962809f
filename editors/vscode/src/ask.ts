/** Questions from commands and code actions, asked in the chat. */

import * as vscode from "vscode";
import type { ChatView } from "./chat/view";
import { targetOf } from "./edit";
import type { Explanation } from "./protocol";
import type { Server } from "./server";

const EXPLAIN = "Explain briefly what this code does and how.";

/** Explains the selection or, without one, the function around the cursor. */
export async function explainSelection(server: Server, chat: ChatView): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const client = server.running;
  if (!editor) return;
  if (!client) {
    await chat.ask(EXPLAIN, []); // which says what to do
    return;
  }
  const range = await targetOf(client, editor);
  const { document } = editor;
  const converter = client.code2ProtocolConverter;
  const question = `${EXPLAIN} (${lines(range.start.line, range.end.line)})`;
  await chat.ask(question, [{ uri: converter.asUri(document.uri), range: converter.asRange(range) }]);
}

/** Explains what a code action is about: lines, or problems in them. */
export async function explain(chat: ChatView, { textDocument, range, diagnostics }: Explanation): Promise<void> {
  const messages = diagnostics.map(({ message }) => message).join("; ");
  const question = messages
    ? `Explain this problem, and how to fix it: ${messages}`
    : `${EXPLAIN} (${lines(range.start.line, range.end.line)})`;
  await chat.ask(question, [{ uri: textDocument.uri, range }], diagnostics);
}

function lines(first: number, last: number): string {
  return first === last ? `line ${first + 1}` : `lines ${first + 1} to ${last + 1}`;
}
