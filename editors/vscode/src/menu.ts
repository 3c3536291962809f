/** The menu of the status bar item: the model, the switches with their present state, and commands. */

import * as vscode from "vscode";
import { isAsking } from "./protocol";
import type { StatusItem } from "./status";
import { flipped, isOn, OTHERS, type Switch } from "./switches";
import { inTwo } from "./words";

export type Feature = "ghostText" | "nextEdit";

const NAMES: Record<Feature, string> = { ghostText: "Ghost text", nextEdit: "Next edits" };

interface Item extends vscode.QuickPickItem {
  run?: () => Thenable<unknown>;
  keepsOpen?: boolean;
}

/** The value of a feature's setting. */
export function switchOf(feature: Feature): Switch {
  return vscode.workspace.getConfiguration("draftline").get<Switch>(feature, {});
}

/** Turns a feature on or off, in a language or in all that are not named, and writes the setting where
 * it is set now: in the workspace or for the user. */
export async function flip(feature: Feature, language: string = OTHERS): Promise<void> {
  const configuration = vscode.workspace.getConfiguration("draftline");
  const found = configuration.inspect<Switch>(feature);
  const inWorkspace = found?.workspaceValue !== undefined;
  const own = (inWorkspace ? found.workspaceValue : found?.globalValue) ?? {};
  const on = flipped(switchOf(feature), language)[language] ?? true;
  const target = inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await configuration.update(feature, { ...own, [language]: on }, target);
  if (on && feature === "nextEdit" && configuration.get<string>("nextEditModel", "") === "") {
    await configuration.update("nextEditModel", "auto", target); // the server offers it for download
  }
}

function command(icon: string, text: string, id: string): Item {
  return { label: `$(${icon}) ${text}`, run: () => vscode.commands.executeCommand(id) };
}

function separator(label: string): Item {
  return { label, kind: vscode.QuickPickItemKind.Separator };
}

function switchItem(feature: Feature, language: string): Item {
  const on = isOn(switchOf(feature), language);
  const where = language === OTHERS ? "" : ` in ${language}`;
  return {
    label: `$(${on ? "check" : "circle-slash"}) ${NAMES[feature]}${where}`,
    description: on ? "on" : "off",
    run: () => flip(feature, language),
    keepsOpen: true,
  };
}

/** What is to be done first, before anything works. */
function urgent({ latest, remedy }: StatusItem): Item[] {
  if (isAsking(latest)) {
    return [{ ...command("cloud-download", "Download…", "draftline.downloadModel"), description: "the model is not on this machine yet" }];
  }
  if (latest.state !== "error") return [];
  const said = inTwo(latest.message);
  return [{ ...command("error", said.reason, remedy), detail: said.remedy || "Restart the server" }];
}

function items(status: StatusItem): Item[] {
  const { state, model, device } = status.latest;
  const language = vscode.window.activeTextEditor?.document.languageId;
  const languages = language === undefined ? [OTHERS] : [OTHERS, language];
  const features: Feature[] = ["ghostText", "nextEdit"];
  const off = state === "off";
  return [
    ...urgent(status),
    separator("model"),
    { ...command("chip", model || "Choose a model…", "draftline.chooseModel"), description: [device, isAsking(status.latest) ? "not downloaded" : state].join(" · ") },
    separator("switches"),
    ...features.flatMap((feature) => languages.map((each) => switchItem(feature, each))),
    {
      ...command(off ? "circle-slash" : "check", "Draftline in this window", "draftline.toggleSuggestions"),
      description: off ? "off" : "on",
    },
    separator("help"),
    command("question", "Why was nothing offered?", "draftline.whyNothing"),
    command("graph", "Statistics", "draftline.showStats"),
    command("book", "Get started", "draftline.getStarted"),
    command("output", "Show the output", "draftline.showOutput"),
    separator("server"),
    command("database", "Index the workspace again", "draftline.rebuildIndex"),
    command("stop-circle", "Cancel all requests", "draftline.stopAll"),
    command("refresh", "Restart the server", "draftline.restartServer"),
    command("cloud-download", "Find or install the server…", "draftline.setUpServer"),
    command("gear", "Settings", "draftline.openSettings"),
  ];
}

/** Shows the menu; a switch that is flipped shows its new state in it. */
export function showMenu(status: StatusItem): void {
  const menu = vscode.window.createQuickPick<Item>();
  menu.title = "Draftline";
  menu.items = items(status);
  menu.onDidAccept(async () => {
    const chosen = menu.activeItems[0];
    if (!chosen?.keepsOpen) menu.hide();
    await chosen?.run?.();
    if (!chosen?.keepsOpen) return;
    const shown = items(status);
    menu.items = shown;
    menu.activeItems = shown.filter(({ label }) => label.endsWith(chosen.label.replace(/^\S+/, "")));
  });
  menu.onDidHide(() => { menu.dispose(); });
  menu.show();
}
