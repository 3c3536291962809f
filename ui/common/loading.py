"""Loading the engine, the model or the tokenizer that a command's options name, with progress."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.config import DEFAULT_MODEL
from ui.common.consent import agreed
from ui.common.errors import NO_MODEL, USAGE, Failure, reason, say
from ui.common.terminal import format_bytes, plural

if TYPE_CHECKING:
    from engine import Config, Engine
    from engine.model.native.native_target import NativeTarget
    from engine.model.torch.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer
    from engine.remote.address import Address
    from engine.remote.any_engine import AnyEngine
    from engine.remote.http_engine import HttpEngine
    from engine.remote.messages import ServerInfo
    from engine.remote.openai_engine import OpenAiEngine


Progress = Callable[[str, int, int], None]  # (stage, done, total)
CONFIG_OPTIONS = (
    "model", "device", "dtype", "kv", "lora", "drafter", "corpus", "verification", "workspace",
    "exact",
)  # fmt: skip
OWN_OPTIONS = CONFIG_OPTIONS[2:]  # options that a server's engine cannot follow


def open_engine(
    args: argparse.Namespace, progress: Progress, prefixes: bool | None = None
) -> Engine:
    """Open the engine that the options name. `prefixes`: as in `Config`. Raises Failure."""
    from engine import Config, Engine
    from engine.model.unsupported import UnsupportedModel
    from engine.weights import WeightsError

    chosen = {name: getattr(args, name, None) for name in CONFIG_OPTIONS} | {"prefixes": prefixes}
    config = Config(**{name: value for name, value in chosen.items() if value is not None})
    try:
        return Engine(config, progress=progress)
    except (WeightsError, UnsupportedModel, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except ValueError as error:  # a dtype that the device lacks, a corpus of another model
        raise Failure(USAGE, str(error)) from error


def join_or_open(args: argparse.Namespace, progress: Progress) -> AnyEngine:
    """Join an engine that runs already, or open one of our own.

    The first is the engine of another machine that `--engine` names, or that of a server that runs
    on this machine with the same model. Raises Failure.
    """
    if args.engine:
        return open_elsewhere(args, progress)
    return _joined(args, progress) or open_engine(args, progress)


def open_elsewhere(args: argparse.Namespace, progress: Progress) -> HttpEngine | OpenAiEngine:
    """Connect to the engine that `--engine` names, with the index of `--workspace`.

    Raises Failure.
    """
    from engine.remote.address import AddressError
    from engine.remote.engine_url import parse_engine
    from engine.remote.http_engine import HttpEngine
    from engine.remote.link import LinkError
    from engine.remote.openai_engine import OpenAiEngine

    try:
        url = parse_engine(args.engine)
        own = {*CONFIG_OPTIONS, "server"} - {"model" if url.is_openai else "workspace"}
        for name in sorted(own):
            if getattr(args, name, None):
                raise Failure(USAGE, f"--{name}: not with --engine {url}: leave one of them out")
        if not url.is_encrypted:
            say(f"{url}: not encrypted, others on the way can read all: use https or ssh -L")
        if url.is_openai:
            made = OpenAiEngine(url, args.model or "")
            say(f"{made.model} of {url.host}: without drafts, and without sources of texts")
            return made
        engine = HttpEngine(url, progress)
        if getattr(args, "workspace", None):
            try:
                engine.workspace = engine.open_workspace(args.workspace)
                engine.workspace.build(progress)
                engine.workspace.send(progress)
            except BaseException:
                engine.close()
                raise
        return engine
    except AddressError as error:
        raise Failure(USAGE, str(error)) from error
    except (LinkError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error


def _joined(args: argparse.Namespace, progress: Progress) -> AnyEngine | None:
    """Join the engine of a server on this machine; None if no server fits.

    The server is the one that `--server` names, or one of this user's (for editor windows, or
    `draftline serve`) if it has the same model and device. Raises Failure.
    """
    from engine.remote.address import OWN, AddressError
    from engine.remote.link import LinkError
    from engine.remote.remote_engine import RemoteEngine, open_connection

    own = [name for name in OWN_OPTIONS if getattr(args, name, None) not in (None, "", [])]
    if args.server == OWN or (own and not args.server):
        return None
    if own:
        why = f"--{own[0]}: not with --server {args.server}"
        raise Failure(USAGE, f"{why}: leave one of them out")
    try:
        for address in _addresses(args):
            try:
                connection = open_connection(address)
            except OSError as error:  # none runs
                if not args.server:
                    continue
                why = f"{address}: no draftline server answers there ({reason(error)})"
                raise Failure(USAGE, f"{why}: start it, or leave --server out") from error
            problem = _unfit(args, connection.server)
            if problem is None:
                progress("waiting for the server's model", 0, 0)
                engine = RemoteEngine(connection)
                if not args.server:
                    _say_joined(engine.server)
                return engine
            connection.close()
            if args.server:
                raise Failure(USAGE, f"{address}: {problem}")
        return None if args.server else _served(args)
    except (AddressError, LinkError, OSError) as error:
        if args.server:
            raise Failure(USAGE, str(error)) from error
        say(f"{error}: this command loads a model of its own")
    return None


def _served(args: argparse.Namespace) -> HttpEngine | None:
    """Join the engine of this user's `draftline serve` with the same model and device.

    None if there is no such server. AddressError, LinkError, OSError where it does not answer.
    """
    from engine.remote.address import serve_address
    from engine.remote.engine_url import EngineUrl
    from engine.remote.http_engine import HttpEngine
    from engine.weights import find

    folder = find(args.model or DEFAULT_MODEL)
    address = serve_address(folder) if folder else None
    if address is None or address.path is None or not address.path.exists():
        return None
    try:
        engine = HttpEngine(EngineUrl("http://localhost", socket=address.path), folder=folder)
    except ConnectionRefusedError:  # a server that has ended
        return None
    server = replace(engine.host.server, folder=str(folder))
    if _unfit(args, server):
        engine.close()
        return None
    _say_joined(server)
    return engine


def _say_joined(server: ServerInfo) -> None:
    which = f"{server.model} of process {server.process}"
    say(f"{which}, which has loaded it already; --server own loads it again")


def _addresses(args: argparse.Namespace) -> list[Address]:
    """List where to look for a language server: at the address given, or this user's sockets."""
    from engine.remote.address import parse, shared_address

    if args.server:
        return [parse(args.server)]
    sockets = [shared_address(), shared_address(args.model)]
    return [address for address in dict.fromkeys(sockets) if address]


