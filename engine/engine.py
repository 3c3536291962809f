"""The headless API: `Engine(Config)`, `submit(Request) -> Job`, `close()`. Faces use only it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.config import Config
from engine.drafting import Drafter, Nothing
from engine.drafting.answer_history import Memory
from engine.drafting.builders import Asked, Make, Parts
from engine.drafting.drafter_weights import usable_weights
from engine.drafting.next_token import Model
from engine.drafting.registry import chosen, chosen_by
from engine.drafting.stdlib_ngram import Library
from engine.drafting.vocabulary import vocabulary
from engine.generate import generate, room_for
from engine.model.cost_model import guess, measure, processor, remember, remembered
from engine.prompts.builder import Prompt, Tokenizer, prompt_of
from engine.prompts.fim import marks
from engine.records import Event, Message, Request
from engine.weights import home, locate
from engine.worker import Job, Worker
from index.workspace.workspace import Workspace

if TYPE_CHECKING:
    from engine.model.target import Target

CHUNK = 128  # of a prompt, on a CPU
Progress = Callable[[str, int, int], None]  # (what, done, of)


PATIENCE = 0.2  # seconds of a pass over a prompt at most: between passes it can be cancelled


def chunk_of(reading: float) -> int:
    """Tokens of a prompt to read in a pass on a CPU where one takes `reading` seconds."""
    return max(32, min(CHUNK, int(PATIENCE / reading) // 16 * 16))


class Info(NamedTuple):
    """The model and the machine it runs on."""

    model: str  # as the configuration names it
    device: str  # as a person would name it
    dtype: str
    context: int  # tokens
    fills_middle: bool  # the tokenizer has fill-in-the-middle marks
    prefill_tokens_per_s: float


class Engine:
    """A loaded model and the thread that owns it. A context manager."""

    def __init__(self, config: Config | None = None, progress: Progress | None = None) -> None:
        """Fetch (built-in models only), load and check the model and what its drafter needs; index
        the workspace, if one is named. Raises WeightsError, UnsupportedModel, ValueError or OSError
        with one line."""
        from engine.model.target import Target

        self.config = config or Config()
        drafter = chosen_by(self.config)  # an unknown drafter fails before anything is loaded
        folder = locate(self.config.model, progress=progress)
        if progress:
            progress(f"loading {self.config.model}", 0, 0)
        tokenizer, target = Tokenizer(folder), Target(folder, self.config)
        self._machine = machine_key(folder, target, self.config)
        cost = remembered(home() / "costs.json", self._machine) or guess(target)
        self.library = Library(home(), tokenizer)
        model = Model(vocabulary(tokenizer), self.library, usable_weights())
        self.parts = Parts(self.config, target, tokenizer, cost, model, Memory(target.vocab))
        self.drafters = {self.config.drafter: drafter.load(self.parts)}
        self.workspace: Workspace | None = None
        if self.config.workspace is not None:
            self.workspace = self.open_workspace(self.config.workspace)
            try:
                self.workspace.watch()  # before the first read, so that no change is missed
                self.workspace.build(progress)
            except BaseException:
                self.workspace.close()
                raise
        self.worker = Worker(*self._spare())

    @property
    def info(self) -> Info:
        """The model and the machine it runs on."""
        target, tokenizer = self.parts.target, self.parts.tokenizer
        return Info(
            model=self.config.model,
            device=target.device_name,
            dtype=target.dtype_name,
            context=target.context,
            fills_middle=marks(tokenizer) is not None,
            prefill_tokens_per_s=1 / self.parts.cost.reading,
        )

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self.parts.target.context)

    @property
    def encoder(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.parts.tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: nothing in it becomes a control token."""
        return self.parts.tokenizer.encode(text)

    def chat(self, messages: tuple[Message, ...]) -> list[int]:
        """Token ids of a conversation in the model's chat template."""
        return self.parts.tokenizer.chat(messages)

    def pass_seconds(self, rows: int) -> list[float]:
        """Expected seconds of forward passes over 1, 2, ... `rows` tokens."""
        return [float(seconds) for seconds in self.parts.cost.table(0, rows)]

    def open_workspace(self, root: Path | list[Path], gitignore: bool = True) -> Workspace:
        """An index of a folder, or several, for this model's tokens; the caller closes it."""
        return Workspace(root, self.parts.tokenizer, home(), gitignore)

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        workspace: Workspace | None = None,
        client: str = "",
        drafter: str = "",
    ) -> Job:
        """Queue a request. RequestError at once where it cannot be answered. `speculation` False
        decodes plainly: the same text, later. `workspace` is copied from in place of the engine's
        own, `drafter` drafts in place of it (ValueError for what cannot). Equally urgent requests
        of several clients take turns."""
        prompt = prompt_of(request, self.parts.tokenizer)
        room_for(prompt, self.parts.target.context)
        make = self._make(drafter or self.config.drafter) if speculation else None
        run = partial(self._run, request, prompt, make, workspace or self.workspace, client)
        return self.worker.submit(Job(request, run, client))

    def forget(self, client: str | None = None) -> None:
        """Drop the answers remembered for a client. Without one, drop everything this session
        learnt, so that drafting starts afresh."""
        if client is not None:
            self.parts.history.forget(client=client)
            return
        self.parts.history.clear()
        self.parts.model.weights = usable_weights()
        for lengths in self.parts.lengths:
            lengths.forget()

    def close(self) -> None:
        """Cancel everything, end the thread, and keep what was learnt about this machine."""
        self.worker.close()
        if self.workspace is not None:
            self.workspace.close()
        remember(home() / "costs.json", self._machine, self.parts.cost)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(
        self,
        request: Request,
        prompt: Prompt,
        make: Make | None,
        workspace: Workspace | None,
        client: str,
        cancelled: Callable[[], bool],
    ) -> Iterator[Event]:
        drafter = self._drafter(workspace, client, make) if make else Nothing()
        if self.parts.target.device.type == "cpu":
            self.parts.target.chunk = chunk_of(self.parts.cost.reading)
        return generate(
            request,
            prompt,
            self.parts.target,
            self.parts.tokenizer,
            drafter,
            cancelled,
            self.parts.cost.read,
            self.parts.history.of(client),
            partial(self.parts.history.add, client, request.path),
            self.config.verification,
        )

    def _make(self, drafter: str) -> Make:
        """What makes drafters of a name, loaded once."""
        if drafter not in self.drafters:
            self.drafters[drafter] = chosen(drafter).load(self.parts)
        return self.drafters[drafter]

    def _drafter(
        self, workspace: Workspace | None, client: str, make: Make | None = None
    ) -> Drafter:
        rounds = not self.parts.target.exact
        if rounds and (self.config.exact or self.parts.target.device.type == "cpu"):
            return Nothing()  # the target said why when it was loaded
        make = make or self._make(self.config.drafter)
        return make(Asked(workspace, partial(self.parts.history.recycling, client)))

    def _spare(self) -> list[Iterator[float]]:
        """While nothing is asked: graphs of passes (on a card), then what a pass costs here
        (seconds, where the machine is calm), and, behind it and while it waits, what the language's
        library says (a minute)."""
        library = self.library.build() if self.config.library else iter(())
        return [self._measured(), library]

    def _measured(self) -> Iterator[float]:
        for _ in self.parts.target.warm():  # it logs how far it is
            yield 0.0
        if not self.parts.cost.measured:
            yield from measure(self.parts.target, self.parts.cost)
            remember(home() / "costs.json", self._machine, self.parts.cost)


def machine_key(folder: Path, target: Target, config: Config) -> str:
    """Everything that the time of a forward pass depends on, as one string."""
    if target.device.type == "cpu":
        device = processor()
    else:
        device = f"{target.device_name}, {'exact' if config.exact else f'graphs {config.graphs}'}"
    threads = config.threads or os.cpu_count()
    return ", ".join((folder.name, target.dtype_name, device, f"{threads} threads"))
