/** How uv is called to install the server. */

import * as path from "node:path";
import { ownPrograms, type Machine } from "./find";

/** The arguments and the environment of uv that install Draftline from `source` into our storage. */
export function installing(source: string, { storage }: Machine): { args: string[]; env: Record<string, string> } {
  return {
    args: ["tool", "install", "--force", "--python", ">=3.11", source],
    env: {
      UV_TOOL_DIR: path.join(storage, "tools"),
      UV_TOOL_BIN_DIR: ownPrograms(storage),
      UV_TORCH_BACKEND: "auto", // without an NVIDIA driver the CPU build, which is smaller
    },
  };
}
