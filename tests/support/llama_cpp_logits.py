"""llama.cpp as an oracle: the logits that it gives for a GGUF file, in f32.

The wheel `xllamacpp` exports llama.cpp's C API from its shared object, here called by ctypes. Each
call runs in a process of its own, with one thread: llama.cpp's threads spin while they wait, and a
file that it dislikes may abort the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.common.llama_cpp_api import batch, load

FLOATS = ctypes.POINTER(ctypes.c_float)
ROOT = Path(__file__).parents[2]
LOG_LINES = 20  # of llama.cpp's own log, in the error for a file that it cannot run
DISABLED, F32 = 0, 0
MTP = "mtp"  # in place of an adapter
MTP_CONTEXT = 1  # type of the context of the layer that predicts the token after the next
SET_STATES = "_Z26llama_set_embeddings_nextnP13llama_contextbb"
STATES = "_Z26llama_get_embeddings_nextnP13llama_context"


def llama_cpp_logits(
    path: Path, tokens: Sequence[int], adapter: str = ""
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits after each of the tokens, in one pass: f32 [n, vocabulary]. `adapter`: LoRA's. The
    KV cache is f32, flash attention is off, and matrices are not repacked. Skips the test where
    xllamacpp is missing or has another C API; RuntimeError with llama.cpp's log where it cannot run
    the file."""
    return _asked(path, [int(token) for token in tokens], adapter)


def llama_cpp_mtp(
    path: Path, tokens: Sequence[int], states: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Logits f32 [n, vocabulary] and states f32 [n, width] of the layer that predicts the token
    after the next, for tokens and the states before them f32 [n, width]. As above otherwise."""
    np.save(path.with_suffix(".states.npy"), states)
    both = _asked(path, [int(token) for token in tokens], MTP)
    return both[:, : -states.shape[1]], both[:, -states.shape[1] :]


def _asked(path: Path, tokens: list[int], how: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    pytest.importorskip("xllamacpp")
    answer = path.with_suffix(".logits.npy")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.llama_cpp_logits", str(path), str(answer), how],
        cwd=ROOT,
        input=json.dumps(tokens),
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.stdout.startswith("skip: "):
        pytest.skip(done.stdout.removeprefix("skip: ").strip())
    if done.returncode:
        lines = [one for one in done.stderr.splitlines() if not one.startswith("create_tensor")]
        log = "\n".join(lines[-LOG_LINES:])
        raise RuntimeError(f"{path}: llama.cpp cannot run it:\n{log}")
    found: np.ndarray[Any, np.dtype[np.float32]] = np.load(answer)
    answer.unlink()
    return found


def _run(path: str, answer: str, adapter: str, tokens: list[int]) -> None:
    """Write the logits of the file at `path`, with an adapter if there is one, to `answer`."""

    def exact(model: Any, context: Any) -> None:
        model.use_extra_bufts = False
        context.n_ctx = context.n_batch = context.n_ubatch = len(tokens)
        context.n_outputs_max = context.n_outputs_max_per_seq = len(tokens)
        context.n_threads = context.n_threads_batch = 1
        context.flash_attn_type, context.type_k, context.type_v = DISABLED, F32, F32
        if adapter == MTP:
            model.load_mtp, context.ctx_type = True, MTP_CONTEXT

    loaded = load(path, exact)
    if isinstance(loaded, str):
        if loaded:
            print(f"skip: {loaded}")
            return
        sys.exit(1)  # its log says why
    llama, model, context = loaded
    rows, states = batch(tokens), None
    if adapter == MTP:
        if not hasattr(llama, STATES):
            print("skip: this release of xllamacpp does not export states of MTP")
            return
        states = np.load(Path(path).with_suffix(".states.npy"))
        rows.embd = states.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        set_states, get_states = getattr(llama, SET_STATES), getattr(llama, STATES)
        set_states.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool]
        set_states.restype = None
        get_states.argtypes, get_states.restype = [ctypes.c_void_p], FLOATS
        set_states(context, True, False)
    elif adapter:
        pointer = ctypes.c_void_p
        llama.llama_adapter_lora_init.argtypes = [pointer, ctypes.c_char_p]
        llama.llama_adapter_lora_init.restype = pointer
        llama.llama_set_adapters_lora.argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
        made = pointer(llama.llama_adapter_lora_init(model, adapter.encode()))
        scale = ctypes.c_float(1.0)
        if llama.llama_set_adapters_lora(context, ctypes.byref(made), 1, ctypes.byref(scale)):
            sys.exit(1)
    if llama.llama_decode(context, rows):
        sys.exit(1)
    columns = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    found = np.ctypeslib.as_array(llama.llama_get_logits(context), (len(tokens), columns))
    if states is not None:
        own = np.ctypeslib.as_array(get_states(context), states.shape)
        found = np.concatenate([found, own], 1)
    np.save(answer, found)


if __name__ == "__main__":
    _run(*sys.argv[1:], json.load(sys.stdin))
