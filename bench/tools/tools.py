"""Measure calls of tools and answers in a format: how often they are right, and what they cost.

    python -m bench tools [--model NAME] [--repeats 5]

Each of fifty requests asks for a call of one of ten tools, once with the model free to call
(`auto`) and once with a grammar that makes it (`required`). An answer `parses` where it is a call
of one of the tools, `fits` where the arguments fit the tool's schema, and has the `right_tool` if
it is the one that was meant; `any_name` counts calls of functions that the model invented too.

Then answers that a JSON schema enforces are timed beside free ones to the same question, cut at the
same number of tokens, in turns. Time is per token of decoding: plain, and with speculation.

Exit code 1: an enforced call does not parse, or a text differs with speculation; the results are
written all the same.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import jsonschema

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import environment, results_path
from bench.common.stats import bootstrap, pairs
from bench.tools.tasks import FORMATS, REQUESTS, TOOLS, ToolRequest
from engine import DEFAULT_MODEL, Config, Done, Engine, Request
from engine.prompts.tool_calls import read_calls
from engine.sampling.grammar import json_grammar
from engine.weights import WeightsError

SCHEMAS = {one["name"]: one["parameters"] for one in map(json.loads, TOOLS)}
MAX_CALL_TOKENS, MAX_FORMAT_TOKENS = 256, 64
Row = dict[str, Any]


def answer(engine: Engine, request: Request, speculation: bool = True) -> Done:
    """Return the answer, without help of earlier ones. RuntimeError if the model fails."""
    in_engine_thread(engine, engine.forget)
    done = engine.submit(request, speculation).result()
    if done.reason == "failed":
        raise RuntimeError(done.error)
    return done


def chat(text: str, **options: Any) -> Request:
    return Request("chat", messages=({"role": "user", "content": text},), **options)


def call(engine: Engine, asked: ToolRequest, must: bool) -> Row:
    """Make one request, and return how it ends."""
    request = chat(asked.text, tools=TOOLS, max_tokens=MAX_CALL_TOKENS)
    done = answer(engine, replace(request, must_call=tuple(SCHEMAS)) if must else request)
    _, calls = read_calls(done.text, SCHEMAS, done.reason == "length")
    row: Row = {
        "choice": "required" if must else "auto",
        "asked": asked.text,
        "answer": done.text,
        "tokens": done.usage.completion_tokens,
        "decode_s": done.usage.decode_seconds,
        "parses": bool(calls),
        "any_name": bool(calls) or names_a_function(done.text),
        "right_tool": [one.name for one in calls] == [asked.tool],
    }
    checked = [
        jsonschema.Draft202012Validator(SCHEMAS[one.name]).is_valid(json.loads(one.arguments))
        for one in calls
    ]
    return row | {"fits": bool(checked) and all(checked)}


def names_a_function(text: str) -> bool:
    """Return whether an answer is a call of any function."""
    start, stop = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[start : stop + 1])
    except ValueError:
        return False
    arguments = value.get("arguments", value.get("parameters"))
    return isinstance(value.get("name"), str) and isinstance(arguments, dict)


def pair(engine: Engine, question: str, schema: dict[str, Any]) -> Row:
    """Return the seconds per token of an enforced answer and of a free one.

    Both ways of decoding are timed.
    """
    grammar = json_grammar(schema)
    enforced = chat(question, grammar=grammar, max_tokens=MAX_FORMAT_TOKENS)
    row: Row = {"question": question}
    texts = []
    for speculation in (False, True):
        first = answer(engine, enforced, speculation)
        tokens = first.usage.completion_tokens
        free = answer(engine, chat(question, max_tokens=tokens), speculation)
        way = "speculated" if speculation else "plain"
        texts.append(first.text)
        row |= {
            f"{way}_tokens": [tokens, free.usage.completion_tokens],
            f"{way}_s_per_token": [
                one.usage.decode_seconds / max(1, one.usage.completion_tokens)
                for one in (first, free)
            ],
        }
    return row | {"equal": texts[0] == texts[1]}


def cost(rows: list[Row], way: str) -> Row:
    """Time of enforced answers as a multiple of that of free ones."""
    by_question: dict[str, list[list[float]]] = {}
    for row in rows:
        by_question.setdefault(row["question"], []).append(row[f"{way}_s_per_token"])
    ratios = [pairs(*zip(*found, strict=True)) for found in by_question.values()]
    return {"decoding": way, **bootstrap(ratios)._asdict()}


def show(record: Row) -> None:
    """Print the tables."""
    out = report.console_with_header(record, 100, "paired runs, prompts not counted")
    keys = ("parses", "any_name", "right_tool", "fits")
    lines = [
        [one["choice"], str(one["requests"]), *(f"{one[key]:.0%}" for key in keys)]
        for one in record["calls"]
    ]
    heads = "tool_choice requests parses any_name right_tool fits"
    out.print(report.table("answers to requests that ask for a call", heads, lines))
    costs = [[one["decoding"], report.interval(one, "value", "")] for one in record["costs"]]
    title = "time per token of enforced answers, times that of free ones"
    out.print(report.table(title, "decoding times_free", costs))


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("tools", __doc__)
    add = parser.add_argument
    add("--model", default=DEFAULT_MODEL, help="a built-in name, a folder or a GGUF file")
    add("--requests", type=int, default=len(REQUESTS), help="how many of the fifty")
    add("--repeats", type=int, default=5, help="pairs of enforced and free answers")
    add("--threads", type=int, default=0, help="0: one per core")
    add("--out", type=Path, help="results file; default: bench/results/tools-...json")
    options = parser.parse_args(argv)
    for name in ("requests", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    return options


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    began = perf_counter()
    rows: list[Row] = []
    timed: list[Row] = []
    try:
        with Engine(Config(model=options.model, threads=options.threads)) as engine:
            asked = REQUESTS[:: max(1, len(REQUESTS) // options.requests)][: options.requests]
            for place, one in enumerate(asked):
                report.progress("calls", place, len(asked), one.tool, "tools")
                rows += [call(engine, one, must) for must in (False, True)]
            for repeat in range(options.repeats):
                for place, (question, schema) in enumerate(FORMATS):
                    report.progress(f"repeat {repeat}", place, len(FORMATS), question, "tools")
                    timed.append(pair(engine, question, schema))
    except (ValueError, OSError, RuntimeError, WeightsError) as error:
        complain("tools", error)
        return 2
    calls = []
    for choice in ("auto", "required"):
        own = [row for row in rows if row["choice"] == choice]
        shares = {
            key: sum(row[key] for row in own) / len(own)
            for key in ("parses", "any_name", "right_tool", "fits")
        }
        calls.append({"choice": choice, "requests": len(own), **shares})
    record = {
        **environment("cpu", ("torch", "llguidance")),
        "bench": "tools",
        "model": Path(options.model).name,
        "threads": options.threads,
        "repeats": options.repeats,
        "seconds": round(perf_counter() - began),
        "calls": calls,
        "costs": [cost(timed, way) for way in ("plain", "speculated")],
        "rows": rows,
        "pairs": timed,
    }
    show(record)
    report.write_json(options.out or results_path("tools", Path(options.model).name), record)
    report.print_json_line(record)
    return 0 if calls[1]["parses"] == 1 and all(row["equal"] for row in timed) else 1
