"""The command line of all benchmarks. Each is started by `python -m bench NAME`."""

from __future__ import annotations

import argparse
import sys


def argument_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Make a parser for benchmark `name`.

    The first paragraph of its docstring describes it.
    """
    summary = " ".join((doc or "").split("\n\n")[0].split())
    return argparse.ArgumentParser(prog=f"python -m bench {name}", description=summary)


def complain(name: str, problem: object) -> None:
    """Print a one-line error of benchmark `name` on stderr."""
    print(f"python -m bench {name}: {problem}", file=sys.stderr)
