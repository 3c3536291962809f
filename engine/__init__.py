"""Speculative decoding, headless. `Engine(Config)`, `submit(Request) -> Job`, `close()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.config import DEFAULT_MODEL, Config
from engine.records import Done, Piece, Request, RequestError, Step, Usage

if TYPE_CHECKING:
    from engine.engine import Engine

__all__ = [
    "DEFAULT_MODEL", "Config", "Done", "Engine", "Piece", "Request", "RequestError", "Step",
    "Usage",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`Engine` brings torch: it is imported when it is asked for."""
    if name == "Engine":
        from engine.engine import Engine

        return Engine
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
