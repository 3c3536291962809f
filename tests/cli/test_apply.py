"""`draftline apply`: merging without a model, with one, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.editing import text_file
from tests.support.command import (
    FENCE,
    SOURCE,
    Result,
    chain_model,
    draftline,
    make_file,
    one_line,
    untouched,
)
from ui.cli.main import main

MARK = b"# ... existing code ...\n"
UPDATE = MARK + b"x=1\ny=2\nb = 2\n" + MARK
MERGED = SOURCE.replace(b"x=1\r\n", b"x=1\r\ny=2\r\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_file(tmp_path)


def apply(file: Path, update: bytes, *more: str | Path) -> Result:
    """Merge an update from stdin."""
    arguments = ("apply", file.name, "--update", "-", *more)
    return draftline(file.parent, *arguments, stdin=update)


def test_an_update_with_one_place_is_merged_without_a_model(file: Path) -> None:
    """There is no model of that name: none is loaded."""
    result = apply(file, UPDATE, "--model", "no-such-model", "--apply")
    assert result.returncode == 0, result.stderr
    assert file.read_bytes() == MERGED
    assert b"merged without a model" in result.stderr
    assert result.stdout == b"my file.py: 1 line added, 0 removed\n"


@pytest.mark.parametrize("times", [1, 99])
def test_what_others_write_meanwhile_stays(
    file: Path, times: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another writes between reading and writing, once or always."""
    write, others = text_file.replace_text, [b"b = 2"]

    def late(path: Path, new: str, was: str) -> None:
        if len(others) <= times:
            others.append(b"other = %d" % len(others))
            data = file.read_bytes().replace(others[-2], others[-2] + b"\r\n" + others[-1])
            file.write_bytes(data)
        write(path, new, was)

    monkeypatch.setattr(text_file, "replace_text", late)
    update = file.parent / "snippet"
    update.write_bytes(UPDATE)
    code = main(["apply", str(file), "--update", str(update), "--apply"])
    lines = file.read_bytes().splitlines()
    errors = capsys.readouterr().err
    assert errors.count("merged without a model") == 1
    if times == 1:
        assert code == 0, errors
        assert b"y=2" in lines and b"other = 1" in lines
    else:
        assert code == 1 and "changed on disk" in errors
        assert b"y=2" not in lines and set(others) <= set(lines)


def test_an_update_from_a_file_as_a_diff_and_as_json(file: Path) -> None:
    (file.parent / "snippet").write_bytes(UPDATE)
    result = draftline(file.parent, "apply", file.name, "--update", "snippet")
    assert (result.returncode, untouched(file)) == (0, True)
    assert b"+y=2" in result.stdout
    shown = json.loads(apply(file, UPDATE, "--json").stdout)
    assert (shown["method"], shown["doubt"], shown["error"]) == ("merge", None, None)
    assert shown["text"].encode() == MERGED
    assert shown["usage"]["forwards"] == 0


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (MARK + b"nothing like it\n" + MARK, "fits nowhere"),
        (b"", "--update: empty"),
        (MARK, "nothing but"),
        (b"<<<<<<< SEARCH\nx=1\n=======\n", "line 1 of the update belongs to search and replace"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_bad_update_changes_nothing(file: Path, update: bytes, message: str) -> None:
    result = apply(file, update, "--model", "no-such-model", "--apply")
    assert message in one_line(result)
    assert result.returncode == 2
    assert untouched(file)


def test_a_file_of_git_is_shown_and_not_written(file: Path) -> None:
    (file.parent / ".git").mkdir()
    inside = file.rename(file.parent / ".git" / "config")
    assert apply(inside, UPDATE).returncode == 0
    result = apply(inside, UPDATE, "--apply")
    assert result.returncode == 1 and untouched(inside) and result.stdout == b""
    assert result.stderr.endswith(b"config: in git's own folder: change it with git\n")


def test_a_model_merges_what_has_no_sure_place(file: Path, tmp_path: Path) -> None:
    """Its answers are a chain's: `x=9` is in the update, so it may replace the file's only line."""
    file.write_bytes(b"x=1\n")
    model = chain_model(tmp_path / "chain", "x=9", FENCE)
    result = apply(file, b"x=9\n# ...\n", "--model", model, "--json")
    shown = json.loads(result.stdout)
    assert shown["method"] == "model" and shown["doubt"]
    assert shown["usage"]["forwards"] > 0
    assert (result.returncode, shown["text"]) == (0, "x=9\n")


def test_an_answer_without_the_update_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"x=9\ny\n")
    model = chain_model(tmp_path / "chain", "x=9", FENCE)
    result = apply(file, b"x=9\n...\nz\n", "--model", model, "--apply")
    doubt, refusal = result.stderr.decode().splitlines()
    assert "the model merges: line 2 of the update may stand for other lines" in doubt
    assert "did not write the chunk at line 3 of the update" in refusal
    assert (result.returncode, file.read_bytes()) == (1, b"x=9\ny\n")


SHOP = """class Cart:
    def add(self, item):
        # the last one
        self.items.append(item)

    def clear(self):
        self.items.clear()


def total(cart):
    return sum(cart.items)
"""
REFUSED = {
    "comments": (
        "# ... existing code ...\n    def add(self, item):\n        self.items.append(item)\n\n"
        "    def clear(self):\n# ... existing code ...\n",
        "the comment “# the last one” would be lost",
    ),
    "syntax": (
        "class Cart:\n    def add(self, item:\n        # the last one\n"
        "        self.items.append(item)\n"
        "# ... existing code ...\n",
        "a syntax error that was not there before",
    ),
}


@pytest.mark.parametrize("kind", ["comments", "syntax"])
def test_an_update_that_fails_a_check_is_no_success(tmp_path: Path, kind: str) -> None:
    """Neither as a diff nor as JSON, and it is not written unless it is forced."""
    update, warning = REFUSED[kind]
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    for more in ((), ("--json",), ("--apply",)):
        result = apply(file, update.encode(), *more)
        assert (result.returncode, file.read_text()) == (1, SHOP)
        assert warning in result.stderr.decode().splitlines()[-1]
        if more == ("--json",):
            shown = json.loads(result.stdout)
            assert shown["text"] is None and warning in shown["error"]
        else:
            assert b"@@" in result.stdout
    forced = apply(file, update.encode(), "--apply", "--force")
    assert forced.returncode == 0 and file.read_text() != SHOP
    assert warning in forced.stderr.decode()


def test_a_comment_may_go_where_the_instruction_says_so(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    update = REFUSED["comments"][0].encode()
    result = apply(file, update, "--apply", "-i", "Remove the comment")
    assert result.returncode == 0 and "# the last one" not in file.read_text()
