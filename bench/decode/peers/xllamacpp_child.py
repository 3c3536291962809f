"""llama.cpp by the wheel `xllamacpp`, which is built for AVX2."""

from __future__ import annotations

import json
from typing import Any

from bench.decode.peers.child import Answer, serve
from bench.decode.peers.llama_server_child import answer_of, body


def load(gguf: str, threads: str, context: str) -> Answer:
    """Load a GGUF file."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.n_predict = -1
    params.port = 0
    params.cache_ram_mib = 0
    params.fit_params = False
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        made = server.handle_completions(body(request))
        found = made if isinstance(made, dict) else json.loads(made)
        return answer_of(found, found["choices"][0]["text"])

    return answer


if __name__ == "__main__":
    serve(load)
