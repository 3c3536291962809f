"""`draftline storage`: what is stored, and that nothing else is deleted."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from engine.remote import address
from engine.weights import BUILTINS
from tests.support.command import ROOT, Result, draftline, one_line
from tests.support.shared_server import private_runtime
from ui.cli import doctor_checks, stored
from ui.cli.storage import remove, remove_command
from ui.common.errors import Failure

HEX = "0123456789abcdef"
MODEL = next(iter(BUILTINS))

# By part: files as Draftline names them.
OURS = {
    "models": [
        f"models/{MODEL}.gguf", f"models/{MODEL}/draftline.json", f"models/{MODEL}.lock",
        "models/someone--model.gguf", "models/someone--model/draftline.json",
        "models/.partial/x/part",
    ],
    "documents": ["documents/local/documents.sqlite", "documents/local/documents.sqlite-wal"],
    "marks": ["machine", f".deleted-{HEX}"],
    "index": [f"index/{HEX * 2}/table", f"index/{HEX * 2}/lock", f"index/.deleted-{HEX}/table"],
    "tokens": [f"tokens/{HEX * 2}.sqlite", f"tokens/{HEX * 2}.sqlite-wal"],
    "library": [f"library/{HEX}-python3.11.ngram", f"library/.draftline-{HEX}.tmp"],
    "answers": [f"finished/{HEX * 4}.json"],
    "tokenizers": [f"tokenizers/{HEX * 4}/tokenizer.json"],
    "prefixes": [f"prefixes/{HEX}-{HEX * 2}", f"prefixes/.draftline-{HEX}.tmp"],
    "costs": ["costs.json"],
}  # fmt: skip

# Names that a user's own files may have in a folder that DRAFTLINE_HOME names.
OTHERS = [
    "models/my.gguf", "models/mine/weights", "models/my.lock",
    "documents/letter.txt", "documents/tax/form.pdf",
    "index/book.idx", "tokens/secret.sqlite", "library/book.txt", "finished/a.json",
    "tokenizers/mine/tokenizer.json", "prefixes/un-.txt", "costs.ods", "notes.txt",
]  # fmt: skip
CONTENT = b"ten bytes."


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache folder `home` with everything that Draftline stores, and no server."""
    with private_runtime(tmp_path / "home"):
        write(tmp_path / "home", [name for names in OURS.values() for name in names])
        yield tmp_path


def write(home: Path, names: list[str]) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(CONTENT)


def files(home: Path) -> set[str]:
    """The files below a folder, by relative path."""
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}


def freed(result: Result) -> dict[str, int]:
    assert (result.returncode, result.stderr) == (0, b"")
    found: dict[str, int] = json.loads(result.stdout)["freed"]
    return found


# -- show and clear ----------------------------------------------------------------------------


def test_every_part_is_shown_with_its_size(folder: Path) -> None:
    shown = json.loads(draftline(folder, "storage", "--json").stdout)
    sizes = {part["name"]: part["bytes"] for part in shown["parts"]}
    assert sizes == {name: len(names) * len(CONTENT) for name, names in OURS.items()}
    assert shown["home"] == str(folder / "home")
    assert all(part["limit"] and part["deleted_by"] for part in shown["parts"])
    table = draftline(folder, "storage", "show").stdout.decode()
    assert all(any(line.startswith(name) for line in table.splitlines()) for name in OURS)


def test_an_empty_cache_is_shown(tmp_path: Path) -> None:
    shown = json.loads(draftline(tmp_path, "storage", "--json").stdout)
    assert {part["bytes"] for part in shown["parts"]} == {0}
    assert not (tmp_path / "home").exists()


def test_clear_deletes_all_caches_and_nothing_else(folder: Path) -> None:
    caches = {part.name for part in stored.CACHES}
    write(folder / "home", OTHERS)
    assert freed(draftline(folder, "storage", "clear", "--json")) == {
        name: len(names) * len(CONTENT) for name, names in OURS.items() if name in caches
    }
    kept = {name for part, names in OURS.items() if part not in caches for name in names}
    assert files(folder / "home") == kept | {*OTHERS}


