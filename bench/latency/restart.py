"""Time to the first token of a long prompt: of a new engine, and of one after a restart.

In this process: nothing but the engine is measured. The second engine finds what the first has
stored of the prompt, and its answer must have the same text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.latency.next_edit import has_token
from engine import Config, Engine, Request
from engine.model.prefix_store import prefix_files
from engine.weights import home

PROMPT_TOKENS = 8000
ANSWER_TOKENS = 16


@dataclass(frozen=True)
class Restart:
    """Seconds to the first token without and with what is stored, and tokens of the prompt."""

    cold: float
    restarted: float
    tokens: int
    read_again: int  # tokens


def restart(model: str, sources: Path, prompt_tokens: int = PROMPT_TOKENS) -> Restart:
    """Ask for an edit of a long file, end the engine, and ask a new one.

    The file is made of the Python files in `sources`. ValueError where nothing was stored.
    """
    before = {*prefix_files(home())}
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{Path(folder).name}.py"  # a name that no earlier run has stored
        cold, tokens, _, text = _ask(model, sources, file, prompt_tokens)
        restarted, same, cached, same_text = _ask(model, sources, file, prompt_tokens)
    for stored in {*prefix_files(home())} - before:
        stored.unlink()
    assert (tokens, text) == (same, same_text), "the text after a restart"
    if not cached:
        raise ValueError("nothing of the prompt was stored")
    return Restart(cold, restarted, tokens, tokens - cached)


def _ask(model: str, sources: Path, file: Path, prompt_tokens: int) -> tuple[float, int, int, str]:
    """Ask a new engine, which stores the prompt before it ends.

    Returns seconds to the first token, tokens of the prompt, those that were stored, and the text.
    """
    with Engine(Config(model=model, library=False, prefixes=True)) as engine:
        _wait(engine)
        if not file.exists():
            file.write_text(_long_text(engine, sources, prompt_tokens), "utf-8")
        text = file.read_text("utf-8")
        request = Request(
            "edit",
            text,
            path=str(file),
            instruction="Add comments.",
            max_tokens=ANSWER_TOKENS,
        )
        began = time.perf_counter()
        job = engine.submit(request)
        seconds = next(time.perf_counter() - began for event in job if has_token(event))
        done = job.result()
        _wait(engine)
        return seconds, done.usage.prompt_tokens, done.usage.cached_tokens, done.text


def _wait(engine: Engine) -> None:
    while not engine.worker.idle():
        time.sleep(0.1)


def _long_text(engine: Engine, sources: Path, tokens: int) -> str:
    """Return whole lines of about so many tokens."""
    text = ""
    for source in sorted(sources.rglob("*.py")):
        text += source.read_text("utf-8")
        if (count := len(engine.encode(text))) >= tokens:
            return text[: text.rfind("\n", 0, len(text) * tokens // count) + 1]
    raise ValueError(f"{sources}: fewer than {tokens} tokens")
