"""Speculative decoding, headless. `Engine(Config)`, `submit(Request) -> Job`, `close()`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.config import DEFAULT_MODEL, Config
from engine.records import Done, Piece, Request, RequestError, Step, Usage

if TYPE_CHECKING:
    from engine.editing.edit import Edit
    from engine.editing.edits import EditRefused
    from engine.editing.text_file import FileError
    from engine.engine import Engine

__all__ = [
    "DEFAULT_MODEL", "Config", "Done", "Edit", "EditRefused", "Engine", "FileError", "Piece",
    "Request", "RequestError", "Step", "Usage",
]  # fmt: skip
_LAZY = {  # imported when they are asked for: `Engine` brings torch
    "Edit": "engine.editing.edit",
    "EditRefused": "engine.editing.edits",
    "Engine": "engine.engine",
    "FileError": "engine.editing.text_file",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