@pytest.mark.parametrize("name", [part.name for part in stored.CACHES])
def test_clear_deletes_one_cache(folder: Path, name: str) -> None:
    before = files(folder / "home")
    assert list(freed(draftline(folder, "storage", "clear", name, "--json"))) == [name]
    assert files(folder / "home") == before - {*OURS[name]}


@pytest.mark.parametrize(
    ("name", "words"),
    [("models", "models remove"), ("documents", "page"), ("indexes", "choose from index")],
)
def test_what_is_no_cache_is_not_cleared(folder: Path, name: str, words: str) -> None:
    before = files(folder / "home")
    result = draftline(folder, "storage", "clear", "index", name)
    assert result.returncode == 2 and words in one_line(result)
    assert files(folder / "home") == before


def test_links_are_not_followed(folder: Path) -> None:
    home, elsewhere = folder / "home", folder / "elsewhere"
    inside = [f"{HEX * 2}/table", f"{HEX * 2}.sqlite"]
    write(elsewhere, inside)
    link = home / "index" / ("f" * 32)
    link.symlink_to(elsewhere)
    (home / "tokens").rename(folder / "tokens")
    (home / "tokens").symlink_to(elsewhere)
    assert freed(draftline(folder, "storage", "clear", "index", "tokens", "--json"))["tokens"] == 0
    assert files(elsewhere) == {*inside} and (home / "tokens").is_symlink()
    assert not link.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete anything")
def test_what_cannot_be_deleted_is_named(folder: Path) -> None:
    (folder / "home" / "library").chmod(0o500)
    result = draftline(folder, "storage", "clear", "library")
    (folder / "home" / "library").chmod(0o700)
    assert result.returncode == 1 and "ngram" in one_line(result)


def test_the_documentation_lists_every_part() -> None:
    section = (ROOT / "docs" / "files.md").read_text("utf-8")
    for part in stored.PARTS:
        assert not part.folder or f"`{part.folder}`" in section, part
    assert all(f"`{name}`" in section for name in ("costs.json", "machine"))
    cleared = " ".join(re.findall(r"`draftline storage clear ([a-z ]+)`", section)).split()
    assert sorted(cleared) == sorted(part.name for part in stored.CACHES)


# -- remove ---------------------------------------------------------------------------------


def test_remove_lists_and_deletes_everything(folder: Path) -> None:
    result = draftline(folder, "storage", "remove", "--yes")
    assert (result.returncode, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in OURS)
    assert not (folder / "home").exists()
    assert lines[-1].startswith("To remove the program: ")
    (folder / "home").mkdir()
    again = draftline(folder, "storage", "remove")
    assert again.returncode == 0 and b"Nothing is stored" in again.stdout
    assert b"not Draftline's" not in again.stdout


def test_remove_leaves_files_of_others(folder: Path) -> None:
    write(folder / "home", OTHERS)
    result = draftline(folder, "storage", "remove", "--yes")
    assert result.returncode == 0 and b"not Draftline's" in result.stdout
    assert files(folder / "home") == {*OTHERS}


def test_without_a_terminal_remove_needs_yes(folder: Path) -> None:
    before = files(folder / "home")
    result = draftline(folder, "storage", "remove", stdin=b"y\n")
    assert result.returncode == 2 and b"--yes" in result.stderr
    assert files(folder / "home") == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "deleted"), [("y\n", True), ("Yes\n", True), ("n\n", False),
                                                ("\n", False), ("", False)])  # fmt: skip
def test_remove_asks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, deleted: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", Terminal())
    with nullcontext() if deleted else pytest.raises(Failure, match="nothing was deleted"):
        assert remove(argparse.Namespace(yes=False)) == 0
    assert (folder / "home").exists() != deleted


