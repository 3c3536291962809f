"""docs/demo.svg: what `draftline demo` prints, as a picture for the README.

usage: python bench/picture.py [OUT]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

OUT = Path(__file__).resolve().parent.parent / "docs" / "demo.svg"


def main(argv: list[str] | None = None) -> int:
    """Run the demo, keep its colours, draw it."""
    arguments = sys.argv[1:] if argv is None else argv
    out = Path(arguments[0]) if arguments else OUT
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
