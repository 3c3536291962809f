"""What the command lines of all benchmarks share. Each is started by `python -m bench NAME`."""

from __future__ import annotations

import argparse
import sys


def argument_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser for benchmark `name`, described by the first paragraph of its docstring."""
    summary = " ".join((doc or "").split("\n\n")[0].split())
    return argparse.ArgumentParser(prog=f"python -m bench {name}", description=summary)


def complain(name: str, problem: object) -> None:
    """Print a one-line error of benchmark `name` on stderr."""
    print(f"python -m bench {name}: {problem}", file=sys.stderr)
