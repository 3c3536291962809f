"""The headless API of all clients: `Engine(Config)`, `submit(Request) -> Job`, `close()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from engine.config import Config
from engine.drafting import Drafter, NullDrafter
from engine.drafting.answer_history import AnswerHistory
from engine.drafting.builders import EngineParts, RequestParts
from engine.drafting.drafter_weights import load_weights_or_default
from engine.drafting.next_token import NextTokenModel
from engine.drafting.registry import choice_for, parse_choice
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.drafting.vocabulary import vocabulary
from engine.editing.edit import Edit, edit_file
from engine.editing.running.trial import CANDIDATES
from engine.generate import Generation, generate, max_new_tokens, prefill
from engine.memory import give_back_memory
from engine.model.cost_model import guess, measure, processor_key, remember, remembered
from engine.model.native.loading import lower_priority, use_threads
from engine.model.native.native_target import NativeTarget
from engine.model.opening import open_target
from engine.model.prefix_store import PAUSE_SECONDS, PrefixStore
from engine.model.slots import Slots
from engine.prompts.builder import Prompt, prompt_of
from engine.prompts.fim import fim_format
from engine.prompts.indexed_prompt import is_of_indexed_files
from engine.prompts.prompt_encoder import Cancelled
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tool_grammar import grammar_of_calls, with_calls
from engine.records import Done, Event, Info, Message, Request, RequestError, Step
from engine.sampling.choices import check_tokens
from engine.sampling.grammar import Grammars, GrammarState
from engine.sampling.grammar_depth import check_rules
from engine.weights import Progress, home, locate
from engine.worker import BACKGROUND, Job, Worker, ended_job
from index.workspace.workspace import Workspace

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

NO_TEMPLATE = (
    "the model has no chat template: chats are shown to it as plain text, and its answers may be "
    "poor; choose one that is made for chats"
)
MAX_CHUNK_TOKENS = 128  # tokens of a prompt that one pass on a CPU reads at most
MAX_CHUNK_SECONDS = 0.2  # seconds of such a pass; a request can be cancelled between two
CLOSE_SECONDS = 5.0  # seconds that storing prompts may hold up the end of an engine


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


def prefill_chunk(seconds_per_token: float) -> int:
    """Choose how many prompt tokens to read in one pass on a CPU."""
    fitting = int(MAX_CHUNK_SECONDS / seconds_per_token) // 16 * 16
    return max(32, min(MAX_CHUNK_TOKENS, fitting))


class Engine:
    """A loaded model and the thread that owns it; a context manager."""

    drafts = True  # answers are drafted, and their text has sources

    def __init__(
        self,
        config: Config | None = None,
        progress: Progress | None = None,
        slots: Slots | None = None,
        tensors: bool = False,
        on_failure: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Load the model, index the configured workspace, if any, and start the thread.

        A built-in model that is missing is fetched first. The model and what its drafter needs are
        loaded and checked. Engines of one process that share `slots` compute one at a time.
        `tensors`: the model runs on torch whatever it is, for experiments. `on_failure`: told why
        the model's thread has ended, from that thread. WeightsError, UnsupportedModel, ValueError
        or OSError with one line.
        """
        self.config = config or Config()
        drafter = choice_for(self.config)  # an unknown drafter fails before anything is loaded
        folder = locate(self.config.model, progress=progress)
        report = partial(progress or no_progress, f"loading {self.config.model}")
        report(0, 0)
        with ThreadPoolExecutor(1, "draftline-tokenizer") as executor:
            loading = executor.submit(Tokenizer, folder)
            tensors = tensors or drafter.spec.needs_tensors
            target = open_target(folder, self.config, report, tensors)
            tokenizer = loading.result()
        give_back_memory()  # both read in small blocks, and took twice what they keep
        self.folder = folder  # the model's
        self._machine = machine_key(folder, target, self.config)
        with target.limited_memory():
            cost = remembered(home() / "costs.json", self._machine) or guess(target)
        self.library = StdlibNgram(home(), tokenizer)
        model = NextTokenModel(vocabulary(tokenizer), self.library, load_weights_or_default())
        self.parts = EngineParts(
            self.config, target, tokenizer, cost, model, AnswerHistory(target.vocab)
        )
        self._grammars = Grammars(tokenizer)
        self._prefixes: PrefixStore | None = None  # without one, nothing read outlives this engine
        self._saving: Generator[float, None, None] | None = None
        if isinstance(target, NativeTarget) and target.exact and self.config.prefixes:
            self._prefixes = PrefixStore(home(), target, tokenizer.fingerprint)
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
        self.worker = Worker(
            *self._background(),
            slots=slots,
            within=target.within,
            on_failure=on_failure,
            rest=self._hand_back,
            lower=lower_priority if isinstance(target, NativeTarget) else None,
        )

    @property
    def info(self) -> Info:
        """The model and the machine it runs on."""
        target, tokenizer = self.parts.target, self.parts.tokenizer
        return Info(
            model=self.config.model,
            device=target.device_name,
            dtype=target.dtype_name,
            context=target.context,
            fills_middle=fim_format(tokenizer) is not None,
            prefill_tokens_per_s=1 / self.parts.cost.prefill,
        )

    @property
    def warnings(self) -> list[str]:
        """What is to be said about the model's answers to chats, a line each."""
        return [NO_TEMPLATE] if self.parts.tokenizer.template is None else []

    @property
    def failure(self) -> str | None:
        """The reason why the engine no longer answers, in one line; None while it does."""
        return self.worker.failure

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self.parts.target.context)

    @property
    def encoder(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.parts.tokenizer

    def encode(self, text: str) -> list[int]:
        """Encode plain text as token ids; nothing in it becomes a control token."""
        return self.parts.tokenizer.encode(text)

    def chat(self, messages: tuple[Message, ...]) -> list[int]:
        """Encode a conversation as token ids, in the model's chat template."""
        return self.parts.tokenizer.chat(messages)

    def prompt_tokens(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> int:
        """Count the tokens of a request's prompt; 0 if it is `cancelled` meanwhile.

        RequestError for a prompt that exceeds the context.
        """
        bare = replace(request, predictions=())
        try:
            prompt = prompt_of(
                bare, self.parts.tokenizer, self.context, cancelled, self.config.model
            )
        except Cancelled:
            return 0
        return len(prompt.ids)

    def pass_seconds(self, rows: int) -> list[float]:
        """Estimate the seconds of forward passes over 1, 2, ... `rows` tokens."""
        return [float(seconds) for seconds in self.parts.cost.table(0, rows)]

    def open_workspace(
        self, roots: str | Path | Sequence[str | Path], gitignore: bool = True
    ) -> Workspace:
        """Open an index of one or several folders for this model's tokens; the caller closes it."""
        return Workspace(roots, self.parts.tokenizer, home(), gitignore)

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        *,
        client: str = "",
        workspace: Workspace | None = None,
        drafter: str = "",
        cancelled: Callable[[], bool] = lambda: False,
        urgency: int | None = None,
        owner: str = "",
    ) -> Job:
        """Queue a request and return its job.

        RequestError where it cannot be answered, ValueError for an unknown drafter.
        `speculation=False` decodes plainly: the same text, later. `workspace` and `drafter` replace
        the engine's own for this request. Equally urgent requests of several clients take turns.
        `cancelled` is called while the prompt is tokenized; where it returns True, the job has
        ended when it is returned. `urgency`: smaller ones run first; by default that of the
        request's kind. `owner`: one of several keys; owners get equal time, and no answer shows
        what the cache has of another owner's prompts.
        """
        try:
            prompt = prompt_of(
                request, self.parts.tokenizer, self.context, cancelled, self.config.model
            )
        except Cancelled:
            return ended_job(request, client, Done("cancelled"))
        max_new_tokens(prompt, self.context)
        check_tokens(request, self.parts.target.vocab)
        grammar = self._grammar(request, prompt)
        name = (drafter or self.config.drafter) if speculation else None
        if name is not None and name not in self.drafters:
            parse_choice(name)  # an unknown name or option fails here
        run = partial(
            self._run, request, prompt, grammar, name, workspace or self.workspace, client, owner
        )
        return self.worker.submit(Job(request, run, client, urgency, owner))

    def read_ahead(self, request: Request) -> Job:
        """Read the prompt of a request that may come; the job ends without an answer.

        Another request whose prompt begins alike finds its rows in the cache. The job ends early if
        the engine has, or gets, anything else to do. RequestError where the request could not be
        answered.
        """
        prompt = prompt_of(request, self.parts.tokenizer, self.context, model=self.config.model)
        max_new_tokens(prompt, self.context)
        run = partial(self._read_ahead, request, prompt)
        return self.worker.submit(Job(request, run, urgency=BACKGROUND))

    def edit(
        self,
        path: str | Path,
        instruction: str,
        lines: tuple[int, int] | None = None,
        max_tokens: int | None = None,
        check: Sequence[str] = (),
        candidates: int = CANDIDATES,
    ) -> Edit:
        """Edit a file by an instruction, or only the given lines of it.

        `lines`: the first and the last one, counted from 1, both included. `check`: the words of a
        command that chooses among the model's `candidates`. Nothing is written before `Edit.write`.
        The errors are those of `engine.editing.edit.edit_file`.
        """

        def ask(request: Request) -> Done:
            return self.submit(request).result()

        model = self.config.model
        return edit_file(ask, path, instruction, lines, max_tokens, model, check, candidates)

    def _grammar(self, request: Request, prompt: Prompt) -> GrammarState | None:
        """Make the grammar of an answer before its first token; None where it has none.

        RequestError if the grammar cannot be used.
        """
        tokenizer = self.parts.tokenizer
        grammar, trigger = request.grammar or prompt.grammar, None
        if request.grammar:
            check_rules(request.grammar)
            if request.tools:
                grammar = with_calls(request, tokenizer)
        elif request.tools and not grammar:
            grammar, trigger = grammar_of_calls(request, tokenizer)
        if not grammar:
            return None
        if request.min_tokens or request.ignore_end:
            name = "min_tokens" if request.min_tokens else "ignore_eos"
            raise RequestError(f"{name}: not together with tools or a format: leave one out")
        if trigger is not None:
            trigger = replace(trigger, in_reasoning=prompt.thinks)
        return self._grammars.start(grammar, tokenizer.eos | prompt.ends, trigger)

    def forget(self, client: str | None = None) -> None:
        """Drop the answers remembered for a client, or all that this session learnt.

        Without a client, drafting starts afresh.
        """
        if client is not None:
            self.parts.history.forget(client=client)
            return
        self.parts.history.clear()
        self.parts.model.weights = load_weights_or_default()
        for lengths in self.parts.lengths:
            lengths.forget()

    def close(self) -> None:
        """Cancel everything, end the thread, and store prompts and the measured pass times."""
        self.worker.close()
        if self.workspace is not None:
            self.workspace.close()
        remember(home() / "costs.json", self._machine, self.parts.cost)
        if self._saving is not None:
            end = monotonic() + CLOSE_SECONDS
            with closing(self._saving):
                for _ in self._saving:
                    if monotonic() >= end:
                        break

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(
        self,
        request: Request,
        prompt: Prompt,
        grammar: GrammarState | None,
        drafter: str | None,
        workspace: Workspace | None,
        client: str,
        owner: str,
        cancelled: Callable[[], bool],
    ) -> Iterator[Event]:
        """Yield the events of one request, in the model's thread.

        Without a drafter's name it decodes plainly.
        """
        target, cost, history = self.parts.target, self.parts.cost, self.parts.history
        self._fit_machine()
        if self._prefixes is not None and not owner:  # what keys ask stays in memory
            may_write = partial(is_of_indexed_files, request, workspace)
            if self._prefixes.want(prompt.ids, may_write):
                self._saving = self._prefixes.save()
                self.worker.add_background(self._saving, PAUSE_SECONDS)
        answer = Generation(
            request,
            prompt,
            self.parts.tokenizer,
            target.context,
            history.of(client),
            self.config.verification,
            grammar,
            owner,
        )
        with target.limited_memory():
            drafting = self._drafter(drafter, workspace, client)
            for event in generate(answer, target, drafting, cancelled):
                if isinstance(event, Step) and event.prefill:
                    cost.observe_prefill(answer.chunk_tokens, event.seconds)
                if isinstance(event, Done) and answer.finished:  # before anybody sees the end
                    history.add(client, request.path, answer.output)
                yield event

    def _read_ahead(
        self, request: Request, prompt: Prompt, cancelled: Callable[[], bool]
    ) -> Iterator[Event]:
        """Yield the steps of reading a prompt, in the model's thread.

        A new sequence is the first to be dropped: what was asked for stays in the cache.
        """
        target = self.parts.target
        if not cancelled():
            self._fit_machine()
            answer = Generation(request, prompt, self.parts.tokenizer, target.context)
            with target.limited_memory():
                for step in prefill(answer, target, NullDrafter(), cancelled):
                    self.parts.cost.observe_prefill(answer.chunk_tokens, step.seconds)
                    yield step
            if 2 * answer.usage.cached < len(prompt.ids):
                target.pool.demote_current()
        yield Done("cancelled")

    def _fit_machine(self) -> None:
        """Choose how many tokens of a prompt are read at once, and on how many threads."""
        target = self.parts.target
        if target.device_type == "cpu":
            target.chunk = prefill_chunk(self.parts.cost.prefill)
        if isinstance(target, NativeTarget):
            use_threads(self.config.threads)

    def _hand_back(self) -> None:
        """Hand back the memory of prompts that were read; the next request reads its own again."""
        self.parts.target.hand_back()
        give_back_memory()

    def _drafter(self, name: str | None, workspace: Workspace | None, client: str) -> Drafter:
        """Make the drafter of one answer; without a name, one that drafts nothing.

        What drafters of a name share is loaded once.
        """
        target = self.parts.target
        if name is None:
            return NullDrafter()
        if target.must_be_exact and not target.exact:
            return NullDrafter()  # the target logged the reason when it was loaded
        if name not in self.drafters:
            self.drafters[name] = parse_choice(name).load(self.parts)
        return self.drafters[name](
            RequestParts(workspace, partial(self.parts.history.recycling, client))
        )

    def _background(self) -> list[Iterator[float]]:
        """List the background work, each an iterator over its slices.

        It captures CUDA graphs, measures what passes cost (seconds on a calm machine), and builds
        the standard library's n-gram model (a minute).
        """
        library = self.library.build() if self.config.library else iter(())
        return [self._measured(), library]

    def _measured(self) -> Iterator[float]:
        for _ in self.parts.target.warm():  # logs its progress
            yield 0.0
        if not self.parts.cost.measured:  # in this process: another may have been disturbed
            yield from measure(self.parts.target, self.parts.cost)
            remember(home() / "costs.json", self._machine, self.parts.cost)


def machine_key(folder: Path, target: NativeTarget | TorchTarget, config: Config) -> str:
    """Join all that the time of a forward pass depends on into one string."""
    threads = config.threads or os.cpu_count() or 1
    if isinstance(target, NativeTarget) or target.device_type == "cpu":
        dtype = target.dtype_name + (f", kv {config.kv}" if config.kv != "auto" else "")
        return processor_key(folder.name, dtype, threads)
    passes = "exact" if target.exact else f"graphs {config.graphs}"
    device = f"{target.device_name}, {passes}, {target.max_rows} rows"
    return ", ".join((folder.name, target.dtype_name, device, f"{threads} threads"))
