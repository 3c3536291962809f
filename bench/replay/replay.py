"""Measure how well edits are drafted, without a model, by replaying recorded edits.

    python -m bench replay [EDITS] [--answers FILE] [--mode file|hunk] [--drafter NAME ...]
        [--budget N ...] [--costs COST] [--weights FILE | --folds [--train FILE]]
        [--without PART ...] [--session] [--package NAME ...] [--small-diffs] [--limit N]
        [--every N] [--by-language] [--index FOLDER ...] [--library FOLDER] [--model NAME] [--json]
        [--out FILE]

Two sources have a table each. EDITS are edits that people made, as JSONL
(research/train/edit_records.py); by default edits of this project, bench/replay/sample_edits.jsonl,
which `python -m bench replay-sample` made from its git history. --answers are a model's own answers
to the edits of `python -m bench decode`, whole files in mode "file" and selections in mode "hunk":
what `decode --answers` wrote, or better what `python -m bench replay-answers` made of it
(bench/replay/answers.py), for Token Recycling and LogitSpec draft from the model's likely tokens.

The figure is time: how many times as fast as plain decoding, where a step that drafts n nodes
costs a pass over n + 1 rows. --costs says what that is: a file of `decode --passes`, a table
{rows: cost}, or a number, the cost of a node; by default what this machine's engine has measured of
--model. Every rule gets the same --budget of nodes. The table shows families of rules, in each
column the fastest rule of the family; "best" is the best budget (draftline, which adapts its drafts
to their cost, has the largest there), and the columns behind it are of that one. "best automaton
rule" is the best of SAM-Decoding's first and last occurrence, and of its tree over all; "best
single copy" knows the answer. "untrained" is draftline without learnt weights, which only learns
from each answer. Packages are shown with the rule that is best over all of them.

With --folds each half of EDITS' packages is replayed with weights fitted on the other half (on
--train's edits of all other packages if given): "all" is then the mean of both halves' figures, for
every rule, and "pooled" is all tokens over all steps. A model's answers are replayed with the
weights of a file.
With --json stdout gets one object per line: every rule, and the best ones with the `rule` that they
are; the tables go to stderr. All but the times of drafting are deterministic. These are of propose
and observe, in microseconds per step, and not part of the figure.
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
from bench.replay.answers import answered
from bench.replay.costs import pass_costs
from bench.replay.ours import PARTS, describe_weights, draftline_rule, halves
from bench.replay.peers import UNTRAINED, rules
from bench.replay.run import Rule, run
from bench.replay.table import Row, Tallies, groups, rows, show, write_rows
from engine.config import DEFAULT_MODEL
from engine.drafting.drafter_weights import SHIPPED
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError, home, locate
from index.workspace.workspace import Workspace
from research.train.edit_records import EditError, RecordedEdit, Replay, read, replays

SAMPLE = Path(__file__).with_name("sample_edits.jsonl")
PEOPLE, MODEL = "people", "the model"  # sources of edits
BUDGETS = [4, 8, 16, 32, 64]  # nodes
SMALL_DIFF_BYTES = 9000  # bytes of a unified diff, file names included
log = logging.getLogger(__name__)


def load_tokenizer(model: str) -> Tokenizer:
    """Load the tokenizer of a model, but not its weights."""
    return Tokenizer(folder_of(model))


def folder_of(model: str) -> Path:
    folder = Path(model)
    return folder if (folder / "tokenizer.json").is_file() else locate(model)


def has_small_diff(edit: RecordedEdit) -> bool:
    """Return whether the edit's unified diff is small."""
    old, new = (text.splitlines(keepends=True) for text in (edit.before, edit.after))
    diff = unified_diff(old, new, f"a/{edit.path}", f"b/{edit.path}")
    return sum(len(line.encode()) for line in diff) < SMALL_DIFF_BYTES


def select_edits(edits: list[RecordedEdit], options: argparse.Namespace) -> list[RecordedEdit]:
    """Return the edits to replay. Raises EditError if there are none."""
    known = sorted({edit.package for edit in edits})
    for name in options.package:
        if name not in known:
            raise EditError(f"{options.edits}: no package {name}: choose from {', '.join(known)}")
    found = [edit for edit in edits if not options.package or edit.package in options.package]
    found = found[:: options.every][: options.limit or None]
    if options.small_diffs:
        found = [edit for edit in found if has_small_diff(edit)]
    if not found:
        raise EditError(f"{options.edits}: nothing is left to replay: select more edits")
    return found


