"""Documents: what was added is found, traced and removed, by one process or several."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from index.documents import formats
from index.documents.chunking import chunks
from index.documents.documents import Document, DocumentError, Documents, Hit
from index.documents.formats import parse
from tests.support.sample_documents import docx, pdf, prose

PATIENCE = 180  # seconds


@pytest.fixture
def documents() -> Iterator[Documents]:
    with Documents() as opened:
        yield opened


def texts(count: int, sentences: int = 30, seed: int = 0) -> list[str]:
    return [prose(random.Random((seed << 16) + n), sentences) for n in range(count)]


def rarest(sentence: str, all_of_it: Counter[str], count: int = 3) -> str:
    """The words of a sentence that all the text has least often."""
    words = dict.fromkeys(sentence.lower().replace(".", "").split())
    return " ".join(sorted(words, key=lambda word: (all_of_it[word], word))[:count])


def found(hits: list[Hit]) -> list[tuple[str, int, float, float]]:
    return [(hit.chunk.document, hit.chunk.number, hit.score, hit.share) for hit in hits]


# -- one document ----------------------------------------------------------------------------------


def test_what_was_added_is_got_and_listed(documents: Documents, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("# One\n\ntext\n")
    one = documents.add(file)
    two = documents.add_data("b.txt", b"more")
    three = documents.add(file.rename(tmp_path / "moved.md"), "folder/a.md")
    assert (one.name, one.kind, one.text) == ("a.md", "md", "# One\n\ntext\n")
    assert one.headings[0].title == "One" and not one.whole
    assert three.id == one.id and three.name == "folder/a.md", "it is its content"
    assert documents.list() == [three, two] == [documents.get(one.id), documents.get(two.id)]
    documents.choose(one.id, True)
    assert documents.get(one.id).whole and not documents.get(two.id).whole


def test_identical_files_are_one_by_its_newest_name(documents: Documents) -> None:
    text = texts(1)[0].encode()
    first = documents.add_data("first.md", text)
    hits = documents.search(texts(1)[0][:200])
    second = documents.add_data("second.md", text)
    assert first.id == second.id and documents.list() == [second]
    again = documents.search(texts(1)[0][:200])
    assert [hit.chunk for hit in again] == [hit.chunk for hit in hits]
    assert {hit.name for hit in again} == {"second.md"}
    assert documents.add_data("third.txt", text).id != first.id, "another kind is read otherwise"


def test_it_is_not_parsed_again(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.pdf": pdf(["one page"]), "b.docx": docx(["one line"]), "c.html": b"<p>one"}
    added = [documents.add_data(name, data) for name, data in files.items()]
    monkeypatch.setattr(formats, "CHILD", Path("none"))  # what reads them
    assert [documents.add_data(name, data) for name, data in files.items()] == added
    with pytest.raises(DocumentError):
        documents.add_data("d.html", b"<p>two")


def test_its_chunks_are_those_of_its_text(documents: Documents) -> None:
    pages = [text.replace("\n\n", "\n") for text in texts(3, 20)]
    data = pdf([page.replace(". ", ".\n") for page in pages])
    document = documents.add_data("a.pdf", data)
    assert documents.chunks(document.id) == chunks(document.id, parse("a.pdf", data))
    assert documents.chunks("none") == []


def test_every_hit_is_traced_to_page_and_place(documents: Documents) -> None:
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
        assert document.page(chunk.start) == document.page(chunk.stop) == chunk.page
    assert hits[0].chunk.page == 3


def test_the_page_of_a_place() -> None:
    document = Document(
        "", "", "pdf", "one\n\ntwo\n\n\n\nend", ((0, 3), (5, 8), (10, 10), (12, 15)), ()
    )
    assert [document.page(at) for at in (0, 3, 4, 5, 9, 10, 12, 15)] == [1, 1, 1, 2, 2, 3, 4, 4]
    assert Document("", "", "txt", "one", (), ()).page(1) is None


# -- several ---------------------------------------------------------------------------------------


def test_a_sentence_is_found_by_its_rarest_words(documents: Documents) -> None:
    made = texts(10, 60)
    all_of_it = Counter(" ".join(made).lower().replace(".", "").split())
    ids = [documents.add_data(f"{n}.md", text.encode()).id for n, text in enumerate(made)]
    source = random.Random(1)
    for _ in range(100):
        number = source.randrange(10)
        sentence = source.choice(made[number].replace("\n\n", " ").split(". ")).strip(".")
        best = documents.search(rarest(sentence, all_of_it), 1)[0]
        assert best.chunk.document == ids[number] and sentence in best.chunk.text
        assert best.share == pytest.approx(1)


def test_searching_some_is_searching_all_and_choosing(documents: Documents) -> None:
    ids = [documents.add_data(f"{n}.md", t.encode()).id for n, t in enumerate(texts(5))]
    for query in ("the and of", "one have this was baba", texts(1)[0][:150]):
        every = documents.search(query, 1000)
        for some in ([], ids[:1], ids[1:3], ids, ["none"]):
            chosen = [hit for hit in every if hit.chunk.document in some]
            assert found(documents.search(query, 1000, some)) == found(chosen)
        assert documents.search(query, 3) == every[:3]


def test_removing_is_never_having_added(documents: Documents) -> None:
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
            assert found(documents.search(query, 99)) == found(other.search(query, 99))
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
                assert documents.search("one", 2), "one that stays has it"
                if step % 3 == number % 3:
                    documents.remove(id)
                documents.list()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors
    for document in documents.list():
        assert documents.chunks(document.id) == chunks(
            document.id, parse("a.md", document.text.encode())
        )


# -- the file --------------------------------------------------------------------------------------


def test_it_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kept"
    with Documents(folder) as first:
        for number, text in enumerate(texts(3)):
            first.add_data(f"{number}.md", text.encode())
        first.choose(first.list()[1].id, True)
        listed, hits = first.list(), first.search("the and of", 50)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    with Documents(folder) as second:
        assert second.list() == listed and second.search("the and of", 50) == hits


def test_two_see_what_the_other_does(tmp_path: Path) -> None:
    with Documents(tmp_path) as one, Documents(tmp_path) as two:
        added = one.add_data("a.md", b"some words")
        assert two.list() == [added] and two.search("words")
        two.remove(added.id)
        assert one.list() == [] and one.search("words") == []


ROOT = Path(__file__).resolve().parents[2]
ADDING = """
import sys
from pathlib import Path
from index.documents.documents import Documents
sys.path.insert(0, sys.argv[1])
from tests.documents.test_documents import texts
print("ready", flush=True)
sys.stdin.readline()
with Documents(Path(sys.argv[2])) as documents:
    for number, text in enumerate(texts(*map(int, sys.argv[3:]))):
        documents.add_data(f"{number}.md", text.encode())
        print(number, flush=True)
