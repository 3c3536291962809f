"""A layer that predicts the token after the next, from a model's own hidden states.

Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2), as the published Qwen3.5 models
have it: the state behind a token and the embedding of the next one are joined, one decoder layer
follows, and the model's output layer. Its own state stands for the model's to go on from there.
"""

from __future__ import annotations

import numpy as np

from engine.model import _kernels
from engine.model.native.attention import AttentionBlock
from engine.model.native.embedding import embedding_of
from engine.model.native.forward_pass import Array, Pass, PassRows
from engine.model.native.gemma4 import Gemma4Experts
from engine.model.native.model import NativeLayer, NativeModel
from engine.model.native.product import NativeProduct
from engine.model.native.weights import NativeWeights


class MtpHead:
    """The layer's weights and its forward pass. It owns no cache."""

    def __init__(self, model: NativeModel, weights: NativeWeights) -> None:
        """Read a layer that `engine.model.families.gguf_names.mtp_layer` describes."""
        self.model, d = model, weights.description
        self.embedding = model.embedding
        if "model.embed_tokens.weight" in weights.source:
            self.embedding = embedding_of(weights, "model.embed_tokens")
        self.own_head: NativeProduct | None = None
        if "lm_head.weight" in weights.source:
            self.own_head = weights.product([("lm_head", None)], bits=8)
        self.hidden_norm = weights.vector("mtp.pre_fc_norm_hidden.weight")
        self.embedding_norm = weights.vector("mtp.pre_fc_norm_embedding.weight")
        self.joined = weights.product([("mtp.fc", None)])
        self.layer, self.norm = NativeLayer(d, 0, weights), weights.vector("model.norm.weight")
        ((self.kv_heads, self.head_dim, _),) = d.cache_groups

    def new_cache(self, capacity: int) -> Array:
        """Allocate keys and values of `capacity` rows: f32 [2, 1, kv heads, capacity, head dim]."""
        return np.empty((2, 1, self.kv_heads, capacity, self.head_dim), np.float32)

    def run(self, ids: Array, states: Array, rows: PassRows, cache: Array) -> Array:
        """Compute the states f32 [rows, width] that tell the tokens behind `ids`, int64 [rows].

        `states`: f32 [rows, width], of the model or of this layer, behind the token before each.
        Keys and values are written to rows `rows.base ...` of `cache`.
        """
        model, layer, mixer = self.model, self.layer, self.layer.mixer
        assert isinstance(mixer, AttentionBlock) and not isinstance(layer.mlp, Gemma4Experts)
        embedded, hidden = np.empty_like(states), np.empty_like(states)
        _kernels.rms_norm(self.embedding[ids], self.embedding_norm, model.eps, embedded)
        _kernels.rms_norm(states, self.hidden_norm, model.eps, hidden)
        x = self.joined(np.concatenate([embedded, hidden], 1))
        phases = {name: table.at(rows.positions) for name, table in model.phases.items()}
        now = Pass(rows, (cache,), [(0, 0)], phases, None)
        h, delta = np.empty_like(x), np.empty_like(x)
        _kernels.rms_norm(x, layer.before_mixer, model.eps, h)
        mixer.run(h, delta, now)
        _kernels.add_rms_norm(x, delta, layer.before_mlp, model.eps, h)
        layer.mlp.run(h, delta)
        _kernels.add_rms_norm(x, delta, self.norm, model.eps, h)
        return h

    def head(self, states: Array, tiles: Array | None = None) -> Array:
        """Compute logits f32 [rows, vocabulary] of states, as `NativeModel.head` does."""
        if self.own_head is None:
            return self.model.head(states, tiles)
        return self.own_head(states) if tiles is None else self.own_head.some(states, tiles)
