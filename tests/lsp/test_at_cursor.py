"""A client learns which lines an edit at the cursor changes, and where code of an answer goes."""

from __future__ import annotations

import asyncio

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.editing.at_cursor import edit_target, placed_code
from lsp_server.protocol.messages import EditTargetParams, Identifier, PlaceCodeParams
from lsp_server.protocol.protocol import Server

URI = "file:///app.py"
TEXT = "s = '😋'\n\n\ndef f():\n    if s:\n        return '😋', 1\n\n\nprint(\n    f())\n"


def server(language: str = "python") -> Server:
    made = Server("test", "1")
    made.protocol.client_capabilities = types.ClientCapabilities()  # type: ignore[attr-defined]
    made.documents.open(URI, language, 1, TEXT)
    return made


def lines(line: int, column: int = 0, version: int = 1) -> tuple[int, int]:
    params = EditTargetParams(Identifier(URI, version), types.Position(line, column))
    found = asyncio.run(edit_target(server(), params))["range"]
    return found.start.line, found.end.line


def test_the_definition_or_the_block_around_the_cursor() -> None:
    assert lines(5, 15) == (3, 5)
    assert lines(3) == (3, 5)
    assert lines(8) == lines(9) == (8, 9)
    assert lines(0) == (0, 0)


def test_code_of_an_answer_is_an_edit_in_the_clients_units() -> None:
    at = types.Position(5, 20)
    code = "import re\n\ndef g():\n    pass\n"
    params = PlaceCodeParams(Identifier(URI, 1), types.Range(at, at), code)
    edit = asyncio.run(placed_code(server(), params))["edit"]
    starts = [each.range.start.line for each in edit.changes[URI]]
    assert starts == [0, 6]
    params.code = "\n"
    assert asyncio.run(placed_code(server(), params)) == {"edit": None}


def test_another_version_is_refused() -> None:
    with pytest.raises(JsonRpcException, match="the text changed meanwhile"):
        lines(0, version=2)