def choose_rules(parser: argparse.ArgumentParser, names: list[str]) -> set[str]:
    """Validate names of rules and families; without any, all families are chosen."""
    known = rules()
    families = dict.fromkeys(["draftline", UNTRAINED, *(rule.family for rule in known)])
    if "arctic" not in families and not names:
        log.warning(
            "arctic is left out: arctic-inference is not installed (see bench/index/index.py)"
        )
    for name in names:
        if name == "arctic" and name not in families:
            parser.error("--drafter arctic: install arctic-inference, as bench/index/index.py says")
        if name not in families and not any(name == rule.name for rule in known):
            parser.error(f"--drafter {name}: choose from {', '.join(families)}")
    return set(names) or set(families)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("replay", __doc__)
    several: Any = {"nargs": "+", "action": "extend"}
    add = parser.add_argument
    add("edits", nargs="?", type=Path, default=SAMPLE, help="JSONL; default: edits of this project")
    add("--mode", choices=("file", "hunk"), default="file")
    add("--answers", type=Path, help="a model's own answers, of `bench decode --answers`")
    add("--costs", help="of passes: a file, or the cost of a node; default: as measured here")
    add("--budget", type=int, **several, help="nodes per step; default: 4 8 16 32 64")
    add("--drafter", **several, default=[], help="rules or families; default: all")
    add("--weights", type=Path, help="draftline's weights; default: the shipped ones")
    add("--folds", action="store_true", help="train on half of the packages, replay the others")
    add("--train", type=Path, help="edits that --folds trains on; default: EDITS")
    add("--without", **several, default=[], metavar="PART", help=f"all, {', '.join(PARTS)}")
    add("--session", action="store_true", help="let drafters copy a file's earlier hunks")
    add("--package", **several, default=[], help="only edits of these")
    small = f"only edits with diffs below {SMALL_DIFF_BYTES} bytes"
    add("--small-diffs", action="store_true", help=small)
    add("--limit", type=int, default=0, help="use at most this many records")
    add("--every", type=int, default=1, metavar="N", help="use every N-th record")
    language = "rows by language, the part before a package's colon"
    add("--by-language", action="store_true", help=language)
    add("--model", default=DEFAULT_MODEL, help="the model whose tokenizer is used")
    add("--json", action="store_true", help="print JSON lines on stdout")
    add("--out", type=Path, help="write the tables' rows and the facts of the run to a file")
    add(
        "--index", type=Path, nargs="+", default=[], metavar="FOLDER",
        help="folders to index as well, for realistic times; may contain the answers",
    )  # fmt: skip
    add("--library", type=Path, help="a folder of *.py files in place of the standard library")
    options = parser.parse_args(arguments)
    options.budget = sorted(set(options.budget or BUDGETS))
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
            parser.error(f"--without {part}: choose from all, {', '.join(PARTS)}")
    if options.folds and options.weights:
        parser.error("--folds fits its own weights: leave out --weights")
    if options.train and not options.folds:
        parser.error("--train: needs --folds (to save weights, use `draftline train drafter`)")
    if options.session and options.mode == "file":
        parser.error("--session: a whole file has one answer: use --mode hunk")
    options.chosen = choose_rules(parser, options.drafter)
    if options.without and "draftline" not in options.chosen:
        parser.error("--without: needs draftline, which --drafter leaves out")
    return options


