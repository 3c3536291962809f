/** Creates the server, the status item and the views, and registers the commands. */

import { homedir } from "node:os";
import * as vscode from "vscode";
import { ExecuteCommandRequest, State, type LanguageClient } from "vscode-languageclient/node";
import { explain, explainSelection } from "./ask";
import { AskAgain } from "./askAgain";
import { ChatView } from "./chat/view";
import { writeCommitMessage } from "./commitMessage";
import { Cursor } from "./cursor";
import { edit } from "./edit";
import { editFiles } from "./editFiles";
import { programs, type Machine } from "./find";
import { LiveEdits } from "./liveEdits";
import { flip, showMenu } from "./menu";
import { chooseModel, downloadModel } from "./models";
import { NextEdits } from "./nextEdit";
import { Pages } from "./pages";
import { isAsking, STATUS, type Explanation, type Status, type Target } from "./protocol";
import { Review } from "./review";
import { explained, Server } from "./server";
import { setUpServer } from "./setUp";
import { StatusItem } from "./status";
import { tryEdit } from "./tryEdit";

const ENGINE_KEY = "draftline.engineKey"; // in VS Code's secret storage
const WELCOMED = "draftline.welcomed"; // whether the walkthrough was opened

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const status = new StatusItem();
  const review = new Review();
  const live = new LiveEdits();
  const views = { live, review };
  const pages = new Pages();
  const askAgain = new AskAgain();
  const onClient = (client: LanguageClient): void => { follow(client, status, askAgain, chat, cursor); };
  const machine: Machine = {
    env: process.env,
    home: homedir(),
    platform: process.platform,
    storage: context.globalStorageUri.fsPath,
  };
  const find = (program: string): string | undefined => programs(program, machine)[0];
  const key = () => context.secrets.get(ENGINE_KEY);
  const running = new Server(context.extensionPath, find, key, onClient, (message, remedy) => { status.fail(message, remedy); });
  const chat = new ChatView(context, running, views);
  const cursor = new Cursor(running);
  const nextEdits = new NextEdits(running, (document) => live.has(document) || review.has(document));
  server = running;
  context.subscriptions.push(status, askAgain, review, live, pages, nextEdits, cursor, running, chat);

  const download = (): Thenable<void> => downloadModel(running, status.latest);
  /** What needs the model: the user is asked for it first, where there is none. */
  const withModel = <T extends unknown[]>(run: (...args: T) => unknown) => (...args: T): unknown =>
    isAsking(status.latest) ? download() : run(...args);

  const commands: Record<string, (...args: never[]) => unknown> = {
    "draftline.editSelection": withModel(() => edit(running, views, context.globalState)),
    "draftline.editWithInstruction": withModel((target: Target) => edit(running, views, context.globalState, target)),
    "draftline.editFiles": withModel(() => editFiles(running, context.globalState)),
    "draftline.acceptAll": () => review.decideAll(true),
    "draftline.rejectAll": () => review.decideAll(false),
    "draftline.acceptHunk": (id?: unknown) => review.decideHunk(true, id),
    "draftline.rejectHunk": (id?: unknown) => review.decideHunk(false, id),
    "draftline.compareEdit": () => review.compare(),
    "draftline.tryEdit": () => tryEdit(running, review, context.workspaceState),
    "draftline.stopEdit": () => { live.stopActive(); },
    "draftline.nextEditTab": () => nextEdits.tab(),
    "draftline.showNextEdits": () => nextEdits.list(),
    "draftline.nextEditDismiss": () => { nextEdits.dismiss(); },
    "draftline.askAboutFile": () => chat.open(),
    "draftline.newChat": () => chat.clear(),
    "draftline.explainSelection": () => explainSelection(running, chat),
    "draftline.explain": (asked: Explanation) => explain(chat, asked),
    "draftline.commitMessage": withModel((source?: vscode.SourceControl) => writeCommitMessage(running, source)),
    "draftline.showMenu": () => { showMenu(status); },
    "draftline.downloadModel": download,
    "draftline.chooseModel": () => chooseModel(running),
    "draftline.toggleGhostText": () => flip("ghostText"),
    "draftline.toggleNextEdit": () => flip("nextEdit"),
    "draftline.setEngineKey": () => setEngineKey(context.secrets, running),
    "draftline.setUpServer": () => setUpServer(running, machine),
    "draftline.getStarted": () => openWalkthrough(context),
    "draftline.openSettings": () =>
      vscode.commands.executeCommand("workbench.action.openSettings", `@ext:${context.extension.id}`),
    "draftline.toggleSuggestions": () => toggle(running),
    "draftline.whyNothing": () => why(running),
    "draftline.showStats": () => showStats(running, pages),
    "draftline.rebuildIndex": () => rebuildIndex(running),
    "draftline.stopAll": () => call(running, "draftline.cancel"),
    "draftline.restartServer": () => running.restart(),
    "draftline.showOutput": () => { running.showOutput(); },
  };
  for (const [name, run] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(name, run));
  }
  void running.restart();
  void welcome(context);
}

