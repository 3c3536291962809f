/** The chat in the side bar: keeps the conversation, asks the server, and does what the page asks for. */

import * as vscode from "vscode";
import { ProgressType, WorkDoneProgress, type LanguageClient, type Range } from "vscode-languageclient/node";
import type { Views } from "../edit";
import { CHAT, isAsking, type ChatResult, type Status } from "../protocol";
import { explained, type Server } from "../server";
import { applyCode, insertCode } from "./code";
import { activeEditor, activeLabel, contextOf, nameOf, stillThere, workspaceFiles, type Problem } from "./context";
import { contextOfAll, kept, messagesOf, newNotes, turnOf } from "./conversation";
import { pageHtml } from "./html";
import { matching } from "./mentions";
import { fromPage, type ContextItem, type FromPage, type Link, type State, type ToPage, type Turn } from "./messages";

const VIEW = "draftline.chat";
const KEPT = "draftline.conversation";
const MAX_ITEMS = 20; // that the server reads for one question
const OFFERED = 12; // files after @
const FILES_MS = 10_000; // for which the list of files is used again
const REFRESH_MS = 100;
const NOT_RUNNING = "Draftline is not running. Click Draftline in the status bar to see why, and to start it.";

const NO_MODEL = "The model is not on this machine yet.";

export class ChatView implements vscode.Disposable, vscode.WebviewViewProvider {
  private view: vscode.WebviewView | undefined;
  private turns: Turn[];
  private running: vscode.CancellationTokenSource | undefined;
  private reading = ""; // how far the server has read the question
  private status = "";
  private isAsking = false; // which model is to be downloaded
  private isFileUsed = true;
  private isFocusDue = false; // once the page is loaded
  private files: { found: Promise<string[]>; at: number } | undefined;
  private timer: NodeJS.Timeout | undefined;
  private count = 0;
  private readonly disposables: vscode.Disposable;

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly server: Server,
    private readonly views: Views,
  ) {
    this.turns = context.workspaceState.get<Turn[]>(KEPT, []);
    this.disposables = vscode.Disposable.from(
      vscode.window.registerWebviewViewProvider(VIEW, this),
      vscode.window.onDidChangeActiveTextEditor(() => { this.refreshSoon(); }),
      vscode.window.onDidChangeTextEditorSelection(() => { this.refreshSoon(); }),
      vscode.languages.onDidChangeDiagnostics(() => { this.refreshSoon(); }),
    );
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.stop();
    this.disposables.dispose();
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    const roots = ["dist", "media"].map((name) => vscode.Uri.joinPath(this.context.extensionUri, name));
    view.webview.options = { enableScripts: true, localResourceRoots: roots };
    view.webview.onDidReceiveMessage((value: unknown) => {
      const message = fromPage(value);
      if (message) void this.receive(message);
    });
    view.onDidDispose(() => { this.view = undefined; });
    view.onDidChangeVisibility(() => { this.refresh(); });
    this.view = view;
    view.webview.html = pageHtml(view.webview, this.context.extensionUri);
  }

  /** The server reports its state. */
  follow(status: Status): void {
    const isWaiting = status.state === "loading" || status.state === "error";
    this.isAsking = isAsking(status);
    this.status = this.isAsking ? NO_MODEL : isWaiting ? status.message || "The model is being loaded." : "";
    this.refreshSoon();
  }

  /** Shows the view, with the cursor where the question is typed. */
  async open(): Promise<void> {
    this.isFocusDue = true;
    await vscode.commands.executeCommand(`${VIEW}.focus`);
    this.post({ type: "focus" });
  }

  /** Begins a new conversation. */
  async clear(): Promise<void> {
    this.stop();
    this.turns = [];
    this.isFileUsed = true;
    await this.keep();
    await this.open();
    this.refresh();
  }

  /** Shows the view and asks a question about `items` there. */
  async ask(question: string, items: ContextItem[], problems: Problem[] = []): Promise<void> {
    await vscode.commands.executeCommand(`${VIEW}.focus`);
    await this.answer(turnOf(question, items), problems);
  }

  private stop(): void {
    this.running?.cancel();
  }

  private async send(text: string): Promise<void> {
    const question = text.trim();
    if (!question) return;
    const client = this.server.running;
    const turn = turnOf(question);
    if (!client) {
      this.turns.push({ ...turn, error: NOT_RUNNING });
      this.refresh();
      return;
    }
    const { items, problems, missing } = await contextOf(client, question, this.isFileUsed);
    turn.context = items;
    turn.notes = missing.map((file) => `There is no file ${file} in this workspace: type @ to choose one.`);
    await this.answer(turn, problems);
  }

  /** Asks the server for the answer of a new turn, in place of one that is being written. */
  private async answer(turn: Turn, problems: Problem[]): Promise<void> {
    this.stop();
    const own = new vscode.CancellationTokenSource();
    this.running = own;
    this.turns.push(turn);
    this.reading = "";
    this.refresh();
    try {
      const client = this.server.running;
      if (!client) throw new NoAnswer(NOT_RUNNING);
      if (this.isAsking) throw new NoAnswer(`${NO_MODEL} Choose Download…, and ask again once it is ready.`);
      const result = await this.request(client, turn, problems, own.token);
      turn.answer = result.text;
      turn.notes.push(...newNotes(this.turns, result.notes));
      turn.links = linksOf(client, result);
    } catch (error) {
      turn.error = error instanceof NoAnswer ? error.message : (explained(error) ?? "Stopped.");
    } finally {
      if (this.running === own) {
        this.running = undefined;
        this.reading = "";
      }
      own.dispose();
    }
    await this.keep();
    this.refresh();
  }

  private async request(
    client: LanguageClient,
    turn: Turn,
    diagnostics: Problem[],
    token: vscode.CancellationToken,
  ): Promise<ChatResult> {
    this.count += 1;
    const [partialResultToken, workDoneToken] = ["part", "work"].map((name) => `draftline-chat-${name}-${this.count}`);
    const subscriptions = vscode.Disposable.from(
      client.onProgress(new ProgressType<{ text: string }>(), partialResultToken ?? "", ({ text }) => {
        turn.answer += text;
        this.reading = "";
        if (turn === this.turns.at(-1)) this.post({ type: "part", text });
      }),
      client.onProgress(WorkDoneProgress.type, workDoneToken ?? "", (value) => {
        this.reading = value.kind === "report" ? `${value.message ?? ""} ${value.percentage ?? 0} %` : "";
        this.refreshSoon();
      }),
    );
    const messages = messagesOf(this.turns);
    const context = await stillThere(client, contextOfAll(this.turns, MAX_ITEMS));
    const parameters = { messages, context, diagnostics, partialResultToken, workDoneToken };
    try {
      return await client.sendRequest<ChatResult>(CHAT, parameters, token);
    } finally {
      subscriptions.dispose();
    }
  }

  // -- the page ------------------------------------------------------------------------------------

  private async receive(message: FromPage): Promise<void> {
    switch (message.type) {
      case "ready":
        this.refresh();
        if (this.isFocusDue) this.post({ type: "focus" });
        this.isFocusDue = false;
        return;
      case "send":
        return this.send(message.text);
      case "stop":
        this.stop();
        return;
      case "toggleFile":
        this.isFileUsed = !this.isFileUsed;
        this.refresh();
        return;
      case "copy":
        await vscode.env.clipboard.writeText(message.code);
        return;
      case "insert":
        return insertCode(message.code);
      case "apply":
        return this.apply(message.code);
      case "download":
        await vscode.commands.executeCommand("draftline.downloadModel");
        return;
      case "open":
        return openLink(this.turns[message.turn]?.links[message.link]);
      case "files":
        return this.offer(message.id, message.query);
    }
  }

  private async apply(code: string): Promise<void> {
    const client = this.server.running;
    if (client) await applyCode(client, this.views, code);
    else void vscode.window.showWarningMessage(`Draftline: ${NOT_RUNNING}`);
  }

  private async offer(id: number, query: string): Promise<void> {
    if (!this.files || Date.now() - this.files.at > FILES_MS) this.files = { found: workspaceFiles(), at: Date.now() };
    this.post({ type: "files", id, files: matching(await this.files.found, query, OFFERED) });
  }

  private post(message: ToPage): void {
    void this.view?.webview.postMessage(message);
  }

  private refresh(): void {
    const editor = activeEditor();
    const state: State = {
      turns: this.turns,
      isBusy: this.running !== undefined,
      status: this.status || this.reading,
      isAsking: this.isAsking,
      file: activeLabel(),
      isFileUsed: this.isFileUsed,
      hasSelection: editor ? !editor.selection.isEmpty : false,
      problems: editor ? vscode.languages.getDiagnostics(editor.document.uri).length : 0,
    };
    this.post({ type: "state", state });
  }

  private refreshSoon(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh();
    }, REFRESH_MS);
  }

  private async keep(): Promise<void> {
    await this.context.workspaceState.update(KEPT, kept(this.turns));
  }
}

/** Why a question was not sent, for the user. */
class NoAnswer extends Error {}

/** The places that an answer was copied from, each once. */
function linksOf(client: LanguageClient, { citations }: ChatResult): Link[] {
  const links = new Map<string, Link>();
  for (const { uri, range } of citations) {
    const where = nameOf(client.protocol2CodeConverter.asUri(uri));
    const [first, last] = [range.start.line + 1, range.end.line + 1];
    const label = `${where}:${first}${last > first ? `-${last}` : ""}`;
    if (!links.has(label)) links.set(label, { label, uri, range });
  }
  return [...links.values()];
}

async function openLink(link: Link | undefined): Promise<void> {
  if (!link) return;
  const uri = vscode.Uri.parse(link.uri, true);
  const selection = rangeOf(link.range);
  try {
    await vscode.window.showTextDocument(uri, { selection, viewColumn: activeEditor()?.viewColumn ?? vscode.ViewColumn.One });
  } catch (error) {
    void vscode.window.showWarningMessage(`Draftline: ${link.label} cannot be opened: ${String(error)}`);
  }
}

function rangeOf({ start, end }: Range): vscode.Range {
  return new vscode.Range(start.line, start.character, end.line, end.character);
}
