/** Starts, restarts and configures the language server. */

import * as vscode from "vscode";
import {
  ErrorCodes,
  LanguageClient,
  LSPErrorCodes,
  ResponseError,
  type ClientCapabilities,
  type FeatureState,
  type LanguageClientOptions,
  type StaticFeature,
} from "vscode-languageclient/node";
import type { Target } from "./protocol";
import { schemesOf } from "./schemes";

/** What the installed extensions say of when they start. */
const EVENTS = vscode.extensions.all.flatMap(({ packageJSON }) => (packageJSON as { activationEvents?: string[] }).activationEvents ?? []);

/** The documents that the server sees. */
export const DOCUMENTS = schemesOf(EVENTS, (scheme) => vscode.workspace.fs.isWritableFileSystem(scheme)).map((scheme) => ({ scheme }));

/** Announces the experimental capabilities of this extension. */
class Experimental implements StaticFeature {
  fillClientCapabilities(capabilities: ClientCapabilities): void {
    const draftline = { status: true, instructionBox: true, nextEdit: true, chat: true };
    capabilities.experimental = { ...(capabilities.experimental as object | undefined), draftline };
  }
  initialize(): void {
    return;
  }
  getState(): FeatureState {
    return { kind: "static" };
  }
  clear(): void {
    return;
  }
}

/** The environment variable that has the key of an engine on another machine. */
const ENGINE_KEY = "DRAFTLINE_ENGINE_KEY";

/** Settings that the server does not hear of. */
const EXTENSION_ONLY = ["command", "editView", "server", "engine"];

/** The settings that are sent to the server. */
function serverSettings(): Record<string, unknown> {
  const all = vscode.workspace.getConfiguration().get<Record<string, unknown>>("draftline", {});
  return Object.fromEntries(Object.entries(all).filter(([key]) => !EXTENSION_ONLY.includes(key)));
}

/** Reports that the server's program is missing, and what to do. */
async function reportMissing(program: string): Promise<void> {
  const message =
    `Draftline cannot start: there is no program "${program}". Install Draftline (in its source ` +
    `folder: pipx install .) or name the program in the setting draftline.command.`;
  const setUp = "Find or Install…";
  const settings = "Open Setting";
  const again = "Try Again";
  const choice = await vscode.window.showErrorMessage(message, setUp, settings, again);
  if (choice === setUp) await vscode.commands.executeCommand("draftline.setUpServer");
  if (choice === again) await vscode.commands.executeCommand("draftline.restartServer");
  if (choice === settings) {
    await vscode.commands.executeCommand("workbench.action.openSettings", "draftline.command");
  }
}

export class Server implements vscode.Disposable {
  client: LanguageClient | undefined;
  private readonly output = vscode.window.createOutputChannel("Draftline", { log: true });
  private readonly settings: vscode.Disposable;
  private turn: Promise<void> = Promise.resolve(); // starts and stops run one after the other

  /**
   * `folder` is the server's working directory: not the workspace, from which Python would import
   * modules. `find` answers the path of a program, if there is one. `engineKey` answers the key of
   * an engine on another machine, which is passed on where other users cannot read it. `onClient` is called with each
   * new client before it starts, `onFailure` with the reason if it does not start, and a command that may help.
   */
  constructor(
    private readonly folder: string,
    private readonly find: (program: string) => string | undefined,
    private readonly engineKey: () => Thenable<string | undefined>,
    private readonly onClient: (client: LanguageClient) => void,
    private readonly onFailure: (message: string, remedy?: string) => void,
  ) {
    this.settings = vscode.workspace.onDidChangeConfiguration((event) => {
      if (!event.affectsConfiguration("draftline")) return;
      const settings = { settings: { draftline: serverSettings() } };
      void this.running?.sendNotification("workspace/didChangeConfiguration", settings);
    });
  }

  /** The client, if its server is running. */
  get running(): LanguageClient | undefined {
    return this.client?.isRunning() ? this.client : undefined;
  }

  /** Starts the server, after stopping a running one. */
  restart(): Promise<void> {
    this.turn = this.turn.then(async () => {
      await this.stop();
      await this.start();
    });
    return this.turn;
  }

  showOutput(): void {
    this.output.show(true);
  }

  log(message: string): void {
    this.output.warn(message);
  }

  dispose(): void {
    this.settings.dispose();
    this.output.dispose();
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (!client) return;
    try {
      await client.dispose();
    } catch (error) {
      this.output.warn(`the server did not shut down cleanly: ${String(error)}`);
    }
  }

  private async start(): Promise<void> {
    const configuration = vscode.workspace.getConfiguration("draftline");
    const [name = "", ...args] = configuration.get<string[]>("command", []);
    const program = this.find(name);
    const server = configuration.get<string>("server", "");
    if (server) args.push("--server", server);
    const engine = configuration.get<string>("engine", "");
    if (engine) args.push("--engine", engine);
    const key = engine ? await this.engineKey() : undefined;
    const env = key ? { ...process.env, [ENGINE_KEY]: key } : process.env;
    if (program === undefined) {
      const message = `no program "${name}"`;
      this.output.error(`${message}: see the setting draftline.command`);
      this.onFailure(`${message}: find or install it`, "draftline.setUpServer");
      void reportMissing(name);
      return;
    }
    const client = new LanguageClient(
      "draftline",
      "Draftline",
      { command: program, args, options: { cwd: this.folder, env } },
      this.clientOptions(),
    );
    client.registerFeature(new Experimental());
    this.client = client;
    this.onClient(client);
    try {
      await client.start();
    } catch (error) {
      this.onFailure(String(error));
      this.output.error(`${program} ${args.join(" ")}: ${String(error)}`);
    }
  }

  private clientOptions(): LanguageClientOptions {
    return {
      documentSelector: DOCUMENTS,
      outputChannel: this.output,
      initializationOptions: serverSettings(),
      middleware: {
        // Ghost text replaces the list; both together would ask the model twice per keystroke.
        provideCompletionItem: () => null,
        provideCodeActions: async (document, range, context, token, next) =>
          (await next(document, range, context, token))?.map(previewed),
        workspace: {
          configuration: (parameters) => parameters.items.map(() => serverSettings()),
          didChangeConfiguration: () => Promise.resolve(), // sent by this class
        },
      },
    };
  }
}

/** An unresolved action as a command that previews its edit like every other proposal. (In VS Code's
 * own preview each change is unchecked, so its Apply button would do nothing.) */
function previewed(action: vscode.Command | vscode.CodeAction): vscode.Command | vscode.CodeAction {
  const { data } = action as { data?: Target };
  if (!data || !(action instanceof vscode.CodeAction)) return action;
  const { title } = action;
  const shown = new vscode.CodeAction(title, action.kind);
  if (action.diagnostics) shown.diagnostics = action.diagnostics;
  shown.command = { title, command: "draftline.editWithInstruction", arguments: [{ ...data, title }] };
  return shown;
}

const ENDED: number[] = [ErrorCodes.PendingResponseRejected, ErrorCodes.ConnectionInactive];

/** The message for the user about a failed request; undefined if it was cancelled. */
export function explained(error: unknown): string | undefined {
  if (error instanceof vscode.CancellationError) return undefined;
  if (!(error instanceof ResponseError)) return String(error);
  if (error.code === LSPErrorCodes.RequestCancelled) return undefined;
  if (ENDED.includes(error.code)) {
    return "the server ended before it answered. Ask again; if that fails, run Draftline: Restart Server.";
  }
  if (error.code === LSPErrorCodes.ContentModified) {
    return "The file changed while the answer was written, so nothing was proposed. Try again.";
  }
  return error.message;
}
