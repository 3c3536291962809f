"""The forward pass of any causal language model of transformers with full attention.

transformers' own module runs with our row-invariant linear layers and attention and our KV cache.
Models that cannot be rolled back by dropping cache rows (sliding windows, recurrent layers), or
whose attention cannot be replaced, are refused with a reason.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.model.ops import Product, Quantized, Rows, attend, product
from engine.weights.errors import one_line, shown
from engine.weights.integrity import TensorInfo
from engine.weights.resolve import gguf_of

log = logging.getLogger(__name__)

UNSUPPORTED_KEYS = {  # config keys that change attention or logits in ways not supported here
    "final_logit_softcapping": "it caps logits",
    "attn_logit_softcapping": "it caps attention scores",
    "logit_scale": "it rescales logits",
    "logits_scaling": "it rescales logits",
    "alibi": "its attention is biased by distance",
}
RECURRENT_KEYS = ("hybrid_override_pattern", "mamba_d_conv", "ssm_cfg", "conv_L_cache")
DEFAULT_WINDOWS = {"mistral": 4096}  # where config.json does not speak of one
COMPOSITES = ("mistral3",)  # model types whose text part runs here

MAX_BUFFER_VALUES = 1 << 26  # that a model has beside its weights: masks, rotations


class UnsupportedModel(ValueError):
    """A model that cannot be decoded speculatively; one line with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class PackedLinear(nn.Module):
    """A `Product` as a torch module; leading dimensions are folded into rows."""

    def __init__(self, run: Product, weight: Tensor) -> None:
        super().__init__()
        self.run, self.out_features = run, weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], self.out_features)


class _CacheLayer:
    """One layer of our cache in transformers' interface: `update` writes into the given buffers and
    returns views of what they hold so far."""

    is_compileable = False
    is_sliding = False
    is_initialized = True

    def __init__(self, keys: Tensor, values: Tensor, base: int) -> None:
        self.keys, self.values, self.base = keys, values, base

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        stop = self.base + keys.shape[-2]
        self.keys[:, self.base : stop] = keys[0]
        self.values[:, self.base : stop] = values[0]
        return self.keys[None, :, :stop], self.values[None, :, :stop]

    def get_seq_length(self, *_: Any) -> int:
        return self.base

    def get_mask_sizes(self, query_length: Any, *_: Any) -> tuple[int, int]:
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.base + count, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length


class Generic:
    """A transformers model with the interface of `engine.model.llama.Llama`."""

    stops_early = False
    checked_layers = 1  # it runs all of them

    def __init__(
        self,
        folder: Path,
        tensors: dict[str, TensorInfo],
        device: torch.device,
        dtype: torch.dtype,
        bits: int | None,
    ) -> None:
        """`tensors`: those of the folder's safetensors files."""
        self.name = f"draftline-{id(self)}"
        self._register()
        self.device, self.dtype, self.bits = device, dtype, bits
        try:
            self._load(folder, sum(math.prod(one.shape) for one in tensors.values()))
        except (UnsupportedModel, torch.OutOfMemoryError):
            raise
        except Exception as error:  # transformers has no common error for a bad folder
            raise UnsupportedModel(
                f"{folder}: transformers cannot load it ({type(error).__name__}: {error}): choose "
                "another model, or fetch this one again"
            ) from error
        self.rows: Rows | None = None
        self.buffers: tuple[Tensor, Tensor] | None = None
        if device.type == "cpu":
            self._pack(self.model)
        self._head = self.model.get_output_embeddings()

    def _load(self, folder: Path, stored: int) -> None:
        """The model, and its sizes by its config."""
        model = _loaded(folder, stored, self.dtype)
        model.set_attn_implementation(self.name)
        self.model = model.to(self.device).eval().requires_grad_(False)
        config = model.config
        self.cache_dtype = torch.float32 if self.device.type == "cpu" else self.dtype
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = getattr(config, "num_key_value_heads", None) or self.heads
        self.width: int = config.hidden_size
        self.head_dim: int = getattr(config, "head_dim", None) or self.width // self.heads
        self.cache_shapes = [(self.device, self.layers, self.kv_heads, self.head_dim)]
        self.vocab: int = config.vocab_size
        self.max_positions = _steady_positions(folder, config)

    def _register(self) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        AttentionInterface.register(self.name, self._attend)
        AttentionMaskInterface.register(self.name, sdpa_mask)

    def _pack(self, root: nn.Module) -> None:
        from transformers.pytorch_utils import Conv1D

        for module in list(root.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear):
                    weight = child.weight.data
                elif isinstance(child, Conv1D):
                    weight = child.weight.data.t().contiguous()
                else:
                    continue
                bias = None if child.bias is None else child.bias.data
                made = Quantized([weight], bias, self.bits) if self.bits else product(weight, bias)
                setattr(module, name, PackedLinear(made, weight))

    def _attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        assert self.rows is not None
        assert self.buffers is not None
        layer: Any = module.layer_idx
        scale = scaling if scaling is not None else self.head_dim**-0.5
        q = query[0].transpose(0, 1).float()
        mixed = attend(q, self.buffers[0][layer], self.buffers[1][layer], self.rows, scale)
        return mixed.view(1, q.shape[0], q.shape[1], q.shape[2]).to(query.dtype), None

    def run(
        self, ids: Tensor, rows: Rows, cache: tuple[Tensor, ...], layers: int | None = None
    ) -> Tensor:
        """As `Llama.run`; all layers run whatever `layers` says."""
        from transformers.cache_utils import Cache

        keys, values = cache[0]
        self.rows, self.buffers = rows, (keys, values)
        theirs: Any = Cache(
            layers=[_CacheLayer(keys[n], values[n], rows.base) for n in range(self.layers)]
        )
        try:
            out = self.model.base_model(
                input_ids=ids[None],
                position_ids=rows.positions[None],
                attention_mask=rows.mask(self.device)[None, None],
                past_key_values=theirs,
                use_cache=True,
            )
        finally:
            self.rows = self.buffers = None
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        logits: Tensor = self._head(hidden)
        return logits.float()


