/** Where the server's program may be: in PATH, and where uv, pipx and this extension install it. */

import { accessSync, constants, statSync } from "node:fs";
import * as path from "node:path";

/** The environment in which the program is looked up. */
export interface Machine {
  env: Readonly<Record<string, string | undefined>>;
  home: string;
  platform: NodeJS.Platform;
  storage: string; // of this extension
}

/** The folder of programs that this extension installs. */
export function ownPrograms(storage: string): string {
  return path.join(storage, "bin");
}

/** The folder of the programs of a virtual environment. */
function scripts(platform: NodeJS.Platform): string {
  return platform === "win32" ? "Scripts" : "bin";
}

/** The folders in which `uv tool` and `pipx` put programs, best first. */
function toolFolders({ env, home, platform, storage }: Machine): string[] {
  const data = env["XDG_DATA_HOME"] ?? path.join(home, ".local", "share");
  const venvs = [
    path.join(env["UV_TOOL_DIR"] ?? path.join(data, "uv", "tools"), "draftline"),
    path.join(env["PIPX_HOME"] ?? path.join(data, "pipx"), "venvs", "draftline"),
    path.join(home, ".local", "pipx", "venvs", "draftline"),
    ...(platform === "darwin" ? [path.join(home, "Library", "Application Support", "pipx", "venvs", "draftline")] : []),
  ];
  const named = [env["UV_TOOL_BIN_DIR"], env["PIPX_BIN_DIR"], env["XDG_BIN_HOME"]];
  return [
    ...named.filter((each): each is string => each !== undefined && each !== ""),
    path.join(home, ".local", "bin"),
    ...venvs.map((each) => path.join(each, scripts(platform))),
    ownPrograms(storage),
  ];
}

/** The path of a program if it can be executed. */
function executable(folder: string, program: string, platform: NodeJS.Platform): string | undefined {
  for (const end of platform === "win32" ? ["", ".exe", ".cmd", ".bat"] : [""]) {
    const file = path.join(folder, program + end);
    try {
      accessSync(file, constants.X_OK);
      if (statSync(file).isFile()) return file;
    } catch {
      // missing or not executable: try the next one
    }
  }
  return undefined;
}

/** A program in PATH. Empty and relative entries of PATH are left out: they depend on a folder. */
export function inPath(program: string, { env, platform }: Machine): string | undefined {
  const folders = (env["PATH"] ?? "").split(path.delimiter).filter((each) => path.isAbsolute(each));
  return folders.map((each) => executable(each, program, platform)).find((each) => each !== undefined);
}

/** The paths of a program: itself if it is a path, else first in PATH, then where tools install it. */
export function programs(program: string, machine: Machine): string[] {
  const isPath = path.basename(program) !== program;
  const found = isPath
    ? [executable("", program, machine.platform)]
    : [inPath(program, machine), ...toolFolders(machine).map((each) => executable(each, program, machine.platform))];
  return [...new Set(found.filter((each) => each !== undefined))];
}

/** The program in the virtual environments of workspace folders: to be offered, not started unasked. */
export function workspacePrograms(folders: readonly string[], platform: NodeJS.Platform): string[] {
  const names = [".venv", "venv"].flatMap((name) => folders.map((folder) => path.join(folder, name, scripts(platform))));
  return names.map((each) => executable(each, "draftline", platform)).filter((each) => each !== undefined);
}
