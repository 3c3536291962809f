"""Draw docs/demo.svg, the README's picture of what `draftline demo` prints.

python -m bench demo-picture [OUT]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bench.common.cli import argument_parser
from bench.common.environment import ROOT

OUT = ROOT / "docs" / "demo.svg"


def main(argv: list[str] | None = None) -> int:
    """Run the demo, keep its colours, draw it."""
    parser = argument_parser("demo-picture", __doc__)
    parser.add_argument("out", nargs="?", type=Path, default=OUT, help="default: docs/demo.svg")
    out: Path = parser.parse_args(argv).out
    command = [sys.executable, "-m", "ui.cli", "demo"]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "88"}
    shown = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=88, file=nowhere)
        console.print(Text.from_ansi(shown.decode()))
        drawing = console.export_svg(title="make demo")
    drawing = re.sub(r"@font-face \{.*?\}\n?", "", drawing, flags=re.DOTALL)  # fetched elsewhere
    out.parent.mkdir(exist_ok=True)
    out.write_text(drawing, "utf-8")
    print(out)
    return 0
