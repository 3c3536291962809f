"""The library of documents: add, find, trace and remove, in one process or several."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from index.documents.chunking import split_chunks
from index.documents.documents import Document, DocumentError, Documents, Hit
from index.documents.formats import parser
from tests.support.sample_documents import docx, parse, pdf, texts

TIMEOUT_S = 180


@pytest.fixture
def documents() -> Iterator[Documents]:
    with Documents() as opened:
        yield opened


def rarest(sentence: str, frequency: Counter[str], count: int = 3) -> str:
    """The rarest words of a sentence."""
    words = dict.fromkeys(sentence.lower().replace(".", "").split())
    return " ".join(sorted(words, key=lambda word: (frequency[word], word))[:count])


def summary(hits: list[Hit]) -> list[tuple[str, int, float, float]]:
    return [(hit.chunk.document, hit.chunk.number, hit.score, hit.coverage) for hit in hits]


# -- one document ----------------------------------------------------------------------------------


def test_added_documents_are_listed(documents: Documents, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("# One\n\ntext\n")
    one = documents.add(file)
    two = documents.add_data("b.txt", b"more")
    three = documents.add(file.rename(tmp_path / "moved.md"), "folder/a.md")
    assert (one.name, one.kind, one.text) == ("a.md", "md", "# One\n\ntext\n")
    assert one.headings[0].title == "One" and not one.whole
    assert three.id == one.id and three.name == "folder/a.md", "the content is its identity"
    assert documents.list() == [three, two] == [documents.get(one.id), documents.get(two.id)]
    documents.set_whole(one.id, True)
    assert documents.get(one.id).whole and not documents.get(two.id).whole


def test_identical_files_are_one_document_with_the_latest_name(documents: Documents) -> None:
    text = texts(1)[0].encode()
    first = documents.add_data("first.md", text)
    hits = documents.search(texts(1)[0][:200])
    second = documents.add_data("second.md", text)
    assert first.id == second.id and documents.list() == [second]
    again = documents.search(texts(1)[0][:200])
    assert [hit.chunk for hit in again] == [hit.chunk for hit in hits]
    assert {hit.name for hit in again} == {"second.md"}
    assert documents.add_data("third.txt", text).id != first.id, "kinds differ"


def test_stored_content_is_not_parsed_again(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a.pdf": pdf(["one page"]), "b.docx": docx(["one line"]), "c.html": b"<p>one"}
    added = [documents.add_data(name, data) for name, data in files.items()]
    monkeypatch.setattr(parser, "SANDBOX", Path("missing"))
    assert [documents.add_data(name, data) for name, data in files.items()] == added
    with pytest.raises(DocumentError):
        documents.add_data("d.html", b"<p>two")


def test_the_chunks_of_a_document(documents: Documents) -> None:
    pages = [text.replace("\n\n", "\n") for text in texts(3, 20)]
    data = pdf([page.replace(". ", ".\n") for page in pages])
    document = documents.add_data("a.pdf", data)
    assert documents.chunks(document.id) == split_chunks(document.id, "pdf", parse("a.pdf", data))
    assert documents.chunks("none") == []


def test_every_hit_is_traced_to_page_and_position(documents: Documents) -> None:
    pages = [text.replace(". ", ".\n") for text in texts(6, 20)]
    documents.add_data("a.pdf", pdf(pages))
    document = documents.add_data("b.pdf", pdf(pages[:3]))
    hits = documents.search(pages[2].split("\n")[3], 50, [document.id])
    assert hits and {hit.chunk.document for hit in hits} == {document.id}
    for hit in hits:
        chunk = hit.chunk
        assert hit.name == "b.pdf" and chunk.page
        assert chunk.text == document.text[chunk.start : chunk.stop]
        start, stop = document.pages[chunk.page - 1]
        assert start <= chunk.start and chunk.stop <= stop
    assert hits[0].chunk.page == 3


# -- several ---------------------------------------------------------------------------------------


def test_a_sentence_is_found_by_its_rarest_words(documents: Documents) -> None:
    made = texts(10, 60)
    frequency = Counter(" ".join(made).lower().replace(".", "").split())
    ids = [documents.add_data(f"{n}.md", text.encode()).id for n, text in enumerate(made)]
    source = random.Random(1)
    for _ in range(100):
        number = source.randrange(10)
        sentence = source.choice(made[number].replace("\n\n", " ").split(". ")).strip(".")
        best = documents.search(rarest(sentence, frequency), 1)[0]
        assert best.chunk.document == ids[number] and sentence in best.chunk.text
        assert best.coverage == pytest.approx(1)


def test_searching_among_some_documents_filters_a_search_of_all(documents: Documents) -> None:
    ids = [documents.add_data(f"{n}.md", t.encode()).id for n, t in enumerate(texts(5))]
    for query in ("the and of", "one have this was baba", texts(1)[0][:150]):
        every = documents.search(query, 1000)
        for some in ([], ids[:1], ids[1:3], ids, ["none"]):
            chosen = [hit for hit in every if hit.chunk.document in some]
            assert summary(documents.search(query, 1000, some)) == summary(chosen)
        assert documents.search(query, 3) == every[:3]


def test_a_removed_document_leaves_no_trace(documents: Documents) -> None:
    made = [text.encode() for text in texts(4)]
    with Documents() as other:
        gone = documents.add_data("0.md", made[0])
        for number in (1, 2, 3):
            documents.add_data(f"{number}.md", made[number])
            other.add_data(f"{number}.md", made[number])
        documents.remove(gone.id)
        documents.remove("none")
        assert documents.list() == other.list() and documents.chunks(gone.id) == []
        with pytest.raises(KeyError):
            documents.get(gone.id)
        for query in ("the and of", made[0][:200].decode(), made[1][:200].decode()):
            assert summary(documents.search(query, 99)) == summary(other.search(query, 99))
    assert documents.add_data("0.md", made[0]) == gone and documents.chunks(gone.id)


def test_threads_may_share_it(documents: Documents) -> None:
    made = [text.encode() for text in texts(12, 10)]
    documents.add_data("stays.md", b"This one stays.")
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(12):
                place = (number * 5 + step) % 12
                id = documents.add_data(f"{place}.md", made[place]).id
                assert documents.search("one", 2), "the document that stays has it"
                if step % 3 == number % 3:
                    documents.remove(id)
                documents.list()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not errors
    for document in documents.list():
        assert documents.chunks(document.id) == split_chunks(
            document.id, "md", parse("a.md", document.text.encode())
        )


# -- the file --------------------------------------------------------------------------------------


def test_documents_are_stored_in_private_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kept"
    with Documents(folder) as first:
        for number, text in enumerate(texts(3)):
            first.add_data(f"{number}.md", text.encode())
        first.set_whole(first.list()[1].id, True)
        listed, hits = first.list(), first.search("the and of", 50)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    with Documents(folder) as second:
        assert second.list() == listed and second.search("the and of", 50) == hits


def test_two_connections_see_each_other_s_changes(tmp_path: Path) -> None:
    with Documents(tmp_path) as one, Documents(tmp_path) as two:
        added = one.add_data("a.md", b"some words")
        assert two.list() == [added] and two.search("words")
        two.remove(added.id)
        assert one.list() == [] and one.search("words") == []


ROOT = Path(__file__).resolve().parents[2]
ADD_DOCUMENTS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from index.documents import documents, full_text
from tests.support.sample_documents import texts
count, stop_at, seed = map(int, sys.argv[3:])
insert = full_text.insert

def insert_and_wait(*arguments):  # inside of a transaction
    insert(*arguments)
    if number == stop_at:
        print("inserting", flush=True)
        sys.stdin.readline()

full_text.insert = insert_and_wait
print("ready", flush=True)
sys.stdin.readline()
with documents.Documents(Path(sys.argv[2])) as library:
    for number, text in enumerate(texts(count, seed=seed)):
        library.add_data(f"{number}.md", text.encode())
"""


