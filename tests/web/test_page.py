"""The page's pure functions: exact and escaped rendering, history, exports and uploads."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.citations import Citation, Source, cite
from engine.records import Done, Piece, Step
from index.documents.documents import Document, DocumentError, Documents
from index.records import Span
from tests.support.sample_documents import pdf
from ui.web import export, history, uploads
from ui.web import html as shown
from ui.web.documents import document_list, selection
from ui.web.progress import AnswerProgress, merge
from ui.web.transcript import Entry, quotes
from ui.web.uploads import UploadBatch, UploadedFile

HOSTILE = "<img src=x onerror=alert(1)> ${alert(1)} {{alert}} </div><script>x</script> & \"' `"
TEXTS = st.text(st.sampled_from("ab <>&\"'`${}\n#*[]()|") | st.characters(codec="utf-8"))
TAGS = {
    *("div", "span", "a", "sup", "ul", "li", "article", "h3", "p", "details", "summary", "mark"),
    *("button", "label", "input", "select", "option", "dl", "dt", "dd", "b", "small", "svg"),
    *("title", "rect", "progress"),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["files", "name", "path"]), inner)
    ),
    max_leaves=12,
)


class Read(HTMLParser):
    """The text of HTML as a browser shows it; fails on foreign elements and attributes."""

    def __init__(self, text: str, without: str = "") -> None:
        super().__init__()
        self.without, self.inside, self.shown = without, 0, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert not any(name.startswith("on") or name in ("src", "style") for name, _ in attrs)
        assert all(name != "href" or str(value).startswith("#") for name, value in attrs)
        self.inside += tag == self.without

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag == self.without

    def handle_data(self, data: str) -> None:
        self.shown += "" if self.inside else data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


def citation(answer: str, text: str, name: str = "notes.md") -> list[Citation]:
    return cite(answer, [Source("d", name, text)])


def entry(text: str = "one two three four five six", **more: Any) -> Entry:
    """A fully cited answer."""
    found = citation(text, f"before {text} after")
    told = quotes(found, lambda id: f"before {text} after")
    return Entry("what?", text, tuple(found), told, 1.0, (Piece(text, "model"),), **more)


# -- rendering ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["documents", "model", "eagle", HOSTILE]))))
def test_pieces_are_rendered_exactly(found: list[tuple[str, str]]) -> None:
    pieces = [Piece(text, source) for text, source in found]
    assert Read(shown.colored(pieces)).shown == "".join(text for text, _ in found)
    Read(shown.legend(source for _, source in found))


@given(TEXTS, TEXTS)
def test_cited_answers_are_rendered_exactly(before: str, after: str) -> None:
    quote = f"one {HOSTILE} two three four five"
    answer = f"{before} {quote} {after}"
    found = citation(answer, quote, HOSTILE)
    html = shown.cited(answer, found, "ask-1")
    assert Read(html, without="sup").shown == answer
    assert found and all(
        f'data-source="ask-1-{number + 1}"' in html for number in range(len(found))
    )
    Read(shown.sources(found, quotes(found, lambda id: quote), "ask-1"))


@given(TEXTS, TEXTS, TEXTS)
def test_entries_are_escaped(asked: str, text: str, name: str) -> None:
    kept = Entry(asked, text, notes=(name,), pieces=(Piece(text, "model"),), model=name)
    Read(shown.finished_answer(kept, "ask-1"))
    Read(shown.collapsed_entries([(1, kept)], "ask"))
    Read(shown.finished_answer(Entry(asked, text, found=False), "ask-2"))
    Read(shown.streaming_answer(asked, AnswerProgress(detail=name)))
    Read(shown.note(text, "error"))


def test_a_quote_is_highlighted_in_its_context() -> None:
    text = "x" * 5000 + " the very words that were copied " + "y" * 5000
    found = citation("the very words that were copied", text)
    html = shown.sources(found, quotes(found, lambda id: text), "ask-1")
    assert "<mark>the very words that were copied</mark>" in html and 'id="ask-1-1"' in html
    assert html.count("\u2026") == 2 and len(html) < 3000


def test_a_piece_from_a_cited_passage_links_to_it() -> None:
    found = citation("one two three four five", "one two three four five")
    inside = Piece("two", "documents", Span("d", 4, 7))
    elsewhere = [Piece("two", "documents", Span("d", 100, 103)), Piece("two", "documents")]
    html = shown.colored([inside, *elsewhere], False, found, "ask-1")
    assert html.count('data-source="ask-1-1"') == 1 and html.count("two") == 3


def test_coverage() -> None:
    assert "38%" in shown.coverage(0.38)
    assert "check" in shown.coverage(0.0, cited=False)
    assert "All" in shown.coverage(1.0)


# -- streaming ------------------------------------------------------------------------------------

SPANS = st.none() | st.builds(
    Span, st.sampled_from("de"), st.integers(0, 3), st.integers(0, 3), st.just(0)
)
PIECES = st.builds(Piece, st.text(max_size=3), st.sampled_from(["documents", "model"]), SPANS)


@given(st.lists(PIECES), st.integers(0, 40))
def test_pieces_are_merged_without_loss(pieces: list[Piece], stop: int) -> None:
    live = AnswerProgress()
    for piece in pieces:
        live.add(Step((piece,), seconds=0.1))
    whole = "".join(piece.text for piece in pieces)
    assert live.text == "".join(piece.text for piece in live.pieces) == whole
    for one, other in zip(live.pieces, live.pieces[1:], strict=False):
        assert merge(one, other) is None
    live.finish(Done("stop", whole[:stop]))
    assert live.text == "".join(piece.text for piece in live.pieces) == whole[:stop]


def test_the_speedup_is_one_without_drafts() -> None:
    live = AnswerProgress(pass_seconds=[1.0, 1.5, 2.0])
    live.add(Step(prefill=(3, 7)))
    assert live.phase == "reading" and live.detail == "3 of 7 tokens"
    live.add(Step((Piece("a", "model"),), seconds=0.2))
    assert live.speedup == pytest.approx(1.0) and live.tokens_per_second == pytest.approx(5.0)
    live.add(Step((Piece("bcd", "documents"),), drafted=2, accepted=2, seconds=0.4))
    assert live.tokens == 4 and live.plain_s == pytest.approx(0.2 + 3 * 0.2)


# -- history --------------------------------------------------------------------------------------


def test_a_history_belongs_to_one_user_and_browser() -> None:
    found = history.Histories()
    browser = "b" * 32
    mine = found.of("ann", browser, "s1")
    mine.add(entry())
    assert found.of("ann", browser, "s2") is mine  # after a reload
    for other in (("ben", browser, "s1"), ("ann", "c" * 32, "s1"), (None, browser, "s1")):
        assert not found.of(*other).list()
    assert found.of("ann", "short", "s1") is not found.of("ann", "short", "s2")
    assert found.of("ann", None, "s1") is not mine


def test_a_history_is_bounded_and_entries_can_be_replaced() -> None:
    kept = history.History()
    for number in range(history.MAX_ENTRIES + 3):
        kept.add(entry(f"answer number {number} of very many words"))
    entries = kept.list()
    assert len(entries) == history.MAX_ENTRIES and entries[0].entry.text.startswith(
        "answer number 3 "
    )
    assert len({one.number for one in entries}) == history.MAX_ENTRIES
    made = kept.add(entry("another one"), replaces=entries[-1].number)
    assert [*kept.list()] == [*entries[:-1], made]
    found = history.Histories()
    first = found.of(None, "first" * 9, None)
    for number in range(history.MAX_BROWSERS):
        found.of(None, f"browser number {number}", None)
    assert found.of(None, "first" * 9, None) is not first


# -- exports ---------------------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_an_export_has_the_exact_text(asked: str, text: str) -> None:
    kept = entry(f"{text} one two three four five six", figures={"tokens": 3, "seconds": 1.25})
    made = json.loads(export.as_json([kept, Entry(asked, text, found=False)]))
    first, second = made["entries"]
    assert (first["text"], second["asked"], second["text"]) == (kept.text, asked, text)
    for one in first["citations"]:
        assert one["quote"] == one["text"] == kept.text[one["start"] : one["stop"]]
    assert first["citations"] and first["figures"] == {"tokens": 3, "seconds": 1.25}
    fence = export.fenced(text).split("text\n", 1)[0]
    assert fence not in text and export.fenced(text) == f"{fence}text\n{text}\n{fence}"


@given(TEXTS, TEXTS)
def test_markdown_exports_are_escaped(asked: str, text: str) -> None:
    rest, left = [], iter(export.as_markdown([Entry(asked, text, notes=(asked,))]).split("\n"))
    for line in left:
        if opened := re.fullmatch(r"(`{3,})text", line):
            while next(left) != opened[1]:
                pass
        else:
            rest.append(re.sub(r"\\.", "", line))
    assert not re.search(r"[<`\[]", "\n".join(rest))


def test_export_paths_cannot_be_guessed(tmp_path: Path) -> None:
    one, other = (Path(export.write(tmp_path, "a.md", "x\r\n\ud800")) for _ in range(2))
    assert one != other and one.read_bytes() == b"x\r\n?" and one.parent.stat().st_mode & 0o77 == 0
    first = export.write(tmp_path, "a.md", "old", "secret")
    assert export.write(tmp_path, "a.md", "new", "secret") == first
    assert Path(first).read_text() == "new" and len([*Path(first).parent.iterdir()]) == 1
    export.remove(tmp_path, "secret")
    assert not Path(first).parent.exists() and one.exists()
    export.remove(tmp_path, "secret")


# -- uploads --------------------------------------------------------------------------------------


@given(JSON)
def test_upload_events_may_have_any_data(said: Any) -> None:
    for one in uploads.files_of(said):
        assert one.state in ("waiting", "failed") and one.name


def test_only_files_in_the_upload_folder_are_read_and_deleted(tmp_path: Path) -> None:
    folder, secret = tmp_path / "uploads", tmp_path / "secret.md"
    folder.mkdir()
    secret.write_text("secret words")
    (folder / "link.md").symlink_to(secret)
    paths = [str(secret), str(folder / "../secret.md"), str(folder / "link.md"), str(folder), ""]
    with Documents() as library:
        for path in [*paths, "a\0b", "/etc/passwd", "x" * 9999]:
            file = UploadedFile("notes.md", path)
            assert uploads.add_to_library(file, folder.resolve(), library) is None
            assert file.state == "failed" and "notes.md: not uploaded" in file.message
            with pytest.raises(DocumentError):
                uploads.copy_of(file, folder.resolve())
        assert library.list() == []
    assert secret.read_text() == "secret words"


def test_an_upload_is_deleted_after_reading(tmp_path: Path) -> None:
    with Documents() as library:
        for name, data, state in (
            ("good.md", b"# Words", "added"),
            ("bad.pdf", b"no pdf", "failed"),
            ("..", b"words", "failed"),
        ):
            copy = tmp_path / "hash" / "copy"
            copy.parent.mkdir()
            copy.write_bytes(data)
            file = UploadedFile(name, str(copy))
            uploads.add_to_library(file, tmp_path.resolve(), library)
            assert file.state == state and not copy.parent.exists()
            assert str(tmp_path) not in uploads.uploads_html(UploadBatch([file]))


@given(st.lists(st.sampled_from(["waiting", "reading", "added", "failed"]), min_size=1))
def test_all_uploads_are_listed_and_at_the_end_the_failed_ones(states: list[str]) -> None:
    files = [UploadedFile(f"{HOSTILE}{number}", state=state) for number, state in enumerate(states)]
    html = uploads.uploads_html(UploadBatch(files))
    text = Read(html).shown
    busy = bool({"waiting", "reading"} & {*states})
    for file in files:
        assert (file.name in text) == (busy or file.state == "failed")
    assert ("<progress" in html) == busy


# -- the list --------------------------------------------------------------------------------------

IDS = st.lists(st.sampled_from("abcdef"), unique=True)


@given(IDS, st.sets(st.sampled_from("abcdefg")))
def test_new_documents_are_selected(ids: list[str], left_out: set[str]) -> None:
    assert selection(ids, left_out, single=False) == [one for one in ids if one not in left_out]
    single = selection(ids, left_out, single=True)
    assert len(single) == bool(ids) and set(single) <= set(ids)
    assert selection([*ids, "new"], left_out, single=True) == ["new"]


def test_the_list_describes_each_document() -> None:
    with Documents() as library:
        paper = library.add_data("paper.pdf", pdf(["words on a page", "and on another"]))
        notes = library.add_data("notes.md", b"words " * 6000)
        library.set_whole(notes.id, True)
        documents = library.list()
    html = document_list(documents, [paper.id], "ask", single=False)
    text = Read(html).shown
    assert "1 of 2 selected" in text and "pdf, 2 pages" in text and "md, about 6k words" in text
    rows = html.split("<li ")[1:]
    assert [" checked" in row for row in rows] == [True, False]
    assert ['value="whole" selected' in row for row in rows] == [False, True]
    assert "<select" not in document_list(documents, [], "sum", single=True)
    assert document_list([], [], "ask", single=False) == ""


@given(TEXTS.filter(str.strip))
def test_names_are_escaped(name: str) -> None:
    document = Document("d", name, "md", "words", (), ())
    text = Read(document_list([document], ["d"], "ask", single=False)).shown
    assert " ".join(name.split()) in text
