"""The headless API: `Engine(Config)`, `submit(Request) -> Job`, `close()`. Faces use only it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from engine.config import Config
from engine.cost import remember, remembered
from engine.drafting import Drafter, Nothing, Source
from engine.drafting.blend import Blend, Calibration
from engine.drafting.context import ContextSource
from engine.drafting.prediction import Prediction
from engine.drafting.workspace import WorkspaceSource
from engine.generate import generate, room_for
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
        """Fetch (built-in models only), load and check the model; index the workspace, if one is
        named. Raises WeightsError, UnsupportedModel or OSError with one line."""
        from engine.target import Target

        self.config = config or Config()
        folder = locate(self.config.model, progress=progress)
        if progress:
            progress(f"loading {self.config.model}", 0, 0)
        self.tokenizer = Tokenizer(folder)
        self.target: Target = Target(folder, self.config)
        self.machine = self._machine(folder)
        self.cost = remembered(home() / "costs.json", self.machine, self.target)
        self.calibration = Calibration()
        self.workspace: Workspace | None = None
        if self.config.workspace is not None:
            self.workspace = Workspace(self.config.workspace, self.tokenizer, home())
            self.workspace.watch()  # before it is read: nothing is missed
            self.workspace.build(progress)
        self.worker = Worker()

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        workspace: Workspace | None = None,
        client: str = "",
    ) -> Job:
        """Queue a request. RequestError at once where it cannot be answered. `speculation` False
        decodes plainly: the same text, later. `workspace` is copied from in place of the engine's
        own. Equally urgent requests of several clients take turns."""
        prompt = prompt_of(request, self.tokenizer)
        room_for(prompt, self.target.context)
        run = partial(self._run, request, prompt, speculation, workspace or self.workspace)
        return self.worker.submit(Job(request, run, client))

    def close(self) -> None:
        """Cancel everything, end the thread, and keep what was learnt about this machine."""
        self.worker.close()
        if self.workspace is not None:
            self.workspace.close()
        remember(home() / "costs.json", self.machine, self.cost)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
        self,
        request: Request,
        prompt: Prompt,
        speculation: bool,
        workspace: Workspace | None,
        cancelled: Callable[[], bool],
    ) -> Iterator[Event]:
        drafter = self._drafter(prompt, workspace) if speculation else Nothing()
        if self.target.device.type == "cpu":
            self.target.chunk = chunk_of(self.cost.reading)
        return generate(
            request, prompt, self.target, self.tokenizer, drafter, cancelled, self.cost.read
        )

    def _drafter(self, prompt: Prompt, workspace: Workspace | None) -> Drafter:
        if not self.target.exact and self.target.device.type == "cpu":
            return Nothing()  # the target said why when it was loaded
        sources: list[Source] = [ContextSource()]
        if prompt.predictions:
            sources.insert(0, Prediction())
        if workspace is not None:
            sources.append(WorkspaceSource(workspace))
        return Blend(sources, self.calibration, self.cost, self.config.budget)

    def _machine(self, folder: Path) -> str:
        """What a forward pass's time depends on."""
        threads = self.config.threads or os.cpu_count()
        parts = (folder.name, self.target.dtype_name, self.target.device_name, f"{threads} threads")
        return ", ".join(parts)
