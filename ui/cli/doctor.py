"""`draftline doctor`: find what keeps Draftline from working here, and say what to do."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ui.cli.options import add_command, port_number
from ui.common.errors import FAILED, OK
from ui.common.terminal import one_line, write_json, write_line

EXIT_CODES = """exit codes:
  0    nothing failed; there may be warnings
  1    something failed
  2    usage
  130  interrupted
"""
DEFAULT_PORT = 8000
NAME_WIDTH = 14  # characters of the longest name of a check


def add_parser(commands: Any) -> None:
    """Add the `doctor` command."""
    parser = add_command(
        commands,
        "doctor",
        run,
        "check what Draftline needs on this machine",
        "Check Python, torch, the card, the model, memory, disk, permissions, limits and the\n"
        "port. Each line says ok, warn or fail, and what to do. Nothing is changed or fetched.",
        EXIT_CODES,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--port",
        type=port_number,
        default=DEFAULT_PORT,
        metavar="P",
        help=f"of `draftline serve`; default: {DEFAULT_PORT}",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings as they are made."""
    from index.version import version_and_commit
    from ui.cli.doctor_checks import checks

    findings = []
    for found in checks(args.port):
        findings.append(found)
        if not args.json:
            remedy = f": {found.remedy}" if found.remedy else ""
            line = f"{found.state:<4}  {found.name:<{NAME_WIDTH}}  {found.what}{remedy}"
            write_line(one_line(line))
    if args.json:
        listed = [asdict(found) for found in findings]
        write_json({"version": version_and_commit(), "checks": listed})
    return FAILED if any(found.state == "fail" for found in findings) else OK
