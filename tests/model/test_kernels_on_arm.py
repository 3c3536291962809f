"""The kernels on ARM give the bits of this machine's: cross-compiled, and run under an emulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from engine.model import _kernels as kernels
from tests.model.test_formats import EVERY, FLOATS, stored
from tests.support.kernels import forward, isas, normal, reseed

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "engine" / "model" / "core"
SOURCES = [HERE / "kernels_on_arm.cpp", *(CORE / f"{name}.cpp" for name in (
    "cpu", "formats", "pool", "qlinear"
))]  # fmt: skip
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
        reason=f"needs {COMPILER} and {EMULATOR} (Debian: g++-aarch64-linux-gnu qemu-user-static)",
    ),
]


OPTIONS = ["-std=c++20", "-O2", "-ffp-contract=off", "-static", "-pthread"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("arm") / "kernels_on_arm"
    subprocess.run([COMPILER, *OPTIONS, *SOURCES, "-o", made], check=True)
    return made


# An ARMv8.0 processor, one with dot products, and one with everything.
@pytest.mark.parametrize(
    ("processor", "isas"),
    [("cortex-a57", ["plain"]), ("neoverse-n1", ["plain", "dotprod"]),
     ("max", ["plain", "dotprod", "i8mm"])],
)  # fmt: skip
def test_every_format_has_the_same_bits(program: Path, processor: str, isas: list[str]) -> None:
    reseed()
    for kind in EVERY:
        out, n, rows = 70, 37 if kind in FLOATS else 512, 13
        weights, x = stored(kind, out, n), normal(rows, n)
        y = forward(kernels.QLinear.stored([(int(kind), weights)], n), x)
        head = np.array([kind, out, n, rows, weights.shape[1]], np.int32)
        done = subprocess.run(
            [EMULATOR, "-cpu", processor, program],
            input=head.tobytes() + weights.tobytes() + x.tobytes(),
            stdout=subprocess.PIPE,
            check=True,
        )
        assert done.stdout == b"".join(f"{isa}\n".encode() + y.tobytes() for isa in isas), kind.name


def test_attention_and_the_kernels_of_rows_have_the_same_bits(tmp_path: Path) -> None:
    names = ("cpu", "pool", "attention", "rows")
    sources = [HERE / "attention_on_arm.cpp", *(CORE / f"{name}.cpp" for name in names)]
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run(["g++", *OPTIONS, *sources, "-o", here], check=True)
    subprocess.run([COMPILER, *OPTIONS, *sources, "-o", there], check=True)
    expected = subprocess.run([here, "plain"], stdout=subprocess.PIPE, check=True).stdout
    assert np.isfinite(np.frombuffer(expected, np.float32)).all()
    for isa in isas():
        assert subprocess.run([here, isa], stdout=subprocess.PIPE, check=True).stdout == expected
    for command in ([EMULATOR, "-cpu", "cortex-a57", there, "plain"],
                    [EMULATOR, "-cpu", "max", there, "i8mm"]):  # fmt: skip
        assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == expected
