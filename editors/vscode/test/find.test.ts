/** Finding the server's program, in real folders. */

import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { inPath, ownPrograms, programs, workspacePrograms, type Machine } from "../src/find";
import { installing } from "../src/install";

function machine(context: TestContext, env: Record<string, string> = {}): Machine & { root: string } {
  const root = mkdtempSync(path.join(tmpdir(), "draftline-find-"));
  context.after(() => { rmSync(root, { recursive: true }); });
  const [home, storage] = [path.join(root, "home"), path.join(root, "storage")];
  const absolute = Object.entries(env).map(([key, value]) => [key, value.replaceAll("ROOT", root)]);
  return { root, home, storage, platform: "linux", env: Object.fromEntries(absolute) as Record<string, string> };
}

function put(...parts: string[]): string {
  const file = path.join(...parts);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, "#!/bin/sh\n");
  chmodSync(file, 0o755);
  return file;
}

test("it is found wherever uv, pipx or this extension install it", (context) => {
  const places: [Record<string, string>, string][] = [
    [{ PATH: "/nowhere:ROOT/path" }, "path/draftline"],
    [{}, "home/.local/bin/draftline"],
    [{}, "home/.local/share/uv/tools/draftline/bin/draftline"],
    [{}, "home/.local/share/pipx/venvs/draftline/bin/draftline"],
    [{}, "home/.local/pipx/venvs/draftline/bin/draftline"],
    [{ XDG_DATA_HOME: "ROOT/data" }, "data/uv/tools/draftline/bin/draftline"],
    [{ UV_TOOL_DIR: "ROOT/tools" }, "tools/draftline/bin/draftline"],
    [{ UV_TOOL_BIN_DIR: "ROOT/uv" }, "uv/draftline"],
    [{ PIPX_HOME: "ROOT/pipx" }, "pipx/venvs/draftline/bin/draftline"],
    [{ PIPX_BIN_DIR: "ROOT/pipx" }, "pipx/draftline"],
    [{}, "storage/bin/draftline"],
  ];
  for (const [env, place] of places) {
    const here = machine(context, env);
    assert.deepEqual(programs("draftline", here), []);
    const file = put(here.root, place);
    assert.deepEqual(programs("draftline", here), [file]);
  }
});

test("PATH comes first, and each program is named once", (context) => {
  const here = machine(context, { PATH: "ROOT/one:ROOT/home/.local/bin" });
  const second = put(here.home, ".local", "bin", "draftline");
  assert.deepEqual(programs("draftline", here), [second]);
  const first = put(here.root, "one", "draftline");
  assert.deepEqual(programs("draftline", here), [first, second]);
});

test("a path is taken as it is, and nothing else instead of it", (context) => {
  const here = machine(context, { PATH: "ROOT/path" });
  put(here.root, "path", "draftline");
  const own = put(here.root, "mine", "draftline");
  assert.deepEqual(programs(own, here), [own]);
  assert.deepEqual(programs(path.join(here.root, "none", "draftline"), here), []);
});

test("what cannot be executed is not found", (context) => {
  const here = machine(context, { PATH: "ROOT/path" });
  chmodSync(put(here.root, "path", "draftline"), 0o644);
  mkdirSync(path.join(here.home, ".local", "bin", "draftline"), { recursive: true });
  assert.deepEqual(programs("draftline", here), []);
});

test("a folder that PATH names relatively is not looked into", (context) => {
  const here = machine(context, { PATH: ":.:bin" });
  const before = process.cwd();
  put(here.root, "draftline");
  put(here.root, "bin", "draftline");
  process.chdir(here.root);
  try {
    assert.equal(inPath("draftline", here), undefined);
  } finally {
    process.chdir(before);
  }
});

test("a workspace's own program is offered, but not among those that are started", (context) => {
  const here = machine(context);
  const workspace = path.join(here.root, "workspace");
  const file = put(workspace, ".venv", "bin", "draftline");
  assert.deepEqual(workspacePrograms([workspace], "linux"), [file]);
  assert.deepEqual(programs("draftline", here), []);
});

test("what uv installs into is found", (context) => {
  const here = machine(context);
  const { args, env } = installing("/source of it", here);
  assert.equal(args.at(-1), "/source of it"); // one argument, whatever its name
  assert.equal(env["UV_TOOL_BIN_DIR"], ownPrograms(here.storage));
  const file = put(env["UV_TOOL_BIN_DIR"], "draftline");
  assert.deepEqual(programs("draftline", here), [file]);
});

test("uv takes a Python that the wheel is for, and torch only where there is a card", (context) => {
  const here = machine(context, { PATH: "ROOT/path" });
  const python = (source: string): string | undefined => installing(source, here).args.at(-2);
  assert.equal(python("/a/draftline-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl"), ">=3.12");
  assert.equal(python("/a/draftline-0.1.0-cp311-cp311-macosx_11_0_arm64.whl"), "3.11");
  assert.equal(python("/a/draftline"), ">=3.11");
  put(here.root, "path", "nvidia-smi");
  assert.equal(installing("/a/draftline", here).args.at(-1), "/a/draftline[gpu]");
});
