"""Native CPU kernels. Arrays: CPU, C-contiguous; numpy, torch or any dlpack; never copied.

The law: a row's bits depend on that row alone, not on the rows next to it, their number, the
threads or the instruction set. All release the GIL and may be called from several threads (one at a
time runs in the pool). A shape that does not fit is a ValueError, another dtype a TypeError. After
a fork the child has no workers and runs on the calling thread.
"""

from typing import Any, TypeAlias

Array: TypeAlias = Any  # an array as above; the docstrings give dtype and shape

def isa() -> str:
    """Return the instruction set in use; the best one at start.

    It is "plain", "avx2", "avxvnni" or "avx512vnni" on x86, "plain", "dotprod" or "i8mm" on ARM.
    """

def set_isa(name: str) -> None:
    """Use another instruction set, for tests. ValueError if this processor does not have it."""

def threads() -> int:
    """Return the number of threads that work on a call, the caller included; 1 at start."""

def set_threads(count: int) -> None:
    """Set the number of threads, at least 1; they cost nothing while idle."""

def lower_priority() -> None:
    """Lower the calling thread's priority for good.

    Its kernels then run on threads of their own, whose priority is as low.
    """

def dequantize(type: int, rows: Array, out: Array) -> None:
    """Write weights of a GGUF file in f32.

    rows: uint8 [n, bytes of a row], out: [n, in] f32; in: whole blocks of the type.
    """

TILE: int  # output channels that QLinear computes together

