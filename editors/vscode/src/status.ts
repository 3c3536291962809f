/** The status bar item: the server's state, and what is switched off in the active editor. */

import * as vscode from "vscode";
import { switchOf, type Feature } from "./menu";
import { isAsking, type Status } from "./protocol";
import { isOn } from "./switches";

const ICONS: Record<Status["state"], string> = {
  loading: "$(loading~spin)",
  ready: "$(sparkle)",
  busy: "$(sync~spin)",
  error: "$(error)",
  off: "$(circle-slash)",
};

const FEATURES: Record<Feature, string> = { ghostText: "ghost text", nextEdit: "next edits" };

/** The features that are switched off in the active editor's language. */
function switchedOff(): string[] {
  const language = vscode.window.activeTextEditor?.document.languageId;
  if (language === undefined) return [];
  const features: Feature[] = ["ghostText", "nextEdit"];
  return features.filter((each) => !isOn(switchOf(each), language)).map((each) => FEATURES[each]);
}

/** The item's text: state, what is off here, speed, and the share of answers that was drafted. */
function line(status: Status): string {
  if (isAsking(status)) return "$(cloud-download) Draftline · Download…";
  const parts = [`${ICONS[status.state]} Draftline`];
  if (status.state === "loading" || status.state === "off") parts.push(status.state);
  const off = switchedOff();
  if (off.length > 0 && status.state !== "off") parts.push(`no ${off.join(", no ")}`);
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
  row("Off in this file", switchedOff().join(", "));
  if (status.files !== null) row("Indexed files", status.files.toLocaleString());
  if (status.tokens !== null) row("Indexed tokens", status.tokens.toLocaleString());
  if (status.acceptedShare !== null) {
    text.appendMarkdown("\n\nDrafted: the share of the answers that was copied from existing text, hence fast");
  }
  return text;
}

const EMPTY = {
  model: "",
  device: "",
  tokensPerSecond: null,
  acceptedShare: null,
  files: null,
  tokens: null,
};

const RESTART = "draftline.restartServer";

export class StatusItem implements vscode.Disposable {
  remedy = RESTART; // the command that may help after an error
  latest: Status = { ...EMPTY, state: "loading", message: "the server is starting" };
  private readonly item = vscode.window.createStatusBarItem("draftline", vscode.StatusBarAlignment.Right, 100);
  private readonly changes = vscode.Disposable.from(
    vscode.window.onDidChangeActiveTextEditor(() => { this.show(this.latest); }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("draftline")) this.show(this.latest);
    }),
  );

  constructor() {
    this.item.name = "Draftline";
    this.item.command = "draftline.showMenu";
    this.start();
    this.item.show();
  }

  show(status: Status): void {
    this.latest = status;
    if (status.state !== "error") this.remedy = RESTART;
    void vscode.commands.executeCommand("setContext", "draftline.asking", isAsking(status));
    this.item.text = line(status);
    this.item.tooltip = tooltip(status);
    const kind = status.state === "error" ? "error" : isAsking(status) ? "warning" : undefined;
    this.item.backgroundColor = kind && new vscode.ThemeColor(`statusBarItem.${kind}Background`);
  }

  start(): void {
    this.show({ ...EMPTY, state: "loading", message: "the server is starting" });
  }

  fail(message: string, remedy = RESTART): void {
    this.remedy = remedy;
    this.show({ ...EMPTY, state: "error", message });
  }

  dispose(): void {
    this.changes.dispose();
    this.item.dispose();
  }
}
