"""The models that people run with editors, by the names that Ollama has for them. Data only.

All sizes are estimates, made to tell what fits: those of the text model in Q4_K_M (of gpt-oss in
MXFP4), without the parts of some downloads that see or hear.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model by name, and what decides whether it fits and how fast it is."""

    name: str  # Ollama's; a hub id where Ollama's library lacks it
    parameters: float  # in billions
    active: float  # of them, for one token; fewer than all in a mixture of experts
    size: int  # bytes of its GGUF file
    licence: str
    kind: str  # dense, experts, windows (attention over part of the context), hybrid (recurrent)
    hub: str  # a repository with its GGUF files; "" where none is known


def _dense(name: str, parameters: float, gb: float, licence: str, hub: str = "") -> KnownModel:
    return _model(name, parameters, parameters, gb, licence, "dense", hub)


def _model(
    name: str,
    parameters: float,
    active: float,
    gb: float,
    licence: str,
    kind: str,
    hub: str = "",
) -> KnownModel:
    return KnownModel(name, parameters, active, int(gb * 1e9), licence, kind, hub)


APACHE, MIT = "Apache-2.0", "MIT"
LLAMA, GEMMA, QWEN = "Llama", "Gemma", "Qwen research"

KNOWN_MODELS = {
    model.name: model
    for model in (
        _dense("llama3.2:1b", 1.2, 0.81, LLAMA, "unsloth/Llama-3.2-1B-Instruct-GGUF"),
        _dense("llama3.2:3b", 3.2, 2.0, LLAMA, "unsloth/Llama-3.2-3B-Instruct-GGUF"),
        _dense("llama3.1:8b", 8.0, 4.9, LLAMA, "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
        _dense("llama3.3:70b", 70.6, 42.5, LLAMA, "unsloth/Llama-3.3-70B-Instruct-GGUF"),
        _dense("qwen2.5-coder:0.5b", 0.5, 0.40, APACHE, "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"),
        _dense("qwen2.5-coder:1.5b", 1.5, 0.99, APACHE, "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"),
        _dense("qwen2.5-coder:3b", 3.1, 1.9, QWEN, "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF"),
        _dense("qwen2.5-coder:7b", 7.6, 4.7, APACHE, "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF"),
        _dense("qwen2.5-coder:14b", 14.8, 9.0, APACHE, "Qwen/Qwen2.5-Coder-14B-Instruct-GGUF"),
        _dense("qwen2.5-coder:32b", 32.8, 19.9, APACHE, "Qwen/Qwen2.5-Coder-32B-Instruct-GGUF"),
        _dense("qwen3:0.6b", 0.75, 0.52, APACHE, "unsloth/Qwen3-0.6B-GGUF"),
        _dense("qwen3:1.7b", 2.0, 1.4, APACHE, "unsloth/Qwen3-1.7B-GGUF"),
        _dense("qwen3:4b", 4.0, 2.5, APACHE, "unsloth/Qwen3-4B-GGUF"),
        _dense("qwen3:8b", 8.2, 5.2, APACHE, "Qwen/Qwen3-8B-GGUF"),
        _dense("qwen3:14b", 14.8, 9.3, APACHE, "Qwen/Qwen3-14B-GGUF"),
        _dense("qwen3:32b", 32.8, 20.0, APACHE, "Qwen/Qwen3-32B-GGUF"),
        _model("qwen3:30b", 30.5, 3.3, 18.6, APACHE, "experts", "Qwen/Qwen3-30B-A3B-GGUF"),
        _model("qwen3-coder:30b", 30.5, 3.3, 18.6, APACHE, "experts",
               "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF"),
        _model("qwen3-next:80b", 80.0, 3.0, 48.5, APACHE, "hybrid, experts",
               "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF"),
        _model("qwen3-coder-next", 80.0, 3.0, 48.5, APACHE, "hybrid, experts",
               "unsloth/Qwen3-Coder-Next-GGUF"),
        _model("qwen3.5:0.8b", 0.8, 0.8, 0.53, APACHE, "hybrid", "unsloth/Qwen3.5-0.8B-GGUF"),
        _model("qwen3.5:2b", 2.0, 2.0, 1.3, APACHE, "hybrid", "unsloth/Qwen3.5-2B-GGUF"),
        _model("qwen3.5:4b", 4.2, 4.2, 2.7, APACHE, "hybrid", "unsloth/Qwen3.5-4B-GGUF"),
        _model("qwen3.5:9b", 9.0, 9.0, 5.7, APACHE, "hybrid", "unsloth/Qwen3.5-9B-GGUF"),
        _model("qwen3.5:27b", 27.0, 27.0, 16.7, APACHE, "hybrid", "unsloth/Qwen3.5-27B-GGUF"),
        _model("qwen3.5:35b", 35.0, 3.0, 22.0, APACHE, "hybrid, experts",
               "unsloth/Qwen3.5-35B-A3B-GGUF"),
        _model("qwen3.6:27b", 27.0, 27.0, 16.8, APACHE, "hybrid"),
        _model("qwen3.6:35b", 35.0, 3.0, 22.0, APACHE, "hybrid, experts"),
        _dense("ggml-org/SmolLM3-3B-GGUF", 3.1, 1.9, APACHE),
        _dense("granite3.3:2b", 2.5, 1.5, APACHE, "ibm-granite/granite-3.3-2b-instruct-GGUF"),
        _dense("granite3.3:8b", 8.2, 4.9, APACHE, "ibm-granite/granite-3.3-8b-instruct-GGUF"),
        _dense("granite4.1:3b", 3.4, 2.1, APACHE),
        _dense("granite4.1:8b", 8.0, 4.9, APACHE),
        _dense("granite4.1:30b", 30.0, 18.2, APACHE),
        _dense("ministral-3:3b", 3.4, 2.1, APACHE, "unsloth/Ministral-3-3B-Instruct-2512-GGUF"),
        _dense("ministral-3:8b", 8.5, 5.2, APACHE, "unsloth/Ministral-3-8B-Instruct-2512-GGUF"),
        _dense("ministral-3:14b", 13.5, 8.2, APACHE, "unsloth/Ministral-3-14B-Instruct-2512-GGUF"),
        _dense("devstral-small-2:24b", 23.6, 14.3, APACHE,
               "unsloth/Devstral-Small-2-24B-Instruct-2512-GGUF"),
        _dense("phi3.5:3.8b", 3.8, 2.4, MIT, "bartowski/Phi-3.5-mini-instruct-GGUF"),
        _dense("phi4-mini:3.8b", 3.8, 2.5, MIT, "unsloth/Phi-4-mini-instruct-GGUF"),
        _dense("phi4:14b", 14.7, 9.1, MIT, "unsloth/phi-4-GGUF"),
        _dense("unsloth/Seed-Coder-8B-Instruct-GGUF", 8.3, 5.1, MIT),
        _model("gemma3:1b", 1.0, 1.0, 0.81, GEMMA, "windows", "ggml-org/gemma-3-1b-it-GGUF"),
        _model("gemma3:4b", 3.9, 3.9, 2.5, GEMMA, "windows", "ggml-org/gemma-3-4b-it-GGUF"),
        _model("gemma3:12b", 11.8, 11.8, 7.3, GEMMA, "windows", "ggml-org/gemma-3-12b-it-GGUF"),
        _model("gemma3:27b", 27.0, 27.0, 16.5, GEMMA, "windows", "ggml-org/gemma-3-27b-it-GGUF"),
        _model("gemma4:e2b", 5.1, 2.3, 3.1, APACHE, "windows", "unsloth/gemma-4-E2B-it-GGUF"),
        _model("gemma4:e4b", 8.0, 4.5, 5.0, APACHE, "windows", "unsloth/gemma-4-E4B-it-GGUF"),
        _model("gemma4:26b", 25.2, 3.8, 16.9, APACHE, "windows, experts",
               "unsloth/gemma-4-26B-A4B-it-GGUF"),
        _model("gemma4:31b", 30.7, 30.7, 18.3, APACHE, "windows", "unsloth/gemma-4-31B-it-GGUF"),
        _model("gpt-oss:20b", 20.9, 3.6, 12.1, APACHE, "windows, experts",
               "ggml-org/gpt-oss-20b-GGUF"),
        _model("gpt-oss:120b", 116.8, 5.1, 63.4, APACHE, "windows, experts",
               "ggml-org/gpt-oss-120b-GGUF"),
        _model("olmo-3:7b", 7.3, 7.3, 4.5, APACHE, "windows"),
        _model("olmo-3:32b", 32.2, 32.2, 19.5, APACHE, "windows"),
    )
}  # fmt: skip
