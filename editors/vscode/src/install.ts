/** How uv is called to install the server. */

import * as path from "node:path";
import { inPath, ownPrograms, type Machine } from "./find";

/** Whether the driver of an NVIDIA card is here: only there is torch installed. */
export function hasCard(machine: Machine): boolean {
  return inPath("nvidia-smi", machine) !== undefined;
}

/** The arguments and the environment of uv that install Draftline from `source` into our storage. */
export function installing(source: string, machine: Machine): { args: string[]; env: Record<string, string> } {
  const extra = hasCard(machine) ? "[gpu]" : "";
  return {
    args: ["tool", "install", "--force", "--python", pythons(source), source + extra],
    env: {
      UV_TOOL_DIR: path.join(machine.storage, "tools"),
      UV_TOOL_BIN_DIR: ownPrograms(machine.storage),
      UV_TORCH_BACKEND: "auto", // the build of torch that the card's driver can run
    },
  };
}

/** The versions of Python that a wheel is for, by its name: uv would take one that it is not for. */
function pythons(source: string): string {
  const [, minor, abi] = /-cp3(\d+)-(\w+)-[^-]+\.whl$/.exec(path.basename(source)) ?? [];
  if (minor === undefined) return ">=3.11";
  return abi === "abi3" ? `>=3.${minor}` : `3.${minor}`;
}
