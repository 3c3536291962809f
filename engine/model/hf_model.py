"""The forward pass of any causal language model of transformers with full attention.

transformers' own module runs with our row-invariant linear layers and attention and our KV cache.
What cannot run is refused with a reason: by its config.json, by its class before weights are read,
or by a few tokens whose logits are not those of transformers' own pass.
"""

from __future__ import annotations

import contextlib
import logging
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.model.ops import Product, Quantized, Rows, attend, product
from engine.model.row_by_row import RowByRow
from engine.weights.errors import one_line, shown
from engine.weights.integrity import TensorInfo, read_object
from engine.weights.model_config import text_part
from engine.weights.resolve import gguf_of

log = logging.getLogger(__name__)

# What runs here, for errors.
CHOOSE = "choose a model of another family (Llama, Qwen, Granite, Ministral, Phi, Gemma 3, gpt-oss)"
UNSUPPORTED_KEYS = {  # config keys that change attention or logits in ways not supported here
    "final_logit_softcapping": "it caps logits",
    "attn_logit_softcapping": "it caps attention scores",
    "logit_scale": "it rescales logits",
    "logits_scaling": "it rescales logits",
    "alibi": "its attention is biased by distance",
    "keep_window_size": "its attention drops keys",
}
READ_BY = {  # model types whose own forward pass here reads such a key
    "final_logit_softcapping": ("gemma3_text", "gemma4_text"),
    "attn_logit_softcapping": ("gemma3_text",),
    "logits_scaling": ("granite",),
}
RECURRENT_KEYS = (
    "hybrid_override_pattern", "mamba_d_conv", "ssm_cfg", "conv_L_cache", "state_size",
)  # fmt: skip
WINDOW_LAYERS = ("sliding_attention", "chunked_attention", "local", "hybrid_sliding")
MASKED = "a masked language model, which does not continue a text"
RECURRENT = "its layers with recurrent state cannot be rolled back"
STATE_LAYERS = ("linear_attention", "conv", "mamba", "recurrent", "hybrid")
FULL_LAYERS = ("full_attention", "attention", "global")
# Parts of a config.json that only models of more than text have.
OTHER_INPUTS = {
    "vision_config": "images", "vq_config": "images", "img_processor": "images",
    "audio_config": "audio", "audio_encoder": "audio", "audio_encoder_config": "audio",
    "audio_processor": "audio",
}  # fmt: skip
DEFAULT_WINDOWS = {"mistral": 4096}  # where config.json does not speak of one
# Model types whose text part runs here.
COMPOSITES = ("mistral3", "gemma3", "gemma4", "qwen3_5", "qwen3_5_moe")
# Model types that read `sliding_window` of their config.json; others ignore it.
WINDOWED = ("mistral", "ministral3", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3", "olmo3")
OPTIONAL_WINDOWS = ("qwen2", "qwen3", "qwen3_moe", "smollm3")  # if use_sliding_window says so

MAX_BUFFER_VALUES = 1 << 26  # that a model has beside its weights: masks, rotations
CACHED_TOKENS, CHECKED_TOKENS = 5, 6  # of the check at load
# The most by which logits may differ from those of transformers, in norms: in f32, and in fewer
# bits, where one rounding may send a token to another expert.
F32_ERROR, ROUNDED_ERROR = 1e-3, 0.15
MAX_SAID_CHARS = 200  # of an error of transformers
PLAIN_ARGUMENTS = ("dropout", "is_causal", "position_ids", "use_cache")


class UnsupportedModel(ValueError):
    """A model that cannot be decoded speculatively; one line with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class PackedLinear(nn.Module):
    """A `Product` as a torch module; leading dimensions are folded into rows."""

    def __init__(self, run: Product, weight: Tensor) -> None:
        super().__init__()
        self.run, self.out_features = run, weight.shape[0]
        self.weight = torch.empty_like(weight, device="meta")  # for its shape and type

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], self.out_features)


class _CacheLayer:
    """One layer of our cache in transformers' interface: `update` writes into the given buffers and
    returns views of what they hold so far."""

    is_compileable = False
    is_croppable = False
    supports_early_init = False
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
        self.rows: Rows | None = None
        self.buffers: tuple[Tensor, Tensor] | None = None
        self.products: RowByRow | None = None
        try:
            self._load(folder, sum(math.prod(one.shape) for one in tensors.values()))
            if device.type == "cpu":
                self._pack(self.model)
        except (UnsupportedModel, torch.OutOfMemoryError):
            raise
        except Exception as error:  # transformers has no common error for a bad folder
            raise UnsupportedModel(
                f"{folder}: transformers cannot load it ({_said(error)}): choose another model, or "
                "fetch this one again"
            ) from error
        self._head = self.model.get_output_embeddings()
        try:
            self._check()
        except (UnsupportedModel, torch.OutOfMemoryError):
            raise
        except Exception as error:  # any, of a forward pass of transformers
            raise UnsupportedModel(
                f"{self.kind}: its forward pass does not run here ({_said(error)}): {CHOOSE}"
            ) from error

    def _load(self, folder: Path, stored: int) -> None:
        """The model, and its sizes by its config."""
        model = _loaded(folder, stored, self.dtype)
        self.model = model.to(self.device).eval().requires_grad_(False)
        config = model.config
        self.kind = str(config.model_type)
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
        from transformers.cache_utils import CacheLayerMixin
        from transformers.masking_utils import sdpa_mask

        CacheLayerMixin.register(_CacheLayer)

        AttentionInterface.register(self.name, self._attend)
        AttentionMaskInterface.register(self.name, sdpa_mask)

    def _pack(self, root: nn.Module) -> None:
        from transformers.pytorch_utils import Conv1D

        for module in list(root.modules()):
            for name, child in list(module.named_children()):
                if type(child) is nn.Linear:  # a subclass may do more
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
        **more: Any,
    ) -> tuple[Tensor, None]:
        for name, value in more.items():
            if name == "sliding_window" and value and value >= self.max_positions:
                continue
            if name not in PLAIN_ARGUMENTS and value not in (None, False):
                raise UnsupportedModel(
                    f"{self.kind}: its attention has {name}, which is not supported: {CHOOSE}"
                )
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
            with self.products or contextlib.nullcontext():
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

    def _check(self) -> None:
        """UnsupportedModel where a pass here gives other logits than transformers' own without a
        cache, or has sums that depend on the number of its rows."""
        count = max(2, min(CACHED_TOKENS + CHECKED_TOKENS, self.max_positions))
        ids = (torch.arange(1, count + 1) * 7919 % self.vocab).to(self.device)
        self.model.set_attn_implementation("eager")
        expected = self.model(input_ids=ids[None], use_cache=False).logits[0].float()
        self.model.set_attn_implementation(self.name)
        self.products = products = RowByRow() if self.device.type == "cpu" else None
        error = (self._logits(ids) - expected).norm(dim=-1) / expected.norm(dim=-1)
        rounded = self.dtype != torch.float32 or self.bits is not None
        worst = float(error.median() if rounded else error.max())
        if not worst <= (ROUNDED_ERROR if rounded else F32_ERROR):
            raise UnsupportedModel(
                f"{self.kind}: its logits differ from those of transformers by {worst:.2%}: it "
                f"does something that this runtime does not: {CHOOSE}"
            )
        if products is not None and products.others:
            raise UnsupportedModel(
                f"{self.kind}: its layers sum in an order that depends on the number of tokens "
                f"({', '.join(sorted(products.others))}): {CHOOSE}"
            )
        if products is not None and not products.calls:
            self.products = None

    def _logits(self, ids: Tensor) -> Tensor:
        """Logits of all tokens in two passes: the first ones, then the others, each with a wrong
        token beside it as in a draft."""
        size = (2, self.layers, self.kv_heads, 2 * len(ids), self.head_dim)
        cache = (torch.zeros(size, dtype=self.cache_dtype, device=self.device),)
        first = min(CACHED_TOKENS, len(ids) - 1)
        chain = Rows.of(0, [-1, *range(first - 1)], self.device)
        states = [self.run(ids[:first], chain, cache)]
        both = torch.stack([ids[first:], ids[first:].flip(0)], 1).flatten()
        parents = [one for n in range(len(both) // 2) for one in (2 * n - 2, 2 * n - 2)]
        rows = Rows.of(first, [max(one, -1) for one in parents], self.device)
        states.append(self.run(both, rows, cache)[::2])
        return torch.cat([self.head(one) for one in states])


def _said(error: Exception) -> str:
    """What an error says, in short."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_SAID_CHARS]}"


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
    file = folder / "config.json"
    kind = str(read_object(file).get("model_type"))
    if (other := other_than_causal(kind)) is not None:
        raise UnsupportedModel(f"{file}: {shown(kind)} is {other}; {CHOOSE}")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    refuse(text_part(config.to_dict()))
    if is_encoder(config):
        raise UnsupportedModel(f"{kind}: {MASKED}: {CHOOSE}")
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    if getattr(empty, "_is_stateful", False):
        raise UnsupportedModel(f"{config.model_type}: {RECURRENT}; {CHOOSE}")
    if not getattr(empty, "_supports_attention_backend", False):
        raise UnsupportedModel(f"{config.model_type}: its attention cannot be replaced; {CHOOSE}")
    described = sum(one.numel() for one in [*empty.parameters(), *empty.buffers()])
    if described > 2 * stored + MAX_BUFFER_VALUES:
        raise UnsupportedModel(
            f"{folder / 'config.json'}: it describes {described} weights and the files have "
            f"{stored}: fetch this model again"
        )
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, trust_remote_code=False, local_files_only=True, use_safetensors=True,
        output_loading_info=True, experts_implementation="eager",
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
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    usual = get_verbosity()
    set_verbosity_error()  # it warns of fields that do not matter here, beside our own one line
    try:
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    except Exception as error:  # its checks have no class in common
        raise UnsupportedModel(
            f"{folder / 'config.json'}: {_said(error)}: copy or fetch this model again"
        ) from error
    finally:
        set_verbosity(usual)
    filled: dict[str, Any] = settings | config.to_dict()
    return filled


def has_window(settings: dict[str, Any]) -> bool:
    """Whether some layers see fewer tokens than the model's context."""
    kind, types = settings.get("model_type", ""), settings.get("layer_types")
    window = settings.get("sliding_window", DEFAULT_WINDOWS.get(kind))
    if kind not in WINDOWED or (
        kind in OPTIONAL_WINDOWS and not settings.get("use_sliding_window")
    ):
        return False
    if isinstance(types, list) and "sliding_attention" not in types:
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


def other_than_causal(kind: str) -> str | None:
    """What a model type is, if transformers has no causal language model of it."""
    from transformers.models.auto import modeling_auto as auto

    if kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return None
    for names, what in (
        (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, "an encoder-decoder model"),
        (auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, "a model of audio"),
        (auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES, "a model of audio"),
        (auto.MODEL_FOR_CTC_MAPPING_NAMES, "a model of audio"),
        (auto.MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES, "a model of audio"),
        (auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "a model of images and text"),
        (auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, "a model of more than text"),
        (auto.MODEL_FOR_IMAGE_MAPPING_NAMES, "a model of images"),
        (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, MASKED),
    ):
        if kind in names:
            return what
    if kind in auto.MODEL_MAPPING_NAMES:
        return "not a language model that continues text"
    return "unknown to this version of transformers; code in a model's folder is never run"


def is_encoder(config: Any) -> bool:
    """Whether a transformers config is of a masked language model whose rows see what follows."""
    from transformers.models.auto import modeling_auto as auto

    masked = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return masked and getattr(config, "is_decoder", None) is False


def refuse(settings: dict[str, Any], ours: bool = False) -> None:
    """UnsupportedModel where a model, by its checked config.json, cannot be decoded speculatively
    without changing its answers. `ours`: our own forward pass runs it."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    refuse_inputs(settings)
    if why := _attention(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    if settings.get("composite") and not ours:
        raise UnsupportedModel(
            f"{kind}: its text part cannot run with this hidden_act or rope_parameters; {CHOOSE}"
        )
    refuse_keys(settings, ours)


def refuse_keys(settings: dict[str, Any], ours: bool) -> None:
    """UnsupportedModel where a checked config.json has a key that changes attention or logits, and
    that no forward pass here reads in a model of its type. `ours`: our own would run it."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    if why := _other_states(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    for key, why in UNSUPPORTED_KEYS.items():
        read = ours and settings["model_type"] in READ_BY.get(key, ())
        if settings.get(key) not in (None, False, 1, 1.0) and not read:
            raise UnsupportedModel(f"{kind}: {why} ({key}), which is not supported; {CHOOSE}")


def refuse_inputs(settings: dict[str, Any]) -> None:
    """UnsupportedModel where a model, by its checked config.json, does not read and write text
    alone, or where its weights are stored in a way that is not known."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    if why := _other_inputs(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    if stored := settings.get("quantization_config"):
        method = stored.get("quant_method") or stored.get("format") or "an unnamed method"
        raise UnsupportedModel(
            f"{kind}: its weights are quantised by {shown(method)} (quantization_config), which is "
            "not supported; choose its bf16 version, or a GGUF file of it"
        )


def _other_inputs(settings: dict[str, Any]) -> str:
    """Why a model is not one of text alone; "" where it is, or where its text part runs."""
    if settings.get("is_encoder_decoder"):
        return "encoder-decoder models are not supported"
    composite = settings.get("composite")
    if composite and composite not in COMPOSITES:
        runs = ", ".join(COMPOSITES)
        return f"a composite model, of which only the text part of {runs} runs here"
    inputs = {what for key, what in OTHER_INPUTS.items() if settings.get(key)}
    if inputs and not composite:
        return f"a model of {' and '.join(sorted(inputs))} too, whose text part does not run here"
    return ""


def _other_states(settings: dict[str, Any]) -> str:
    """Why a model's layers keep something else than keys and values; "" where no key says so."""
    if settings.get("kv_lora_rank"):
        return "its attention caches compressed keys and values (MLA), which is not supported"
    return RECURRENT if any(settings.get(key) for key in RECURRENT_KEYS) else ""


def _attention(settings: dict[str, Any]) -> str:
    """Why a model's layers cannot be rolled back by dropping rows of a cache; "" where they can."""
    if why := _other_states(settings):
        return why
    keys = ("layer_types", "layers_block_type", "block_types", "attention_layers")
    lists = [settings[key] for key in keys if isinstance(settings.get(key), list)]
    types = {one for each in lists for one in each if isinstance(one, str)}
    if types & set(STATE_LAYERS):
        return RECURRENT
    default = DEFAULT_WINDOWS.get(settings.get("model_type", ""))  # of all layers, whatever types
    window = settings.get("sliding_window", default)
    if (types and not default) or settings.get("use_sliding_window") is False:
        window = None
    positions = settings.get("max_position_embeddings") or math.inf
    if types & set(WINDOW_LAYERS) or (window and window < positions):
        return "its layers with a sliding window cannot be rolled back"
    if other := types - set(FULL_LAYERS):
        return f"its layers of type {shown(min(other))} are not supported"
    return ""
