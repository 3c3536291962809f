"""Start a benchmark: `python -m bench NAME [options]`. Without a name the benchmarks are listed."""

from __future__ import annotations

import sys
from importlib import import_module

BENCHES = {  # name: (module, what it measures)
    "decode": ("bench.decode.decode", "decoding speed: plain, Draftline, transformers, llama.cpp"),
    "index": ("bench.index.index", "the workspace index beside other indexes"),
    "index-plot": ("bench.index.plot", "draw the growth that `index --growth` measured"),
    "latency": ("bench.latency.latency", "the language server as a typist feels it"),
    "replay": ("bench.replay.replay", "recorded edits drafted again, without a model"),
    "replay-collect": ("bench.replay.collect", "make records of edits from two releases"),
    "replay-sample": ("bench.replay.sample", "make records of edits from this repository"),
    "specbench": ("bench.specbench.specbench", "all drafting methods on Spec-Bench's questions"),
    "quality": ("bench.quality.quality", "how often edits are right: EditEval, CanItEdit"),
    "qa": ("bench.qa.qa", "questions about documents: retrieval, citations, speed"),
    "serving": ("bench.serving.serving", "the HTTP server under load"),
    "gpu": ("bench.gpu.gpu", "steps and edits on a CUDA device"),
    "gpu-sample": ("bench.gpu.sample", "make the recorded edits that `gpu` replays"),
    "specdec": ("bench.research.specdec", "SpecDec++: schedules of draft lengths"),
    "sdsat": ("bench.research.sdsat", "SDSAT: how many adaptive tokens pay"),
    "demo-picture": ("bench.picture", "draw docs/demo.svg from `draftline demo`"),
}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHES:
        if name not in ("", "-h", "--help"):
            print(f"bench: no benchmark is called {name!r}; there are:", file=sys.stderr)
        width = max(map(len, BENCHES))
        lines = [f"  {key:<{width}}  {what}" for key, (_, what) in BENCHES.items()]
        print("usage: python -m bench NAME [options]\n", *lines, sep="\n")
        return 0 if name in ("", "-h", "--help") else 2
    sys.argv = [f"python -m bench {name}", *sys.argv[2:]]
    code: int = import_module(BENCHES[name][0]).main()
    return code


if __name__ == "__main__":
    sys.exit(main())
