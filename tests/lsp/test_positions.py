"""Document texts and positions, against an oracle that edits the client's own code units."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.protocol.positions import ENCODINGS, Text, clean
from lsp_server.protocol.text_sync import OpenDocuments, path_of
from tests.support.lsp import STATES, Direct

# Line ends, other characters at which str.splitlines splits, and characters of every length.
ODD = [
    "\n",
    "\r\n",
    "\r",
    "\f",
    "\v",
    "\x85",
    "\u2028",
    "\u2029",
    "é",
    "漢",
    "😋",
    "\U0010ffff",
    "\0",
]
PIECES = [*ODD, "a", "b", " ", "word", "x = 1\n", "👩‍💻"]
EDITS = 2_500
CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def lines_of(text: str) -> list[tuple[int, int]]:
    """Start and stop of every line, character by character."""
    lines, start, at = [], 0, 0
    while at < len(text):
        end = 2 if text[at : at + 2] == "\r\n" else 1 if text[at] in "\r\n" else 0
        if end:
            lines.append((start, at))
            start = at + end
        at += end or 1
    return [*lines, (start, len(text))]


class Editor:
    """A client's buffer: the text as bytes in its encoding, edited by bytes."""

    def __init__(self, encoding: str, text: str) -> None:
        self.codec, self.width = CODECS[encoding]
        self.data = text.encode(self.codec)

    @property
    def text(self) -> str:
        return self.data.decode(self.codec)

    def place(self, offset: int) -> dict[str, int]:
        """The position of a code point: count lines, then units."""
        text = self.text
        line, (start, stop) = next(
            (number, line)
            for number, line in reversed([*enumerate(lines_of(text))])
            if line[0] <= offset
        )
        units = len(text[start : min(offset, stop)].encode(self.codec)) // self.width
        return {"line": line, "character": units}

    def replace(self, start: dict[str, int], stop: dict[str, int], new: str) -> None:
        """Replace a range by bytes."""
        first, last = self._byte(start), self._byte(stop)
        self.data = self.data[:first] + new.encode(self.codec) + self.data[last:]

    def _byte(self, place: dict[str, int]) -> int:
        text = self.text
        start, _ = lines_of(text)[place["line"]]
        return len(text[:start].encode(self.codec)) + place["character"] * self.width


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_server_and_client_have_the_same_text_after_every_edit(encoding: str) -> None:
    """Random edits, one to three in a message."""
    chance = random.Random(f"edits {encoding}")
    direct, uri = Direct(encoding), "file:///edited.py"
    editor = Editor(encoding, "first 😋\r\nlast\n")
    direct.open(uri, editor.text)
    made = version = 0
    while made < EDITS:
        changes: list[dict[str, Any]] = []
        for _ in range(chance.randrange(1, 4)):
            made += 1
            changes.append(random_change(chance, editor))
        version += 1
        document = {"uri": uri, "version": version}
        told = {"textDocument": document, "contentChanges": changes}
        assert direct.notify("textDocument/didChange", told) == []
        held = direct.server.documents.get(uri)
        assert held.text.text == editor.text and held.version == version
        if version % 50 == 0:
            assert held.text.starts.tolist() == [start for start, _ in lines_of(editor.text)]
    answer = direct.ask(STATES, {"uri": uri})
    assert answer["result"] == {"text": editor.text, "version": version}


def random_change(chance: random.Random, editor: Editor) -> dict[str, Any]:
    """Change a buffer, which stays at a few hundred characters, and return the change."""
    text = editor.text
    if chance.random() < 0.01:
        new = "".join(chance.choices(PIECES, k=chance.randrange(20)))
        editor.data = new.encode(editor.codec)
        return {"text": new}
    start = chance.choice([chance.randint(0, len(text)), len(text)])
    longest = 200 if len(text) > 300 else 4
    stop = min(len(text), start + chance.randrange(longest))
    first, last = editor.place(start), editor.place(stop)
    new = "".join(chance.choices(PIECES, k=chance.randrange(5)))
    editor.replace(first, last, new)
    return {"range": {"start": first, "end": last}, "text": new}


