"""The settings of one client, from initializationOptions, workspace/configuration and
didChangeConfiguration alike. What is wrong is passed over with one warning that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from engine.config import DEFAULT_MODEL

SECTION = "draftline"
LONGEST = 40  # characters of a key or value that are repeated in a warning
MULTILINE = ("auto", "always", "never")
Check = Callable[[Any], str | None]  # a value -> what it must be, None where it is that


@dataclass(frozen=True, slots=True)
class Settings:
    """Names as in the protocol. `languages` empty: all."""

    model: str = DEFAULT_MODEL
    device: str = "auto"
    maxTokens: int = 64  # of one completion
    maxTimeMs: int = 3000  # for one completion, the reading of its prompt included
    debounceMs: int = 75  # a completion that was not asked for by hand waits so long
    multiline: str = "auto"
    speculation: bool = True
    context: int = 256  # tokens of other files in a completion's prompt
    languages: tuple[str, ...] = ()
    disabledGlobs: tuple[str, ...] = ()
    respectGitignore: bool = True

    def why_not(self, language: str, path: str | None) -> str | None:
        """Why nothing is offered in such a document; None where something is."""
        if self.languages and language not in self.languages:
            return f"draftline.languages does not name {language!r}"
        for glob in self.disabledGlobs if path else ():
            name = str(path).replace("\\", "/")
            if fnmatchcase(name, glob) or fnmatchcase(name, f"*/{glob}"):
                return f"draftline.disabledGlobs has {glob!r}"
        return None


def parse(values: Any, base: Settings | None = None) -> tuple[Settings, list[str]]:
    """Settings, starting from `base`, and warnings: key and remedy of each that does not count."""
    settings = base or Settings()
    if values is None:
        return settings, []
    if not isinstance(values, dict):
        return settings, [f"{SECTION}: must be an object of settings"]
    if isinstance(values.get(SECTION), dict):
        values = values[SECTION]
    good: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in values.items():
        if key not in CHECKS:
            near = get_close_matches(key[:LONGEST], CHECKS, 1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(CHECKS)}"
            warnings.append(
                f"{SECTION}.{' '.join(key[:LONGEST].split())}: no such setting; {remedy}"
            )
        elif value is None:
            continue
        elif wanted := CHECKS[key](value):
            warnings.append(f"{SECTION}.{key}: {_named(value)} does not fit; it must be {wanted}")
        elif isinstance(value, list):
            good[key] = tuple(value)
        else:
            good[key] = int(value) if isinstance(value, float) else value
    return replace(settings, **good), warnings


def _named(value: Any) -> str:
    """A wrong value for a person."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    shown = repr(value) if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + "…"


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> str | None:
        whole = type(value) is int or (type(value) is float and value.is_integer())  # as Lua's
        return (
            None if whole and least <= value <= most else f"a whole number from {least} to {most}"
        )

    return check


def _one_of(*names: str) -> Check:
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def _is(kind: type, wanted: str) -> Check:
    return lambda value: None if isinstance(value, kind) and value != "" else wanted


def _texts(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return None if good else "a list of texts"


CHECKS: dict[str, Check] = {
    "model": _is(str, "a model's name"),
    "device": _one_of("auto", "cpu", "cuda", "mps"),
    "maxTokens": _whole(1, 4096),
    "maxTimeMs": _whole(50, 600_000),
    "debounceMs": _whole(0, 60_000),
    "multiline": _one_of(*MULTILINE),
    "speculation": _is(bool, "true or false"),
    "context": _whole(0, 100_000),
    "languages": _texts,
    "disabledGlobs": _texts,
    "respectGitignore": _is(bool, "true or false"),
}
assert set(CHECKS) == {field.name for field in fields(Settings)}
