"""A client learns where to ask the editor's own language server for a rename."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.editing.rename_places import find_rename_places
from lsp_server.protocol.messages import Identifier, RenamePlacesParams
from lsp_server.protocol.protocol import Server

URI = "file:///app.py"
TEXT = "s = '😋'; total = 1\nprint(total)\n"


def found(
    instruction: str, range_: types.Range | None = None, checks: bool = True, version: int = 1
) -> dict[str, Any] | None:
    async def configured() -> None:
        return None

    server = Server("test", "1")
    server.documents.open(URI, "python", 1, TEXT)
    settings = SimpleNamespace(checks=checks)
    session: Any = SimpleNamespace(configured=configured, settings=settings)
    params = RenamePlacesParams(Identifier(URI, version), instruction, range_)
    return asyncio.run(find_rename_places(server, session, params))


def span(line: int, start: int, stop: int) -> types.Range:
    return types.Range(types.Position(line, start), types.Position(line, stop))


def test_the_places_are_in_the_clients_units() -> None:
    places = [span(0, 10, 15), span(1, 6, 11)]
    answer = {"old": "total", "new": "amount", "places": places}
    assert found("Rename total to amount") == answer
    selected = types.Range(types.Position(1, 0), types.Position(2, 0))
    assert found("Rename total to amount", selected) == answer | {"places": places[1:]}


@pytest.mark.parametrize(
    "instruction", ["Rename total to amount and s to t", "Add a docstring", "Rename sum to total"]
)
def test_anything_else_has_no_places(instruction: str) -> None:
    assert found(instruction) is None


def test_without_checks_the_model_is_asked_for_everything() -> None:
    assert found("Rename total to amount", checks=False) is None


def test_another_version_is_refused() -> None:
    with pytest.raises(JsonRpcException, match="the text changed meanwhile"):
        found("Rename total to amount", version=2)
