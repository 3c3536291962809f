"""The documentation: its links, its commands and its drawings."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from ui.cli.main import make_parser
from ui.errors import Failure

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "engine/drafting/MODEL_CARD.md"]
GUIDES += ["editors/neovim/README.md", "editors/vscode/README.md"]
GUIDES += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
DRAWINGS = sorted((ROOT / "docs").rglob("*.svg"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@cache
def text_of(guide: str) -> str:
    return (ROOT / guide).read_text("utf-8")


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Every parser of the command line, by what is typed for it."""
    return {parser.prog: parser for parser in walk(make_parser([]))}


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all that are below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)


@pytest.mark.parametrize("guide", GUIDES)
def test_links_lead_to_files_and_headings(guide: str) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", text_of(guide))):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        path = (ROOT / guide).parent / parts.path if parts.path else ROOT / guide
        found = path.exists() and path.resolve().is_relative_to(ROOT)
        if not found or (parts.fragment and parts.fragment not in anchors(path)):
            wrong.append(target)
    assert not wrong, f"{guide}: {wrong}"


def anchors(path: Path) -> set[str]:
    """The names that code hosts give to a document's headings."""
    text = FENCED.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("guide", GUIDES)
def test_commands_are_commands_of_the_parser(guide: str) -> None:
    wrong = []
    for words in typed_commands(text_of(guide)):
        try:
            parsers()["draftline"].parse_args(words)
        except Failure as failure:
            wrong.append(f"{shlex.join(words)}: {failure}")
    for words in named_commands(text_of(guide)):
        if unknown := first_unknown(words):
            wrong.append(f"{shlex.join(words)}: what is {unknown}?")
    assert not wrong, f"{guide}: {wrong}"


def typed_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `draftline` in a block of shell commands, also in a container."""
    blocks = [block for language, block in FENCED.findall(text) if language in {"", "sh"}]
    blocks += re.findall(r"^    (draftline .*)$", FENCED.sub("", text), re.MULTILINE)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        if "draftline" not in line.partition("#")[0]:
            continue
        lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "X", line), posix=True, punctuation_chars="|;&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in {"|", ";", "&&"}:
                words.append(word)
                continue
            yield from arguments(words)
            words = []


def arguments(words: list[str]) -> Iterator[list[str]]:
    """What follows `draftline`, or the name of its image or service."""
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    in_container = words[:2] == ["docker", "run"] or words[:3] == ["docker", "compose", "run"]
    if words[:1] == ["draftline"]:
        yield words[1:]
    elif in_container and words[-1] != "draftline":
        yield words[len(words) - words[::-1].index("draftline") :]


def named_commands(text: str) -> Iterator[list[str]]:
    """What follows `draftline` where a sentence names a command."""
    for code in re.findall(r"`(?:\S+=\S+\s+)?draftline\s([^`]+)`", FENCED.sub("", text)):
        yield code.split()


def first_unknown(words: list[str]) -> str:
    """The first command or option that the parser does not know, "" if it knows all."""
    name = "draftline"
    for word in words:
        parser = parsers()[name]
        if word.startswith("-"):
            if word.partition("=")[0] not in parser._option_string_actions:
                return word
        elif f"{name} {word}" in parsers():
            name = f"{name} {word}"
        elif name == "draftline":
            return word
    return ""


def test_the_checks_of_commands_see_mistakes() -> None:
    text = (
        "```sh\nX=$(a b) draftline ask a -q 'b # c' | draftline chat   # d\n```\n`draftline asks`"
    )
    assert list(typed_commands(text)) == [["ask", "a", "-q", "b # c"], ["chat"]]
    text = "```sh\ndocker run --name draftline -v draftline:/data draftline ask a\n```\n"
    assert list(typed_commands(text)) == [["ask", "a"]]
    assert first_unknown(["asks"]) == "asks" and first_unknown(["models", "pull", "X"]) == ""
    assert first_unknown(["serve", "--port", "1", "--prot=1"]) == "--prot=1"


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_drawings_load_nothing(drawing: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", drawing.read_text("utf-8"))
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "//" not in re.sub(r"xmlns(:\w+)?=\"[^\"]*\"", "", text)
