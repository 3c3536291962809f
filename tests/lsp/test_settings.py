"""Settings: each invalid key or value gets one warning with the remedy; the others apply."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prompts.next_edit.formats import FORMATS
from lsp_server.settings import (
    CHECKS,
    EAGERNESS,
    MAY_BE_EMPTY,
    NEXT_EDIT_FORMATS,
    SECTION,
    Settings,
    parse,
)

MANIFEST = Path(__file__).parents[2] / "editors/vscode/package.json"
EXTENSION_ONLY = ("command", "editView", "server", "engine")  # the server does not hear of these
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=8,
)
SWITCH = st.booleans() | st.dictionaries(st.sampled_from(["*", "go", "rust"]), st.booleans())
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "model": st.text(min_size=1, max_size=9),
    "completionModel": st.text(max_size=9),
    "device": st.sampled_from(["auto", "cpu", "cuda", "mps", "cuda:1", "cuda:0,cuda:1"]),
    "maxTokens": st.integers(1, 4096),
    "maxTimeMs": st.integers(50, 600_000),
    "debounceMs": st.integers(0, 60_000),
    "multiline": st.sampled_from(["auto", "always", "never"]),
    "eagerness": st.sampled_from(["low", "medium", "high"]),
    "speculation": st.booleans(),
    "check": st.sampled_from(["", "pytest -q", "python -c 'import a'"]),
    "checkCandidates": st.integers(1, 16),
    "checks": st.booleans(),
    "context": st.integers(0, 100_000),
    "ghostText": SWITCH,
    "nextEdit": SWITCH,
    "nextEditModel": st.text(max_size=9),
    "nextEditFormat": st.sampled_from(["", *FORMATS]),
    "languages": st.lists(st.text(max_size=9), max_size=3),
    "disabledGlobs": st.lists(st.text(max_size=9), max_size=3),
    "respectGitignore": st.booleans(),
}
WRONG: dict[str, list[Any]] = {
    "model": [1, True, [], {}],
    "completionModel": [1, True, [], {}],
    "device": ["tpu", 0, ["cpu"], "", "cuda:", "cpu,cuda", "cuda:0,cuda:0"],
    "maxTokens": [0, 4097, "64", True, 1.5, float("nan"), float("inf"), []],
    "maxTimeMs": [0, -1, "2000", False],
    "debounceMs": [-1, "no", 10**30],
    "multiline": [True, "sometimes", {}],
    "eagerness": ["eager", "", 2, True, ["low"]],
    "speculation": [1, "true", "off"],
    "check": [1, True, " ", "pytest '", "a\0b", ["pytest"]],
    "checkCandidates": [0, 17, "4", True],
    "checks": [0, "false"],
    "context": [-1, "256"],
    "ghostText": [1, "on", [], ["python"], {"python": 1}],
    "nextEdit": [0, "off", {"*": "no"}],
    "nextEditModel": [1, True, [], {}],
    "nextEditFormat": ["zeta", 1, True, ["sweep"]],
    "languages": ["python", [1], {"python": True}],
    "disabledGlobs": ["*.md", [None]],
    "respectGitignore": [0, "no"],
}


def test_every_setting_is_covered_here() -> None:
    assert {*GOOD} == {*WRONG} == {*CHECKS} == {field.name for field in fields(Settings)}
    assert tuple(FORMATS) == NEXT_EDIT_FORMATS


@given(JSON)
def test_no_json_value_raises(value: Any) -> None:
    for values in (value, {SECTION: value}, dict.fromkeys(CHECKS, value)):
        settings, warnings = parse(values)
        assert parse(asdict(settings) | {"languages": [*settings.languages], "disabledGlobs": [
            *settings.disabledGlobs]}) == (settings, [])  # fmt: skip
        assert all("\n" not in one and len(one) < 300 for one in warnings)
        assert len(warnings) <= len(CHECKS)


def test_deep_values_do_not_raise() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert len(parse({"model": deep, "languages": deep, "no such key": deep})[1]) == 3


@given(st.fixed_dictionaries({}, optional=GOOD), st.booleans())
def test_valid_values_are_applied_and_others_stay(values: dict[str, Any], inner: bool) -> None:
    base = Settings(maxTokens=7, languages=("go",))
    settings, warnings = parse({SECTION: values} if inner else values, base)
    assert warnings == []
    expected = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
    assert settings == replace(base, **expected)


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_an_invalid_value_is_ignored_and_named(key: str, value: Any) -> None:
    other = "debounceMs" if key != "debounceMs" else "context"
    settings, warnings = parse({key: value, other: 99})
    assert settings == replace(Settings(), **{other: 99})
    (warning,) = warnings
    assert warning.startswith(f"{SECTION}.{key}: ") and "it must be " in warning


def test_unknown_keys_are_reported_with_a_suggestion() -> None:
    assert parse({"maxToken": 5})[1] == [
        "draftline.maxToken: no such setting; did you mean maxTokens?"
    ]
    (warning,) = parse({"zzz\nzzz" * 40: 5})[1]
    assert all(name in warning for name in CHECKS) and "\n" not in warning
    assert parse([])[1] == ["draftline: must be an object of settings"]
    assert parse(None) == (Settings(), [])
    assert parse({"model": None}) == (Settings(), [])  # not set
    assert parse({"model": ""}, Settings(model="other")) == (Settings(), [])  # the default again
    assert parse({"maxTokens": 32.0})[0].maxTokens == 32  # Lua's JSON encoder writes floats
    assert type(parse({"maxTokens": 32.0})[0].maxTokens) is int


def test_where_completion_is_disabled() -> None:
    settings = Settings(languages=("python",), disabledGlobs=("*.min.js", "vendor/*", "secret?.py"))
    assert settings.disabled_reason("python", "/a/b.py") is None
    assert settings.disabled_reason("python", None) is None
    assert settings.disabled_reason("go", "/a/b.go") == "draftline.languages does not name 'go'"
    for path in ("/a/x.min.js", "/a/vendor/b/c.py", "/a/secret1.py", "C:\\a\\vendor\\b.py"):
        assert "draftline.disabledGlobs has" in (settings.disabled_reason("python", path) or "")
    assert Settings().disabled_reason("anything", "/a/vendor/b.py") is None


@given(st.fixed_dictionaries({}, optional={"ghostText": SWITCH, "nextEdit": SWITCH}))
def test_a_language_decides_before_the_others(values: dict[str, Any]) -> None:
    settings, _ = parse(values)
    for name in ("ghostText", "nextEdit"):
        for language in ("go", "rust", "python"):
            switch = values.get(name, True)
            by_language = switch if isinstance(switch, dict) else {"*": switch}
            expected = {"*": True, language: by_language.get("*", True)} | by_language
            reason = settings.switched_off(name, language)
            assert (reason is None) == expected[language]
            assert reason is None or (f"draftline.{name}" in reason and language in reason)


def test_how_eagerly_something_is_offered() -> None:
    """The default is what the other settings say; of these, each level changes its part."""
    base = Settings(debounceMs=75, maxTokens=64)
    assert parse({})[0].eagerness == "medium"
    found = {
        level: (made.delay_s, made.maxTokens * made.eager.length, made.typing_multiline)
        for level in EAGERNESS
        for made in [replace(base, eagerness=level)]
    }
    assert found == {
        "low": (0.3, 64, "never"),
        "medium": (0.075, 64, "auto"),
        "high": (0, 128, "auto"),
    }
    assert [level for level, eager in EAGERNESS.items() if eager.sure] == ["low"]
    assert replace(base, multiline="always").typing_multiline == "always"


def test_vs_code_describes_the_same_settings() -> None:
    """Names, defaults and limits in the extension's manifest are those of the server."""
    shown = json.loads(MANIFEST.read_text("utf-8"))["contributes"]["configuration"]["properties"]
    settings = {key.removeprefix(f"{SECTION}."): value for key, value in shown.items()}
    ours = {key: value for key, value in settings.items() if key not in EXTENSION_ONLY}
    assert {*ours} == {*CHECKS}
    for key, value in ours.items():
        default = asdict(Settings())[key]
        if key == "model":
            default = ""
        elif key in {"ghostText", "nextEdit"}:
            default = {"*": default}
        assert value["default"] == (list(default) if isinstance(default, tuple) else default), key
        for limit, step in (("minimum", -1), ("maximum", 1)):
            if value["type"] == "integer":
                assert CHECKS[key](value[limit]) is None, key
                assert CHECKS[key](value[limit] + step) is not None, key
        for name in value.get("enum", []):
            assert CHECKS[key](name) is None or (name == "" and key in MAY_BE_EMPTY), key
    for device in re.findall(r"`([^`]+)`", ours["device"]["markdownDescription"]):
        assert CHECKS["device"](device) is None, device
