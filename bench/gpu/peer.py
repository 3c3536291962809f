"""Plain decoding in gpt-fast's style, as a peer: compiled layers, a static cache, one CUDA graph.

One token a pass of a model of Llama's family with random weights. All layers are alike, so one is
compiled and called for each; the attention reads the whole static cache, as gpt-fast's does.
Nothing is compiled or captured on a CPU, where this only shows that the pass is right.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.gpu.steps import synchronize
from engine.model.torch.random_weights import RandomWeights

CONTEXT, BEHIND = 2048, 256  # tokens in the cache, and capacity behind them
RUNS, TOKENS = 5, 100  # runs; tokens of a run
WARM_UP_STEPS = 3


class Peer:
    """A model whose step reads and writes static buffers only."""

    def __init__(
        self,
        settings: dict[str, Any],
        device: torch.device,
        rows: int,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        """Make the model with random weights. `rows`: the rows of the static cache."""
        self.settings, self.device, self.rows, self.dtype = settings, device, rows, dtype
        weights = RandomWeights(settings, device, dtype)
        self.heads, self.kv = settings["num_attention_heads"], settings["num_key_value_heads"]
        self.d, self.eps = settings["hidden_size"] // self.heads, settings["rms_norm_eps"]
        half = torch.arange(0, self.d, 2, device=device, dtype=torch.float32) / self.d
        powers = settings["rope_parameters"]["rope_theta"] ** -half
        angles = torch.outer(torch.arange(rows, device=device).float(), powers).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        self.mask = torch.ones(rows, rows, device=device, dtype=torch.bool).tril()
        self.embedding = weights["model.embed_tokens.weight"]
        head = weights.get("lm_head.weight")
        self.head = self.embedding if head is None else head
        self.norm = weights["model.norm.weight"]
        self.layers = [self._layer_of(weights, n) for n in range(settings["num_hidden_layers"])]
        self.token = torch.zeros(1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.layer: Any = self._layer
        self.choice: Any = self._choice
        if device.type == "cuda":
            self.layer = torch.compile(self._layer, fullgraph=True, dynamic=False)
            self.choice = torch.compile(self._choice, fullgraph=True, dynamic=False)

    def _layer_of(self, weights: RandomWeights, n: int) -> tuple[Tensor, ...]:
        """Return the tensors of a layer and its cache, as `_layer` takes them."""
        at = f"model.layers.{n}."
        names = [f"{at}self_attn.{part}_proj" for part in "qkv"]
        qkv = torch.cat([weights[f"{name}.weight"] for name in names])
        bias = torch.zeros_like(qkv[:, 0])
        if f"{names[0]}.bias" in weights:
            bias = torch.cat([weights[f"{name}.bias"] for name in names])
        cache = torch.zeros(2, 1, self.kv, self.rows, self.d, device=self.device, dtype=self.dtype)
        return (
            weights[f"{at}input_layernorm.weight"], qkv, bias,
            weights[f"{at}self_attn.o_proj.weight"],
            weights[f"{at}post_attention_layernorm.weight"],
            torch.cat([weights[f"{at}mlp.{part}_proj.weight"] for part in ("gate", "up")]),
            weights[f"{at}mlp.down_proj.weight"], cache[0], cache[1],
        )  # fmt: skip

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return scaled.to(x.dtype) * weight

    @staticmethod
    def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return x * cos + torch.cat([-other, one], -1) * sin

    def _layer(
        self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, mask: Tensor,
        norm_in: Tensor, qkv: Tensor, bias: Tensor, out: Tensor, norm_mlp: Tensor,
        gate_up: Tensor, down: Tensor, keys: Tensor, values: Tensor,
    ) -> Tensor:  # fmt: skip
        rows = self.heads * self.d, self.kv * self.d, self.kv * self.d
        q, k, v = F.linear(self._normed(x, norm_in), qkv, bias).split(rows, -1)
        q = self._rotated(q.view(1, self.heads, 1, self.d), cos, sin)
        k = self._rotated(k.view(1, self.kv, 1, self.d), cos, sin)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v.view(1, self.kv, 1, self.d))
        group = self.heads // self.kv
        mixed = F.scaled_dot_product_attention(
            q, keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1), mask
        )
        x = x + F.linear(mixed.view(1, -1), out)
        gate, up = F.linear(self._normed(x, norm_mlp), gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, down)

    def _choice(self, x: Tensor, norm: Tensor, head: Tensor) -> Tensor:
        return F.linear(self._normed(x, norm), head).argmax(-1)

    def step(self) -> None:
        """Put the token behind `token` in its place and move on."""
        x = self.embedding[self.token]
        cos, sin = self.cos[self.position], self.sin[self.position]
        mask = self.mask[self.position][None, None]
        for layer in self.layers:
            x = self.layer(x, self.position, cos, sin, mask, *layer)
        self.token.copy_(self.choice(x, self.norm, self.head))
        self.position.add_(1)

    def captured(self) -> Any:
        """Return a function that runs a step: a graph's replay on a card."""
        if self.device.type != "cuda":
            return self.step
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self.step()
        return graph.replay


@torch.inference_mode()
def measure(settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Milliseconds a token, each of which is fetched as by a caller that streams text."""
    start = perf_counter()
    rows = min(CONTEXT + BEHIND, settings["max_position_embeddings"])
    peer = Peer(settings, device, rows)
    run = peer.captured()
    synchronize(device)
    prepared = perf_counter() - start
    times = []
    for _ in range(RUNS):
        peer.position.fill_(rows - BEHIND)
        synchronize(device)
        begin = perf_counter()
        for _ in range(TOKENS):
            run()
            peer.token.item()
        times.append((perf_counter() - begin) / TOKENS)
    seconds = median(times)
    return {"context": rows - BEHIND, "prepare_s": round(prepared, 1),
            "ms": round(1000 * seconds, 4), "tokens_per_s": round(1 / seconds, 1)}  # fmt: skip
