/** A conversation as the server gets it, and as it is kept for the next time the window opens. */

import type { ContextItem, Turn } from "./messages";

export const MAX_KEPT_TURNS = 50;

export interface ChatMessage {
  role: "user" | "assistant";
  content: string;
}

export function turnOf(question: string, context: readonly ContextItem[] = []): Turn {
  return { question, answer: "", context: [...context], links: [], notes: [], error: "" };
}

/** The messages up to the last question. */
export function messagesOf(turns: readonly Turn[]): ChatMessage[] {
  return turns.flatMap(({ question, answer }, at): ChatMessage[] => {
    const asked: ChatMessage = { role: "user", content: question };
    return answer && at < turns.length - 1 ? [asked, { role: "assistant", content: answer }] : [asked];
  });
}

/** What all questions are about, each once: first what the first one was about, so that the model need not read
 * that again. */
export function contextOfAll(turns: readonly Turn[], limit: number): ContextItem[] {
  const items = turns.flatMap(({ context }) => context);
  const found = new Map(items.map((item) => [JSON.stringify([item.uri, item.range]), item]));
  return [...found.values()].slice(-limit);
}

/** The notes that no earlier answer had. */
export function newNotes(turns: readonly Turn[], notes: readonly string[]): string[] {
  const known = new Set(turns.flatMap((turn) => turn.notes));
  return notes.filter((note) => !known.has(note));
}

/** The turns to keep: those that are complete, without the oldest. */
export function kept(turns: readonly Turn[]): Turn[] {
  return turns.filter(({ answer, error }) => answer || error).slice(-MAX_KEPT_TURNS);
}
