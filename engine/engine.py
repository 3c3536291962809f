"""The headless API: `Engine(Config)`, `submit(Request) -> Job`, `close()`. Faces use only it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import Config
from engine.cost import guess, measure, processor, remember, remembered
from engine.drafting import Drafter, Nothing
from engine.drafting.library import Library
from engine.drafting.load import Asked, Make, Parts
from engine.drafting.names import chosen, chosen_by
from engine.drafting.next_token import Model
from engine.drafting.vocabulary import vocabulary
from engine.drafting.weights import usable_weights
from engine.generate import generate, room_for
from engine.memory import Memory
from engine.prompts import Prompt, Tokenizer, prompt_of
from engine.records import Event, Request
from engine.weights import home, locate
from engine.worker import Job, Worker
from index.workspace import Workspace

if TYPE_CHECKING:
    from engine.target import Target

CHUNK = 128  # of a prompt, on a CPU
Progress = Callable[[str, int, int], None]  # (what, done, of)


PATIENCE = 0.2  # seconds of a pass over a prompt at most: between passes it can be cancelled


def chunk_of(reading: float) -> int:
    """Tokens of a prompt to read in a pass on a CPU where one takes `reading` seconds."""
    return max(32, min(CHUNK, int(PATIENCE / reading) // 16 * 16))


class Engine:
    """A loaded model and the thread that owns it. A context manager."""

    def __init__(self, config: Config | None = None, progress: Progress | None = None) -> None:
        """Fetch (built-in models only), load and check the model and what its drafter needs; index
        the workspace, if one is named. Raises WeightsError, UnsupportedModel, ValueError or OSError
        with one line."""
        from engine.target import Target

        self.config = config or Config()
        drafter = chosen_by(self.config)  # nothing is loaded for a name that there is not
        folder = locate(self.config.model, progress=progress)
        if progress:
            progress(f"loading {self.config.model}", 0, 0)
        self.tokenizer = Tokenizer(folder)
        self.target: Target = Target(folder, self.config)
        self.machine = self._machine(folder)
        self.cost = remembered(home() / "costs.json", self.machine) or guess(self.target)
        self.library = Library(home(), self.tokenizer)
        self.model = Model(vocabulary(self.tokenizer), self.library, usable_weights())
        self.memory = Memory(self.target.vocab)
        self.parts = Parts(self.config, self.target, self.tokenizer, self.cost, self.model)
        self.drafters = {self.config.drafter: drafter.load(self.parts)}  # what makes them
        self.workspace: Workspace | None = None
        if self.config.workspace is not None:
            self.workspace = Workspace(self.config.workspace, self.tokenizer, home())
            self.workspace.watch()  # before it is read: nothing is missed
            self.workspace.build(progress)
        self.worker = Worker(*self._spare())

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
        prompt = prompt_of(request, self.tokenizer)
        room_for(prompt, self.target.context)
        make = self._make(drafter or self.config.drafter) if speculation else None
        run = partial(self._run, request, prompt, make, workspace or self.workspace, client)
        return self.worker.submit(Job(request, run, client))

    def forget(self) -> None:
        """Draft as after a start: without what this session wrote, and what drafting learnt."""
        self.memory.clear()
        self.model.weights = usable_weights()
        for lengths in self.parts.lengths:
            lengths.forget()

    def close(self) -> None:
        """Cancel everything, end the thread, and keep what was learnt about this machine."""
        self.worker.close()
        if self.workspace is not None:
            self.workspace.close()
        remember(home() / "costs.json", self.machine, self.cost)

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
        if self.target.device.type == "cpu":
            self.target.chunk = chunk_of(self.cost.reading)
        return generate(
            request,
            prompt,
            self.target,
            self.tokenizer,
            drafter,
            cancelled,
            self.cost.read,
            self.memory.of(client),
            partial(self.memory.add, client, request.path),
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
        rounds = not self.target.exact
        if rounds and (self.config.exact or self.target.device.type == "cpu"):
            return Nothing()  # the target said why when it was loaded
        make = make or self._make(self.config.drafter)
        return make(Asked(workspace, partial(self.memory.recycling, client)))

    def _spare(self) -> list[Iterator[float]]:
        """While nothing is asked: graphs of passes (on a card), then what a pass costs here
        (seconds, where the machine is calm), and, behind it and while it waits, what the language's
        library says (a minute)."""
        library = self.library.build() if self.config.library else iter(())
        return [self._measured(), library]

    def _measured(self) -> Iterator[float]:
        for _ in self.target.warm():  # it logs how far it is
            yield 0.0
        if not self.cost.measured:
            yield from measure(self.target, self.cost)
            remember(home() / "costs.json", self.machine, self.cost)

    def _machine(self, folder: Path) -> str:
        """What a forward pass's time depends on."""
        threads = self.config.threads or os.cpu_count()
        if self.target.device.type == "cpu":
            device = processor()
        else:
            passes = "exact" if self.config.exact else f"graphs {self.config.graphs}"
            device = f"{self.target.device_name}, {passes}"
        return ", ".join((folder.name, self.target.dtype_name, device, f"{threads} threads"))