def test_remove_waits_for_the_end_of_servers(folder: Path) -> None:
    runtime = address.runtime_folder()
    runtime.mkdir(parents=True, mode=0o700, exist_ok=True)
    path = runtime / f"{HEX}.sock"
    before = files(folder / "home")
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        result = draftline(folder, "storage", "remove", "--yes")
    assert result.returncode == 1 and b"a server runs" in result.stderr
    assert files(folder / "home") == before
    write(runtime, [f"{HEX}.log", "other.sock"])
    ended = draftline(folder, "storage", "remove", "--yes")  # its socket is left, dead
    assert ended.returncode == 0
    assert [path.name for path in runtime.iterdir()] == ["other.sock"]


def test_remove_does_not_follow_a_link_to_sockets(folder: Path) -> None:
    write(folder / "elsewhere", [f"{HEX}.log"])
    address.runtime_folder().symlink_to(folder / "elsewhere")
    assert draftline(folder, "storage", "remove", "--yes").returncode == 0
    assert files(folder / "elsewhere") == {f"{HEX}.log"}


@pytest.mark.parametrize("raises", [True, False])
def test_a_runtime_folder_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """Anybody may make `/tmp/runtime-UID`, of which platformdirs tells or does not. What needs the
    folder goes on with one in the cache folder."""
    with tempfile.TemporaryDirectory(prefix="dl") as short:  # as the path of a socket must be
        taken = Path(short) / "taken"
        taken.mkdir(mode=0o700)
        mine = taken.lstat()

        def system(*_: object, **__: object) -> str:
            if raises:
                raise PermissionError(1, "owned by another user", str(taken))
            return str(taken)

        monkeypatch.setattr("platformdirs.user_runtime_dir", system)
        monkeypatch.setattr(address, "is_own", lambda status: not os.path.samestat(status, mine))
        home = Path(short) / "home"
        monkeypatch.setenv("DRAFTLINE_HOME", str(home))
        assert address.runtime_folder() == home / "run"
        assert doctor_checks.runtime_folder().state == "ok"
        found = address.shared_address()
        assert found and found.path
        with closing(address.listen(found)):
            assert stored.sockets() == [found.path] == stored.running_servers()
        assert remove(argparse.Namespace(yes=True)) == 0
        assert not home.exists() and taken.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to another user")
def test_a_folder_that_another_user_has_made(tmp_path: Path) -> None:
    """By the programs: neither of them fails, and what is there stays."""
    temporary = tmp_path / "tmp"
    taken = temporary / f"runtime-{os.getuid()}"
    taken.mkdir(parents=True, mode=0o700)
    os.chown(taken, 4321, 4321)
    variables = {**os.environ, "TMPDIR": str(temporary), "DRAFTLINE_HOME": str(tmp_path / "home")}
    variables["XDG_RUNTIME_DIR"] = str(taken)
    program = [sys.executable, "-m", "ui.cli"]
    doctor = subprocess.run([*program, "doctor", "--json"], env=variables, capture_output=True)
    found = {one["name"]: one["state"] for one in json.loads(doctor.stdout)["checks"]}
    assert found["runtime folder"] == "ok" and not doctor.stderr
    program += ["storage", "remove", "--yes"]
    ended = subprocess.run(program, env=variables, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"") and taken.exists()


@pytest.mark.parametrize(
    ("environment", "made", "command"),
    [
        ("pipx/venvs/draftline", "pyvenv.cfg", "pipx uninstall draftline"),
        ("uv/tools/draftline", "uv-receipt.toml", "uv tool uninstall draftline"),
        ("draftline.draftline/tools/draftline", "uv-receipt.toml", "then delete /"),
        ("project/.venv", "pyvenv.cfg", "-m pip uninstall draftline"),
        ("usr", "bin", "python -m pip uninstall draftline"),
    ],
)
def test_the_program_is_removed_by_what_installed_it(
    tmp_path: Path, environment: str, made: str, command: str
) -> None:
    write(tmp_path / environment, [made])
    assert command in remove_command(tmp_path / environment)
