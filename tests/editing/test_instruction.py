"""What an instruction asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing import instruction as read


@pytest.mark.parametrize(
    ("instruction", "kinds"),
    [
        ("Add a docstring.", {"docstring"}),
        ("Please add docstrings and type hints", {"docstring", "annotation"}),
        ("Keep the code as it is, and add a docstring to the function.", {"docstring"}),
        ("Translate the comments to German; do not change the code.", {"comment"}),
        ("Document this function", {"comment"}),
        ("Add type annotations to the function signature.", {"annotation"}),
        ("Can you improve the comments?", {"comment"}),
        ("Add comments and rename x to y", set()),
        ("Add a docstring, then sort the lines", set()),
        ("Add a comment field to the form", set()),
        ("Add comment_count", set()),
        ("Return the documentation of each class", set()),
        ("Handle a missing type annotation", set()),
        ("Comment out the last line", set()),
        ("Uncomment the call", set()),
        ("Make it faster", set()),
        ("", set()),
    ],
)
def test_what_all_is_limited_to(instruction: str, kinds: set[str]) -> None:
    assert read.only_requested(instruction) == kinds


@pytest.mark.parametrize(
    ("instruction", "wanted"),
    [
        ("Add a parameter `limit` with the default 3", ["limit"]),
        ("Rename max_size to maxCount", ["maxCount"]),
        ("Write a method close()", ["close"]),
        ("Do not use json_load", []),
        ("Use pathlib instead of os_path", []),
        ("Fix the bug in parse_line", []),
        ('Return "yes" for 3', []),
    ],
)
def test_names_that_should_occur(instruction: str, wanted: list[str]) -> None:
    assert read.wanted_names(instruction) == wanted


@given(st.text())
def test_any_instruction_is_read(text: str) -> None:
    for reader in (read.only_requested, read.wanted_names, read.code_names):
        assert isinstance(reader(text), list | frozenset)
