/** The chat's page: its scripts and styles are the extension's own, and nothing else is loaded. */

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";

export function pageHtml(webview: vscode.Webview, extension: vscode.Uri): string {
  const nonce = randomBytes(16).toString("base64");
  const own = (...path: string[]): string => webview.asWebviewUri(vscode.Uri.joinPath(extension, ...path)).toString();
  const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${own("media", "chat.css")}">
<title>Draftline</title>
</head>
<body>
<main id="log" role="log" aria-live="off" aria-label="Conversation" tabindex="0"></main>
<p id="status" role="status" aria-live="polite"></p>
<form id="form">
<ul id="offers" role="listbox" aria-label="Files and other context" hidden></ul>
<div id="box">
<div id="chips" role="group" aria-label="Context"></div>
<textarea id="text" rows="2" role="combobox" aria-label="Question" aria-controls="offers" aria-expanded="false"
 aria-autocomplete="list" placeholder="Ask about the code. @ adds a file, # a selection or problems."></textarea>
<div id="buttons"><button type="submit" id="send">Send</button></div>
</div>
</form>
<p id="said" role="status" aria-live="polite"></p>
<script nonce="${nonce}" src="${own("dist", "chat.js")}"></script>
</body>
</html>`;
}
