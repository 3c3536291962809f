"""Hostile documents: each costs at most one error message, and neither memory nor other files."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import psutil
import pytest

from index.documents.documents import DocumentError, Documents
from index.documents.formats import parser
from index.documents.formats.parser import DocumentParser
from tests.attacks.hostile_documents import ATTACKS
from tests.support.sample_documents import parsing_processes, pdf

MAX_LEFT_BEHIND = 100 << 20  # bytes of memory
BEFORE = b"# Before\n\nwords that were stored before the attacks"


def memory() -> int:
    """Bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def outcome(documents: Documents, path: Path) -> str:
    """What became of a file: "" if it was added, else the error."""
    try:
        documents.add(path)
    except DocumentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("size", "timeout_s"),
    [(32 << 10, 0.5), pytest.param(4 << 20, 1.0, marks=pytest.mark.full)],
)
def test_hostile_documents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, timeout_s: float
) -> None:
    """All in one process and into one library. `size`: about what each unpacks to, in bytes."""
    others = parsing_processes()
    with Documents(tmp_path / "library") as documents:
        before = documents.add_data("before.md", BEFORE)
        monkeypatch.setattr(parser, "TIMEOUT_S", timeout_s)
        at_first = memory()
        for what, (name, make) in ATTACKS.items():
            path = tmp_path / name
            path.write_bytes(make(size))
            free = memory()
            error = outcome(documents, path)
            left = memory() - free
            assert not error or re.fullmatch(re.escape(name) + ": [^\n]+; [^\n]+", error), what
            assert left < MAX_LEFT_BEHIND, f"{what}: {left >> 20} MiB left behind"
        assert memory() - at_first < MAX_LEFT_BEHIND
        assert documents.get(before.id) == before
        hits = documents.search("words stored before the attacks", 3)
        assert before.id in [hit.chunk.document for hit in hits]
    assert parsing_processes() <= others


def test_a_library_fetches_and_caches_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever address a file names, and wherever a library would keep files."""
    for variable in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server, DocumentParser() as parser:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        page = (
            f'<link rel="stylesheet" href="{address}.css"><base href="{address}"><p>words'
            f'<img src="{address}.png"><iframe src="{address}.html"></iframe>'
        )
        mail = f"Subject: a\nContent-Type: text/html\n\n{page}"
        field = f'{{\\rtf1 words {{\\field{{\\*\\fldinst INCLUDEPICTURE "{address}.png"}}}}}}'
        files = {"a.html": page, "a.eml": mail, "a.rtf": field}
        files = {name: text.encode() for name, text in files.items()} | {"a.pdf": pdf(["words"])}
        for name, data in files.items():
            assert "words" in parser.parse(name, data).text
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not any(tmp_path.iterdir())
