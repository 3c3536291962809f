/** Finds the server's program or, after asking, installs it with uv into this extension's own storage. */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import { inPath, ownPrograms, programs, workspacePrograms, type Machine } from "./find";
import { hasCard, installing } from "./install";
import type { Server } from "./server";

const PROGRAM = "draftline";
const UV_HELP = "https://docs.astral.sh/uv/getting-started/installation/";

interface Choice extends vscode.QuickPickItem {
  run: () => Thenable<unknown>;
}

/** Lets the user choose a program that was found, name one, or install one. */
export async function setUpServer(server: Server, machine: Machine): Promise<void> {
  const use = (program: string): Thenable<unknown> => useProgram(server, program);
  const item = (icon: string, description: string) => (program: string): Choice => ({
    label: `$(${icon}) ${program}`,
    description,
    run: () => use(program),
  });
  const folders = (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
  const choices: Choice[] = [
    ...programs(PROGRAM, machine).map(item("check", "installed")),
    ...workspacePrograms(folders, machine.platform).map(item("folder", "in this workspace")),
    { label: "$(search) Choose the program…", run: () => chooseProgram(use) },
    { label: "$(cloud-download) Install with uv…", description: "asks first", run: () => install(server, machine) },
  ];
  const options = { title: "Draftline: the server's program", placeHolder: "Which program serves Draftline?" };
  const choice = await vscode.window.showQuickPick(choices, options);
  await choice?.run();
}

async function useProgram(server: Server, program: string): Promise<void> {
  const configuration = vscode.workspace.getConfiguration("draftline");
  await configuration.update("command", [program, "lsp"], vscode.ConfigurationTarget.Global);
  await server.restart();
}

async function chooseProgram(use: (program: string) => Thenable<unknown>): Promise<void> {
  const found = await vscode.window.showOpenDialog({ title: "The program draftline", openLabel: "Use" });
  if (found?.[0]) await use(found[0].fsPath);
}

/** Installs the server from the user's own copy, once the user has agreed. */
async function install(server: Server, machine: Machine): Promise<void> {
  const uv = [inPath("uv", machine), ...programs("uv", machine)].find((each) => each !== undefined);
  if (!uv) {
    const message = "Installing Draftline needs the program uv, which was not found.";
    const help = "How to Install uv";
    if ((await vscode.window.showErrorMessage(message, help)) === help) {
      await vscode.env.openExternal(vscode.Uri.parse(UV_HELP));
    }
    return;
  }
  const source = await chooseSource();
  if (!source) return;
  const message = `Install Draftline from ${source}?`;
  const detail =
    `${uv} installs it into ${machine.storage}, about 170 MB. It fetches what is missing from ` +
    `the package index that is configured for uv.`;
  const yes = "Install";
  const card = hasCard(machine) ? " For the NVIDIA card, torch takes some GB more." : "";
  const options = { modal: true, detail: detail + card };
  if ((await vscode.window.showInformationMessage(message, options, yes)) !== yes) return;
  const failure = await run(server, uv, source, machine);
  if (failure === undefined) {
    await useProgram(server, path.join(ownPrograms(machine.storage), PROGRAM));
  } else if (failure) {
    const show = "Show Output";
    const chosen = await vscode.window.showErrorMessage(`Draftline was not installed: ${failure}`, show);
    if (chosen === show) server.showOutput();
  }
}

/** Asks for a source folder or a wheel of Draftline. */
async function chooseSource(): Promise<string | undefined> {
  const kinds = [
    { label: "$(folder) Its source folder…", folder: true },
    { label: "$(package) A wheel…", folder: false },
  ];
  const kind = await vscode.window.showQuickPick(kinds, { title: "Draftline: install from" });
  if (!kind) return undefined;
  const found = await vscode.window.showOpenDialog({
    title: kind.folder ? "Draftline's source folder" : "A wheel of Draftline",
    openLabel: "Install",
    canSelectFolders: kind.folder,
    canSelectFiles: !kind.folder,
    filters: kind.folder ? {} : { Wheels: ["whl"] },
  });
  const source = found?.[0]?.fsPath;
  if (!source || !kind.folder || isSource(source)) return source;
  void vscode.window.showErrorMessage(`${source} is not Draftline's source folder: choose the one with pyproject.toml.`);
  return undefined;
}

function isSource(folder: string): boolean {
  try {
    return /^name = "draftline"$/m.test(readFileSync(path.join(folder, "pyproject.toml"), "utf8"));
  } catch {
    return false; // there is none
  }
}

/** Runs uv with progress. Answers why it failed, "" if it was cancelled, undefined if it did not fail. */
function run(server: Server, uv: string, source: string, machine: Machine): Thenable<string | undefined> {
  const location = vscode.ProgressLocation.Notification;
  const options = { location, title: "Installing Draftline", cancellable: true };
  return vscode.window.withProgress(options, (progress, token) =>
    new Promise((resolve) => {
      const { args, env } = installing(source, machine);
      const process = spawn(uv, args, { env: { ...machine.env, ...env }, cwd: path.dirname(uv) });
      let last = "";
      const read = (data: Buffer): void => {
        for (const line of data.toString().split(/[\r\n]+/).filter((each) => each.trim())) {
          last = line.trim();
          server.log(`uv: ${last}`);
          progress.report({ message: last.slice(0, 80) });
        }
      };
      process.stdout.on("data", read);
      process.stderr.on("data", read);
      process.on("error", (error) => { resolve(error.message); });
      process.on("close", (code) => {
        if (token.isCancellationRequested) resolve("");
        else resolve(code === 0 ? undefined : last || `uv ended with exit code ${code ?? "unknown"}`);
      });
      token.onCancellationRequested(() => { process.kill(); });
    }),
  );
}
