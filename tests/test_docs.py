"""The documentation: its links, commands and drawings, and the site that MkDocs makes of it."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from selectolax.lexbor import LexborHTMLParser

from ui.cli.main import make_parser
from ui.common.errors import Failure

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
assert SPEC and SPEC.loader
HOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(HOOKS)

GUIDES = ["README.md", *HOOKS.PAGES]
GUIDES += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
DRAWINGS = sorted((ROOT / "docs").rglob("*.svg"))
LOADED = "script[src], img[src], source, iframe, link[href]:not([rel=canonical])"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@cache
def text_of(guide: str) -> str:
    return (ROOT / guide).read_text("utf-8")


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Every parser of the command line, by what is typed for it."""
    return {parser.prog: parser for parser in HOOKS.walk(make_parser([]))}


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
def test_drawings_load_nothing_and_follow_the_mode(drawing: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", drawing.read_text("utf-8"))
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "//" not in re.sub(r"xmlns(:\w+)?=\"[^\"]*\"", "", text)
    # A terminal's picture is dark in both.
    assert ("prefers-color-scheme: dark" in text) == (drawing.parent.name == "drawings")


# -- the site ----------------------------------------------------------------------------------


def test_links_become_the_sites() -> None:
    def site(text: str) -> str:
        return HOOKS.for_site(text, "docs/index.md")

    assert (
        site("[a](models.md#b) [c](#d) [e](http://f)") == "[a](models.md#b) [c](#d) [e](http://f)"
    )
    picture = HOOKS.for_site("![p](media/edit.png)", "editors/vscode/README.md")
    assert picture == "![p](vscode-inline.png)"
    assert site("[s](../SECURITY.md#out-of-scope)") == "[s](security.md#out-of-scope)"
    assert site("[config.py](../engine/config.py)") == "`engine/config.py`"
    assert site("[the\nsettings](../engine/config.py)") == "the\nsettings (`engine/config.py`)"
    code = "```\n[s](../SECURITY.md)\n| `a\\|b` |\n```\n"
    assert site(code) == code
    assert site(r"| `a\|b` | c\|d |") == r"| `a|b` | c\|d |"
    assert HOOKS.for_site("[r](docs/remote.md)", "SECURITY.md") == "[r](remote.md)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, LexborHTMLParser]:
    """The site's pages, parsed."""
    return {path: LexborHTMLParser(path.read_bytes()) for path in sorted(site.rglob("*.html"))}


def test_pages_load_nothing_from_other_servers(
    site: Path, pages: dict[Path, LexborHTMLParser]
) -> None:
    for path, page in pages.items():
        for node in page.css(LOADED):
            for name in ("src", "srcset", "href"):
                assert not urlsplit(node.attributes.get(name) or "").netloc, f"{path}: {node.html}"
        # What the theme's script fetches elsewhere, where a page has it.
        assert not page.css(".mermaid, [data-md-component=source]"), path
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\W*(https?:)?//", style.read_text("utf-8")), style


def test_links_of_pages_lead_to_pages_and_headings(
    site: Path, pages: dict[Path, LexborHTMLParser]
) -> None:
    names = {
        path: {node.attributes.get("id") for node in page.css("[id]")}
        for path, page in pages.items()
    }
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute
            continue
        for node in page.css("a[href], img[src]"):
            parts = urlsplit(node.attributes.get("href") or node.attributes.get("src") or "")
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fits = not parts.fragment or unquote(parts.fragment) in names.get(target, set())
            if not (target.is_file() and fits):
                wrong.append(f"{path.name}: {node.html}")
    assert not wrong, "\n".join(wrong)


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    page = LexborHTMLParser((site / "commands.html").read_bytes())
    text = page.css_first("article").text()
    for name, parser in parsers().items():
        assert name in text
        for action in parser._actions:
            if action.help is argparse.SUPPRESS:
                continue
            for option in action.option_strings:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), (name, option)


def test_code_in_tables_has_its_bars(site: Path) -> None:
    text = LexborHTMLParser((site / "api.html").read_bytes()).css_first("article").text()
    assert "<|tool_call|>" in text and r"<\|" not in text