class QLinear:
    """The product y = x W^T + bias.

    Weights are as a GGUF file stores them, or in blocks of 32 inputs with 8 or 4 bits. They are
    packed once; x is quantised per row and block, unless all weights are floats.
    """

    def __init__(self, weight: Array, bias: Array | None = None, bits: int = 8) -> None:
        """Quantise to 8 bits, or to 4 with a minimum for each block.

        weight: [out, in] f32 or uint16 (bfloat16 bits), all finite; bias: [out] f32.
        """

    @staticmethod
    def stored(parts: list[tuple[int, Array]], inputs: int, bias: Array | None = None) -> QLinear:
        """Pack the output channels of several tensors, one after another.

        Each is a (gguf type, uint8 [out, bytes of a row]); `inputs`: whole blocks of each.
        ValueError for scales that are not finite, for what does not fit and for a type that is not
        known.
        """

    def forward(self, x: Array, out: Array) -> None:
        """Multiply x, [k, in] f32 -> out: [k, out] f32.

        A row with NaN or infinity gives a row of NaN.
        """

    def forward_tiles(self, x: Array, out: Array, tiles: Array) -> None:
        """Multiply as forward does, for the output channels of some tiles of TILE channels only.

        tiles: int32 [n], ascending for speed. Other channels of `out` are left as they are.
        ValueError for a tile that there is not.
        """

    def channels(self, channels: Array, out: Array) -> None:
        """Write some rows of the weights that forward uses: int64 [n] -> out: [n, in] f32."""

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (out, in)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights, scales and bias."""

def route(
    logits: Array,
    normalise: bool,
    choice: Array,
    weights: Array,
    sigmoid: bool = False,
    bias: Array | None = None,
    scale: float = 1.0,
    expert_scales: Array | None = None,
) -> None:
    """Choose the k experts of each row with the largest scores.

    They are in order of their index, with their scores as weights. Scores are the softmax of the
    logits over all experts, or with `sigmoid` the sigmoid of each (DeepSeek-V3); `bias` [experts]
    f32 is added to choose by, but not to the weights. `normalise`: weights are divided by their sum
    over the k, which makes a softmax one over the k. They are multiplied with `scale`, and with
    expert_scales [experts] f32 of each expert (Gemma 4). logits: [rows, experts] f32 -> choice:
    [rows, k] int32, weights: [rows, k] f32.
    """

def run_experts(
    gate_up: list[QLinear],
    down: list[QLinear],
    x: Array,
    choice: Array,
    weights: Array,
    out: Array,
    activation: str = "silu",
    alpha: float = 0.0,
    limit: float = 0.0,
) -> None:
    """Add up the weighted outputs of each row's experts, down(activation(gate) * up).

    x: [rows, in] f32; choice and weights as of `route` -> out: [rows, out] f32. One QLinear of each
    kind for every expert; gate_up has the gates first. `activation`: "silu", "gelu" or
    "clamped_swiglu", as of `silu_mul`, `gelu_mul` and `clamped_swiglu`, which has alpha and limit.
    """

def attend(
    q: Array,
    keys: Array,
    values: Array,
    base: int,
    parents: Array,
    scale: float,
    out: Array,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Array | None = None,
) -> None:
    """Attend with k new tokens (a tree) over a cache; node i's own key lies at row base + i.

    q: [k, heads, d] f32, rotated; keys, values: [kv_heads, capacity, d] f32, or in 8 bits uint8
    [kv_heads, capacity, d + 4 ceil(d / 32)]: d signed levels, then an f32 for each 32 of them,
    their scale; parents: [k] int32, an earlier node or -1 (child of the last committed row); out:
    [k, heads * d] f32. Node i sees rows 0 .. base - 1, its ancestors and itself; with a `window`
    the last `window` of these. d: a multiple of 8, at most 512. `softcap`: scores are softcap *
    tanh(score / softcap) (Gemma 2).
    sinks: [heads] f32, a logit of each head's softmax that has no value (gpt-oss).
    """

def delta_rule(
    mixed: Array,
    a: Array,
    b: Array,
    conv: Array,
    A: Array,
    dt_bias: Array,
    key_heads: int,
    key_head_of: Array,
    committed: int,
    first: int,
    parents: Array,
    tail: Array,
    state: Array,
    out: Array,
) -> None:
    """Run linear attention by the gated delta rule with its causal convolution, as in Qwen3-Next.

    That is Gated DeltaNet (arXiv:2412.06464): q, k, v = silu(conv(mixed)), q and k L2-normalised,
    and for each head S = exp(A softplus(a + dt_bias)) S; S += k (sigmoid(b) (v - S^T k))^T; out =
    S^T q.

    Of the R rows of `mixed`, the first `committed` are a chain after the state, and are applied to
    `tail` and `state`; the others are a tree after them and change neither. Rows from `first` (at
    most `committed`) on get an output.

    mixed: [R, C] f32, C = 2 key_heads Dk + Hv Dv: q of all heads, then k, then v; a, b: [R, Hv]
    f32; conv: [C, taps] f32, the row's own tap last; A: [Hv] f32, at most 0; dt_bias: [Hv] f32;
    key_head_of: [Hv] int32, the key head of each value head; parents: [R - committed] int32, an
    earlier row of the tree or -1; tail: [taps - 1, C] f32, the rows of `mixed` before these, oldest
    first; state: [Hv, Dk, Dv] f32; out: [R - first, Hv * Dv] f32. Dk, Dv: multiples of 8, at most
    256; taps: 2 to 8. On an error nothing has changed.
    """

def rms_norm(x: Array, weight: Array, eps: float, out: Array) -> None:
    """Compute out = x / sqrt(mean(x^2) + eps) * weight; x, out: [k, n] f32; weight: [n] f32."""

def add_rms_norm(residual: Array, delta: Array, weight: Array, eps: float, out: Array) -> None:
    """Compute residual += delta, then out = rms_norm(residual); all [k, n] f32."""

def silu_mul(gate_up: Array, out: Array) -> None:
    """Compute out = silu(gate) * up; gate_up: [k, 2n] f32, the gates first; out: [k, n] f32."""

def gelu_mul(gate_up: Array, out: Array) -> None:
    """Compute out = gelu(gate) * up, gelu approximated with tanh; arrays as of `silu_mul`."""

def clamped_swiglu(gate_up: Array, alpha: float, limit: float, out: Array) -> None:
    """Compute out = (up + 1) * gate * sigmoid(alpha * gate) (gpt-oss).

    gate <= limit and -limit <= up <= limit; arrays as of `silu_mul`.
    """

def sigmoid_mul(gate: Array, x: Array) -> None:
    """Multiply x by sigmoid(gate), in place; both [k, n] f32.

    The rows of `gate` may have space between them, as a slice of columns has.
    """

def gated_norm(x: Array, gate: Array, weight: Array, eps: float, out: Array) -> None:
    """Compute out = rms_norm(x) * weight * silu(gate), head by head.

    x, gate, out: [k, heads, d] f32, where the rows of `gate` may have space between them; weight:
    [d] f32.
    """

def softcap(x: Array, cap: float) -> None:
    """Compute x = cap * tanh(x / cap), in place; x: [k, n] f32."""

def split_heads(
    qkv: Array,
    q: Array,
    keys: Array | None,
    values: Array | None,
    base: int,
    turn: Array | None = None,
    q_norm: Array | None = None,
    k_norm: Array | None = None,
    norm_values: bool = False,
    eps: float = 0.0,
    q_factor: Array | None = None,
    values_of_keys: bool = False,
) -> None:
    """Split a product into the heads of q, k and v: normed, rotated, k and v written to the cache.

    qkv: [k, n] f32, each row heads * d of q, kv_heads * d of k, kv_heads * d of v, anything -> q:
    [k, heads, d] f32; keys, values: as of `attend`, rows base .. base + k - 1. Without
    keys and values the product has only q. `values_of_keys`: v is k as the product gives it, and
    has no columns of its own. q_norm, k_norm: [d] f32, the weights of the heads' RMS norms, or None
    for no norm; `norm_values`: values have one without weights. turn: complex64 [k, m]: the first
    2m numbers of each head of q and k are m pairs, times `turn` after the norm. q_factor: [k] f32,
    of q in the end. d: at most 512.
    """

def fill_pass(
    out: Array,
    rows: int,
    paths: bool,
    first: int,
    tokens: list[int],
    parents: list[int],
    vocab: int,
    keys: int,
    values: int,
    capacity: int,
    base: int,
) -> None:
    """Write the inputs of a pass of static shape over `first` and the tree of `tokens` behind it.

    Their parents are earlier ones of them, or -1 for `first`.

    out: int64; 8 for keys, values (addresses), capacity, base (committed rows) and the number of
    tokens; then by row, `rows` each: token, position, and rows / 64 words in which bit i % 64 of
    word i / 64 is set where row i is an ancestor or the row itself. With `paths`, then uint8 [rows,
    rows]: the rows of the ancestors by depth, the row itself last. Padding rows have token 0, the
    position of `first` and see row 0. rows: 64, 128, 192 or 256. IndexError for tokens outside [0,
    vocab), ValueError for what does not fit.
    """
