/** The schemes of documents that a user can change, which the server sees. */

/** Schemes of VS Code itself: files here and on other machines, unsaved texts, cells of notebooks, settings. */
const OWN_SCHEMES = [
  "file",
  "untitled",
  "vscode-notebook-cell",
  "vscode-interactive-input",
  "vscode-remote",
  "vscode-local",
  "vscode-userdata",
  "vscode-vfs",
];

const PREFIX = "onFileSystem:";

/** Those of VS Code, and those of the file systems that extensions bring, unless they are read-only. */
export function schemesOf(activationEvents: readonly string[], isWritable: (scheme: string) => boolean | undefined): string[] {
  const brought = activationEvents.filter((event) => event.startsWith(PREFIX)).map((event) => event.slice(PREFIX.length));
  return [...new Set([...OWN_SCHEMES, ...brought.filter((scheme) => isWritable(scheme) !== false)])];
}
