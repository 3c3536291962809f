"""The page's pure functions: exact and escaped rendering, history, exports and uploads."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.rag.answer import PreparedQuestion, cite_answer
from engine.rag.citations import Source
from engine.records import Done, Piece, Step
from index.documents.documents import Document, DocumentError, Documents
from index.documents.formats.headings import Heading
from index.documents.tables import find_tables
from index.records import Span
from tests.support.sample_documents import pdf
from ui.web import export, history, pictures, uploads
from ui.web import html as shown
from ui.web.documents import document_list, selection
from ui.web.empty import MAX_TITLE_CHARS, empty_conversation
from ui.web.markdown import CitationLink, rendered
from ui.web.pictures import PATH
from ui.web.progress import AnswerProgress, cut, merge
from ui.web.shell import with_shell
from ui.web.transcript import Entry, EvidencePassage, find_passages
from ui.web.uploads import UploadBatch, UploadedFile

HOSTILE = "<img src=x onerror=alert(1)> ${alert(1)} {{alert}} </div><script>x</script> & \"' `"
TEXTS = st.text(st.sampled_from("ab <>&\"'`${}\n#*[]()|") | st.characters(codec="utf-8"))
TAGS = {
    *("div", "span", "a", "sup", "ul", "li", "article", "h2", "h3", "p", "details", "summary"),
    *("mark", "header", "img"),
    *("button", "label", "input", "select", "option", "dl", "dt", "dd", "b", "small", "svg"),
    *("title", "rect", "progress", "blockquote"),
    *("ol", "pre", "code", "strong", "em", "br", "hr", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["files", "name", "path"]), inner)
    ),
    max_leaves=12,
)


class RenderedText(HTMLParser):
    """The text of HTML as a browser shows it. Fails on elements and attributes that the page does
    not use."""

    def __init__(self, text: str, skip: str = "") -> None:
        super().__init__()
        self.skip, self.skip_depth, self.shown = skip, 0, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)
        assert all(name != "src" or str(value).startswith(f"{PATH}?") for name, value in attrs)
        links = tuple(str(value) for name, value in attrs if name == "href")
        assert all(link.startswith(("#", f"{PATH}?")) for link in links)
        self.skip_depth += tag == self.skip

    def handle_endtag(self, tag: str) -> None:
        self.skip_depth -= tag == self.skip

    def handle_data(self, data: str) -> None:
        self.shown += "" if self.skip_depth else data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("an HTML comment")


def answered(
    answer: str, text: str, name: str = "notes.md", kind: str = "md", **fields: Any
) -> Entry:
    """An answer from a document of this text, with its citations and its evidence."""
    document = Document("d", name, kind, text, (), ())
    prepared = PreparedQuestion("what?", None, (Source("d", name, text),))
    found = cite_answer(prepared, answer)
    passages, cited = find_passages(found.evidence, found.citations, {"d": document})
    fields = {"covered": found.covered, "pieces": (Piece(answer, "model"),)} | fields
    return Entry(
        "what?",
        answer,
        found.citations,
        passages,
        cited,
        doubts=found.doubts,
        **fields,
    )


def entry(text: str = "one two three four five six", **fields: Any) -> Entry:
    """A fully cited answer."""
    return answered(text, f"before {text} after", **fields)


# -- rendering ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["documents", "model", "eagle", HOSTILE]))))
def test_pieces_are_rendered_exactly(parts: list[tuple[str, str]]) -> None:
    pieces = [Piece(text, source) for text, source in parts]
    assert RenderedText(shown.colored(pieces)).shown == "".join(text for text, _ in parts)
    RenderedText(shown.legend(source for _, source in parts))


def letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


@given(
    st.text("abXY 12*_#>-.`~|[]()<&!\\\n\ue000\ue001", max_size=80) | TEXTS,
    st.lists(st.integers(0, 80), max_size=6),
)
def test_answers_have_all_their_letters_and_a_link_of_each_copy(
    text: str, borders: list[int]
) -> None:
    """And only the elements of Markdown, whatever the text is."""
    borders = sorted({min(at, len(text)) for at in borders})
    spans = [*zip(borders[::2], borders[1::2], strict=False)]
    links = [CitationLink(*span, n, "ask-1", HOSTILE) for n, span in enumerate(spans, 1)]
    html = rendered(text, links)
    RenderedText(html)
    if set("`~|\t").isdisjoint(text) and "    " not in text:  # no code, whose button has a text
        assert letters(RenderedText(html, skip="sup").shown) == letters(text)
        for link in links:
            parts = re.findall(rf'data-source="ask-1-{link.number}"[^>]*>(.*?)</a>', html)
            linked = RenderedText("".join(parts), skip="sup").shown
            assert letters(linked) == letters(text[link.start : link.stop])


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("- one\n- two", "<ul>\n<li>one</li>\n<li>two</li>\n</ul>"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |", "<th>b</th>"),
        ("# Title", "<h3>Title</h3>"),
        ("```python\nif x < 1:\n    pass\n```", '<span class="t-k">if</span>'),
        ("use `a < b` here", "<code>a &lt; b</code>"),
        ("![x](http://a/b.png) [y](javascript:z)", "![x](http://a/b.png) [y](javascript:z)"),
    ],
)
def test_answers_are_markdown(text: str, html: str) -> None:
    assert html in rendered(text)


def test_marks_of_copies_are_inside_of_lists_and_below_code() -> None:
    text = "- one two\n- three four\n\n```\nfive\n```"
    links = [CitationLink(0, 9, 1, "a", "x"), CitationLink(10, len(text), 2, "a", "y")]
    html = rendered(text, links)
    opened = '<a class="cite" href="#a-{0}" data-source="a-{0}" title="{1}">'
    assert f"<li>{opened.format(1, 'x')}one two<sup>1</sup></a></li>" in html
    assert f"<li>{opened.format(2, 'y')}three four<sup>2</sup></a></li>" in html
    assert html.endswith("<code>five\n</code></pre></div>")
    code = "def rise(tide, hours): return __tide__"
    html = shown.cited(answered(code, code, "tide.py", "code"), "a")
    assert '<code><span class="t-k">def</span>' in html and "__tide__" in html


@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_passages_are_rendered_exactly(text: str, borders: list[int]) -> None:
    assume(not find_tables("", text))
    borders = sorted({min(one, len(text)) for one in borders})
    marks = tuple(zip(borders[::2], borders[1::2], strict=False))
    html = shown.marked_text(EvidencePassage("d", HOSTILE, None, 1, 0, text, marks))
    assert RenderedText(html).shown == text and html.count("<mark>") == len(marks)
    parts = re.findall(r"<mark>(.*?)</mark>", html, re.DOTALL)
    assert [unescape(part) for part in parts] == [text[first:last] for first, last in marks]


def test_a_table_in_a_passage_is_shown_as_a_table() -> None:
    rows = "| City | Euros <a> |\n|---|---|\n| Oslo | 9\\|0 |\n| Bergen<br>north |  |"
    text = f"Rent:\n\n{rows}\n\nThe end."
    first = text.index("Oslo")
    marks = ((0, 4), (first, first + 11))
    html = shown.marked_text(EvidencePassage("d", "a.md", None, 1, 0, text, marks))
    assert html == (
        "<mark>Rent</mark>:\n\n<table><tr><th>City</th><th>Euros &lt;a&gt;</th></tr>"
        "<tr><td><mark>Oslo</mark></td><td><mark>9|0</mark></td></tr>"
        "<tr><td>Bergen<br>north</td><td></td></tr></table>\nThe end."
    )
    below = text[first - 2 :]  # it starts inside of the table
    html = shown.marked_text(EvidencePassage("d", "a.md", None, 1, 0, below, ()))
    assert html.startswith("<table><tr><td>Oslo</td>") and "<th>" not in html


@given(TEXTS, TEXTS, TEXTS)
def test_entries_are_escaped(question: str, text: str, name: str) -> None:
    answer = Entry(question, text, notes=(name,), pieces=(Piece(text, "model"),), model=name)
    RenderedText(shown.finished_answer(answer, "ask-1"))
    RenderedText(shown.conversation([history.HistoryEntry(1, answer)], 0, "ask"))
    RenderedText(shown.finished_answer(Entry(question, text, found=False), "ask-2"))
    waiting = AnswerProgress(detail=name)
    RenderedText(shown.streaming_answer(question, waiting, extract=text))
    RenderedText(shown.note(text, "error"))


def test_a_copy_is_marked_in_context() -> None:
    copy = "the very words that were copied"
    long = answered(copy, f"{'x ' * 3000}\n{copy}\n{'y ' * 3000}")
    html = shown.sources(long.passages, "ask-1")
    assert f"<mark>{copy}</mark>" in html and 'id="ask-1-1" open' in html
    assert long.passages[0].location == "notes.md, line 2" and len(long.passages[0].text) < 2000


def test_short_answers_have_their_words_marked_too() -> None:
    answer = answered("two months", "The bell rings.\n\nWhat is it? It takes two months at most.")
    html = shown.finished_answer(answer, "ask-1")
    assert "<mark>two months</mark>" in html and "line 3" in html and not answer.doubts


def test_a_collapsed_passage_shows_the_sentence_with_the_mark() -> None:
    text = "The bell rings.\nNo more than eight people may stand here.\nThe rest."
    found = EvidencePassage("d", "a.md", None, 1, 0, text, ((29, 34),))
    assert shown.quote(found).startswith("No more than eight people may stand here.")
    long = replace(found, text=f"{'x ' * 99}{text[16:]}", marks=((198 + 13, 198 + 18),))
    assert shown.quote(long).startswith("\u2026 x ") and "eight people" in shown.quote(long)


def test_the_lines_of_a_pdfs_paragraph_are_joined() -> None:
    text = f"Head\n{'word ' * 9}in\none line.\nAnother."
    html = shown.marked_text(EvidencePassage("d", "a.pdf", 1, None, 0, text, ((50, 58),)))
    assert html.startswith("Head\nword") and "\nAnother." in html
    assert "<mark>in one l</mark>" in html


def test_what_was_read_beside_the_sources_is_folded_away() -> None:
    found = EvidencePassage("d", "a.md", None, 1, 0, "three keys", ((0, 10),))
    read = replace(found, name="b.md", marks=())
    html = shown.sources([found, read, read], "ask-1")
    above, below = html.split('<details class="others">')
    assert ">Sources</h3>" in above and 'id="ask-1-1" open' in above and "b.md" not in above
    assert "Also read: 2 other passages" in below and 'id="ask-1-3"' in below
    html = shown.sources([read], "ask-1")
    assert "What was read" in html and "others" not in html and 'id="ask-1-1" open' in html


def test_an_answer_that_nothing_supports_says_so() -> None:
    html = shown.finished_answer(answered("Forty-two elephants.", "The bell rings at noon."), "a")
    assert "No passage supports this" in html and "<mark>" not in html


@pytest.mark.parametrize(("kind", "is_code"), [("code", True), ("md", False)])
def test_code_is_monospaced(kind: str, is_code: bool) -> None:
    html = shown.sources(answered("a = b + c * d", "a = b + c * d", "x.py", kind).passages, "a")
    assert ('class="passage code"' in html) == is_code


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=9))
def test_a_passage_of_a_pdf_has_a_picture_of_its_page(marks: list[tuple[int, int]]) -> None:
    passage = EvidencePassage("<d&>", HOSTILE, 7, None, 1000, "words " * 20, tuple(marks))
    asked: list[Any] = []
    library: Any = SimpleNamespace(picture=lambda *what: asked.append(what) or b"png")
    html = shown.sources([passage], "ask-1")
    RenderedText(html)
    query = pictures.address(passage).partition("?")[2]
    assert escape(query) in html and pictures.draw(library, query) == b"png"
    assert asked == [("<d&>", 7, [(1000 + a, 1000 + b) for a, b in marks])]
    assert "<img" not in shown.sources([replace(passage, page=None, line=3)], "ask-1")


def test_a_rewritten_question_is_shown() -> None:
    html = shown.finished_answer(entry(rewritten=HOSTILE), "ask-1")
    assert f"Asked as: {HOSTILE}" in RenderedText(html).shown


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(6, 60)), max_size=6))
def test_every_citation_is_in_a_passage(copies: list[tuple[int, int]]) -> None:
    """With its exact quote, whether it is in the evidence or not."""
    words = [f"w{number}" for number in range(500)]
    text = " ".join(words)
    answer = ". Then: ".join(" ".join(words[at : at + count]) for at, count in copies)
    cited_entry = answered(answer, text)
    for citation, index in zip(cited_entry.citations, cited_entry.cited_passages, strict=True):
        passage = cited_entry.passages[index]
        assert passage.quote(citation) == text[citation.source_start : citation.source_stop]
        assert any(
            first <= citation.source_start - passage.start < last for first, last in passage.marks
        )


def test_a_line_separates_what_is_not_referred_to() -> None:
    topics = [0, 0, 1, 3]
    entries = [history.HistoryEntry(n, entry(), topic) for n, topic in enumerate(topics)]
    html = shown.conversation(entries, 3, "ask")
    assert [part.count("<article") for part in html.split(shown.NEW_TOPIC)] == [2, 1, 1]
    assert shown.conversation(entries, 4, "ask") == html + shown.NEW_TOPIC
    assert shown.latest_answer(entries[-1], 4, "ask")[1].endswith(shown.NEW_TOPIC)
    assert shown.conversation([], 4, "ask") == ""


def test_support() -> None:
    assert "38%" in shown.support(replace(entry(), covered=0.38))
    assert "check it" in shown.support(replace(entry(), doubts=("2023: check it.",)))


@given(st.lists(TEXTS, max_size=2), st.lists(TEXTS, max_size=2))
def test_what_is_copied_comes_with_the_words_of_the_question(
    has: list[str], lacks: list[str]
) -> None:
    copied = replace(entry(), words_found=tuple(has), words_missing=tuple(lacks))
    text = RenderedText(shown.support(copied)).shown
    assert "All words are copied" in text
    assert all(f"\u201c{word}\u201d" in text for word in [*has, *lacks])


def test_the_outline_is_before_the_scripts_of_the_page() -> None:
    page = with_shell(b"<body><gradio-app>x</gradio-app></body>").decode()
    assert page.startswith("<body><style>") and page.endswith("<gradio-app>x</gradio-app></body>")
    assert page.count('id="shell"') == 1 and "Loading the page" in page
    assert with_shell(b"not the page") == b"not the page"


# -- streaming ------------------------------------------------------------------------------------

SPANS = st.none() | st.builds(
    Span, st.sampled_from("de"), st.integers(0, 3), st.integers(0, 3), st.just(0)
)
PIECES = st.builds(Piece, st.text(max_size=3), st.sampled_from(["documents", "model"]), SPANS)


@given(st.lists(PIECES), st.integers(0, 40), st.integers(0, 40), st.text(max_size=4))
def test_a_part_of_a_text_keeps_its_sources(
    pieces: list[Piece], start: int, length: int, other: str
) -> None:
    letters = [(letter, piece.source) for piece in pieces for letter in piece.text]
    whole = "".join(letter for letter, _ in letters)
    for text in (whole[start : start + length], other):
        found = [(letter, piece.source) for piece in cut(pieces, text) for letter in piece.text]
        at = whole.find(text)
        assert found == (letters[at : at + len(text)] if at >= 0 else [])


@given(st.lists(PIECES), st.integers(0, 40))
def test_pieces_are_merged_without_loss(pieces: list[Piece], stop: int) -> None:
    progress = AnswerProgress()
    for piece in pieces:
        progress.add(Step((piece,), seconds=0.1))
    whole = "".join(piece.text for piece in pieces)
    assert progress.text == "".join(piece.text for piece in progress.pieces) == whole
    for left, right in pairwise(progress.pieces):
        assert merge(left, right) is None
    progress.finish(Done("stop", whole[:stop]))
    assert progress.text == "".join(piece.text for piece in progress.pieces) == whole[:stop]


def test_the_speedup_is_1_without_drafts() -> None:
    progress = AnswerProgress(pass_seconds=[1.0, 1.5, 2.0])
    progress.add(Step(prefill=(3, 7)))
    assert progress.phase == "reading" and progress.detail == "3 of 7 tokens"
    progress.add(Step((Piece("a", "model"),), seconds=0.2))
    assert progress.speedup == pytest.approx(1.0)
    assert progress.tokens_per_second == pytest.approx(5.0)
    progress.add(Step((Piece("bcd", "documents"),), drafted=2, accepted=2, seconds=0.4))
    assert progress.tokens == 4 and progress.plain_s == pytest.approx(0.2 + 3 * 0.2)


# -- history --------------------------------------------------------------------------------------


def test_a_history_belongs_to_one_user_and_browser() -> None:
    histories = history.Histories()
    browser = "b" * 32
    own = histories.of("ann", browser, "s1")
    own.add(entry())
    assert histories.of("ann", browser, "s2") is own  # after a reload
    for other in (("ben", browser, "s1"), ("ann", "c" * 32, "s1"), (None, browser, "s1")):
        assert not histories.of(*other).list()
    assert histories.of("ann", "short", "s1") is not histories.of("ann", "short", "s2")
    assert histories.of("ann", None, "s1") is not own


@given(TEXTS)
def test_a_history_is_read_again_as_it_was(text: str) -> None:
    """By another server; nobody else may read it, and deleting the answers deletes them."""
    with tempfile.TemporaryDirectory() as name:

        def opened() -> history.History:
            return history.Histories(Path(name)).of("ann", "b" * 32, "s1")

        before, full = opened(), entry(notes=(text,), figures={"seconds": 1.5})
        before.add(full)
        before.begin_topic()
        before.remove(before.add(full).number)
        before.add(Entry(text, "", found=False))
        before.put_summary("d", full)
        after = opened()
        assert after.list() == before.list() and after.topic == before.topic == 1
        assert after.summary("d") == full and after.add(full).number > before.list()[-1].number
        (file,) = Path(name).glob("*/*")
        assert file.stat().st_mode & 0o777 == 0o600 and "b" * 32 not in file.name
        after.clear()
        assert not opened().list() and not opened().summary("d")


@pytest.mark.parametrize("data", [b"{", b'{"entries": [[1, {"title": 3}, 0]]}', b"\xff"])
def test_a_broken_history_is_named_and_begun_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    def opened() -> history.History:
        return history.Histories(tmp_path).of(None, "b" * 32, "s1")

    opened().add(entry())
    (file,) = tmp_path.glob("*/*")
    file.write_bytes(data)
    assert not opened().list() and file.name in caplog.text
    opened().add(entry())
    assert len(opened().list()) == 1


def test_a_history_is_bounded_and_entries_can_be_replaced() -> None:
    bounded = history.History()
    for number in range(history.MAX_ENTRIES + 3):
        bounded.add(entry(f"answer number {number} of very many words"))
    entries = bounded.list()
    assert len(entries) == history.MAX_ENTRIES and entries[0].entry.text.startswith(
        "answer number 3 "
    )
    assert len({item.number for item in entries}) == history.MAX_ENTRIES
    replacement = bounded.add(entry("another one"), replaces=entries[-1].number)
    assert [*bounded.list()] == [*entries[:-1], replacement]
    bounded.begin_topic()
    assert bounded.topic == 1 and bounded.add(entry()).topic == 1
    assert bounded.add(entry(), replaces=entries[5].number).topic == 0
    histories = history.Histories()
    first = histories.of(None, "first" * 9, None)
    others = histories.of("ann", "first" * 9, None)
    for number in range(history.MAX_BROWSERS):
        histories.of(None, f"browser number {number}", None)
    assert histories.of(None, "first" * 9, None) is not first
    assert histories.of("ann", "first" * 9, None) is others, "each user has a share"
    long = histories.of(None, "b" * 10_000, "s1")
    assert histories.of(None, "b" * 10_000, "s2") is not long, "not an id of ours"


# -- exports ---------------------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_an_export_has_the_exact_text(question: str, text: str) -> None:
    cited = entry(f"{text} one two three four five six", figures={"tokens": 3, "seconds": 1.25})
    exported = json.loads(export.as_json([cited, Entry(question, text, found=False)]))
    first, second = exported["entries"]
    assert (first["text"], second["asked"], second["text"]) == (cited.text, question, text)
    for item in first["citations"]:
        assert item["quote"] == item["text"] == cited.text[item["start"] : item["stop"]]
    assert first["citations"] and first["figures"] == {"tokens": 3, "seconds": 1.25}
    fence = export.fenced(text).split("text\n", 1)[0]
    assert fence not in text and export.fenced(text) == f"{fence}text\n{text}\n{fence}"


@given(TEXTS, TEXTS)
def test_markdown_exports_are_escaped(question: str, text: str) -> None:
    markdown = export.as_markdown([Entry(question, text, notes=(question,))])
    outside, lines = [], iter(markdown.split("\n"))  # outside of code blocks
    for line in lines:
        if opened := re.fullmatch(r"(`{3,})text", line):
            while next(lines) != opened[1]:
                pass
        else:
            outside.append(re.sub(r"\\.", "", line))
    assert not re.search(r"[<`\[]", "\n".join(outside))


def test_export_paths_cannot_be_guessed(tmp_path: Path) -> None:
    first_path, second_path = (
        Path(export.write(tmp_path, "a.md", "x\r\n\ud800")) for _ in range(2)
    )
    assert first_path != second_path and first_path.read_bytes() == b"x\r\n?"
    assert first_path.parent.stat().st_mode & 0o77 == 0
    named = export.write(tmp_path, "a.md", "old", "secret")
    assert export.write(tmp_path, "a.md", "new", "secret") == named
    assert Path(named).read_text() == "new" and len([*Path(named).parent.iterdir()]) == 1
    export.remove(tmp_path, "secret")
    assert not Path(named).parent.exists() and first_path.exists()
    export.remove(tmp_path, "secret")


# -- uploads --------------------------------------------------------------------------------------


@given(JSON)
def test_upload_events_with_any_data_are_handled(data: Any) -> None:
    for file in uploads.files_of(data):
        assert file.state in ("waiting", "failed") and file.name


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


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("Photo.JPG", b"\xff\xd8\xff", "Photo.JPG: a picture, whose text is not read"),
        ("notes.md", b"", "notes.md: an empty file"),
        ("word.txt", b"Boskoop", "word.txt: 1 word,"),
    ],
)
def test_pictures_empty_files_and_one_word_are_told(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    (tmp_path / "copy").write_bytes(data)
    file = UploadedFile(name, str(tmp_path / "copy"))
    with Documents() as library:
        uploads.add_to_library(file, tmp_path.resolve(), library)
    assert file.message.startswith(told)


@given(st.lists(st.sampled_from(["waiting", "reading", "added", "failed"]), min_size=1))
def test_all_uploads_are_listed_until_only_the_failed_ones_remain(states: list[str]) -> None:
    files = [UploadedFile(f"{HOSTILE}{number}", state=state) for number, state in enumerate(states)]
    html = uploads.uploads_html(UploadBatch(files))
    text = RenderedText(html).shown
    busy = bool({"waiting", "reading"} & {*states})
    for file in files:
        assert (file.name in text) == (busy or file.state == "failed")
    assert ("<progress" in html) == busy


# -- document list ---------------------------------------------------------------------------------

IDS = st.lists(st.sampled_from("abcdef"), unique=True)


@given(IDS, st.sets(st.sampled_from("abcdefg")))
def test_new_documents_are_selected(ids: list[str], deselected: set[str]) -> None:
    assert selection(ids, deselected, single=False) == [id for id in ids if id not in deselected]
    single = selection(ids, deselected, single=True)
    assert len(single) == bool(ids) and set(single) <= set(ids)
    assert selection([*ids, "new"], deselected, single=True) == ["new"]


def test_the_list_describes_each_document() -> None:
    with Documents() as library:
        paper = library.add_data("paper.pdf", pdf(["words on a page", "and on another"]))
        notes = library.add_data("notes.md", b"words " * 6000)
        library.set_whole(notes.id, True)
        documents = library.list()
    html = document_list(documents, [paper.id], "ask", single=False)
    text = RenderedText(html).shown
    assert "1 of 2 selected" in text and "pdf, 2 pages" in text and "md, about 6k words" in text
    rows = html.split("<li ")[1:]
    assert [" checked" in row for row in rows] == [True, False]
    assert ['value="whole" selected' in row for row in rows] == [False, True]
    assert "<select" not in document_list(documents, [], "sum", single=True)
    assert document_list([], [], "ask", single=False) == ""


@given(TEXTS.filter(str.strip))
def test_document_names_are_escaped(name: str) -> None:
    document = Document("d", name, "md", "words", (), ())
    text = RenderedText(document_list([document], ["d"], "ask", single=False)).shown
    assert " ".join(name.split()) in text


# -- the empty conversation ------------------------------------------------------------------------


@given(st.text(max_size=MAX_TITLE_CHARS))
def test_headings_are_suggested_as_questions(title: str) -> None:
    headings = (Heading(0, 1, "Lease"), Heading(5, 2, title), Heading(9, 2, "Rent"))
    text = RenderedText(empty_conversation([Document("d", "a.md", "md", "", (), headings)])).shown
    assert "Rent?" in text and "Lease" not in text
    assert not any(map(str.isalnum, title)) or " ".join(title.split()) in text
