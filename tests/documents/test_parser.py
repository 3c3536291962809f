"""The child processes that parse files: kept, replaced, limited, and ended with their parser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep

import psutil
import pytest

from index.documents.formats import DocumentError
from index.documents.formats import parser as parser_module
from index.documents.formats.parser import MAX_HEADER_BYTES, MAX_TEXT_BYTES, SIZES, DocumentParser
from tests.support.sample_documents import docx, parsing_processes, pdf, pdf_of_forms

KEYS = ("DRAFTLINE_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD")
ENDLESS = pdf_of_forms(12, 12)  # 12 ** 12 nested forms on one page
JOIN_S = 300.0
POLL_S = 0.01
ROOT = Path(__file__).resolve().parents[2]
REMEDY = r"^a\.\w+: [^\n]+; [^\n]+$"


def test_small_text_files_share_a_child_process() -> None:
    before = parsing_processes()
    with DocumentParser() as parser:
        parser.parse("a.md", b"# One")
        started = parsing_processes() - before
        assert len(started) == 1
        for name in ("a.rst", "a.py", "a.txt", "a.md"):
            assert parser.parse(name, b"two").text == "two"
        with pytest.raises(DocumentError, match=r"a\.txt: not UTF-8"):
            parser.parse("a.txt", b"\xff\xff\xff")
        assert parsing_processes() - before == started
    assert parsing_processes() <= before


def test_a_child_process_has_no_keys_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "a secret")
    before = parsing_processes()
    with DocumentParser() as parser:
        parser.parse("a.md", b"# One")
        (child,) = parsing_processes() - before
        variables = psutil.Process(child).environ()
    assert "a secret" not in variables.values() and variables["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", pdf(["one"])),
        ("a.docx", docx(["one"])),
        ("a.html", b"<p>one"),
        ("a.txt", b"one " * (parser_module.MAX_REUSE_BYTES // 4 + 1)),
    ],
)
def test_a_child_process_ends_after_another_file(name: str, data: bytes) -> None:
    before = parsing_processes()
    with DocumentParser() as parser:
        parser.parse("a.md", b"# One")
        assert parser.parse(name, data).text.startswith("one")
        assert parsing_processes() <= before


def test_a_killed_child_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = parsing_processes()
    with DocumentParser() as parser:
        parser.parse("a.md", b"# One")
        (started,) = parsing_processes() - before
        child = psutil.Process(started)
        child.kill()
        while child.status() != psutil.STATUS_ZOMBIE:
            sleep(POLL_S)
        assert parser.parse("a.md", b"# Two").text == "# Two"
        with monkeypatch.context() as limited:
            limited.setattr(parser_module, "TIMEOUT_S", 0.2)
            with pytest.raises(DocumentError, match="not parsed within 0 seconds; print it"):
                parser.parse("a.pdf", ENDLESS)
        assert parser.parse("a.md", b"# Three").text == "# Three"


@pytest.mark.parametrize("name", ["a.md", "a.rst", "a.py", "a.txt", "a.html", "a.docx", "a.pdf"])
def test_every_format_has_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The child process never answers, since one that does may be faster than a busy parent."""
    monkeypatch.setattr(parser_module, "SANDBOX", script(tmp_path, "time.sleep(999)"))
    monkeypatch.setattr(parser_module, "TIMEOUT_S", 0.001)
    with (
        DocumentParser() as parser,
        pytest.raises(DocumentError, match="not parsed within") as caught,
    ):
        parser.parse(name, b"text")
    assert caught.match(REMEDY)


def test_closing_a_parser_ends_its_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a call is in progress or begins later."""
    monkeypatch.setattr(parser_module, "TIMEOUT_S", 10 * JOIN_S)
    before, errors = parsing_processes(), list[str]()
    parser = DocumentParser()

    def parse() -> None:
        try:
            parser.parse("a.pdf", ENDLESS)
        except DocumentError as error:
            errors.append(str(error))

    threads = [Thread(target=parse) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(parsing_processes() - before) < 2:
        sleep(POLL_S)
    parser.close()
    for thread in threads:
        thread.join(JOIN_S)
    parse()
    assert errors == ["a.pdf: cancelled before it was read; add it again"] * 3
    assert parsing_processes() <= before
    parser.close()


INTERRUPTED = """
import os, signal, sys, threading, time
import psutil
from index.documents.documents import Documents

def interrupt():
    while not psutil.Process().children():
        time.sleep(0.01)
    # A signal to the process may reach this thread, and then interrupts no call of the other's.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job
