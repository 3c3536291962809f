"""The model folder of a GGUF file: generation config and tokenizer. The weights stay in the file.

torch, transformers and tokenizers are not needed: the files' formats are written directly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.tokenizer import generation_config, tokenizer, tokenizer_config


def write_folder(file: Gguf, folder: Path) -> None:
    """Write the model folder of a GGUF file.

    WeightsError for a file whose tokenizer is not known.
    """
    folder.mkdir()
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer.json", tokenizer(file, file.shape("token_embd.weight")[0]))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
