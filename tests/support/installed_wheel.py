"""Try an installed wheel without a model: native modules, plug-ins, replacing a file.

A script to run from a folder that is not the source.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import engine
from engine.atomic_write import write_atomically
from engine.drafting._drafting import Recycling
from engine.drafting.registry import usable_drafters
from engine.model import _kernels
from index import Workspace
from index._core import Automaton


def main() -> None:
    assert "site-packages" in str(engine.__file__), engine.__file__
    weight = np.eye(64, dtype=np.float32)
    row = np.linspace(-1, 1, 64, dtype=np.float32)[None]
    for name in ("plain", _kernels.isa()):
        _kernels.set_isa(name)
        out = np.empty_like(row)
        _kernels.QLinear(weight, None, 8).forward(row, out)
        assert np.abs(out - row).max() < 0.02, name
    automaton = Automaton()
    automaton.add(np.array([5, 6, 7, 5, 6], np.int32))
    assert automaton.check() == ""
    Recycling(10, 2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "text.py")
        for text in ("old", "new"):
            write_atomically(file, text.encode())
            assert file.read_text() == text
        assert [one.name for one in Path(folder).iterdir()] == ["text.py"]
    assert Workspace
    assert "eagle2" in usable_drafters(sys.exit)
    print(f"draftline works here, with kernels for {_kernels.isa()}")


if __name__ == "__main__":
    main()