threading.Thread(target=interrupt).start()
with Documents() as documents:
    try:
        documents.add_data("a.pdf", sys.stdin.buffer.read())
    except KeyboardInterrupt:
        while any(each.status() != psutil.STATUS_ZOMBIE for each in psutil.Process().children()):
            time.sleep(0.01)
        print("no child process,", len(documents.list()), "documents")
"""


def test_an_interrupt_ends_the_child_process() -> None:
    """Such as Ctrl-C, which a terminal sends to the parent alone."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        input=ENDLESS,
        stdout=subprocess.PIPE,
        timeout=JOIN_S,
    )
    assert done.stdout == b"no child process, 0 documents\n"


def test_a_child_process_ends_with_its_parent() -> None:
    """However the parent ends."""
    program = (
        "import psutil; from index.documents.formats.parser import DocumentParser;"
        "parser = DocumentParser();"
        "parser.parse('a.md', b'# One'); me = psutil.Process();"
        "print(*[each.pid for each in me.children()], flush=True); me.kill()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=JOIN_S)
    assert done.returncode == -9
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(JOIN_S)


@pytest.mark.full
def test_cpu_time_is_limited_even_without_a_parent() -> None:
    """Two seconds are one for the file and at most one that is rounded up."""
    limits = (MAX_TEXT_BYTES, parser_module.MAX_HEADINGS, parser_module.MAX_MEMORY_BYTES, 1)
    done = subprocess.run(
        [sys.executable, "-P", str(parser_module.SANDBOX), *map(str, limits)],
        input=b"pdf %d\n" % len(ENDLESS) + ENDLESS,
        stdout=subprocess.PIPE,
        timeout=JOIN_S,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGXCPU, b"")


# -- a child process that a hostile file has taken over --------------------------------------------

READ = "import os, struct, sys, time; sys.stdin.readline();"
REPLIES = {
    "ends": "",
    "talks of itself": "print('hello' * 99, flush=True); time.sleep(999)",
    "large header": f"os.write(1, struct.pack('>II', {MAX_HEADER_BYTES + 1}, 0))",
    "large text": f"os.write(1, struct.pack('>II', 2, {MAX_TEXT_BYTES + 1}) + b'{{}}')",
    "half a reply": "os.write(1, struct.pack('>II', 99, 99) + b'{}')",
    "no JSON": "os.write(1, struct.pack('>II', 2, 0) + b'{]')",
    "deep JSON": "os.write(1, struct.pack('>II', 1 << 20, 0) + b'[' * (1 << 20))",
    "a number": "os.write(1, struct.pack('>II', 1, 0) + b'1')",
    "no fields": "os.write(1, struct.pack('>II', 2, 0) + b'{}')",
    "infinite": 'reply = b\'{"pages":[[0,Infinity]],"headings":[]}\';'
    "os.write(1, struct.pack('>II', len(reply), 0) + reply)",
}


def script(folder: Path, what: str) -> Path:
    """A program that reads what is asked of it, and then does `what`."""
    path = folder / "script.py"
    path.write_text(READ + what)
    return path


@pytest.mark.parametrize("what", REPLIES)
def test_a_malformed_reply_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setattr(parser_module, "SANDBOX", script(tmp_path, REPLIES[what]))
    with (
        DocumentParser() as parser,
        pytest.raises(DocumentError, match="the parser failed") as caught,
    ):
        parser.parse("a.txt", b"text")
    assert caught.match(REMEDY)


@pytest.mark.parametrize("what", ["time.sleep(999)", "os.write(1, b'\\0'); time.sleep(999)"])
def test_a_reply_that_never_ends_is_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setattr(parser_module, "SANDBOX", script(tmp_path, what))
    monkeypatch.setattr(parser_module, "TIMEOUT_S", 0.2)
    with (
        DocumentParser() as parser,
        pytest.raises(DocumentError, match="not parsed within") as caught,
    ):
        parser.parse("a.txt", b"text")
    assert caught.match(REMEDY)


def test_a_reason_is_one_printable_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    error = r"""b'{"error": "a\\u001b[31m\\nb; ' + b'c' * 9999 + b'"}'"""
    script.write_text(
        READ + f"header = {error}; os.write(1, struct.pack('>II', len(header), 0) + header)"
    )
    monkeypatch.setattr(parser_module, "SANDBOX", script)
    with DocumentParser() as parser, pytest.raises(DocumentError) as caught:
        parser.parse("a.txt", b"text")
    reason = str(caught.value).removeprefix("a.txt: ")
    assert reason.startswith("a\ufffd[31m\ufffdb; c") and reason.isprintable()
    assert len(reason) == parser_module.MAX_REASON_CHARS


def test_the_sizes_of_a_reply_fit_their_field() -> None:
    assert max(MAX_HEADER_BYTES, MAX_TEXT_BYTES) < 256 ** (SIZES.size // 2)
