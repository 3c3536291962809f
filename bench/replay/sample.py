"""Make bench/replay/sample_edits.jsonl from this repository's git history, for `replay`.

    python -m bench replay-sample [--until COMMIT]

Takes Python files of a few kilobytes that a commit changed neither trivially nor beyond
recognition, from all of the history, and several of a commit where possible, so that they serve as
each other's workspace.
"""

from __future__ import annotations

import json
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

from bench.common.cli import argument_parser
from bench.common.environment import ROOT

OUT = Path(__file__).with_name("sample_edits.jsonl")
MAX_COMMITS, MAX_FILES = 13, 3  # commits of the history, files of each commit
MIN_CHARS, MAX_CHARS = 1_500, 9_000  # characters of a file
CHANGED_SHARE = (0.01, 0.4)  # share of a file's lines, from, to


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def edits_of(commit: str) -> list[dict[str, str]]:
    """Return the replayable changes of a commit, the largest files first."""
    found = []
    names = git("diff", "--name-only", "--diff-filter=M", f"{commit}~1", commit, "--", "*.py")
    for path in names.split("\n")[:-1]:
        before, after = git("show", f"{commit}~1:{path}"), git("show", f"{commit}:{path}")
        if all(MIN_CHARS <= len(text) <= MAX_CHARS for text in (before, after)):
            same = SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
            if CHANGED_SHARE[0] <= 1 - same.ratio() <= CHANGED_SHARE[1]:
                found.append(
                    {
                        "id": f"draftline:{commit}:{path}",
                        "package": "draftline",
                        "licence": "Apache-2.0",
                        "old_version": git("rev-parse", "--short=10", f"{commit}~1").strip(),
                        "new_version": commit,
                        "path": path,
                        "language": "python",
                        "before": before,
                        "after": after,
                    }
                )
    return sorted(found, key=lambda one: -len(one["after"]))


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("replay-sample", __doc__)
    parser.add_argument("--until", default="HEAD", help="the last commit to consider")
    until = parser.parse_args(argv).until
    commits = git("log", "--reverse", "--format=%h", "--abbrev=10", until).split()[1:]
    fit = [some for some in map(edits_of, commits) if some]
    chosen = (
        [fit[n * len(fit) // MAX_COMMITS] for n in range(MAX_COMMITS)]
        if len(fit) > MAX_COMMITS
        else fit
    )
    lines = [json.dumps(one, ensure_ascii=False) for some in chosen for one in some[:MAX_FILES]]
    OUT.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{OUT.name}: {len(lines)} edits, {OUT.stat().st_size:,} bytes", file=sys.stderr)
    return 0
