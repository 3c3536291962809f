"""Olmo 2, and Olmo 3 with its windows.

Norms are after each half of a layer, and over all heads of q and k together. Rows of q and k are in
transformers' order.
"""

from __future__ import annotations

from engine.model.families.family import AFTER, ATTENTION, FEED_FORWARD, POST_NORMS, Family
from engine.model.families.metadata import (
    WINDOW_FIELDS,
    Settings,
    base,
    layer_types,
    rope,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.model.model_config import FULL, SLIDING
from engine.weights.gguf.gguf_file import Gguf

NAME = "olmo2"
PERIOD = 4  # layers, of which the last has no window


def _read_metadata(file: Gguf) -> Settings:
    seen = window(file, NAME)
    settings = sizes(file, NAME, "olmo3" if seen else "olmo2")
    whole_heads_rotate(file, NAME, settings["head_dim"])
    # The converter writes the model's own factor of attention, which is all of YaRN's. llama.cpp
    # multiplies it by the one that follows from the scale, and its logits are not the model's.
    full = rope(
        file, NAME, settings["head_dim"], settings["max_position_embeddings"], factor_is_yarns=True
    )
    if not seen:
        return settings | {"rope_parameters": full}
    local = base(file, f"{NAME}.rope.freq_base_swa", full["rope_theta"])
    return settings | {
        "sliding_window": seen,
        "layer_types": layer_types(file, NAME, settings["num_hidden_layers"], PERIOD),
        "rope_parameters": {
            FULL: full,
            SLIDING: {"rope_type": "default", "rope_theta": local},  # windows are never scaled
        },
    }


def _family(model_type: str, types: tuple[str, ...] = ()) -> Family:
    return Family(
        model_type,
        NAME,
        _read_metadata,
        ATTENTION | FEED_FORWARD | POST_NORMS,
        WINDOW_FIELDS | {"rope.freq_base_swa"},
        norms=AFTER,
        qk_norm="all",
        layer_types=types,
    )


FAMILIES = (_family("olmo2"), _family("olmo3", (FULL, SLIDING)))
