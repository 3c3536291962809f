/** The status bar item and its menu. */

import * as vscode from "vscode";
import type { Status } from "./protocol";

const ICONS: Record<Status["state"], string> = {
  loading: "$(loading~spin)",
  ready: "$(sparkle)",
  busy: "$(sync~spin)",
  error: "$(error)",
  off: "$(circle-slash)",
};

/** The item's text: state, speed, and the share of answers that was drafted. */
function line(status: Status): string {
  const parts = [`${ICONS[status.state]} Draftline`];
  if (status.state === "loading" || status.state === "off") parts.push(status.state);
  if (status.tokensPerSecond !== null) parts.push(`${status.tokensPerSecond.toFixed(0)} tok/s`);
  if (status.acceptedShare !== null) parts.push(`${(100 * status.acceptedShare).toFixed(0)}% drafted`);
  return parts.join(" · ");
}

function tooltip(status: Status): vscode.MarkdownString {
  const text = new vscode.MarkdownString();
  const row = (name: string, value: string): void => {
    // appendText would make spaces non-breaking.
    if (value) text.appendMarkdown(`\n\n${name}: ${value.replace(/[^\p{L}\p{N}\s]/gu, "\\$&")}`);
  };
  text.appendMarkdown(`**Draftline**: ${status.state}`);
  row("Message", status.message);
  row("Model", status.model);
  row("Device", status.device);
  if (status.files !== null) row("Indexed files", status.files.toLocaleString());
  if (status.tokens !== null) row("Indexed tokens", status.tokens.toLocaleString());
  if (status.acceptedShare !== null) {
    text.appendMarkdown("\n\nDrafted: the share of the answers that was copied from existing text, hence fast");
  }
  return text;
}

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("draftline", vscode.StatusBarAlignment.Right, 100);

  constructor() {
    this.item.name = "Draftline";
    this.item.command = "draftline.showMenu";
    this.start();
    this.item.show();
  }

  show(status: Status): void {
    this.item.text = line(status);
    this.item.tooltip = tooltip(status);
    const failed = status.state === "error";
    this.item.backgroundColor = failed ? new vscode.ThemeColor("statusBarItem.errorBackground") : undefined;
  }

  start(): void {
    this.show({ ...EMPTY, state: "loading", message: "the server is starting" });
  }

  fail(message: string): void {
    this.show({ ...EMPTY, state: "error", message });
  }

  dispose(): void {
    this.item.dispose();
  }
}

const EMPTY = {
  model: "",
  device: "",
  tokensPerSecond: null,
  acceptedShare: null,
  files: null,
  tokens: null,
};

const MENU: (vscode.QuickPickItem & { command: string })[] = [
  { label: "$(circle-slash) Turn on or off", command: "draftline.toggleSuggestions" },
  { label: "$(question) Why was nothing offered?", command: "draftline.whyNothing" },
  { label: "$(graph) Statistics", command: "draftline.showStats" },
  { label: "$(database) Index the workspace again", command: "draftline.rebuildIndex" },
  { label: "$(stop-circle) Cancel all requests", command: "draftline.stopAll" },
  { label: "$(refresh) Restart the server", command: "draftline.restartServer" },
  { label: "$(output) Show the output", command: "draftline.showOutput" },
];

export async function showMenu(): Promise<void> {
  const choice = await vscode.window.showQuickPick(MENU, { title: "Draftline" });
  if (choice) await vscode.commands.executeCommand(choice.command);
}
