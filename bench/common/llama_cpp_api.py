"""llama.cpp's C API, as the wheel `xllamacpp` exports it from its shared object, by ctypes.

To be used in a process of its own: llama.cpp's threads spin while they wait, and a file that it
dislikes may abort the process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

TAKEN = 1  # flag of a batch's tokens whose logits are wanted


class ModelParams(ctypes.Structure):
    """llama_model_params"""

    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    )


class ContextParams(ctypes.Structure):
    """llama_context_params"""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("ctx_type", ctypes.c_int32),
        ("rope_scaling_type", ctypes.c_int32),
        ("pooling_type", ctypes.c_int32),
        ("attention_type", ctypes.c_int32),
        ("flash_attn_type", ctypes.c_int32),
        ("rope_freq_base", ctypes.c_float),
        ("rope_freq_scale", ctypes.c_float),
        ("yarn_ext_factor", ctypes.c_float),
        ("yarn_attn_factor", ctypes.c_float),
        ("yarn_beta_fast", ctypes.c_float),
        ("yarn_beta_slow", ctypes.c_float),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("unknown", ctypes.c_void_p),
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
        ("sampler", ctypes.c_void_p),
        ("n_sampler", ctypes.c_size_t),
        ("ctx_other", ctypes.c_void_p),
    )


class Batch(ctypes.Structure):
    """llama_batch"""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


# The layouts differ between releases: in ours the defaults are these, and bytes between them free.
MODEL_DEFAULTS = {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "use_extra_bufts": True}
CONTEXT_DEFAULTS = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max_per_seq": 1,
    "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1,
    "yarn_ext_factor": -1.0, "yarn_beta_slow": -1.0, "defrag_thold": -1.0, "type_k": 1, "type_v": 1,
    "offload_kqv": True, "no_perf": True, "op_offload": True, "swa_full": True,
}  # fmt: skip
PROBE, PROBE_BYTES = 0xAB, 1024


def library() -> ctypes.CDLL:
    """llama.cpp's C API, without importing the package."""
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None and spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("xllamacpp*.so")
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL | os.RTLD_LAZY)


def _defaults(function: Any, kind: type[Any], expected: dict[str, Any]) -> Any:
    """Return the parameters that `function` makes; None for another layout than `kind`'s."""
    buffer = ctypes.create_string_buffer(bytes([PROBE]) * PROBE_BYTES, PROBE_BYTES)
    function.argtypes, function.restype = [ctypes.c_void_p], None
    function(buffer)  # a large struct is returned where a hidden first argument points to
    params = kind.from_buffer_copy(buffer)
    same = all(getattr(params, name) == value for name, value in expected.items())
    written = len(buffer.raw.rstrip(bytes([PROBE])))
    padded = -(-written // ctypes.alignment(kind)) * ctypes.alignment(kind)
    return params if same and padded == ctypes.sizeof(kind) else None


def load(path: str, context: Any) -> tuple[ctypes.CDLL, int, int] | str:
    """Load the library, its model of the file at `path` and its context.

    Returns why not, where the API is another one, and "" where llama.cpp cannot run the file (its
    log says why). `context` gets the default parameters of a context and changes them.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "how a C function returns a struct is known here for x86-64 only"
    llama = library()
    model_params = _defaults(llama.llama_model_default_params, ModelParams, MODEL_DEFAULTS)
    params = _defaults(llama.llama_context_default_params, ContextParams, CONTEXT_DEFAULTS)
    if model_params is None or params is None:
        return "this release of xllamacpp has another layout of llama.cpp's parameters"
    model_params.n_gpu_layers = 0
    context(model_params, params)
    for name, arguments, result in (
        ("llama_backend_init", [], None),
        ("llama_model_load_from_file", [ctypes.c_char_p, ModelParams], ctypes.c_void_p),
        ("llama_init_from_model", [ctypes.c_void_p, ContextParams], ctypes.c_void_p),
        ("llama_model_get_vocab", [ctypes.c_void_p], ctypes.c_void_p),
        ("llama_vocab_n_tokens", [ctypes.c_void_p], ctypes.c_int32),
        ("llama_decode", [ctypes.c_void_p, Batch], ctypes.c_int32),
        ("llama_synchronize", [ctypes.c_void_p], None),
        ("llama_get_logits", [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)),
    ):
        function = getattr(llama, name)
        function.argtypes, function.restype = arguments, result
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(path.encode(), model_params)
    made = model and llama.llama_init_from_model(model, params)
    return (llama, model, made) if made else ""


def batch(tokens: list[int], start: int = 0) -> Batch:
    """Make a batch of one sequence from position `start` on, with logits after each token."""
    count = len(tokens)
    sequence = (ctypes.c_int32 * 1)(0)
    pointers = (ctypes.POINTER(ctypes.c_int32) * count)(*[sequence] * count)
    return Batch(
        count,
        (ctypes.c_int32 * count)(*tokens),
        None,
        (ctypes.c_int32 * count)(*range(start, start + count)),
        (ctypes.c_int32 * count)(*[1] * count),
        pointers,
        (ctypes.c_int8 * count)(*[TAKEN] * count),
    )
