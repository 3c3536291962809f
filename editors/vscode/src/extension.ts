/** Creates the server, the status item and the views, and registers the commands. */

import * as vscode from "vscode";
import { ExecuteCommandRequest, State, type LanguageClient } from "vscode-languageclient/node";
import { askAboutFile, explainSelection } from "./ask";
import { AskAgain } from "./askAgain";
import { edit } from "./edit";
import { NextEdits } from "./nextEdit";
import { Pages } from "./pages";
import { Preview } from "./preview";
import { STATUS, type Status, type Target } from "./protocol";
import { explained, Server } from "./server";
import { showMenu, StatusItem } from "./status";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const status = new StatusItem();
  const preview = new Preview();
  const pages = new Pages();
  const askAgain = new AskAgain();
  const onClient = (client: LanguageClient): void => { follow(client, status, askAgain); };
  const running = new Server(context.extensionPath, onClient, (message) => { status.fail(message); });
  const nextEdits = new NextEdits(running);
  server = running;
  context.subscriptions.push(status, askAgain, preview, pages, nextEdits, running);

  const commands: Record<string, (...args: never[]) => unknown> = {
    "draftline.editSelection": () => edit(running, preview, context.globalState),
    "draftline.editWithInstruction": (target: Target) => edit(running, preview, context.globalState, target),
    "draftline.acceptAll": () => preview.decideAll(true),
    "draftline.rejectAll": () => preview.decideAll(false),
    "draftline.acceptHunk": () => preview.decideHunk(true),
    "draftline.rejectHunk": () => preview.decideHunk(false),
    "draftline.nextEditTab": () => nextEdits.tab(),
    "draftline.nextEditDismiss": () => { nextEdits.dismiss(); },
    "draftline.askAboutFile": () => askAboutFile(running, pages),
    "draftline.explainSelection": () => explainSelection(running, pages),
    "draftline.showMenu": showMenu,
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
}

export function deactivate(): Promise<void> | undefined {
  return server?.stop();
}

/** Shows a server's status, and when it stops. */
function follow(client: LanguageClient, status: StatusItem, askAgain: AskAgain): void {
  client.onNotification(STATUS, (news: Status) => {
    status.show(news);
    askAgain.follow(news);
  });
  client.onDidChangeState(({ newState }) => {
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