def prepare(
    options: argparse.Namespace, encoder: Tokenizer
) -> tuple[list[RecordedEdit], list[set[str]], list[Rule], list[str]]:
    """Return the edits, the halves of the packages, the rules, and lines that describe them."""
    edits = read(options.edits)
    found = select_edits(edits, options)
    packages = {edit.package for edit in found}
    learnt = read(options.train) if options.train else edits
    known = sorted({edit.package for edit in edits})
    folds = halves(known) if options.folds else []
    if options.folds and len(known) < 2:
        raise EditError(f"{options.edits}: one package cannot be split: leave out --folds")
    made, notes = None, []
    if {"draftline", UNTRAINED} & options.chosen:
        weights = options.weights or SHIPPED
        library = StdlibNgram(home(), encoder, options.library)
        made = draftline_rule(learnt, folds, options.mode, encoder, library, weights, say)
        notes = [describe_weights(weights, packages)]
        if folds:
            names = " | ".join(", ".join(sorted(fold)) for fold in folds)
            notes = [f"weights: of the other half; halves: {names}"]
    known_rules = rules(made, dict.fromkeys(options.without))
    chosen = [
        rule
        for rule in known_rules
        if {rule.name, rule.family} & options.chosen or rule.family.startswith("without ")
    ]
    return found, folds, chosen, notes


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s")
    options = read_options(arguments)
    try:
        encoder = load_tokenizer(options.model)
        costs, note = pass_costs(options.costs, folder_of(options.model).name)
        own = options.answers and answered(options.answers, options.mode == "file", encoder)
        edits, folds, chosen, notes = prepare(options, encoder)
        sources = {PEOPLE: replays(edits, options.mode, encoder), **({MODEL: own} if own else {})}
    except (EditError, WeightsError, ValueError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or options.edits}: {error.strerror or error}")
    notes.append(note)
    prompt = tuple(encoder.encode("\n"))
    tallies: Tallies = {}
    every = [replay for recorded in sources.values() for replay in recorded]
    with Workspace(options.index, encoder, home() if options.index else None) as workspace:
        if options.index:
            workspace.build()
            workspace.compact()  # no compaction or saving while steps are timed
            notes.append(f"index of {workspace.size:,} tokens")
        played = run(
            every, chosen, options.budget, costs, workspace, prompt, tallies, options.session
        )
        for done, _ in enumerate(played, 1):
            if sys.stderr.isatty():
                print(f"\r\x1b[K{done} of {len(every)}", end="", file=sys.stderr, flush=True)
            elif done * 10 // len(every) > (done - 1) * 10 // len(every):
                say(f"{done} of {len(every)} answers")
    clear_progress()
    out = sys.stderr if options.json else sys.stdout
    print(*notes, sep="\n", file=out)
    found: list[Row] = []
    for source, recorded in sources.items():
        likely = all(replay.likely for replay in recorded)
        left_out = [one for one in chosen if one.needs_likely and not likely]
        packages = sorted({replay.package for replay in recorded})
        rows_of = groups(packages, folds if source == PEOPLE else [], options.by_language)
        usable = [one for one in chosen if one not in left_out]
        some = rows(tallies, usable, rows_of, options, source)
        notes.append(describe(options, source, recorded, left_out))
        show(some, options, f"\n{notes[-1]}", out)
        found += some
    if options.out:
        write_rows(options.out, {**run_facts(options), "notes": notes}, found)
    if options.json:
        for row in found:
            print(json.dumps(row), flush=True)
    return 0


def describe(
    options: argparse.Namespace, source: str, recorded: list[Replay], left_out: list[Rule]
) -> str:
    """Say how much of what is replayed, and which families cannot be."""
    file = options.edits if source == PEOPLE else options.answers
    edits = len({replay.id.partition("#")[0] for replay in recorded})
    tokens = sum(len(replay.output) for replay in recorded)
    about = f"{file.name}, edits by {source}: {edits} edits, {len(recorded)} answers"
    about += f", {tokens:,} tokens of {Path(options.model).name}"
    if left_out:
        names = ", ".join(dict.fromkeys(rule.family for rule in left_out))
        about += f"; left out, as no likely tokens are recorded: {names}"
    return about


def run_facts(options: argparse.Namespace) -> Row:
    """Return what a reader needs to judge or repeat the figures."""
    return {
        "machine": machine(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "edits": options.edits.name,
        "answers": options.answers and options.answers.name,
        # above the cores, times of drafting are unreliable
        "load": [round(one, 2) for one in os.getloadavg()],
        "mode": options.mode,
        "folds": options.folds,
        "train": options.train and options.train.name,
        "small_diffs": options.small_diffs,
        "every": options.every,
        "session": options.session,
    }
