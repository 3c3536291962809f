"""Context from other files for a completion's prompt: definitions of the names near the cursor.

The workspace index finds "def name" as fast as any other text, so no file is read or parsed. A
snippet is the text that follows in the index, up to the end of its block. The index returns tokens
that may break off anywhere, which is why blocks are found by indentation and not by a parser.
"""

from __future__ import annotations

import re
from keyword import kwlist
from pathlib import PurePath
from textwrap import dedent, indent
from typing import TYPE_CHECKING

from engine.editing.brackets import OPENER_OF, scan
from engine.editing.edits import plain
from lsp_server.completion.indentation import BLOCK_OPENER, indent_width

if TYPE_CHECKING:
    from engine.remote.any_engine import AnyTokenizer
    from index.workspace.workspace import Workspace

WORD = re.compile(r"[^\W\d]\w{2,}")
DEFINITION_KEYWORDS = (
    "def", "class", "function", "func", "fn", "type", "struct", "interface", "const",
)  # fmt: skip
SCRIPT_KEYWORDS = ("function", "class", "const", "type", "interface")
KEYWORDS_BY_SUFFIX = {  # other suffixes: all of DEFINITION_KEYWORDS
    ".py": ("def", "class"), ".go": ("func", "type"), ".rs": ("fn", "struct", "type", "const"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".ts", ".tsx"), SCRIPT_KEYWORDS),
}  # fmt: skip
IGNORED_NAMES = {
    *kwlist,
    *DEFINITION_KEYWORDS,
    "self", "this", "str", "int", "bool", "list", "dict", "let", "var", "new",
}  # fmt: skip
AFTER_DEFINED_NAME = re.compile(r"[ \t]*[(\[<:={]|[ \t]+(?:struct|interface|extends|implements)\b")
MAX_NAMES = 24  # names looked up, those nearest to the cursor first
MAX_SNIPPET_TOKENS = 96
MAX_MATCHES = 4  # matches considered for one name

Snippet = tuple[str, str]  # path relative to its root, text


def find_snippets(
    before: str, after: str, path: str, capacity: int, workspace: Workspace, tokenizer: AnyTokenizer
) -> tuple[Snippet, ...]:
    """Find definitions, in files other than `path`, of names around the cursor.

    They have at most `capacity` tokens; the definition of the nearest name is the last.
    """
    found: list[Snippet] = []
    own = set(re.findall(rf"\b(?:{'|'.join(DEFINITION_KEYWORDS)})\s+(\w+)", f"{before}\n{after}"))
    names = dict.fromkeys([*reversed(WORD.findall(before)), *WORD.findall(after)])
    for name in [word for word in names if word not in own and word not in IGNORED_NAMES][
        :MAX_NAMES
    ]:
        snippet = _definition(name, path, workspace, tokenizer)
        if snippet is None or snippet in found:
            continue
        cost = len(tokenizer.encode("\n".join(snippet))) + 4  # separators
        if cost <= capacity:
            capacity -= cost
            found.append(snippet)
    return tuple(reversed(found))


def _definition(
    name: str, path: str, workspace: Workspace, tokenizer: AnyTokenizer
) -> Snippet | None:
    """Find the best definition of a name; None if `path` itself defines it, or nothing does."""
    heads = [
        f"{word} {name}"
        for word in KEYWORDS_BY_SUFFIX.get(PurePath(path).suffix, DEFINITION_KEYWORDS)
    ]
    at_margin = [(head, tokenizer.encode(f"\n{head}")[1:]) for head in heads]
    for head, ids in at_margin + [(head, tokenizer.encode(f" {head}")) for head in heads]:
        for match in workspace.match(ids, MAX_MATCHES, near=path):
            if match.length < len(ids):
                break
            follow = tokenizer.decode(match.continuation(MAX_SNIPPET_TOKENS).tolist())
            if not AFTER_DEFINED_NAME.match(follow):
                continue  # a longer name, or prose
            if match.path == path:
                return None
            return shown_path(match.path, workspace), truncate_to_block(head + plain(follow))
    return None


def truncate_to_block(text: str) -> str:
    """Cut a text to the definition at its start, up to the end of its block.

    If the text breaks off inside the block, its complete lines are left. The first line has lost
    its indentation; the others are dedented to match.
    """
    lines = text.rstrip("\ufffd").split("\n")
    head = [lines.pop(0)]
    while lines and any(head[0][at] != "{" for at in scan(head[0]).open):
        head[0] += "\n" + lines.pop(0)  # a head on several lines
    first = next((one for one in lines if one.strip()), "")
    if not BLOCK_OPENER.search(head[0]) or not first:
        return head[0].rstrip()
    body: list[str] = []
    for number, line in enumerate(lines):
        if line.strip() and indent_width(line) < indent_width(first):
            if line.strip()[0] in OPENER_OF:
                body.append(line)
            break
        if number == len(lines) - 1 and body:  # possibly truncated
            break
        body.append(line)
    block = dedent("\n".join(body)).rstrip()
    if block.split("\n")[-1][:1] not in OPENER_OF:  # no closing line at the head's own indentation
        block = indent(
            block, "\t" if first[0] == "\t" else " " * (2 if indent_width(first) % 4 else 4)
        )
    return f"{head[0]}\n{block}"


def shown_path(path: str, workspace: Workspace) -> str:
    """Make a path relative to its workspace root, as it appears in prompts."""
    for root in workspace.roots:
        if PurePath(path).is_relative_to(root):
            return PurePath(path).relative_to(root).as_posix()
    return PurePath(path).name
