"""What clients need of an engine, wherever it runs.

It may run in this process, in another one of this machine, on another machine, or behind OpenAI's
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from engine.config import Config
from engine.records import Info, Message, Request

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from engine.prompts.word_tokenizer import WordTokenizer
    from engine.worker import Submitted
    from index.workspace.workspace import Workspace

    AnyTokenizer = Tokenizer | WordTokenizer


class AnyEngine(Protocol):
    """A loaded model that one thread asks. A context manager."""

    @property
    def info(self) -> Info:
        """The model and the machine it runs on."""
        ...

    @property
    def config(self) -> Config:
        """The configuration, as far as it is known here."""
        ...

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        ...

    @property
    def folder(self) -> Path | None:
        """The model's folder, or that of its tokenizer; None where neither is on this machine."""
        ...

    @property
    def encoder(self) -> AnyTokenizer:
        """The model's tokenizer, or one that counts about as many tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: nothing in it becomes a control token."""
        ...

    def chat(self, messages: tuple[Message, ...]) -> list[int]:
        """Token ids of a conversation in the model's chat template."""
        ...

    def submit(self, request: Request, speculation: bool = True, *, client: str = "") -> Submitted:
        """Queue a request.

        RequestError where it cannot be answered. `client`: under which name the answer is
        remembered.
        """
        ...

    def close(self) -> None:
        """Cancel what runs, and leave."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class EditorEngine(AnyEngine, Protocol):
    """An engine that takes several requests at once, from any thread, as those of an editor."""

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        *,
        client: str = "",
        workspace: Workspace | None = None,
        cancelled: Callable[[], bool] = ...,
        urgency: int | None = None,
    ) -> Submitted:
        """Queue a request.

        RequestError where it cannot be answered. `workspace`: to draft from. `cancelled` is asked
        while the prompt is tokenized. `urgency`: smaller ones run first, by default that of the
        request's kind.
        """
        ...

    def forget(self, client: str) -> None:
        """Drop the answers remembered for a client."""
        ...

    def open_workspace(
        self, roots: str | Path | Sequence[str | Path], gitignore: bool = True
    ) -> Workspace:
        """Index a folder, or several, for this model's tokens; the caller closes the index."""
        ...


class ServedEngine(EditorEngine, Protocol):
    """An engine that `draftline serve` offers."""

    @property
    def drafts(self) -> bool:
        """Whether answers are drafted, and their texts have sources."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine answers nothing any more, in one line; None while it does."""
        ...

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        *,
        client: str = "",
        workspace: Workspace | None = None,
        cancelled: Callable[[], bool] = ...,
        urgency: int | None = None,
        owner: str = "",
    ) -> Submitted:
        """Queue a request. `owner`: one of several keys, which get equal time."""
        ...

    def prompt_tokens(self, request: Request, cancelled: Callable[[], bool] = ...) -> int:
        """Count the tokens of a request's prompt; 0 if `cancelled` says so meanwhile."""
        ...

    def pass_seconds(self, rows: int) -> list[float]:
        """Estimate the seconds of forward passes over 1, 2, ... `rows` tokens."""
        ...


class ClientEngine:
    """The common part of engines whose work another process does."""

    info: Info
    config: Config
    folder: Path | None

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self.info.context

    @cached_property
    def encoder(self) -> AnyTokenizer:
        """The model's tokenizer."""
        from engine.prompts.tokenizer import Tokenizer

        assert self.folder is not None
        return Tokenizer(self.folder)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: nothing in it becomes a control token."""
        return self.encoder.encode(text)

    def chat(self, messages: tuple[Message, ...]) -> list[int]:
        """Token ids of a conversation in the model's chat template."""
        return self.encoder.chat(messages)

    def close(self) -> None:
        """Leave the server, which cancels what runs."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