@given(texts, st.data())
def test_a_change_updates_the_lines(text: str, data: st.DataObject) -> None:
    old = Text.of(text)
    for _ in range(3):
        start = data.draw(st.integers(0, len(old.text)))
        stop = data.draw(st.integers(start, len(old.text)))
        new = data.draw(texts)
        changed = old.change(start, stop, new)
        assert changed.text == old.text[:start] + new + old.text[stop:]
        assert changed.starts.tolist() == [first for first, _ in lines_of(changed.text)]
        assert [changed.line(n) for n in range(changed.line_count)] == lines_of(changed.text)
        old = changed


@given(texts, st.sampled_from(ENCODINGS))
def test_positions_round_trip(text: str, encoding: str) -> None:
    state, codec = Text.of(text), CODECS[encoding]
    for offset in range(len(text) + 1):
        line, character = state.position(offset, encoding)
        within = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
        assert state.offset(line, character, encoding) == offset - within
        start, _ = lines_of(text)[line]
        assert character * codec[1] == len(text[start : offset - within].encode(codec[0]))


@given(texts, st.sampled_from(ENCODINGS), st.integers(0, 30), st.integers(0, 60))
def test_positions_that_do_not_exist_are_clamped(
    text: str, encoding: str, line: int, character: int
) -> None:
    state, lines = Text.of(text), lines_of(text)
    found = state.offset(line, character, encoding)
    if line >= len(lines):
        assert found == len(text)
        return
    start, stop = lines[line]
    units = CODECS[encoding][1] * character
    # The last code point that starts at or before the position, one by one.
    fits = [
        n for n in range(start, stop + 1) if len(text[start:n].encode(CODECS[encoding][0])) <= units
    ]
    assert found == fits[-1]


@given(st.text(st.characters(categories=["Cs", "Lu"]) | st.sampled_from("😋é"), max_size=8))
def test_lone_surrogates_become_encodable_and_keep_their_length(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert len(cleaned.encode("utf-16-le")) == len(text.encode("utf-16-le", "surrogatepass"))
    assert Text.of(text).text == cleaned and Text.of("").change(0, 0, text).text == cleaned


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/a%20b/%C3%A9.py", "/home/a b/é.py"),
        ("file://localhost/a.py", "/a.py"),
        ("file:///a%FF", "/a\udcff"),
        ("file:///a%00", None),
        ("file://elsewhere/a.py", None),
        ("untitled:Untitled-1", None),
        ("file://[", None),
        ("", None),
    ],
)
def test_paths_of_uris(uri: str, path: str | None) -> None:
    assert path_of(uri) == path


@pytest.mark.parametrize(
    ("uri", "language", "path"),
    [
        ("file:///p/run", "python", "/p/run.py"),
        ("untitled:Untitled-1", "python", "untitled:Untitled-1.py"),
        ("untitled:/p/new.ts", "typescript", "new.ts"),
        ("untitled:notes.txt", "rust", "untitled:notes.txt.rs"),
        ("untitled:Untitled-2", "plaintext", "untitled:Untitled-2"),
        ("vscode-notebook-cell:/p/a.ipynb#W0sZ", "python", "a.ipynb#W0sZ.py"),
        ("vscode-notebook-cell:/p/a.ipynb#W0sZ", "markdown", "a.ipynb#W0sZ.md"),
        ("untitled:Untitled-3", "css", "untitled:Untitled-3.css"),
        ("file:///p/a.py", "python", "/p/a.py"),
        ("file:///p/a.pyi", "python", "/p/a.pyi"),
        ("file:///p/a.py", "plaintext", "/p/a.py"),
        ("file:///p/a.py", "", "/p/a.py"),
        ("file:///p/a.py", "markdown", "/p/a.py.md"),
        ("file:///p/build.inc", "python", "/p/build.inc.py"),
        ("file:///p/a.h", "c", "/p/a.h.c"),
        ("file:///p/a.htm", "html", "/p/a.htm"),
        ("file:///p/tsconfig.json", "jsonc", "/p/tsconfig.json"),
        ("file:///p/a.js", "javascriptreact", "/p/a.js"),
        ("file://", "python", "untitled.py"),
        ("file:///p/a.py", "starlark", "/p/a.py.starlark"),
        ("file:///p/a.py", "python.django", "/p/a.py"),
        ("file:///p/Makefile", "makefile", "/p/Makefile"),
    ],
)
def test_the_language_that_the_client_names_is_in_a_document_s_path(
    uri: str, language: str, path: str
) -> None:
    assert OpenDocuments().open(uri, language, 1, "").source_path == path
