"""Texts that may hold secrets, which are not sent to an engine of another machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.records import Request, RequestError
from engine.remote.engine_url import EngineUrl
from index.workspace.file_filter import EXEMPTIONS, why_secret

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace


def without_secrets(request: Request, host: str, workspace: Workspace | None) -> Request:
    """Return the request as it may be sent to `host`: without snippets that may hold secrets.

    RequestError if its own texts may. Those of a conversation were chosen by its user; files that
    it shows must be among the request's documents or predictions.
    """
    name = str(Path(request.path).absolute()) if request.path else ""
    for path, text in _texts(request, name):
        if why := _why(path, text, workspace):
            raise RequestError(refusal(Path(request.path).name or "a text", why, host))
    shown = tuple(snippet for snippet in request.snippets if not _why(*snippet, workspace))
    return replace(request, snippets=shown) if shown != request.snippets else request


def check_document(engine: object, name: str, text: str = "") -> None:
    """Raise RequestError if a document that an engine is to read may hold secrets.

    Only engines of other machines are checked.
    """
    url = getattr(engine, "url", None)
    if not isinstance(url, EngineUrl) or url.socket:
        return
    if why := _why(str(Path(name).absolute()), text, None):
        raise RequestError(refusal(name, why, url.host))


def refusal(name: str, why: str, host: str) -> str:
    """Say why a text is not sent, with the remedies."""
    return (
        f"{name}: {why}, so it is not sent to {host}: use a model of this machine, or name the "
        f"file in {EXEMPTIONS}"
    )


def _texts(request: Request, name: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a request that are those of files, with their paths."""
    yield name, request.text + (request.suffix or "")
    yield name, request.update
    for passage in request.documents:
        yield "", passage.text
    for text in request.predictions:
        yield "", text


def _why(path: str, text: str, workspace: Workspace | None) -> str | None:
    if workspace is not None:
        return workspace.why_secret(path, text)
    roots: list[Path] = []
    with suppress(FileNotFoundError):  # the current folder was deleted
        roots.append(Path.cwd())
    return why_secret(path, text, roots)
