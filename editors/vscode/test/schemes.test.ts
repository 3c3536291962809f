/** Schemes of the documents that the server sees. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { schemesOf } from "../src/schemes";

test("files, unsaved texts, cells of notebooks and settings are among them without any extension", () => {
  const schemes = schemesOf([], () => undefined);
  for (const scheme of ["file", "untitled", "vscode-notebook-cell", "vscode-vfs", "vscode-userdata"]) assert.ok(schemes.includes(scheme));
  for (const scheme of ["output", "git", "comment", "vscode-scm"]) assert.ok(!schemes.includes(scheme));
});

test("a file system of an extension is, unless it is known to be read-only, and each is named once", () => {
  const events = ["onStartupFinished", "onFileSystem:ssh", "onFileSystem:git", "onFileSystem:file", "onLanguage:onFileSystem:x"];
  const added = schemesOf(events, (scheme) => ({ git: false, ssh: true })[scheme]).filter((scheme) => !schemesOf([], () => undefined).includes(scheme));
  assert.deepEqual(added, ["ssh"]);
  const schemes = schemesOf(events, () => undefined);
  assert.equal(new Set(schemes).size, schemes.length);
});
