"""Compile all kernels of a card without a card, so that none is compiled on one.

    TRITON_CACHE_DIR=/tmp/kernels python -m bench gpu-compile qwen2.5-coder-7b:bf16:exact ...

A specification is shape:format[:exact][:rows]; a shape is one of `python -m bench gpu`, "experts"
for its mixture of experts, or a path to a config.json. The product's own passes run on meta tensors
under a driver that launches nothing, so signatures, specialisations and options are those of the
card, and Triton finds every kernel and every launcher in its cache there. The cache names its own
path, so TRITON_CACHE_DIR must be the same on both machines; its keys hold Triton's version and the
kernels' source with line numbers, so both need the same Triton and the same commit.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.gpu import experts
from bench.gpu.models import SHAPES
from engine.config import WIDE_BUDGET
from engine.model.families import read_config
from engine.model.families.refusal import has_llama_pass
from engine.model.families.tensors import shapes_of
from engine.model.model_config import Attention, ModelConfig
from engine.model.native.weights import NativeWeights
from engine.model.torch.cuda.cuda_graphs import chain_of, passes_of
from engine.model.torch.cuda.described_model import DescribedModel
from engine.model.torch.cuda.static_forward import Static
from engine.model.torch.cuda.static_pass import (
    BUCKETS,
    DESCRIBED_ROWS,
    MAX_ROWS,
    USUAL_ROWS,
    PassOutput,
    bucket_of,
)
from engine.model.torch.gguf_weights import TensorArrays
from engine.model.torch.llama import Llama

KNOWN = SHAPES | {"experts": experts.LARGE}
FORMATS = ("bf16", "f32", "int8", "fp8", "int4")  # formats of weights
PROCESSORS = 132  # multiprocessors of an H100 or H200; they decide how attention is split
SHARED_BYTES = 232448  # bytes of a block on these
CAPABILITY = 90


@dataclass(frozen=True)
class Wanted:
    """A model's passes to compile."""

    name: str  # a shape's name, or the path of a config.json
    format: str
    exact: bool
    rows: int  # rows of the widest pass

    @property
    def settings(self) -> dict[str, Any]:
        """The content of the config.json; of Llama's family with one layer, as all are alike."""
        known: dict[str, Any] = KNOWN.get(self.name) or json.loads(
            Path(self.name).read_text("utf-8")
        )
        return known | ({"num_hidden_layers": 1} if has_llama_pass(known) else {})


def wanted(text: str) -> Wanted:
    """Parse a specification."""
    name, *rest = text.split(":")
    formats = [one for one in rest if one in FORMATS]
    rows = [int(one) for one in rest if one.isdigit() and int(one) in BUCKETS]
    if len(formats) != 1 or len(formats) + len(rows) + rest.count("exact") != len(rest):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write shape:format[:exact][:rows], with one of {', '.join(FORMATS)}, and "
            f"rows of {', '.join(map(str, BUCKETS))}"
        )
    if name not in KNOWN and not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: neither a file nor one of {', '.join(KNOWN)}")
    one = Wanted(name, formats[0], "exact" in rest, max([*rows, USUAL_ROWS]))
    ours = has_llama_pass(one.settings)
    if not ours and (one.exact or one.format not in ("bf16", "f32")):
        raise argparse.ArgumentTypeError(f"{text!r}: a card runs it in bf16 or f32, and not exact")
    is_wide = ours and one.format == "bf16" and not one.exact  # as the product's passes
    return replace(one, rows=max(one.rows, bucket_of(1 + WIDE_BUDGET))) if is_wide else one


class MetaWeights:
    """Tensors without memory in place of a model's files."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> torch.Tensor:
        return torch.empty(self.shapes[name], dtype=torch.bfloat16, device="meta")

    def get(self, name: str) -> torch.Tensor | None:
        """Return None: the shape has none of this name."""
        return self[name] if name in self else None  # noqa: SIM401


class EqualWeights(MetaWeights):
    """Tensors in place of a described model's files, each of one number."""

    def __getitem__(self, name: str) -> torch.Tensor:
        return torch.zeros((), dtype=torch.bfloat16).expand(self.shapes[name])


# -- a driver without a card -----------------------------------------------------------------------