def _unfit(args: argparse.Namespace, server: ServerInfo) -> str | None:
    """Say why a server does not do what the options ask; None if it does."""
    from engine.weights import find

    if server.state not in ("loading", "ready"):
        return f"it has no model: {server.message or 'connect an editor first'}"
    model = args.model or ("" if args.server else DEFAULT_MODEL)
    if model and server.folder != str(find(model)):
        return f"it runs {server.model}: leave --model out, or use --server own"
    device = args.device or ("" if args.server else "auto")
    if device and server.device != device:
        return f"its device is {server.device}: leave --device out, or use --server own"
    return None


def load_target(model: str) -> TorchTarget:
    """Load a model without an engine, whose logits and states are tensors.

    It is fetched first if the user agrees. Raises Failure.
    """
    from engine.config import Config

    target: TorchTarget = _opened(model, Config(model=model), False, tensors=True)
    return target


def load_runtime(model: str, config: Config, yes: bool) -> NativeTarget | TorchTarget:
    """Load a model without an engine, on the runtime that an engine would take.

    `yes` is consent to fetch it. Raises Failure.
    """
    target: NativeTarget | TorchTarget = _opened(model, config, yes, tensors=False)
    return target


def _opened(model: str, config: Config, yes: bool, tensors: bool) -> Any:
    from engine.model.opening import open_target
    from engine.model.unsupported import UnsupportedModel
    from engine.weights import WeightsError, locate

    agreed(model, yes)
    try:
        with progress_bars() as progress:
            folder = locate(model, progress=progress)
        return open_target(folder, config, tensors=tensors)
    except (WeightsError, UnsupportedModel) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except (ValueError, OSError) as error:
        raise Failure(NO_MODEL, f"{model}: {error}") from error


def load_tokenizer(model: str, fetch: bool = True) -> Tokenizer:
    """Load a model's tokenizer.

    `fetch` allows to fetch the model first, if the user agrees. Raises Failure.
    """
    from engine import weights
    from engine.prompts.tokenizer import Tokenizer

    try:
        folder = weights.find(model)
        if folder is None and fetch:
            agreed(model)
            with progress_bars() as progress:
                folder = weights.locate(model, progress=progress)
    except (weights.WeightsError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    if folder is None:
        why = f"{model}: not in {weights.home()}, so its tokenizer is unknown"
        raise Failure(NO_MODEL, f"{why}: run `draftline models pull {model}`")
    try:
        return Tokenizer(folder)
    except Exception as error:  # `tokenizers` raises plain ones
        why = f"{folder}: its tokenizer cannot be read: {type(error).__name__}: {error}"
        raise Failure(NO_MODEL, f"{why}: choose another model") from error


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Make a callback that draws one bar a stage on stderr, or one line without a terminal."""
    if not (sys.stderr and sys.stderr.isatty()):
        reported: set[str] = set()

        def report(label: str, done: int, total: int) -> None:
            stage = label.split(" (part")[0]
            if stage not in reported:
                reported.add(stage)
                say(f"{stage}, {_amount(stage, total)}" if total else stage)

        yield report
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def draw(label: str, done: int, total: int) -> None:
            stage = label.split(" (part")[0]  # the parts of one download share a bar
            if stage not in tasks:
                tasks[stage] = bars.add_task(label, total=None, amount="")
            amount = _amount(stage, total, done) if total else ""
            bars.update(
                tasks[stage], description=label, completed=done, total=total or None, amount=amount
            )

        yield draw


def _amount(stage: str, total: int, done: int | None = None) -> str:
    """Format how much a stage has to do, and has done: `485 MB`, `3 of 11 files`."""
    from index.workspace.workspace import INDEXING

    if stage == INDEXING:
        return ("" if done is None else f"{done:,} of ") + plural(total, "file")
    return ("" if done is None else f"{format_bytes(done)} of ") + format_bytes(total)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show `text` with a spinner on stderr, on a terminal only."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