def _steady_positions(folder: Path, config: Any) -> int:
    """Tokens of context in which a token's rotation stays the same. LongRoPE's is another one for
    every token as soon as a pass has one beyond the trained length, so that a longer draft would
    change the answer."""
    positions: int = config.max_position_embeddings
    rope = getattr(config, "rope_parameters", None) or {}
    trained = rope.get("original_max_position_embeddings") or positions
    if rope.get("rope_type") != "longrope" or trained >= positions:
        return positions
    log.warning(
        "%s: its rotary embedding changes beyond %d tokens: longer prompts are refused",
        folder.name, trained,
    )  # fmt: skip
    return int(trained)


def _loaded(folder: Path, stored: int, dtype: torch.dtype) -> Any:
    """transformers' model of a folder whose files hold `stored` weights. UnsupportedModel where its
    config.json describes a larger one, which would be filled with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if (folder / "adapter_config.json").exists():
        raise UnsupportedModel(f"{folder}: an adapter, not a model: merge it into its base model")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    if not getattr(empty, "_supports_attention_backend", False):
        raise UnsupportedModel(
            f"{config.model_type}: its attention cannot be replaced; choose a Llama, Qwen2, "
            "GPT-2 or Phi model"
        )
    described = sum(one.numel() for one in [*empty.parameters(), *empty.buffers()])
    if described > 2 * stored + MAX_BUFFER_VALUES:
        raise UnsupportedModel(
            f"{folder / 'config.json'}: it describes {described} weights and the files have "
            f"{stored}: fetch this model again"
        )
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, trust_remote_code=False, local_files_only=True, use_safetensors=True,
        output_loading_info=True,
    )  # fmt: skip
    if info["missing_keys"]:
        raise UnsupportedModel(
            f"{folder}: no safetensors file has its tensor {shown(min(info['missing_keys']))}: "
            "fetch this model again"
        )
    return model


def with_defaults(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """A checked config.json's settings with all fields of its model type, as transformers fills
    them in. UnsupportedModel where it cannot."""
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    except Exception as error:  # its checks have no class in common
        raise UnsupportedModel(
            f"{folder / 'config.json'}: {error}: copy or fetch this model again"
        ) from error
    filled: dict[str, Any] = settings | config.to_dict()
    return filled


def has_window(settings: dict[str, Any]) -> bool:
    """Whether some layers see fewer tokens than the model's context."""
    window = settings.get("sliding_window", DEFAULT_WINDOWS.get(settings.get("model_type", "")))
    if settings.get("use_sliding_window") is False:
        return False
    positions: float = settings.get("max_position_embeddings") or math.inf
    return window is not None and 0 < window < positions


def transformers_model(folder: Path, **options: Any) -> Any:
    """transformers' own model of a folder, of one without weights from its GGUF file. `options`: as
    `from_pretrained` takes them."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options |= {"trust_remote_code": False, "local_files_only": True}
    path = gguf_of(folder)
    if path is None:
        return AutoModelForCausalLM.from_pretrained(folder, **options)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, **options
    )


def refuse(settings: dict[str, Any], ours: bool = False) -> None:
    """UnsupportedModel where a model, by its checked config.json, cannot be decoded speculatively
    without changing its answers. `ours`: our own forward pass runs it."""
    composite = settings.get("composite")
    kind = composite or settings.get("model_type", "model")
    if settings.get("is_encoder_decoder"):
        raise UnsupportedModel(f"{kind}: encoder-decoder models are not supported; use a decoder")
    types = settings.get("layer_types") or settings.get("layers_block_type") or ["full_attention"]
    recurrent = any(settings.get(key) for key in RECURRENT_KEYS)
    if set(types) != {"full_attention"} or has_window(settings) or recurrent:
        raise UnsupportedModel(
            f"{kind}: layers with a sliding window or recurrent state cannot be rolled back; "
            "choose a model with full attention"
        )
    if settings.get("kv_lora_rank"):
        raise UnsupportedModel(
            f"{kind}: its attention caches compressed keys and values (MLA), which is not "
            "supported; choose a model with full attention"
        )
    if composite in COMPOSITES and not ours:
        raise UnsupportedModel(
            f"{kind}: its text part cannot run with this quantization_config, hidden_act or "
            "rope_parameters; choose its bf16 version, or a GGUF file"
        )
    if composite and composite not in COMPOSITES:
        raise UnsupportedModel(
            f"{kind}: a composite model, of which only the text part of {', '.join(COMPOSITES)} "
            "runs here; choose a text-only model"
        )
    for key, why in UNSUPPORTED_KEYS.items():
        granite = ours and settings["model_type"] == "granite" and key == "logits_scaling"
        if settings.get(key) not in (None, False, 1, 1.0) and not granite:
            raise UnsupportedModel(f"{kind}: {why} ({key}), which is not supported; choose another")
