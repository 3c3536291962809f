"""Diffs without the changes of secret files: whatever git writes, none of their lines is left."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.workspace.file_filter import why_secret
from lsp_server.chat.secret_changes import without_secrets

PASSWORD = "correct-battery-staple"
KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
OPTIONS = {
    "plain": [],
    "no prefix": ["-c", "diff.noprefix=true"],
    "mnemonic": ["-c", "diff.mnemonicPrefix=true"],
    "own prefixes": ["-c", "diff.srcPrefix=X", "-c", "diff.dstPrefix=YY"],
    "colour": ["-c", "color.ui=always"],
    "names as they are": ["-c", "core.quotePath=false"],
    "no renames": ["-c", "diff.renames=false"],
    "no context": ["-c", "diff.context=0"],
}


def why(name: str, text: str) -> str | None:
    return why_secret(name, text)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace")


def write(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    git(folder, *who, "commit", "-qm", "x", "--no-gpg-sign", "--allow-empty")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in which secret files were changed, renamed, copied, added and deleted."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    secret = {
        ".env": b"A=1\n" * 5 + f"password={PASSWORD}\n".encode(),
        "id_rsa": b"\0" + PASSWORD.encode(),
        "dép loy/.env": f"PW={PASSWORD}\n".encode(),
        "gone.pem": f"{PASSWORD} of long ago\n".encode(),
        "my keys/pr\tod.key": f"{PASSWORD}\n".encode(),
        "conf/.npmrc": f"{PASSWORD}\n".encode(),
        ".netrc": f"{PASSWORD}\n".encode(),
    }
    for name, data in secret.items():
        write(folder, name, data)
    write(folder, "app.py", b"x = 1\n")
    commit(folder)
    for name, data in secret.items():
        write(folder, name, data + f"{PASSWORD} again\n".encode())
    (folder / "gone.pem").unlink()
    (folder / ".env").rename(folder / "settings.txt")
    write(folder, "app.py", b"x = 2\n")
    write(folder, "harmless.py", f"TOKEN = '{KEY}'\n".encode())
    write(folder, 'new "é".env', PASSWORD.encode())
    write(folder, "auth.json", f"{PASSWORD} in JSON\n".encode())
    git(folder, "add", "-A")
    return folder


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("more", [(), ("--binary",), ("-R",), ("--stat", "-p")])
def test_no_secret_is_left(repository: Path, options: list[str], more: tuple[str, ...]) -> None:
    diff = git(repository, *options, "diff", "--cached", *more)
    assert PASSWORD in diff and KEY in diff
    left, left_out = without_secrets(diff, why)
    assert PASSWORD not in left and KEY not in left
    assert "app.py" in left and "x = " in left, "the other changes stay"
    if not options and not more:
        assert {line.partition(": ")[0] for line in left_out} == {
            "settings.txt",  # which was .env
            "conf/.npmrc",
            ".netrc",
            "dép loy/.env",
            "gone.pem",
            "harmless.py",
            "auth.json",
            "id_rsa",
            "my keys/pr\tod.key",
            'new "é".env',
        }


def test_a_merge(tmp_path: Path) -> None:
    """Its diff has two columns of marks."""
    git(tmp_path, "init", "-q", "-b", "main")
    for branch, text in (("main", "one"), ("other", "two")):
        git(tmp_path, "checkout", "-q", "-B", branch)
        write(tmp_path, ".env", f"{text}\n".encode())
        write(tmp_path, "a.py", f"x = '{text}'\n".encode())
        commit(tmp_path)
        git(tmp_path, "checkout", "-q", "--orphan", "next")
    git(tmp_path, "checkout", "-qf", "main")
    who = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    merge = [*who, "merge", "-q", "--allow-unrelated-histories", "other"]
    subprocess.run(merge, cwd=tmp_path, capture_output=True)
    write(tmp_path, ".env", f"{PASSWORD}\n".encode())
    write(tmp_path, "a.py", b"x = 'three'\n")
    diff = git(tmp_path, "diff")
    assert PASSWORD in diff and diff.startswith("diff --cc")
    left, left_out = without_secrets(diff, why)
    assert PASSWORD not in left and "three" in left
    assert left_out == [".env: may hold secrets"]


def test_diffs_of_other_programs() -> None:
    """Without git's heads; and what is no diff is judged by its text."""
    one = "--- old/.env\n+++ new/.env\n@@ -1 +1 @@\n-a\n+b\n"
    two = "--- old/a.py\n+++ new/a.py\n@@ -1 +1 @@\n-c\n+d\n"
    for diff in (one + two, two + one, f"diff -u old new\n{one}{two}"):
        assert without_secrets(diff, why)[0].removeprefix("diff -u old new\n") == two
    assert without_secrets(f"password = {KEY}\n", why)[0] == ""
    assert without_secrets("some words\n", why) == ("some words\n", [])


def test_a_diff_without_secrets_is_what_it_was(repository: Path) -> None:
    diff = git(repository, "diff", "--cached", "app.py")
    assert without_secrets(diff, why) == (diff, [])


NAMES = st.text("ab \té\"'\\.\x01", min_size=1, max_size=6).map(lambda name: f"x{name}x")


@settings(max_examples=25, deadline=None)
@given(
    st.sets(NAMES, min_size=1, max_size=3), st.sets(NAMES, max_size=3), st.sampled_from([*OPTIONS])
)
def test_any_names(secret: set[str], others: set[str], options: str) -> None:
    """Secret files may have any names before their ending."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        git(folder, "init", "-q")
        for number, name in enumerate(sorted(secret)):
            write(folder, f"{name}.pem", f"{PASSWORD} {number}\n".encode())
        for number, name in enumerate(sorted(others)):
            write(folder, f"{name}.py", f"x = {number}\n".encode())
        git(folder, "add", "-A")
        left, left_out = without_secrets(git(folder, *OPTIONS[options], "diff", "--cached"), why)
    assert PASSWORD not in left and len(left_out) == len(secret)
    assert all(f"x = {number}" in left for number in range(len(others)))