def pretend_driver() -> list[bool]:
    """Give Triton a driver that launches nothing.

    The list gets one item for each kernel: whether the cache had it.
    """
    link_without_cuda()
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import driver as nvidia

    class Utils:
        def load_binary(self, *_: Any) -> tuple[int, ...]:
            return 0, 0, 0, 0, 1024  # module, function, registers, spills, threads

        def get_device_properties(self, _: int) -> dict[str, int]:
            return {
                "max_shared_mem": SHARED_BYTES,
                "multiprocessor_count": PROCESSORS,
                "warpSize": 32,
            }

    class Launcher:
        def __init__(self, src: Any, metadata: Any) -> None:
            if hasattr(
                nvidia, "make_launcher"
            ):  # Triton before 3.7 compiles one for each signature
                nvidia.CudaLauncher(src, metadata)

        def __call__(self, *_: Any) -> None:
            pass

    class Driver:
        utils, launcher_cls = Utils(), Launcher

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, _: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", CAPABILITY, 32)

        def get_device_capability(self, _: int = 0) -> tuple[int, int]:
            return divmod(CAPABILITY, 10)

    found: list[bool] = []

    def listen(src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        found.append(cache_hit)

    triton.runtime.driver.set_active(Driver())
    knobs.compilation.listener = listen
    return found


def link_without_cuda() -> None:
    """Make a libcuda.so.1 whose functions all fail, to link launchers against."""
    import triton

    folder = Path(tempfile.mkdtemp(prefix="libcuda-"))
    backend = Path(triton.__file__).parent / "backends" / "nvidia"
    text = "".join((backend / name).read_text("utf-8") for name in ("driver.c", "driver.py"))
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w+)\s*\(", text)))
    source, library = folder / "stub.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in names))
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([os.environ.get("CC", "cc"), *options, str(source)], check=True)
    (folder / "libcuda.so").symlink_to(library.name)
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


# -- passes ----------------------------------------------------------------------------------------


@torch.inference_mode()
def run_passes(one: Wanted) -> None:
    """Run every pass of a model once."""
    from engine.model.torch.cuda import triton_ops

    static = static_of(one)
    cache = static.scratch()
    static.run_read(static.sent_prompt(1, cache, 0, 1), layers=1)
    for rows, reads in passes_of(static):
        if reads:
            static.run_read(static.sent_prompt(1, cache, 0, rows))
        else:
            now = static.sent(chain_of(rows), cache, MAX_ROWS, rows)
            states = static._states(static.ids[:rows], now)
            logits = static.model.words(states)
            static.draw_each_way(PassOutput(states, logits, triton_ops.top(logits)))


def static_of(one: Wanted) -> Static:
    """Return the static passes of a model on meta tensors, with the fused kernels."""
    from engine.model.torch.cuda import triton_ops

    number = torch.float32 if one.format == "f32" else torch.bfloat16
    if not has_llama_pass(one.settings):
        static = Static(described(one, number), rows=min(one.rows, DESCRIBED_ROWS))
        static.fused, static.ready = triton_ops, True
        return static
    narrow = one.format if one.format in ("int8", "fp8", "int4") else ""
    equal = torch.equal
    torch.equal = lambda *_: False  # a tied head is asked for its values, which meta has not
    try:
        config = read_config(one.settings)
        weights = MetaWeights(shapes_of(config))
        model = Llama(config, weights, torch.device("meta"), number, one.exact, narrow)
    finally:
        torch.equal = equal
    static = Static(model, one.exact, one.rows)
    static.fused, static.ready = triton_ops, True
    return static


def described(one: Wanted, number: torch.dtype) -> DescribedModel:
    """Return a model by its `ModelConfig` on meta tensors, with one layer of each kind."""
    config = read_config(one.settings)
    if not reuses_keys(config):
        config = replace(config, layers=tuple(dict.fromkeys(config.layers)))
    source = TensorArrays(EqualWeights(shapes_of(config)))
    files = NativeWeights(source, config, 32, Path(one.name))
    return DescribedModel(files, torch.device("meta"), number)


def reuses_keys(config: ModelConfig) -> bool:
    """Return whether a layer reads another's keys."""
    mixers = [layer.mixer for layer in config.layers]
    return any(isinstance(one, Attention) and one.reads_from is not None for one in mixers)


def split_as_on_a_card() -> None:
    """Let attention be split as for PROCESSORS, which a meta device does not have."""
    import triton

    from engine.model.torch.cuda import triton_attention

    triton_attention.parts_of = lambda device, programs: min(
        triton_attention.MOST_PARTS, triton.next_power_of_2(triton.cdiv(PROCESSORS, programs))
    )


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("gpu-compile", __doc__)
    parser.add_argument("models", nargs="+", type=wanted, help="shape:format[:exact][:rows]")
    options = parser.parse_args(argv)
    if not os.environ.get("TRITON_CACHE_DIR"):
        complain("gpu-compile", ValueError("set TRITON_CACHE_DIR to the path that the card uses"))
        return 2
    if find_spec("triton") is None:
        complain("gpu-compile", ValueError("Triton is missing: pip install triton, as on the card"))
        return 2
    found = pretend_driver()
    split_as_on_a_card()
    for one in options.models:
        start, before = perf_counter(), len(found)
        run_passes(one)
        new = found[before:]
        report.say(
            f"{one.name}, {one.format}{', exact' * one.exact}, {one.rows} rows: "
            f"{new.count(False)} compiled, {new.count(True)} found, {perf_counter() - start:.1f} s"
        )
    report.print_json_line({"compiled": found.count(False), "found": found.count(True)})
    return 0
