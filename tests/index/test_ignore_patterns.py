"""Patterns of ignore files: real git is the oracle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from index.workspace.ignore_patterns import (
    CHUNK_BYTES,
    CLASSES,
    FOLDER,
    MAX_PATTERN_BYTES,
    MAX_WORK,
    compile_patterns,
)

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PIECES = st.sampled_from(
    [
        b"a", b"b", b"A", b"B", b"*", b"**", b"?", b"/", b"[", b"]", b"!", b"^", b"-", b"\\",
        b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[A-C]", b"[]a]", b"[a-]", b"[\\]b]", b"[c-a]",
        b"[a\\-c]", b"[:", b":]", b"[[:foo:]]", b"[[:alpha:]", b"[[:upper:]b-]", b"[[:digit:]-b]",
        b" ", b"\\ ", b".", b"#", b"1", b"\t", b"\xc3\xa9", b"\xff", b"**/", b"/**", b"*/", b"***",
        *(f"[[:{name}:]]".encode() for name in CLASSES),
    ]
)  # fmt: skip
LINES = st.builds(
    lambda start, pieces, end: start + b"".join(pieces) + end,
    st.sampled_from([b"", b"", b"!", b"/"]),
    st.lists(PIECES, min_size=1, max_size=6),
    st.sampled_from([b"", b"", b"", b"/", b" ", b"\r", b"\0a"]),
)
BYTES = [
    b"a", b"b", b"c", b"A", b"B", b"a.b", b"1", b"\xc3\xa9", b"\xff", b"-", b"]", b"[", b" ", b"!",
    b"#", b"\\", b":", b"^", b"\t", b"\x7f",
]  # fmt: skip
NAMES = st.lists(st.sampled_from(BYTES), min_size=1, max_size=3).map(b"".join)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(b"/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@cache
def git_version() -> tuple[int, ...]:
    text = subprocess.run(["git", "version"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, text.split()[2].split(".")[:2]))


def git_differs(rules: str) -> bool:
    """Whether git may differ: since 2.52, "**" after letters matches no "/"."""
    return git_version() >= (2, 52) and bool(re.search(r"[^*?\[\\/\n]\*\*", rules))


def git_ignores(folder: Path, paths: list[bytes], ignore_case: bool) -> list[bool]:
    """Whether git ignores each of these files, none of which has to exist."""
    given = b"".join(b"./" + path + b"\0" for path in paths)  # "./": a ":" has a meaning of its own
    case = f"core.ignoreCase={str(ignore_case).lower()}"
    command = ["git", "-c", case, "-c", "core.excludesFile=", "-C", folder, "check-ignore"]
    found = subprocess.run(
        [*command, "--no-index", "--stdin", "-z", "-v", "-n"], input=given, capture_output=True
    )
    fields = found.stdout.split(b"\0")[:-1]
    assert len(fields) == 4 * len(paths), found.stderr
    return [
        bool(source) and not line.startswith(b"!")
        for source, line in zip(fields[0::4], fields[2::4], strict=True)
    ]


def ignores(data: bytes, path: bytes, ignore_case: bool = False) -> bool:
    """Whether one ignore file ignores a file, or a folder on its path."""
    patterns = compile_patterns(data, ignore_case)
    names = path.split(b"/")
    folders = (b"/".join(names[:end]) + FOLDER for end in range(1, len(names)))
    return any(patterns.decide(folder) for folder in folders) or bool(patterns.decide(path))


@needs_git
@settings(max_examples=100)
@given(
    lines=st.lists(LINES, min_size=1, max_size=5),
    paths=st.lists(PATHS, min_size=1, max_size=40),
    start=st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    ignore_case=st.booleans(),
)
@example([b"*.[[:digit:]]"], [b"a.1", b"a.b", b"a/b.2"], b"", False)
@example([b"a/", b"!a"], [b"a", b"a/b", b"b/a"], b"", False)
def test_patterns_match_what_they_match_in_git(
    repository: Path, lines: list[bytes], paths: list[bytes], start: bytes, ignore_case: bool
) -> None:
    data = start + b"\n".join(lines)
    assume(not git_differs(data.decode("latin-1")))
    (repository / ".gitignore").write_bytes(data)
    expected = git_ignores(repository, paths, ignore_case)
    assert [ignores(data, path, ignore_case) for path in paths] == expected


@needs_git
def test_every_byte_is_in_the_classes_that_git_knows(repository: Path) -> None:
    paths = [bytes([byte]) for byte in range(1, 256) if byte not in b"./"]
    for name in [*CLASSES, "foo", ""]:
        for pattern in (f"[[:{name}:]]", f"[![:{name}:]]"):
            (repository / ".gitignore").write_text(pattern)
            ours = [ignores(pattern.encode(), path) for path in paths]
            assert ours == git_ignores(repository, paths, False), pattern


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (b"*a" * 17 + b"b", b"a" * 250),
        (b"/x/" + b"*a" * 1000 + b"b", b"x/" + b"a" * 250),
        (b"**/a/" * 200 + b"b", b"a/" * 1000 + b"c"),
        (b"/" + b"**/*a*/" * 200 + b"b", b"a/" * 1000 + b"c"),
        (b"*[ab]" * 800 + b"c", b"ab" * 120),
    ],
)
def test_no_pattern_takes_more_than_linear_time(pattern: bytes, path: bytes) -> None:
    """One that backtracks would not end."""
    assert compile_patterns(pattern).decide(path) is None


@pytest.mark.parametrize(
    "piece", [b"?", b"[!a]", b"*a", b"[acegikmoqsuwy]", b"[[:punct:]]", b"**/"]
)
def test_long_patterns_compile(piece: bytes) -> None:
    line = piece * (MAX_PATTERN_BYTES // len(piece))
    lines = [line, *[piece] * (CHUNK_BYTES // len(piece))]
    assert compile_patterns(b"\n".join([*lines, b"end"])).decide(b"end") is True


def test_a_line_that_is_too_long_is_named() -> None:
    longest = b"a" * MAX_PATTERN_BYTES
    assert compile_patterns(longest).decide(longest) is True
    assert compile_patterns(b"#" + longest).decide(longest) is None
    with pytest.raises(ValueError, match="line 2 is over 4,096 bytes"):
        compile_patterns(b"a\n" + longest + b"a")


@pytest.mark.parametrize("block", [1, 20, 2000])
def test_the_last_line_that_matches_decides(block: int) -> None:
    """Also where the lines are too many for one regular expression."""
    lines = [
        b"%sname%d" % (b"!" * (line // block % 2), line * 7 % 500) for line in range(700 * block)
    ][:9000]
    expected: dict[bytes, bool] = {}
    for line in lines:
        expected[line.removeprefix(b"!")] = not line.startswith(b"!")
    patterns = compile_patterns(b"\n".join(lines))
    for name in [*expected][::5]:
        assert patterns.decide(name) is expected[name]
        assert patterns.decide(b"folder/" + name + FOLDER) is expected[name]
    assert patterns.decide(b"name") is None


@pytest.mark.parametrize("lines", [[b"*a?", b"[ab]*"], [b"a", b"!a"]])
def test_too_much_work_is_refused(lines: list[bytes]) -> None:
    assert compile_patterns(b"\n".join(lines * 100)).decide(b"a") is not None
    with pytest.raises(ValueError, match="too many wildcards, or lines with"):
        compile_patterns(b"\n".join(lines * (MAX_WORK // 4 + 1)))
    literals = b"\n".join(b"name%d" % line for line in range(20_000))
    assert compile_patterns(literals).decide(b"name19999") is True


def test_names_may_be_any_bytes() -> None:
    name = os.fsencode("\udcff\n\udc80.log")
    assert compile_patterns(b"*.log").decide(name) is True
    assert compile_patterns(b"\xff*").decide(name) is True
    assert compile_patterns(b"??\x80.log").decide(name) is True