def adding(folder: Path, count: int, stop_at: int = -1, seed: int = 0) -> subprocess.Popen[str]:
    """A process that adds documents after a line on stdin, and pauses amid document `stop_at`."""
    arguments = [str(ROOT), str(folder), str(count), str(stop_at), str(seed)]
    process = subprocess.Popen(
        [sys.executable, "-c", ADD_DOCUMENTS, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def resume(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def checked(folder: Path) -> list[Document]:
    """The documents of a folder, after a check of the file and of each document's chunks."""
    with Documents(folder) as documents:
        listed = documents.list()
        for each in listed:
            again = split_chunks(each.id, each.kind, parse(each.name, each.text.encode()))
            assert documents.chunks(each.id) == again
    with closing(sqlite3.connect(folder / "documents.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        counts = "SELECT (SELECT count(*) FROM words), (SELECT count(*) FROM chunks)"
        assert len(set(connection.execute(counts).fetchone())) == 1
    return listed


def test_processes_may_share_it(tmp_path: Path) -> None:
    processes = [adding(tmp_path / "new", 8, seed=seed) for seed in (0, 0, 1)]
    for process in processes:
        resume(process)
    for process in processes:
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    listed = checked(tmp_path / "new")
    assert {each.text for each in listed} == {*texts(8), *texts(8, seed=1)}
    assert len(listed) == 16, "documents that two processes add are stored once"


@pytest.mark.parametrize("stop_at", [0, 2])
def test_a_killed_process_leaves_whole_documents(tmp_path: Path, stop_at: int) -> None:
    process = adding(tmp_path, 4, stop_at)
    resume(process)
    assert process.stdout and process.stdout.readline() == "inserting\n"
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert [each.name for each in checked(tmp_path)] == [f"{n}.md" for n in range(stop_at)]


def test_a_file_of_another_version_is_indexed_again(tmp_path: Path) -> None:
    """Its documents are kept as they were, without being parsed, and their rows are in order."""
    with Documents(tmp_path) as documents:
        first = documents.add_data("a.md", b"# One\n\nsome words")
        documents.set_whole(first.id, True)
        documents.add_data("b.pdf", pdf(["one page", "two pages"]))
        before, hits = documents.list(), documents.search("page")
    with closing(sqlite3.connect(tmp_path / "documents.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 1")
        connection.execute("ALTER TABLE documents DROP COLUMN language")
        connection.execute("DROP TABLE words")
    with Documents(tmp_path) as documents:
        assert documents.list() == before
        assert summary(documents.search("page")) == summary(hits)


def test_a_file_of_a_version_that_cannot_be_read_is_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Documents(tmp_path) as documents:
        documents.add_data("a.md", b"some words")
    with closing(sqlite3.connect(tmp_path / "documents.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("ALTER TABLE documents DROP COLUMN headings")
    with Documents(tmp_path) as documents:
        assert documents.list() == [] and documents.search("words") == []
        documents.add_data("a.md", b"some words")
        assert documents.search("words")
    assert len(caplog.messages) == 1 and "another version" in caplog.text


@pytest.mark.parametrize("what", ["text", "foreign", "folder"])
def test_a_foreign_file_is_left_alone(tmp_path: Path, what: str) -> None:
    file = tmp_path / "documents.sqlite"
    if what == "text":
        file.write_text("something else\n" * 99)
    elif what == "folder":
        file.mkdir()
    else:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE mine (a)")
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(DocumentError, match=r"documents\.sqlite: [^\n]+; [^\n]+$"):
        Documents(tmp_path)
    assert (file.read_bytes() if file.is_file() else b"") == before