/** Asks for the key of an engine on another machine, stores it, and starts the server with it. */
async function setEngineKey(secrets: vscode.SecretStorage, running: Server): Promise<void> {
  const key = await vscode.window.showInputBox({
    title: "Draftline: Set Engine Key",
    prompt: "The key of the engine that the setting draftline.engine names. Empty: forget it.",
    password: true,
    ignoreFocusOut: true,
  });
  if (key === undefined) return;
  await (key ? secrets.store(ENGINE_KEY, key) : secrets.delete(ENGINE_KEY));
  await running.restart();
}

/** Opens the walkthrough at the first start. */
async function welcome(context: vscode.ExtensionContext): Promise<void> {
  if (context.globalState.get<boolean>(WELCOMED, false)) return;
  await context.globalState.update(WELCOMED, true);
  await openWalkthrough(context);
}

function openWalkthrough({ extension }: vscode.ExtensionContext): Thenable<unknown> {
  return vscode.commands.executeCommand("workbench.action.openWalkthrough", `${extension.id}#start`, false);
}

export function deactivate(): Promise<void> | undefined {
  return server?.stop();
}

/** Shows a server's status, and when it stops. */
function follow(
  client: LanguageClient,
  status: StatusItem,
  askAgain: AskAgain,
  chat: ChatView,
  cursor: Cursor,
): void {
  client.onNotification(STATUS, (news: Status) => {
    const failed = news.state === "error" && status.latest.state !== "error";
    if (failed) void vscode.window.showErrorMessage(`Draftline: ${news.message}`);
    status.show(news);
    askAgain.follow(news);
    chat.follow(news);
    cursor.follow(news);
  });
  client.onDidChangeState(({ newState }) => {
    void vscode.commands.executeCommand("setContext", "draftline.running", newState === State.Running);
    if (newState === State.Starting) status.start();
    if (newState === State.Stopped) status.fail("the server is not running; Draftline: Restart Server starts it");
  });
}

/** Runs a command of the server; shows a message if that fails. */
async function call<T>(server: Server, command: string): Promise<T | undefined> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return undefined;
  }
  try {
    return (await client.sendRequest(ExecuteCommandRequest.type, { command })) as T;
  } catch (error) {
    void vscode.window.showErrorMessage(`Draftline: ${explained(error) ?? "stopped"}`);
    return undefined;
  }
}

async function toggle(server: Server): Promise<void> {
  const result = await call<{ enabled: boolean }>(server, "draftline.toggle");
  if (result) vscode.window.setStatusBarMessage(`Draftline is ${result.enabled ? "on" : "off"}`, 3000);
}

async function why(server: Server): Promise<void> {
  const result = await call<{ why: string }>(server, "draftline.why");
  if (result) void vscode.window.showInformationMessage(`Draftline: ${result.why}`);
}

async function rebuildIndex(server: Server): Promise<void> {
  const result = await call<{ files: number; tokens: number }>(server, "draftline.reindex");
  if (!result) return;
  const figures = `${result.files.toLocaleString()} files, ${result.tokens.toLocaleString()} tokens`;
  void vscode.window.showInformationMessage(`Draftline indexed ${figures}.`);
}

async function showStats(server: Server, pages: Pages): Promise<void> {
  const figures = await call<Record<string, unknown>>(server, "draftline.stats");
  if (!figures) return;
  const rows = Object.entries(figures).map(([name, value]) => `- ${name}: ${JSON.stringify(value)}\n`);
  await pages.open("Draftline: statistics", `# Statistics\n\n${rows.join("")}`);
}
