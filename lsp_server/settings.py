"""The settings of one client.

They are sent in initializationOptions, workspace/configuration and didChangeConfiguration. Each
invalid setting is ignored with a warning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from engine.config import devices
from engine.editing.running.trial import CANDIDATES, MAX_CANDIDATES, BadCommand, parse_command

SECTION = "draftline"
MAX_QUOTED_CHARS = 40  # characters of a key or value in a warning
MAY_BE_EMPTY = ("model", "completionModel", "check", "nextEditModel", "nextEditFormat")
NEXT_EDIT_FORMATS = ("sweep", "zeta2.1")  # engine.prompts.next_edit.formats has them
MULTILINE = ("auto", "always", "never")
ANY_LANGUAGE = "*"  # in a switch by language: those that it does not name
Check = Callable[[Any], str | None]  # value -> what is expected instead, None if it is valid
Switch = bool | dict[str, bool]  # on or off, for all languages or by language identifier


class Eagerness(NamedTuple):
    """When something is offered while somebody types, how much, and how sure it must be."""

    delay: float  # times debounceMs
    length: float  # times maxTokens
    several_lines: bool  # where the place asks for them
    sure: bool  # only whole lines, and only next edits that a rule is certain of


EAGERNESS = {
    "low": Eagerness(4, 1, False, True),
    "medium": Eagerness(1, 1, True, False),
    "high": Eagerness(0, 2, True, False),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings, named as in the protocol. An empty `languages` means all languages."""

    model: str = ""  # the usual one
    completionModel: str = ""  # a smaller one for completions; none: the one model
    device: str = "auto"
    maxTokens: int = 64  # tokens of one completion
    maxTimeMs: int = 3000  # milliseconds for one completion, including prefill
    debounceMs: int = 75  # milliseconds that a completion not invoked explicitly is delayed
    multiline: str = "auto"
    eagerness: str = "medium"  # of what is offered without being asked for
    speculation: bool = True
    check: str = ""  # the user's command that edits are tried with, from a trusted workspace
    checkCandidates: int = CANDIDATES  # answers that it may try
    checks: bool = True  # edits and completions are checked before they are shown
    context: int = 256  # tokens of other files in a completion's prompt
    ghostText: Switch = True  # inline completions while typing; invoked explicitly they stay
    nextEdit: Switch = True
    nextEditModel: str = ""  # made for next edits, or auto; none: they are found by rule
    nextEditFormat: str = ""  # the format of its prompts; "": by the model's name
    languages: tuple[str, ...] = ()
    disabledGlobs: tuple[str, ...] = ()
    respectGitignore: bool = True

    @property
    def eager(self) -> Eagerness:
        """The eagerness of what is offered without being asked for."""
        return EAGERNESS[self.eagerness]

    @property
    def delay_s(self) -> float:
        """The seconds that a completion is delayed after a keystroke."""
        return self.debounceMs / 1000 * self.eager.delay

    @property
    def typing_multiline(self) -> str:
        """When completions that nobody has asked for may have several lines: one of MULTILINE."""
        return self.multiline if self.eager.several_lines else "never"

    def disabled_reason(self, language: str, path: str | None) -> str | None:
        """Say why Draftline is disabled in such a document; None if it is enabled."""
        if self.languages and language not in self.languages:
            return f"draftline.languages does not name {language!r}"
        for glob in self.disabledGlobs if path else ():
            name = str(path).replace("\\", "/")
            if fnmatchcase(name, glob) or fnmatchcase(name, f"*/{glob}"):
                return f"draftline.disabledGlobs has {glob!r}"
        return None

    def switched_off(self, name: Literal["ghostText", "nextEdit"], language: str) -> str | None:
        """Say why a feature is switched off in a language; None if it is on."""
        switch: Switch = getattr(self, name)
        if isinstance(switch, dict):
            switch = switch.get(language, switch.get(ANY_LANGUAGE, True))
        return None if switch else f"draftline.{name} is off for {language!r}"


def parse(values: Any, base: Settings | None = None) -> tuple[Settings, list[str]]:
    """Parse settings on top of `base`; return them with a warning for each invalid one."""
    settings = base or Settings()
    if values is None:
        return settings, []
    if not isinstance(values, dict):
        return settings, [f"{SECTION}: must be an object of settings"]
    if isinstance(values.get(SECTION), dict):
        values = values[SECTION]
    valid: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in values.items():
        if key not in CHECKS:
            close = get_close_matches(key[:MAX_QUOTED_CHARS], CHECKS, 1)
            remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(CHECKS)}"
            warnings.append(
                f"{SECTION}.{' '.join(key[:MAX_QUOTED_CHARS].split())}: no such setting; {remedy}"
            )
        elif value is None:
            continue
        elif value == "" and key in MAY_BE_EMPTY:
            valid[key] = ""
        elif expected := CHECKS[key](value):
            warnings.append(
                f"{SECTION}.{key}: {_quoted(value)} does not fit; it must be {expected}"
            )
        elif isinstance(value, list):
            valid[key] = tuple(value)
        else:
            valid[key] = int(value) if isinstance(value, float) else value
    return replace(settings, **valid), warnings


def _quoted(value: Any) -> str:
    """Write an invalid value as it is shown in a warning."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    shown = repr(value) if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= MAX_QUOTED_CHARS else shown[:MAX_QUOTED_CHARS] + "…"


def _integer(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        # Lua's JSON encoder writes integers as floats.
        is_integer = type(value) is int or (type(value) is float and value.is_integer())
        valid = is_integer and low <= value <= high
        return None if valid else f"a whole number from {low} to {high}"

    return check


def _one_of(*names: str) -> Check:
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def _is(kind: type, expected: str) -> Check:
    return lambda value: None if isinstance(value, kind) and value != "" else expected


def _device(value: Any) -> str | None:
    try:
        devices(value if isinstance(value, str) else "")
    except ValueError:
        return "auto, cpu, cuda, mps, or numbered cards as in cuda:1 or cuda:0,cuda:1"
    return None


def _switch(value: Any) -> str | None:
    each = value.values() if isinstance(value, dict) else [value]
    valid = all(isinstance(one, bool) for one in each)
    return None if valid else 'true, false, or either by language, as in {"*": true, "go": false}'


def _command(value: Any) -> str | None:
    try:
        parse_command(value if isinstance(value, str) else "")
    except BadCommand:
        return "a program with its arguments, as for a shell, and with matching quotes"
    return None


def _strings(value: Any) -> str | None:
    valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if valid else "a list of strings"


CHECKS: dict[str, Check] = {
    "model": _is(str, "a model's name"),
    "completionModel": _is(str, "a model's name"),
    "device": _device,
    "maxTokens": _integer(1, 4096),
    "maxTimeMs": _integer(50, 600_000),
    "debounceMs": _integer(0, 60_000),
    "multiline": _one_of(*MULTILINE),
    "eagerness": _one_of(*EAGERNESS),
    "speculation": _is(bool, "true or false"),
    "check": _command,
    "checkCandidates": _integer(1, MAX_CANDIDATES),
    "checks": _is(bool, "true or false"),
    "context": _integer(0, 100_000),
    "ghostText": _switch,
    "nextEdit": _switch,
    "nextEditModel": _is(str, "a model's name"),
    "nextEditFormat": _one_of(*NEXT_EDIT_FORMATS),
    "languages": _strings,
    "disabledGlobs": _strings,
    "respectGitignore": _is(bool, "true or false"),
}
assert set(CHECKS) == {field.name for field in fields(Settings)}
