"""Make bench/common/samples/gpu_edits.json: recorded edits as token ids, for `python -m bench gpu`.

    python -m bench gpu-sample [EDITS] [--model NAME] [--files 6] [--hunks 8] [--out FILE]

A machine with a GPU may have neither a tokenizer nor a network, so the edits are stored as ids: the
engine's prompts, the predictions, the answers, and the bytes of each token for the drafter. Ids are
renumbered densely, the most frequent first, so that models of any vocabulary can take them; the
tokenizer's own ids are stored as well.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.common.cli import argument_parser, complain

# This folder must not come first: it has an index.py too.
from engine import DEFAULT_MODEL, Request
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError, locate
from research.train.edit_records import EditError, Mode, RecordedEdit, cut, read

EDITS = Path(__file__).parents[1] / "replay" / "sample_edits.jsonl"
OUT = Path(__file__).parents[1] / "common" / "samples" / "gpu_edits.json"
INSTRUCTION = "Make the planned change."
MAX_TOKENS = 3_900  # tokens of prompt and answer: Llama-2 has 4,096 positions
MIN_ANSWER_TOKENS = {"file": 400, "hunk": 24}
Answer = dict[str, Any]


def answers(edit: RecordedEdit, kind: Mode, tokenizer: Tokenizer) -> list[Answer]:
    """Return the answers of an edit that fit, as the tokenizer's ids."""
    found = []
    for number, (above, old, _, new) in enumerate(cut(edit, kind)):
        where = None if kind == "file" else (len(above), len(above) + len(old))
        request = Request("edit", edit.before, edit.path, selection=where, instruction=INSTRUCTION)
        prompt, output = prompt_of(request, tokenizer), tokenizer.encode(new)
        if len(output) >= MIN_ANSWER_TOKENS[kind] and len(prompt.ids) + len(output) <= MAX_TOKENS:
            found.append(
                {
                    "id": edit.id if kind == "file" else f"{edit.id}#{number}",
                    "kind": kind,
                    "whole": prompt.whole,
                    "prompt": prompt.ids,
                    "predictions": prompt.predictions,
                    "output": output,
                }
            )
    return found


def spread(found: list[Answer], count: int) -> list[Answer]:
    """`count` answers, evenly spread; all if there are fewer."""
    return [found[n * len(found) // count] for n in range(count)] if len(found) > count else found


def dense(found: list[Answer], tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """Make the record: answers with dense ids, the tokenizer's ids, and each token's bytes.

    The bytes are Latin-1 (null for control tokens).
    """
    seen: Counter[int] = Counter()
    for one in found:
        for ids in (one["prompt"], one["output"], *one["predictions"]):
            seen.update(ids)
    ids = [token for token, _ in seen.most_common()]
    number = {token: n for n, token in enumerate(ids)}
    known = tokenizer.token_bytes
    texts = [known[token] if token < len(known) else None for token in ids]
    return {
        "tokenizer": name,
        "ids": ids,
        "bytes": [None if text is None else text.decode("latin-1") for text in texts],
        "answers": [
            one
            | {key: [number[token] for token in one[key]] for key in ("prompt", "output")}
            | {"predictions": [[number[token] for token in ids] for ids in one["predictions"]]}
            for one in found
        ],
    }


def record(
    edits: list[RecordedEdit], tokenizer: Tokenizer, name: str, counts: dict[Mode, int]
) -> Any:
    """Make the content of the file. Raises EditError if no edit fits."""
    found = [
        one
        for kind, count in counts.items()
        for one in spread([a for edit in edits for a in answers(edit, kind, tokenizer)], count)
    ]
    if not found:
        raise EditError(
            f"no edit has at most {MAX_TOKENS} tokens of prompt and answer: name other edits"
        )
    return dense(found, tokenizer, name)


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("gpu-sample", __doc__)
    parser.add_argument("edits", nargs="?", type=Path, default=EDITS, help="JSONL; our own")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer")
    parser.add_argument("--files", type=int, default=6, help="edits of whole files")
    parser.add_argument("--hunks", type=int, default=8, help="edits of selections")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(argv)
    try:
        tokenizer = Tokenizer(locate(options.model))
        counts: dict[Mode, int] = {"file": options.files, "hunk": options.hunks}
        made = record(read(options.edits), tokenizer, Path(options.model).name, counts)
    except (EditError, WeightsError, OSError) as error:
        complain("gpu-sample", error)
        return 2
    options.out.write_text(json.dumps(made, separators=(",", ":")) + "\n", "utf-8")
    size = options.out.stat().st_size
    print(f"{options.out.name}: {len(made['answers'])} answers, {size:,} bytes", file=sys.stderr)
    return 0
