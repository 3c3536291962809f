/** The model picker: what the server lists, with what each model takes, or one that the user names. */

import * as vscode from "vscode";
import { ExecuteCommandRequest } from "vscode-languageclient/node";
import { describeModel, size, type Model } from "./modelText";
import { MODELS, type Status } from "./protocol";
import { explained, type Server } from "./server";

interface Choice extends vscode.QuickPickItem {
  model?: string; // for the setting; none: it is asked for
}

const OTHER: Choice = { label: "$(edit) Another…", description: "a folder, a GGUF file or a hub id" };

/** Lets the user choose a model and writes the setting; the server then loads it. */
export async function chooseModel(server: Server): Promise<void> {
  const client = server.running;
  if (!client) {
    void vscode.window.showWarningMessage("Draftline is not running: see its status bar item.");
    return;
  }
  const listed = client.sendRequest<{ models: Model[] }>(MODELS, {});
  const current = vscode.workspace.getConfiguration("draftline").get("model", "");
  const options = {
    title: "Draftline: the model",
    placeHolder: "The larger, the better and the slower",
    matchOnDescription: true,
  };
  const items = listed.then(({ models }): Choice[] => choices(models, current));
  let choice: Choice | undefined;
  try {
    choice = await vscode.window.showQuickPick<Choice>(items, options);
  } catch (error) {
    void vscode.window.showErrorMessage(`Draftline: ${explained(error) ?? "stopped"}`);
    return;
  }
  if (!choice) return;
  const model = choice.model ?? (await askName(current));
  if (model !== undefined) await useModel(model);
}

function choices(models: readonly Model[], current: string): Choice[] {
  const rows = models.map((model) => {
    const used = current === "" ? model.default : model.name === current;
    const label = `${used ? "$(check) " : ""}${model.name}`;
    return { ...describeModel(model), label, model: model.default ? "" : model.name };
  });
  return [...rows, OTHER];
}

function askName(current: string): Thenable<string | undefined> {
  const prompt = "A folder, a GGUF file, a hub id, or a model of another program as in ollama:NAME";
  return vscode.window.showInputBox({ title: "Draftline: the model", prompt, value: current });
}

/** Writes the setting where it is set now: in the workspace or for the user. */
async function useModel(model: string): Promise<void> {
  const configuration = vscode.workspace.getConfiguration("draftline");
  const inWorkspace = configuration.inspect("model")?.workspaceValue !== undefined;
  const target = inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await configuration.update("model", model.trim(), target);
}

/** Asks which of the models that the server offers is to be downloaded. */
export async function downloadModel(server: Server, { downloads = [] }: Status): Promise<void> {
  if (downloads.length === 0) {
    await chooseModel(server);
    return;
  }
  const larger = Math.max(...downloads.map(({ bytes }) => bytes));
  const items = downloads.map(({ model, bytes }) => ({
    model,
    label: `$(cloud-download) Download ${model}`,
    description: bytes ? size(bytes) : "the hub knows its size",
    detail: downloads.length < 2 ? "" : bytes === larger ? "answers better" : "smaller and faster",
  }));
  const options = { title: "Draftline: Download…", placeHolder: "Draftline needs a language model on this machine, downloaded once" };
  const chosen = await vscode.window.showQuickPick(items, options);
  if (!chosen) return;
  try {
    const parameters = { command: "draftline.download", arguments: [chosen.model] };
    await server.running?.sendRequest(ExecuteCommandRequest.type, parameters);
  } catch (error) {
    void vscode.window.showErrorMessage(`Draftline: ${explained(error) ?? "stopped"}`);
  }
}
