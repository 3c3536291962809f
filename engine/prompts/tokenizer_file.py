"""Reads a tokenizer.json, which comes with a model and is not trusted, and builds its tokenizer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.records import RequestError
from engine.weights.config_json import is_token
from engine.weights.errors import WeightsError, shown
from engine.weights.fetch.integrity import config_of, damaged, read_object

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

MAX_ADDED_TOKENS = 1 << 15
MAX_ADDED_CHARS = 1 << 20  # characters of all added tokens: they become one regular expression
MAX_GROWTH = 64  # times the length of a text, by its normalizer
PARTS = ("normalizer", "pre_tokenizer", "decoder")

# Runs on which expressions that backtrack without end reach the limit of the regex library.
PROBE = "".join(f"{char * 48}~" for char in "aA1 \n!é")


def read_tokenizer(file: Path) -> dict[str, Any]:
    """Read the content of a tokenizer.json, and check it.

    WeightsError names what is wrong with it. Added tokens for which the model next to it has no row
    are left out: it cannot read them.
    """
    spec = read_object(file)
    config = file.with_name("config.json")
    rows = config_of(file.parent).get("vocab_size") if config.is_file() else None
    for part in PARTS:
        if not isinstance(spec.get(part), dict | None):
            raise damaged(file, f"'{part}' is {shown(spec[part])}, not an object")
    if (growth := _growth(spec.get("normalizer"))) > MAX_GROWTH:
        raise damaged(file, f"its 'normalizer' makes a text {growth:.0f} times as long")
    _check_vocabulary(file, spec.get("model"), rows)
    added = spec.setdefault("added_tokens", [])
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        raise damaged(file, f"'added_tokens' is no list of at most {MAX_ADDED_TOKENS} tokens")
    chars = 0
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not (isinstance(content, str) and content and is_token(token.get("id"))):
            raise damaged(file, "'added_tokens' has an entry without a text or a token id")
        if (chars := chars + len(content)) > MAX_ADDED_CHARS:
            raise damaged(file, f"'added_tokens' has over {MAX_ADDED_CHARS} characters")
    spec["added_tokens"] = [token for token in added if rows is None or token["id"] < rows]
    return spec


def first_tokens(spec: dict[str, Any]) -> list[int]:
    """Ids that tokenizer.json puts before every text, as its post-processor's template says."""
    post = spec.get("post_processor")
    parts = post.get("processors") if isinstance(post, dict) else None
    for step in parts if isinstance(parts, list) else [post]:
        if not isinstance(step, dict) or not isinstance(step.get("single"), list):
            continue
        known = step.get("special_tokens")
        names = list(takewhile(lambda name: name is not None, map(_special, step["single"])))
        tokens = [known.get(name) for name in names] if isinstance(known, dict) else []
        ids = [token.get("ids") for token in tokens if isinstance(token, dict)]
        return [n for each in ids if isinstance(each, list) for n in each if is_token(n)]
    return []


def _special(step: Any) -> str | None:
    """Return the name of the special token that a step of a post-processor's template adds."""
    token = step.get("SpecialToken") if isinstance(step, dict) else None
    name = token.get("id") if isinstance(token, dict) else None
    return name if isinstance(name, str) else None


def build_tokenizer(file: Path, spec: dict[str, Any]) -> Backend:
    """Build the tokenizer of a tokenizer.json's content.

    WeightsError where the library refuses it.
    """
    from tokenizers import Tokenizer as Backend

    try:
        made: Backend = Backend.from_str(json.dumps(spec, ensure_ascii=False))
        made.encode(PROBE, add_special_tokens=False)
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise damaged(file, str(error)) from error
        raise
    return made


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Make a panic of the library a RequestError.

    A regular expression of the model's may reach its limit of steps on one text and on no other.
    """
    try:
        yield
    except BaseException as error:
        if _is_panic(error):
            raise RequestError(
                f"this model's tokenizer fails on the text ({error}): choose another model"
            ) from error
        raise


def _is_panic(error: BaseException) -> bool:
    """Return whether Rust code panicked.

    That is no Exception, and its class cannot be imported.
    """
    return type(error).__name__ == "PanicException"


def _check_vocabulary(file: Path, model: Any, rows: int | None) -> None:
    """WeightsError unless the model is an object with a vocabulary of tokens below `rows`."""
    if not isinstance(model, dict):
        raise damaged(file, f"'model' is {shown(model)}, not an object")
    words = model.get("vocab")
    if isinstance(words, list):  # Unigram: pairs of a word and its score
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in words):
            raise damaged(file, "'vocab' has an entry that is no word and score")
        words = {str(one[0]): number for number, one in enumerate(words)}
    if not isinstance(words, dict) or not all(map(is_token, words.values())):
        raise damaged(file, "'vocab' does not map words to token ids")
    if rows is not None and max(words.values(), default=0) >= rows:
        raise WeightsError(
            f"{file}: token {max(words.values())} is not in the model, whose config.json has "
            f"'vocab_size' {rows}: copy or fetch this model again"
        )


def _growth(normalizer: Any) -> float:
    """Return how many times longer a text gets, at most, by a normalizer's replacements."""
    if not isinstance(normalizer, dict):
        return 1.0
    if isinstance(parts := normalizer.get("normalizers"), list):
        return math.prod(map(_growth, parts))
    content, pattern = normalizer.get("content"), normalizer.get("pattern")
    if not isinstance(content, str):
        return 1.0
    replaced = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(replaced, str) and replaced:
        return max(1.0, len(content) / len(replaced))
    return 1.0 + len(content)
