"""Code actions: rewrites and explanations of a selection, fixes and explanations of diagnostics.

Listing them is cheap; the model is asked when one is resolved, or by the client's chat.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.editing.blocks import indent as indent_of
from lsp_server.editing.edit import EditResult, edit, not_applied
from lsp_server.editing.workspace_edit import changed_document
from lsp_server.protocol.messages import EditParams, failed
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocument

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

REWRITE = f"{types.CodeActionKind.RefactorRewrite.value}.draftline"
FIX = f"{types.CodeActionKind.QuickFix.value}.draftline"
EXPLAIN = f"{types.CodeActionKind.Refactor.value}.draftline.explain"
# For each, the wording of three or four that worked most often with the default model.
REWRITES = {
    "docstring": (
        "Add a docstring",
        "Keep the code as it is, and add a docstring to the function.",
    ),
    "types": ("Add type hints", "Add type annotations to the function signature."),
    "simplify": ("Simplify", "Simplify this code without changing what it does."),
}
# What editors send where nothing is selected: nothing, the character at the cursor (Helix) or the
# word (eglot).
CURSOR = re.compile(r"\w*|.", re.DOTALL)
MAX_TITLE_CHARS = 80  # characters of a diagnostic's message


def actions(
    server: Server, session: Session, document: OpenDocument, params: types.CodeActionParams
) -> list[types.CodeAction]:
    """List the code actions for a range."""
    if not session.enabled or session.settings.disabled_reason(document.language, document.path):
        return []
    start, stop = server.documents.span(document, params.range)
    if CURSOR.fullmatch(document.text.text, start, stop):
        start, stop = block_around(document.text, start)
    target = server.documents.range(document, start, stop)
    found: list[types.CodeAction] = []
    for diagnostic in params.context.diagnostics:
        at, _ = server.documents.span(document, diagnostic.range)
        around = server.documents.range(document, *block_around(document.text, at))
        message = " ".join(str(diagnostic.message).split())
        title = f"Fix with Draftline: {message[:MAX_TITLE_CHARS]}"
        found.append(_action(server, document, FIX, title, around, f"Fix this problem: {message}"))
        found[-1].diagnostics = [diagnostic]
        if session.has_chat:
            title = f"Explain with Draftline: {message[:MAX_TITLE_CHARS]}"
            problem = {"uri": document.uri, "range": diagnostic.range, "message": message}
            found.append(_explanation(document, f"{FIX}.explain", title, around, [problem]))
            found[-1].diagnostics = [diagnostic]
    if document.text.text[start:stop].strip():
        if session.has_chat:
            found.append(_explanation(document, EXPLAIN, "Explain with Draftline", target, []))
        if session.has_instruction_box:
            found.append(_instruction_action(document, target))
        for name, (title, instruction) in REWRITES.items():
            kind = f"{REWRITE}.{name}"
            found.append(_action(server, document, kind, title, target, instruction))
    only = [_value(kind) for kind in params.context.only or ()]
    return [
        action
        for action in found
        if not only or any(_matches(_value(action.kind), kind) for kind in only)
    ]


async def resolve(server: Server, session: Session, action: types.CodeAction) -> types.CodeAction:
    """Add the edit to an action; one with a command stays as it is, as VS Code resolves these, too.

    Fails for an edit with warnings where the client would apply it without showing them.
    """
    from lsp_server.protocol.converter import structure

    if action.data is None:
        return action

    params: EditParams = structure(action.data, EditParams, "params.data")
    result = await rewrite(server, session, params, action.title)
    if why := not_applied(server, result):
        raise failed(why)
    label = result.label(action.title)
    action.edit = changed_document(server, result.document, result.changes, label)
    action.edit = action.edit or types.WorkspaceEdit()
    return action


async def rewrite(
    server: Server, session: Session, params: EditParams, title: str = ""
) -> EditResult:
    """Make an edit that keeps every definition; fail if the model dropped one."""
    result = await edit(server, session, params, title)
    if lost := [one for one in result.outcome.failed if one.kind == "definitions"]:
        raise failed(f"the model answered twice, and {lost[0].warning}: select less, or say more")
    return result


def block_around(text: Text, offset: int) -> tuple[int, int]:
    """Find the whole lines of the innermost block around an offset.

    Outside any block, they are the lines up to the next empty ones.
    """
    own = text.line_of(offset)
    head = _block_start(text, own)
    if head is None:
        first = last = own
        while first > 0 and _line(text, first - 1).strip():
            first -= 1
        while last + 1 < text.line_count and _line(text, last + 1).strip():
            last += 1
        return text.line(first)[0], text.line(last)[1]
    indent = indent_of(_line(text, head))
    last = head
    for number in range(head + 1, text.line_count):
        line = _line(text, number)
        if line.strip() and indent_of(line) <= indent:
            if line.strip()[0] in ")]}" or line.strip().startswith("end"):
                last = number
                if line.rstrip().endswith((":", "{")):
                    continue
            break
        if line.strip():
            last = number
    while head > 0 and _line(text, head - 1).strip().startswith("@"):
        head -= 1
    return text.line(head)[0], text.line(last)[1]


def _block_start(text: Text, number: int) -> int | None:
    """Find the line that opens the block around a line; the line itself if it opens one."""
    while number > 0 and not _line(text, number).strip():
        number -= 1
    if _line(text, number).rstrip().endswith((":", "{")):
        return number
    indent = indent_of(_line(text, number))
    while number > 0 and indent > 0:
        number -= 1
        line = _line(text, number)
        if line.strip() and indent_of(line) < indent:
            indent = indent_of(line)
            if line.rstrip().endswith((":", "{")):
                return number
    return None


def _line(text: Text, number: int) -> str:
    return text.text[slice(*text.line(number))]


def _action(
    server: Server,
    document: OpenDocument,
    kind: str,
    title: str,
    target: types.Range,
    instruction: str,
) -> types.CodeAction:
    name = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    data: dict[str, Any] = {"textDocument": name, "range": target, "instruction": instruction}
    data["keepDefinitions"] = True
    action = types.CodeAction(title=title, kind=kind)
    if _resolves_edits(server):
        action.data = data
    else:
        action.command = types.Command(title=title, command="draftline.edit", arguments=[data])
    return action


def _instruction_action(document: OpenDocument, target: types.Range) -> types.CodeAction:
    name = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    title = "Edit with instruction…"
    command = types.Command(
        title=title,
        command="draftline.editWithInstruction",
        arguments=[{"textDocument": name, "range": target}],
    )
    return types.CodeAction(title=title, kind=f"{REWRITE}.edit", command=command)


def _explanation(
    document: OpenDocument,
    kind: str,
    title: str,
    target: types.Range,
    problems: list[dict[str, Any]],
) -> types.CodeAction:
    """Make an action that asks about a range, and the problems in it, in the client's chat."""
    name = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    params = {"textDocument": name, "range": target, "diagnostics": problems}
    command = types.Command(title=title, command="draftline.explain", arguments=[params])
    return types.CodeAction(title=title, kind=kind, command=command)


def _resolves_edits(server: Server) -> bool:
    documents = server.client_capabilities.text_document
    able = documents.code_action if documents else None
    support = able.resolve_support if able else None
    return support is not None and "edit" in support.properties


def _value(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def _matches(kind: str, wanted: str) -> bool:
    return wanted == "" or kind == wanted or kind.startswith(f"{wanted}.")
