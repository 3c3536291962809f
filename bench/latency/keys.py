"""Count the tokens that a model reads for each keystroke. No model and no clock.

    python -m bench keys [--model qwen2.5-coder-0.5b] [--workspace .] [--places 40]

Bodies of functions of the workspace's Python files are removed and typed again, key by key, once as
they are and once with closing brackets and quotes that the editor inserts behind the cursor. Each
key's prompt is made as for a completion, with snippets from the workspace's index, and read by the
engine's own pool of cached sequences. Only the tokens that the pool does not hold are counted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import ROOT
from bench.latency.places import SEED, Stretch, bodies
from bench.replay.replay import load_tokenizer
from engine.config import Config
from engine.model.kv_cache import Sequence, SequencePool
from engine.prompts.builder import prompt_of
from engine.prompts.fim import fim_format
from engine.prompts.tokenizer import Tokenizer
from index.workspace.workspace import Workspace
from lsp_server.completion.inline import PromptLayout, request_for
from lsp_server.protocol.text_sync import OpenDocuments
from lsp_server.settings import Settings

FEW_TOKENS = 40  # tokens that a key may cost
SPEEDS = (190, 600, 2000)  # tokens of prefill a second: the longer the prompts
MIN_KEYS, MAX_KEYS = 60, 200  # keystrokes at each place
CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}


def texts(stretch: Stretch, closes: bool) -> Iterator[tuple[str, str]]:
    """Yield the text before and after the cursor: where typing begins, and after each key.

    `closes`: the editor closes brackets and quotes.
    """
    before, after = stretch.text[: stretch.start], stretch.text[stretch.stop :]
    closed = ""  # behind the cursor, by the editor
    yield before, after
    for key in stretch.strokes()[:MAX_KEYS]:
        before += key
        if closed and key == closed[0]:
            closed = closed[1:]
        elif closes and key in CLOSERS:
            closed = CLOSERS[key] + closed
        yield before, closed + after


class Reads:
    """What an engine reads whose prefill takes `speed` tokens a second."""

    def __init__(self, tokenizer: Tokenizer, workspace: Workspace | None, speed: float) -> None:
        self.tokenizer, self.layout = tokenizer, PromptLayout()
        info = SimpleNamespace(
            prefill_tokens_per_s=speed, fills_middle=fim_format(tokenizer) is not None
        )
        self.engine: Any = SimpleNamespace(
            info=info, context=1 << 15, encode=tokenizer.encode, encoder=tokenizer
        )
        self.session: Any = SimpleNamespace(
            settings=Settings(), workspace=workspace, is_starting=lambda: False
        )
        self.pool = SequencePool(_without_rows, Config().cached_sequences, 1 << 30)

    def read(self, path: Path, before: str, after: str) -> int:
        """Read the prompt of a completion, and return how many of its tokens were not cached."""
        document = OpenDocuments().open(path.as_uri(), "python", 1, before + after)
        request = request_for(self.session, self.engine, document, len(before), self.layout)
        ids = prompt_of(request, self.tokenizer).ids
        cached = self.pool.begin(ids, 0)
        self.pool.current.tokens = ids
        return len(ids) - cached


def counts(stretch: Stretch, path: Path, reads: Reads, closes: bool) -> list[int]:
    """Count the tokens read for each key at one place, without the first prompt there."""
    return [reads.read(path, *sides) for sides in texts(stretch, closes)][1:]


def _without_rows(source: Sequence, rows: int, capacity: int) -> Sequence:
    return Sequence(source.tokens[:rows])


def sample_places(folder: Path, count: int) -> list[tuple[Path, Stretch]]:
    """Return a fixed sample of the function bodies in a folder, of different files if possible."""
    chance, found = random.Random(SEED), []
    for path in sorted(folder.rglob("*.py")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        try:
            text = "" if hidden else path.read_text("utf-8")
            own = bodies(text, MIN_KEYS)
        except (SyntaxError, UnicodeDecodeError):
            continue
        if own:
            found.append((path, chance.choice(own)))
    return sorted(chance.sample(found, min(count, len(found))), key=lambda place: place[0])


def measure(
    places: list[tuple[Path, Stretch]], make: Callable[[float], Reads], closes: bool
) -> list[dict[str, Any]]:
    """Return the distribution of the tokens that a key costs, for each of SPEEDS."""
    rows = []
    for speed in SPEEDS:
        reads = make(speed)
        found = [one for path, at in places for one in counts(at, path, reads, closes)]
        shares = np.percentile(found, [50, 90, 99]).tolist()
        rows.append({
            "reading_tokens_per_s": speed,
            "editor_closes": closes,
            "prompt_tokens": reads.layout.prompt_tokens,
            "keys": len(found),
            **dict(zip(("median", "p90", "p99"), map(round, shares), strict=True)),
            "max": max(found),
            "mean": round(float(np.mean(found)), 1),
            "few_share": round(sum(one <= FEW_TOKENS for one in found) / len(found), 4),
        })  # fmt: skip
    return rows


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("keys", __doc__)
    add = parser.add_argument
    add("--model", default="qwen2.5-coder-0.5b", help="a built-in name, or a folder")
    add("--workspace", type=Path, default=ROOT, help="the folder to index and to type into")
    add("--places", type=int, default=40, help="function bodies to type; default: 40")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    folder = options.workspace.resolve()
    places = sample_places(folder, options.places)
    if not places:
        complain("keys", f"--workspace {folder}: no function of {MIN_KEYS} keys in a Python file")
        return 2
    tokenizer = load_tokenizer(options.model)
    with Workspace(folder, tokenizer) as workspace:
        workspace.build()
        rows = [
            row
            for closes in (False, True)
            for row in measure(places, lambda speed: Reads(tokenizer, workspace, speed), closes)
        ]
    lines = [[str(value) for value in row.values()] for row in rows]
    title = f"Tokens read for a key, {len(places)} places, {options.model}"
    report.console(120).print(report.table(title, " ".join(rows[0]), lines))
    report.print_json_line({"bench": "keys", "model": options.model, "rows": rows})
    return 0