"""


def adder(folder: Path, count: int, sentences: int, seed: int = 0) -> subprocess.Popen[str]:
    """A process that adds documents as soon as it is told to."""
    arguments = [str(ROOT), str(folder), str(count), str(sentences), str(seed)]
    process = subprocess.Popen(
        [sys.executable, "-c", ADDING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def whole(folder: Path) -> list[Document]:
    """All documents there, each of which must have exactly its chunks."""
    with Documents(folder) as documents:
        listed = documents.list()
        for each in listed:
            again = chunks(each.id, parse(each.name, each.text.encode()))
            assert documents.chunks(each.id) == again
    with closing(sqlite3.connect(folder / "documents.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        counts = "SELECT (SELECT count(*) FROM words), (SELECT count(*) FROM chunks)"
        assert len(set(connection.execute(counts).fetchone())) == 1
    return listed


def test_processes_may_share_it(tmp_path: Path) -> None:
    processes = [adder(tmp_path / "new", 12, 20, seed) for seed in (0, 0, 1)]
    for process in processes:
        start(process)
    for process in processes:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    listed = whole(tmp_path / "new")
    assert {each.text for each in listed} == {*texts(12, 20), *texts(12, 20, 1)}
    assert len(listed) == 24, "what both added is there once"


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_killed_process_leaves_whole_documents(tmp_path: Path, after: int) -> None:
    process = adder(tmp_path, 50, 400)
    start(process)
    assert process.stdout
    for _ in range(after):
        process.stdout.readline()
    time.sleep(random.Random(after).random() / 20)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert after <= len(whole(tmp_path)) < 50


def test_a_file_of_another_version_is_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Documents(tmp_path) as documents:
        documents.add_data("a.md", b"some words")
    with closing(sqlite3.connect(tmp_path / "documents.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with Documents(tmp_path) as documents:
        assert documents.list() == [] and documents.search("words") == []
        documents.add_data("a.md", b"some words")
        assert documents.search("words")
    assert len(caplog.messages) == 1 and "another version" in caplog.text


@pytest.mark.parametrize("what", ["text", "foreign", "folder"])
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, what: str) -> None:
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
