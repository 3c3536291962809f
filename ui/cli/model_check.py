"""`draftline models check`: load a model, and tell whether it is exact and how fast it is here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import MODEL_HELP, add_device, add_yes
from ui.common.errors import NO_MODEL, Failure
from ui.common.terminal import format_bytes, write_json, write_line

if TYPE_CHECKING:
    from engine.model.native.native_target import NativeTarget
    from engine.model.speed import Speed
    from engine.model.torch.torch_target import TorchTarget

    Loaded = NativeTarget | TorchTarget


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    """Add the verb."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "check", help="load a model: whether it is exact, and what a pass takes on this machine"
    )
    parser.add_argument("name", metavar="NAME", help=MODEL_HELP)
    add_device(parser)
    add_yes(parser)
    return parser


def check(args: argparse.Namespace) -> None:
    """Load the model, time it and print the result. Raises Failure."""
    from engine.config import Config
    from engine.model.speed import measured
    from ui.common.loading import load_runtime

    chosen = {name: getattr(args, name) for name in ("device", "dtype", "kv", "lora", "exact")}
    config = Config(model=args.name, **{key: one for key, one in chosen.items() if one is not None})
    target = load_runtime(args.name, config, args.yes)
    try:
        speed = measured(target)
    except ValueError as error:
        raise Failure(NO_MODEL, f"{args.name}: {error}: choose another model") from error
    if getattr(args, "json", False):
        write_json(_fields(args.name, target, speed))
    else:
        _write(args.name, target, speed)


def _fields(name: str, target: Loaded, speed: Speed) -> dict[str, Any]:
    return {
        "model": name,
        "folder": str(target.folder),
        "device": target.device_name,
        "dtype": target.dtype_name,
        "context": target.context,
        "exact": target.exact,
        "chat_template": has_template(target),
        "weight_bytes": speed.weight_bytes,
        "passes": [{"rows": rows, "seconds": one} for rows, one in speed.seconds.items()],
        "tokens_per_second": speed.tokens_per_second,
    }


def _write(name: str, target: Loaded, speed: Speed) -> None:
    from engine.engine import NO_TEMPLATE

    write_line(f"{name}: {target.dtype_name} on {target.device_name}, {target.context:,} tokens")
    if target.exact:
        write_line("exact: yes, a row of a pass gets the same bits alone and in a draft")
    elif target.device_type == "cpu":
        write_line("exact: no, its kernels round by shape here: it runs without speculation")
    else:
        write_line("exact: no, drafts may change a text where two tokens nearly tie")
    for rows, seconds in speed.seconds.items():
        plain = f", {speed.tokens_per_second:.1f} tokens/s without speculation"
        write_line(
            f"{rows:2} row{'s' if rows > 1 else ' '} {seconds * 1000:8.1f} ms a pass"
            f"{plain if rows == 1 else f', {seconds / speed.seconds[1]:.2f} times that of one row'}"
        )
    if not has_template(target):
        write_line(NO_TEMPLATE)
    rate = format_bytes(int(speed.bytes_per_second))
    write_line(f"weights: {format_bytes(speed.weight_bytes)} read a pass of one row, {rate}/s")


def has_template(target: Loaded) -> bool:
    """Return whether the model says how chats are shown to it."""
    from engine.prompts.chat_template import chat_template

    return chat_template(Path(target.folder)) is not None
