"""Start a benchmark: `python -m bench NAME [options]`. Without a name, list the benchmarks."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from engine.config import PREFIXES_VARIABLE

BENCHES = {  # name: (module, what it measures)
    "apply": ("bench.apply.apply", "merging updates into files: exactness and speed"),
    "families": ("bench.families.families", "passes of families of models, on random weights"),
    "decode": ("bench.decode.decode", "decoding speed, beside other programs"),
    "index": ("bench.index.index", "the workspace index beside other indexes"),
    "index-plot": ("bench.index.plot", "draw the results of `index --growth`"),
    "keys": ("bench.latency.keys", "the tokens that are read for each keystroke"),
    "latency": ("bench.latency.latency", "what a user of an editor waits for"),
    "replay": ("bench.replay.replay", "how well recorded edits are drafted, without a model"),
    "replay-answers": (
        "bench.replay.answers",
        "record what a model finds likely along its answers",
    ),
    "replay-collect": ("bench.replay.collect", "record the edits between two releases"),
    "replay-sample": ("bench.replay.sample", "record edits from this repository's history"),
    "specbench": ("bench.specbench.specbench", "all drafting methods on Spec-Bench's questions"),
    "quality": ("bench.quality.quality", "how often edits are right: EditEval, CanItEdit"),
    "assist": ("bench.assist.assist", "what the editor shows: edits and completions, scored"),
    "assist-fresh": ("bench.assist.fresh", "make tasks for `assist` of packages by date"),
    "tools": ("bench.tools.tools", "calls of tools, and answers that a schema enforces"),
    "qa": ("bench.qa.qa", "questions about documents: retrieval, answers, speed"),
    "install": ("bench.install.install", "the size of an installation, and its first token"),
    "serving": ("bench.serving.serving", "the HTTP server under load"),
    "vllm": ("bench.vllm.vllm", "Draftline's drafter inside vLLM, beside vLLM's own"),
    "gpu": ("bench.gpu.gpu", "steps and edits on a CUDA device"),
    "gpu-compile": ("bench.gpu.compile_ahead", "compile the kernels of a card without one"),
    "gpu-sample": ("bench.gpu.sample", "make the recorded edits that `gpu` replays"),
    "specdec": ("bench.research.specdec", "SpecDec++: schedules of draft lengths"),
    "sdsat": ("bench.research.sdsat", "SDSAT: how many adaptive tokens pay"),
    "agents": ("bench.agents.agents", "coding agents edit files through the HTTP API"),
    "demo-picture": ("bench.picture", "draw docs/demo.svg from `draftline demo`"),
}


def main(argv: list[str] | None = None) -> int:
    name, *options = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in BENCHES:
        asked = name in ("-h", "--help")
        out = sys.stdout if asked else sys.stderr
        width = max(map(len, BENCHES))
        lines = [f"  {key:<{width}}  {what}" for key, (_, what) in BENCHES.items()]
        print("usage: python -m bench NAME [options]\n", *lines, sep="\n", file=out)
        if not asked:
            print(f"\npython -m bench: unknown benchmark {name!r}: choose from these", file=out)
        return 0 if asked else 2
    try:
        module = import_module(BENCHES[name][0])
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: pip install 'draftline[bench]'"
        print(f"python -m bench {name}: {missing}", file=sys.stderr)
        return 2
    code: int = module.main(options)
    return code


if __name__ == "__main__":
    os.environ.setdefault(PREFIXES_VARIABLE, "off")  # an earlier run has read nothing
    sys.exit(main())
