"""Text of other files that a completion is shown: where the names used near the cursor are defined.

The index finds "def name" as fast as any other text, so that no file is read or parsed for it. A
snippet is what follows in the index, up to the end of its block.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from lsp_server.shape import end_of

if TYPE_CHECKING:
    from engine.prompts import Tokenizer
    from index.workspace import Workspace

WORD = re.compile(r"[^\W\d]\w{2,}")
BEFORE = ("def", "class", "function", "func", "fn", "type", "struct", "interface", "const")
NAMES = 24  # looked up, the nearest to the cursor first
LONGEST = 96  # tokens of a snippet
PLACES = 4  # of a definition that are looked at

Snippet = tuple[str, str]  # path as shown, text


def snippets(
    text: str, path: str, room: int, workspace: Workspace, tokenizer: Tokenizer
) -> tuple[Snippet, ...]:
    """Definitions of names in `text` (around the cursor) that other files than `path` hold, at most
    `room` tokens, the one for the nearest name last."""
    found: list[Snippet] = []
    own = set(re.findall(rf"\b(?:{'|'.join(BEFORE)})\s+(\w+)", text))
    names = dict.fromkeys(reversed(WORD.findall(text)))
    for name in [one for one in names if one not in own and one not in BEFORE][:NAMES]:
        snippet = _definition(name, path, workspace, tokenizer)
        if snippet is None or snippet in found:
            continue
        room -= len(tokenizer.encode("".join(snippet))) + 4
        if room < 0:
            break
        found.append(snippet)
    return tuple(reversed(found))


def _definition(name: str, path: str, workspace: Workspace, tokenizer: Tokenizer) -> Snippet | None:
    heads = [f"{word} {name}" for word in BEFORE]
    at_margin = [(head, tokenizer.encode(f"\n{head}")[1:]) for head in heads]
    for head, ids in at_margin + [(head, tokenizer.encode(f" {head}")) for head in heads]:
        for match in workspace.match(ids, PLACES, near=path):
            if match.length < len(ids) or match.path == path:
                continue
            follow = tokenizer.decode(match.continuation(LONGEST).tolist())
            if follow[:1].isalnum() or follow[:1] == "_":
                continue  # a longer name
            whole = head + follow.rstrip("\ufffd")
            stop = end_of(follow, head + ":", lines=True)
            block = head + follow[:stop] if stop is not None else whole[: whole.rfind("\n")]
            if block.strip():
                return shown_path(match.path, workspace), block.rstrip()
    return None


def shown_path(path: str, workspace: Workspace) -> str:
    """A path as the model sees it: from its root on."""
    for root in workspace.disk.roots:
        if PurePath(path).is_relative_to(root):
            return PurePath(path).relative_to(root).as_posix()
    return PurePath(path).name
