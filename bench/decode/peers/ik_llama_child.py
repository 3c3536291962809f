"""ik_llama.cpp, by the package `ik-llama-cpp-python`.

Its own greedy sampling walks the vocabulary in Python, which takes longer than a pass of a small
model: here numpy takes the largest logit, so that the passes are what is timed. Flash attention is
switched on where the package would switch it off, for processors with AVX-512 VNNI.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.decode.peers.child import Answer, serve, timed


def load(gguf: str, threads: str, context: str) -> Answer:
    """Load a GGUF file."""
    import numpy as np

    _load_ggml()
    from ik_llama_cpp import _ctypes_api as api
    from ik_llama_cpp._internals import (
        IkContext,
        IkModel,
        make_batch_range,
    )

    model = IkModel(gguf)
    passes = IkContext(model, n_ctx=int(context), n_threads=int(threads), flash_attn=True)

    def read(tokens: list[int], place: int, last: bool) -> None:
        batch = make_batch_range(tokens, pos_start=place, logits_last=last)
        failed = passes.decode(batch)
        api.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode of {len(tokens)} tokens failed: {failed}")

    def decoded(prompt: list[int]) -> Iterator[int]:
        passes.kv_cache_clear()
        step = api.llama_n_ubatch(passes.ctx)
        for place in range(0, len(prompt), step):
            read(prompt[place : place + step], place, place + step >= len(prompt))
        place = len(prompt)
        while True:
            token = int(np.ctypeslib.as_array(passes.get_logits(), (model.n_vocab,)).argmax())
            if api.llama_token_is_eog(model.model, token):
                return
            yield token
            read([token], place, True)
            place += 1

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return timed(decoded(request["prompt"]), request, model.detokenize)

    return answer


def _load_ggml() -> None:
    """Load the library that the package's own library does not find where it is installed."""
    spec = importlib.util.find_spec("ik_llama_cpp")
    assert spec is not None and spec.origin is not None
    ctypes.CDLL(str(Path(spec.origin).with_name("lib") / "libggml.so"), ctypes.RTLD_GLOBAL)


if __name__ == "__main__":
    serve(load)
