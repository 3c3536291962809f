"""Measure how well edits are drafted, without a model, by replaying recorded edits.

    python -m bench replay [EDITS] [--mode file|hunk] [--drafter NAME ...] [--budget N ...]
        [--beta B ...] [--weights FILE | --folds [--train FILE]] [--without PART ...]
        [--session] [--package NAME ...] [--small-diffs] [--limit N] [--every N] [--by-language]
        [--index FOLDER ...] [--library FOLDER] [--model NAME] [--json] [--out FILE]

EDITS is JSONL (engine/research/train/edit_records.py); by default edits of this project,
bench/replay/sample_edits.jsonl, which `python -m bench replay-sample` made from its git history.

A step that drafts n nodes, at most --budget, costs 1 + beta x n, where plain decoding costs 1 per
token; with beta 0, tokens per step are the speedup. Averages are all tokens over all steps. With
--folds each half of the packages is replayed with weights fitted on the other half (on --train's
edits if given; only `draftline` has weights): "all" is then the mean of both halves' figures, for
every rule, and "pooled" is all tokens over all steps.

Only draftline adapts its drafts to beta; every other rule is counted once for all betas. The table
shows families of rules: in each column the best rule of the family, and for a beta above 0 the best
budget (draftline always has the largest); "best automaton rule" is the best of SAM-Decoding's first
and last occurrence. Packages are shown with the rule that is best over all of them. With --json
stdout gets one object per line: every rule, and the best ones with the `rule` that they are; the
table goes to stderr. All but the times are deterministic. Microseconds are those of propose and
observe, per step.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from bench.common.cli import argument_parser
from bench.common.environment import commit, machine
from bench.common.report import clear_progress, say
from bench.replay.ours import PARTS, described, halves, ours
from bench.replay.peers import rules
from bench.replay.run import Rule, run
from bench.replay.table import Row, Tallies, groups, keep, rows, show
from engine.config import DEFAULT_MODEL
from engine.drafting.drafter_weights import SHIPPED
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.prompts.tokenizer import Tokenizer
from engine.research.train.edit_records import Edit, EditError, read, replays
from engine.weights import WeightsError, home, locate
from index.workspace.workspace import Workspace

SAMPLE = Path(__file__).with_name("sample_edits.jsonl")
BUDGETS, BETAS = [16, 32, 64], [0.0, 0.02, 0.05, 0.1]
SMALL = 9000  # bytes of a unified diff, with its two lines of names
log = logging.getLogger(__name__)


def encoder_of(model: str) -> Tokenizer:
    """The tokenizer of a model; its weights are not loaded."""
    folder = Path(model)
    if not (folder / "tokenizer.json").is_file():
        folder = locate(model)
    return Tokenizer(folder)


def is_small(edit: Edit) -> bool:
    """Whether it is among the edits that are few and local."""
    old, new = (text.splitlines(keepends=True) for text in (edit.before, edit.after))
    diff = unified_diff(old, new, f"a/{edit.path}", f"b/{edit.path}")
    return sum(len(line.encode()) for line in diff) < SMALL


def wanted(edits: list[Edit], options: argparse.Namespace) -> list[Edit]:
    """Those that are replayed."""
    known = sorted({edit.package for edit in edits})
    for name in options.package:
        if name not in known:
            raise EditError(f"{options.edits}: no package {name}: choose of {', '.join(known)}")
    found = [edit for edit in edits if not options.package or edit.package in options.package]
    found = found[:: options.every][: options.limit or None]
    if options.small_diffs:
        found = [edit for edit in found if is_small(edit)]
    if not found:
        raise EditError(f"{options.edits}: nothing is left to replay: choose more of its edits")
    return found


def choose(parser: argparse.ArgumentParser, names: list[str]) -> set[str]:
    """Names of rules or of families; all where none is named. Ours is not made yet."""
    known = rules()
    families = dict.fromkeys(["draftline", *(rule.family for rule in known)])
    if "arctic" not in families and not names:
        log.warning(
            "arctic is left out: arctic-inference is not installed (see bench/index/index.py)"
        )
    for name in names:
        if name == "arctic" and name not in families:
            parser.error("--drafter arctic: install arctic-inference, as bench/index/index.py says")
        if name not in families and not any(name == rule.name for rule in known):
            parser.error(f"--drafter {name}: choose of {', '.join(families)}")
    return set(names) or set(families)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("replay", __doc__)
    several: Any = {"nargs": "+", "action": "extend"}
    add = parser.add_argument
    add("edits", nargs="?", type=Path, default=SAMPLE, help="JSONL; our own edits")
    add("--mode", choices=("file", "hunk"), default="file")
    add("--beta", type=float, **several, help="a node's cost; 0 .02 .05 .1")
    add("--budget", type=int, **several, help="nodes a step at most; 16 32 64")
    add("--drafter", **several, default=[], help="rules or families; all")
    add("--weights", type=Path, help="our weights; the shipped ones")
    add("--folds", action="store_true", help="train on half of the packages, replay the others")
    add("--train", type=Path, help="edits that --folds trains on; EDITS")
    add("--without", **several, default=[], metavar="PART", help=f"all, {', '.join(PARTS)}")
    add("--session", action="store_true", help="a file's earlier hunks may be copied")
    add("--package", **several, default=[], help="only edits of these")
    add("--small-diffs", action="store_true", help=f"only edits with diffs below {SMALL} bytes")
    add("--limit", type=int, default=0, help="so many records at most")
    add("--every", type=int, default=1, metavar="N", help="of the records, each N-th")
    add("--by-language", action="store_true", help="rows by what is before a package's colon")
    add("--model", default=DEFAULT_MODEL, help="whose tokenizer; the default model")
    add("--json", action="store_true", help="one object a line on stdout")
    add("--out", type=Path, help="a file for the tables' rows and what they were made with")
    add(
        "--index", type=Path, nargs="+", default=[], metavar="FOLDER",
        help="folders to index beside, for times; they may hold the answers",
    )  # fmt: skip
    add("--library", type=Path, help="a folder of *.py in place of Python's standard library")
    options = parser.parse_args(arguments)
    options.beta, options.budget = options.beta or BETAS, options.budget or BUDGETS
    for beta in options.beta:
        if not 0 <= beta <= 1:
            parser.error(f"--beta {beta}: must be 0 to 1")
    for budget in options.budget:
        if not 1 <= budget <= 4096:
            parser.error(f"--budget {budget}: must be 1 to 4096")
    for name, least in (("limit", 0), ("every", 1)):
        if (number := getattr(options, name)) < least:
            parser.error(f"--{name} {number}: must be {least} or more")
    for folder in [*options.index, *([options.library] if options.library else [])]:
        if not folder.is_dir():
            parser.error(
                f"{'--index' if folder in options.index else '--library'} {folder}: not a folder"
            )
    if "all" in options.without:
        options.without = list(PARTS)
    for part in options.without:
        if part not in PARTS:
            parser.error(f"--without {part}: choose of all, {', '.join(PARTS)}")
    if options.folds and options.weights:
        parser.error("--folds: makes weights itself: leave --weights out")
    if options.train and not options.folds:
        parser.error("--train: belongs to --folds: `draftline train drafter` writes weights")
    if options.session and options.mode == "file":
        parser.error("--session: a file has one answer: take --mode hunk")
    options.beta, options.budget = sorted(set(options.beta)), sorted(set(options.budget))
    options.chosen = choose(parser, options.drafter)
    if options.without and "draftline" not in options.chosen:
        parser.error("--without: belongs to draftline, which --drafter leaves out")
    return options


def prepare(
    options: argparse.Namespace, encoder: Tokenizer
) -> tuple[list[Edit], list[set[str]], list[Rule], list[str]]:
    """What is replayed, the halves of the packages, the rules, and lines that say what they are."""
    edits = read(options.edits)
    found = wanted(edits, options)
    packages = {edit.package for edit in found}
    learnt = read(options.train) if options.train else edits
    known = sorted({edit.package for edit in [*edits, *learnt]})
    folds = halves(known) if options.folds else []
    if options.folds and len(known) < 2:
        raise EditError(f"{options.edits}: one package has no halves: leave --folds out")
    made, notes = None, []
    if "draftline" in options.chosen:
        weights = options.weights or SHIPPED
        library = StdlibNgram(home(), encoder, options.library)
        made = ours(learnt, folds, options.mode, encoder, library, weights, say)
        notes = [described(weights, packages)]
        if folds:
            notes = [f"weights: of the other half; halves: {' | '.join(map(names, folds))}"]
    known_rules = rules(made, dict.fromkeys(options.without))
    chosen = [
        rule
        for rule in known_rules
        if {rule.name, rule.family} & options.chosen or rule.family.startswith("without ")
    ]
    return found, folds, chosen, notes


def names(packages: set[str]) -> str:
    return ", ".join(sorted(packages))


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s")
    options = read_options(arguments)
    try:
        encoder = encoder_of(options.model)
        edits, folds, chosen, notes = prepare(options, encoder)
    except (EditError, WeightsError, ValueError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or options.edits}: {error.strerror or error}")
    recorded = replays(edits, options.mode, encoder)
    prompt = tuple(encoder.encode("\n"))
    tallies: Tallies = {}
    with Workspace(options.index, encoder, home() if options.index else None) as workspace:
        if options.index:
            workspace.build()
            workspace.compact()  # nothing is merged or saved while steps are timed
            notes.append(f"index of {workspace.size:,} tokens")
        played = run(
            recorded, chosen, options.budget, options.beta, workspace, prompt, tallies,
            options.session,
        )  # fmt: skip
        for done, _ in enumerate(played, 1):
            if sys.stderr.isatty():
                print(f"\r\x1b[K{done} of {len(recorded)}", end="", file=sys.stderr, flush=True)
            elif done * 10 // len(recorded) > (done - 1) * 10 // len(recorded):
                say(f"{done} of {len(recorded)} answers")
    clear_progress()
    rows_of = groups(sorted({edit.package for edit in edits}), folds, options.by_language)
    found = rows(tallies, chosen, rows_of, options)
    tokens = sum(len(one.output) for one in recorded)
    title = f"{options.edits.name}: {len(edits)} edits, {len(recorded)} answers, {tokens:,} tokens"
    lines = [f"{title} of {Path(options.model).name}", *notes]
    show(found, options, "\n".join(lines), sys.stderr if options.json else sys.stdout)
    if options.out:
        keep(options.out, {**about(options), "notes": lines}, found)
    if options.json:
        for row in found:
            print(json.dumps(row), flush=True)
    return 0


def about(options: argparse.Namespace) -> Row:
    """What a reader needs to judge or repeat the figures."""
    return {
        "machine": machine(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "edits": options.edits.name,
        "load": [round(one, 2) for one in os.getloadavg()],  # more than the cores: no times
        "mode": options.mode,
        "folds": options.folds,
        "train": options.train and options.train.name,
        "small_diffs": options.small_diffs,
        "every": options.every,
        "session": options.session,
    }
