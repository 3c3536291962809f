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

from engine.model.families.gguf_tensors import settings_of
from engine.model.families.refusal import refuse
from engine.model.torch.ops import Product, Quantized, Rows, attend, product
from engine.model.torch.row_by_row import RowByRow
from engine.model.unsupported import CHOOSE, MASKED, RECURRENT, UnsupportedModel
from engine.weights.config_json import text_part
from engine.weights.errors import shown
from engine.weights.fetch.integrity import TensorInfo, read_object
from engine.weights.resolve import gguf_of

log = logging.getLogger(__name__)

MAX_BUFFER_VALUES = 1 << 26  # values that a model has besides its weights: masks, rotations
CACHED_TOKENS, CHECKED_TOKENS = 5, 6  # tokens of the check at load
# shares of the logits' norm, by which they may differ from those of transformers: in f32, and in
# fewer bits, where one rounding may send a token to another expert
F32_ERROR, ROUNDED_ERROR = 1e-3, 0.15
MAX_ERROR_CHARS = 200  # characters of an error of transformers that are quoted
PLAIN_ARGUMENTS = ("dropout", "is_causal", "position_ids", "use_cache")


class PackedLinear(nn.Module):
    """A `Product` as a torch module; leading dimensions are folded into rows."""

    def __init__(self, run: Product, weight: Tensor) -> None:
        super().__init__()
        self.run, self.out_features = run, weight.shape[0]
        self.weight = torch.empty_like(weight, device="meta")  # keeps its shape and type only

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], self.out_features)


class _CacheLayer:
    """One layer of our cache in transformers' interface.

    `update` writes into the given buffers and returns views of what they hold so far.
    """

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
    """A transformers model with the interface of `engine.model.torch.llama.Llama`."""

    checked_layers = 1  # it runs all of them

    def __init__(
        self,
        folder: Path,
        tensors: dict[str, TensorInfo],
        device: torch.device,
        dtype: torch.dtype,
        bits: int | None,
    ) -> None:
        """Load a folder's model and check it.

        `tensors`: those of the folder's safetensors files.
        """
        self.name = f"draftline-{id(self)}"
        self._register()
        self.device, self.dtype, self.bits = device, dtype, bits
        self.rows: Rows | None = None
        self.buffers: tuple[Tensor, Tensor] | None = None
        self.products: RowByRow | None = None
        try:
            self._load(folder, sum(math.prod(tensor.shape) for tensor in tensors.values()))
            if device.type == "cpu":
                self._pack(self.model)
        except (UnsupportedModel, torch.OutOfMemoryError):
            raise
        except Exception as error:  # transformers has no common error for a bad folder
            raise UnsupportedModel(
                f"{folder}: transformers cannot load it ({_message(error)}): choose another model, "
                "or fetch this one again"
            ) from error
        self._head = self.model.get_output_embeddings()
        try:
            self._check()
        except (UnsupportedModel, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a forward pass of transformers may raise any
            raise UnsupportedModel(
                f"{self.kind}: its forward pass does not run here ({_message(error)}): {CHOOSE}"
            ) from error

    def _load(self, folder: Path, stored: int) -> None:
        """Load the model, and read its sizes from its config."""
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
                made = Quantized(weight, bias, self.bits) if self.bits else product(weight, bias)
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
        """Run a pass as `Llama.run` does, through all layers whatever `layers` says."""
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
        """Compute the logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        logits: Tensor = self._head(hidden)
        return logits.float()

    def _check(self) -> None:
        """Raise UnsupportedModel where a pass here cannot be trusted.

        It gives other logits than transformers' own without a cache, or has sums that depend on the
        number of its rows.
        """
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
        """Compute the logits of all tokens in two passes.

        The first has the first tokens, the second the others, each with a wrong token next to it as
        in a draft.
        """
        size = (2, self.layers, self.kv_heads, 2 * len(ids), self.head_dim)
        cache = (torch.zeros(size, dtype=self.cache_dtype, device=self.device),)
        first = min(CACHED_TOKENS, len(ids) - 1)
        chain = Rows.of(0, [-1, *range(first - 1)], self.device)
        states = [self.run(ids[:first], chain, cache)]
        both = torch.stack([ids[first:], ids[first:].flip(0)], 1).flatten()
        parents = [parent for n in range(len(both) // 2) for parent in (2 * n - 2, 2 * n - 2)]
        rows = Rows.of(first, [max(parent, -1) for parent in parents], self.device)
        states.append(self.run(both, rows, cache)[::2])
        return torch.cat([self.head(state) for state in states])


def _message(error: Exception) -> str:
    """Shorten what an error says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR_CHARS]}"


def _steady_positions(folder: Path, config: Any) -> int:
    """Count the tokens of context in which a token's rotation stays the same.

    LongRoPE's is another one for every token as soon as a pass has one beyond the trained length,
    so that a longer draft would change the answer.
    """
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
    """Load transformers' model of a folder whose files hold `stored` weights.

    UnsupportedModel where its config.json describes a larger one, which would be filled with random
    weights.
    """
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
    described = sum(tensor.numel() for tensor in [*empty.parameters(), *empty.buffers()])
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
    """Fill in the fields that a checked config.json leaves out, as transformers does.

    Returns its settings with all fields of its model type. UnsupportedModel where transformers
    cannot.
    """
    from transformers import CONFIG_MAPPING
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    usual = get_verbosity()
    set_verbosity_error()  # it warns of fields that do not matter here, besides our own line
    try:
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    except Exception as error:  # its checks have no class in common
        raise UnsupportedModel(
            f"{folder / 'config.json'}: {_message(error)}: copy or fetch this model again"
        ) from error
    finally:
        set_verbosity(usual)
    filled: dict[str, Any] = settings | config.to_dict()
    return filled


def transformers_config(folder: Path) -> Any:
    """Load transformers' own config of a folder, of one without weights from its GGUF file."""
    from transformers import CONFIG_MAPPING, AutoConfig

    if gguf_of(folder) is None:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    settings = settings_of(folder)
    return CONFIG_MAPPING[settings["model_type"]].from_dict(settings)


def transformers_model(folder: Path, **options: Any) -> Any:
    """Load transformers' own model of a folder, of one without weights from its GGUF file.

    `options`: as `from_pretrained` takes them.
    """
    from transformers import AutoModelForCausalLM

    options |= {"trust_remote_code": False, "local_files_only": True}
    path, config = gguf_of(folder), transformers_config(folder)
    if path is None:
        return AutoModelForCausalLM.from_pretrained(folder, **options)
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, **options
    )


def other_than_causal(kind: str) -> str | None:
    """Name what a model type is, if transformers has no causal language model of it."""
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
    """Return whether a config is of a masked language model whose rows see what follows.

    It is a config of transformers.
    """
    from transformers.models.auto import modeling_auto as auto

    masked = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return masked and getattr(config, "is_decoder", None) is False
