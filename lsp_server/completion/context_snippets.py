"""Text of other files that a completion is shown: where the names used near the cursor are defined.

The index finds "def name" as fast as any other text, so that no file is read or parsed for it. A
snippet is what follows in the index, up to the end of its block.
"""

from __future__ import annotations

import re
from keyword import kwlist
from pathlib import PurePath
from textwrap import dedent, indent
from typing import TYPE_CHECKING

from engine.editing.edits import plain
from lsp_server.completion.brackets import PAIRS, scan
from lsp_server.completion.indentation import OPENS, width

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from index.workspace.workspace import Workspace

WORD = re.compile(r"[^\W\d]\w{2,}")
BEFORE = ("def", "class", "function", "func", "fn", "type", "struct", "interface", "const")
SCRIPT = ("function", "class", "const", "type", "interface")
BY_SUFFIX = {  # other files: all of BEFORE
    ".py": ("def", "class"), ".go": ("func", "type"), ".rs": ("fn", "struct", "type", "const"),
    ".js": SCRIPT, ".jsx": SCRIPT, ".mjs": SCRIPT, ".ts": SCRIPT, ".tsx": SCRIPT,
}  # fmt: skip
OTHER = {
    *kwlist,
    *BEFORE,
    "self",
    "this",
    "str",
    "int",
    "bool",
    "list",
    "dict",
    "let",
    "var",
    "new",
}
FOLLOWS = re.compile(r"[ \t]*[(\[<:={]|[ \t]+(?:struct|interface|extends|implements)\b")
NAMES = 24  # looked up, the nearest to the cursor first
LONGEST = 96  # tokens of a snippet
PLACES = 4  # of a definition that are looked at

Snippet = tuple[str, str]  # path as shown, text


def snippets(
    before: str, after: str, path: str, room: int, workspace: Workspace, tokenizer: Tokenizer
) -> tuple[Snippet, ...]:
    """Definitions of names on either side of the cursor that other files than `path` hold, at most
    `room` tokens, the one for the nearest name last."""
    found: list[Snippet] = []
    own = set(re.findall(rf"\b(?:{'|'.join(BEFORE)})\s+(\w+)", f"{before}\n{after}"))
    names = dict.fromkeys([*reversed(WORD.findall(before)), *WORD.findall(after)])
    for name in [one for one in names if one not in own and one not in OTHER][:NAMES]:
        snippet = _definition(name, path, workspace, tokenizer)
        if snippet is None or snippet in found:
            continue
        cost = len(tokenizer.encode("\n".join(snippet))) + 4  # marks and line ends
        if cost <= room:
            room -= cost
            found.append(snippet)
    return tuple(reversed(found))


def _definition(name: str, path: str, workspace: Workspace, tokenizer: Tokenizer) -> Snippet | None:
    """The best place that defines a name; None where `path` itself does, or nothing."""
    heads = [f"{word} {name}" for word in BY_SUFFIX.get(PurePath(path).suffix, BEFORE)]
    at_margin = [(head, tokenizer.encode(f"\n{head}")[1:]) for head in heads]
    for head, ids in at_margin + [(head, tokenizer.encode(f" {head}")) for head in heads]:
        for match in workspace.match(ids, PLACES, near=path):
            if match.length < len(ids):
                break
            follow = tokenizer.decode(match.continuation(LONGEST).tolist())
            if not FOLLOWS.match(follow):
                continue  # a longer name, or prose
            if match.path == path:
                return None
            return shown_path(match.path, workspace), definition(head + plain(follow))
    return None


def definition(text: str) -> str:
    """The definition that a text starts with, up to the end of its block; of a text that breaks off
    inside, its whole lines. The first line has lost its indentation: the others are set by it."""
    lines = text.rstrip("\ufffd").split("\n")
    head = [lines.pop(0)]
    while lines and any(head[0][at] != "{" for at in scan(head[0]).open):
        head[0] += "\n" + lines.pop(0)  # a head of several lines
    first = next((one for one in lines if one.strip()), "")
    if not OPENS.search(head[0]) or not first:
        return head[0].rstrip()
    body: list[str] = []
    for number, line in enumerate(lines):
        if line.strip() and width(line) < width(first):
            if line.strip()[0] in PAIRS:
                body.append(line)
            break
        if number == len(lines) - 1 and body:  # it may be cut off
            break
        body.append(line)
    block = dedent("\n".join(body)).rstrip()
    if block.split("\n")[-1][:1] not in PAIRS:  # no line stands as far left as the first one
        block = indent(block, "\t" if first[0] == "\t" else " " * (2 if width(first) % 4 else 4))
    return f"{head[0]}\n{block}"


def shown_path(path: str, workspace: Workspace) -> str:
    """A path as the model sees it: from its root on."""
    for root in workspace.roots:
        if PurePath(path).is_relative_to(root):
            return PurePath(path).relative_to(root).as_posix()
    return PurePath(path).name
