"""OpenVINO GenAI, which converts the GGUF file as it loads it; with "lookup", prompt lookup too."""

from __future__ import annotations

from typing import Any

from bench.decode.peers.child import Answer, serve

LOOKUP_TOKENS, NGRAM_TOKENS = 10, 3  # tokens of a draft, and of a match


def load(gguf: str, threads: str, context: str, *options: str) -> Answer:
    """Load a GGUF file. `context` is not asked for: it grows."""
    import numpy as np
    import openvino
    import openvino_genai as genai

    lookup = "lookup" in options
    pipe = genai.LLMPipeline(
        gguf,
        "CPU",
        {"INFERENCE_NUM_THREADS": int(threads)} | ({"prompt_lookup": True} if lookup else {}),
    )
    tokenizer = pipe.get_tokenizer()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        config = genai.GenerationConfig()
        config.max_new_tokens = request["limit"]
        config.do_sample = False
        config.stop_strings = set(request["stop"])
        config.eos_token_id = tokenizer.get_eos_token_id()
        config.stop_token_ids = {config.eos_token_id}
        if lookup:
            config.num_assistant_tokens = LOOKUP_TOKENS
            config.max_ngram_size = NGRAM_TOKENS
        ids = np.array([request["prompt"]], np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        found = pipe.generate(inputs, config)
        (written,) = found.tokens
        times = found.perf_metrics
        first = times.get_ttft().mean / 1000
        durations = times.raw_metrics.m_durations
        return {
            "text": tokenizer.decode(written),
            "tokens": max(len(written) - 1, 0),
            "forwards": max(len(durations), 1),
            "seconds": times.get_generate_duration().mean / 1000 - first,
            "read": len(request["prompt"]),
            "read_seconds": first,
        }

    return answer


if __name__ == "__main__":
    serve(load)
