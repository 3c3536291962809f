"""Which files are indexed: ignore files, links and contents, on real folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from index.workspace import file_filter
from tests.index.test_ignore_patterns import git_differs


def make(root: Path, tree: dict[str, str | bytes]) -> None:
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def why_skipped(root: Path, path: str) -> str | None:
    """Why a file is skipped, for its name or contents; None if it is indexed."""
    try:
        file_filter.load(file_filter.lookup(root, path))
    except file_filter.Skipped as skipped:
        return str(skipped)
    return None


def listed(root: Path) -> tuple[list[str], dict[str, str]]:
    """The paths that are indexed, and the reasons for the others."""
    reasons: dict[str, str] = {}
    found = []
    for file in file_filter.walk(root, reasons.__setitem__):
        try:
            file_filter.load(file)
            found.append(file.path)
        except file_filter.Skipped as skipped:
            reasons[file.path] = str(skipped)
    for path in found:
        assert why_skipped(root, path) is None
    for path, reason in reasons.items():
        if not (root / path).is_dir():
            assert why_skipped(root, path) == reason
    return found, reasons


def test_order_is_by_name_depth_first(tmp_path: Path) -> None:
    make(tmp_path, {"b.py": "", "a/z.py": "", "a/b/c.py": "", "a.py": "", "Z": ""})
    assert listed(tmp_path)[0] == ["Z", "a/b/c.py", "a/z.py", "a.py", "b.py"]


def test_gitignore_rules_nest(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            ".gitignore": "*.log\n/top.txt\nout/\n!keep.log\n# comment\n!\n[z-a]\n",
            "a.log": "",
            "keep.log": "",
            "top.txt": "",
            "sub/top.txt": "",
            "sub/out/x.py": "",
            "sub/.gitignore": "!b.log\nlocal.py\nkeep.log\n",
            "sub/b.log": "",
            "sub/c.log": "",
            "sub/keep.log": "",
            "sub/local.py": "",
            "sub/deep/b.log": "",
            "sub/deep/local.py": "",
            "local.py": "",
            "out": "a file, not a folder",
        },
    )
    found, reasons = listed(tmp_path)
    assert found == [
        ".gitignore", "keep.log", "local.py", "out",
        "sub/.gitignore", "sub/b.log", "sub/deep/b.log", "sub/top.txt",
    ]  # fmt: skip
    assert set(reasons.values()) == {"ignored by .gitignore"}
    assert why_skipped(tmp_path, "sub/out/x.py") == "ignored by .gitignore"


def test_ignore_files_above_the_folder_apply_up_to_the_repository(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            ".gitignore": "outside.py\n",
            "repo/.gitignore": "*.log\n/part/top.py\n",
            "repo/.git/info/exclude": "mine.py\n",
            "repo/part/top.py": "",
            "repo/part/a.log": "",
            "repo/part/mine.py": "",
            "repo/part/outside.py": "",
            "repo/part/in/top.py": "",
        },
    )
    assert listed(tmp_path / "repo" / "part")[0] == ["in/top.py", "outside.py"]


def test_without_a_repository_ignore_files_above_do_not_apply(tmp_path: Path) -> None:
    make(tmp_path, {".gitignore": "*.py\n", "part/a.py": ""})
    assert listed(tmp_path / "part")[0] == ["a.py"]


@pytest.mark.parametrize("part", ["made", "made/deep"])
def test_a_folder_ignored_by_its_repository_is_walked(tmp_path: Path, part: str) -> None:
    make(tmp_path, {".git/HEAD": "", ".gitignore": "made/\n*.py\n", "made/deep/a.py": ""})
    assert [Path(path).name for path in listed(tmp_path / part)[0]] == ["a.py"]
    assert listed(tmp_path)[0] == [".gitignore"]


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".env.local", "prod/.env.example", "server.pem", "tls.KEY", "id_rsa", "id_rsa.pub",
        "id_ed25519", "credentials", "credentials.json", ".netrc", ".npmrc", ".pypirc", "a.p12",
        "a.pfx", "a.keystore", ".aws/config", ".ssh/known_hosts", "home/.aws/sso/x.json",
    ],
)  # fmt: skip
def test_secrets_are_skipped(tmp_path: Path, name: str) -> None:
    make(tmp_path, {name: "token = 1", "environment.py": "", "keys.py": ""})
    assert listed(tmp_path)[0] == ["environment.py", "keys.py"]
    assert why_skipped(tmp_path, name) == "may hold secrets"


def test_a_private_key_is_skipped_under_any_name(tmp_path: Path) -> None:
    make(tmp_path, {"deploy.txt": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n"})
    assert listed(tmp_path)[1] == {"deploy.txt": "may hold secrets: a private key in line 1"}


@pytest.mark.parametrize(
    "name",
    [
        ".git/config", "node_modules/m/index.js", ".venv/lib/a.py", "a/__pycache__/b.py",
        "build/lib/a.py", "dist/a.js", "draft.egg-info/PKG-INFO",
    ],
)  # fmt: skip
def test_junk_is_skipped_without_a_gitignore(tmp_path: Path, name: str) -> None:
    make(tmp_path, {name: "x", "a.py": ""})
    found, reasons = listed(tmp_path)
    assert found == ["a.py"]
    assert len(reasons) == 1
    assert why_skipped(tmp_path, name) is not None


def test_generated_folders_are_recognized_by_a_marker_file(tmp_path: Path) -> None:
    make(tmp_path, {"target/CACHEDIR.TAG": "", "target/a.rs": "", "py/pyvenv.cfg": "", "a": ""})
    assert listed(tmp_path) == (["a"], {"py": "holds pyvenv.cfg", "target": "holds CACHEDIR.TAG"})


def test_files_are_skipped_for_their_contents(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "binary": b"abc\0def",
            "late-nul": b"a" * file_filter.BINARY_CHECK_BYTES + b"\0",
            "latin-1": "é".encode("latin-1"),
            "cut": "é".encode()[:1],
            "large": b"a" * (file_filter.MAX_FILE_BYTES + 1),
            "just": b"a" * file_filter.MAX_FILE_BYTES,
            "empty": "",
            "text": "\ufeffa\r\nb\rc é \U0001f600 e\u0301",
        },
    )
    found, reasons = listed(tmp_path)
    assert found == ["empty", "just", "late-nul", "text"]
    assert reasons == {
        "binary": "binary",
        "cut": "not UTF-8",
        "large": "over 1 MiB",
        "latin-1": "not UTF-8",
    }
    assert file_filter.read(tmp_path / "text") == "\ufeffa\r\nb\rc é \U0001f600 e\u0301"


def test_a_file_that_grew_since_it_was_listed_is_skipped(tmp_path: Path) -> None:
    make(tmp_path, {"a": "small"})
    (file,) = file_filter.walk(tmp_path)
    make(tmp_path, {"a": b"a" * (file_filter.MAX_FILE_BYTES + 1)})
    with pytest.raises(file_filter.Skipped, match="over 1 MiB"):
        file_filter.load(file)
    Path(file.real_path).unlink()
    with pytest.raises(file_filter.Skipped, match="unreadable"):
        file_filter.load(file)


def test_links_out_of_the_folder_are_skipped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(
        tmp_path,
        {"out.py": "", "other/a.py": "", "root/real.py": "", "root/.env": "", "root/sub/b.py": ""},
    )
    links = {
        "inside": "real.py",
        "absolute": str(root / "real.py"),
        "outside": "../out.py",
        "outside-folder": "../other",
        "inside-folder": "sub",
        "self": "self",
        "circle": "circle-back",
        "circle-back": "circle",
        "up": ".",
        "nothing": "missing",
        "other": ".env",
        "through": "outside-folder/a.py",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    found, reasons = listed(root)
    assert found == ["absolute", "inside", "real.py", "sub/b.py"]
    assert reasons == {
        ".env": "may hold secrets",
        "outside": "a link out of the folder",
        "through": "a link out of the folder",
        "outside-folder": "a link to a folder",
        "inside-folder": "a link to a folder",
        "up": "a link to a folder",
        "self": "a broken link",
        "circle": "a broken link",
        "circle-back": "a broken link",
        "nothing": "a broken link",
        "other": "a link to a file that is skipped: may hold secrets",
    }


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path, {"real/a.py": "", "real/b.py": ""})
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "c.py").symlink_to(tmp_path / "link" / "a.py")
    assert [file.path for file in file_filter.walk(tmp_path / "link")] == ["a.py", "b.py", "c.py"]


def test_unusual_names(tmp_path: Path) -> None:
    names = [b"two\nlines.py", b"latin-\xe9.py", b"-flag", b"sp ace\\back.py", "ünï.py".encode()]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text("text")
    make(tmp_path, {".gitignore": "*.log\n", "two\nlines.log": ""})
    found, reasons = listed(tmp_path)
    assert sorted(map(os.fsencode, found)) == sorted([*names, b".gitignore"])
    assert reasons == {"two\nlines.log": "ignored by .gitignore"}


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert listed(tmp_path) == ([], {"pipe": "not a regular file"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    make(tmp_path, {"file.py": "", "folder/a.py": "", "open.py": ""})
    (tmp_path / "file.py").chmod(0)
    (tmp_path / "folder").chmod(0)
    try:
        found, reasons = listed(tmp_path)
    finally:
        (tmp_path / "folder").chmod(0o700)
    assert found == ["open.py"]
    assert set(reasons) == {"file.py", "folder"}
    assert all(reason.startswith("unreadable: ") for reason in reasons.values())


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="not a folder"):
        list(file_filter.walk(tmp_path / "missing"))


@settings(max_examples=50)
@given(st.text(alphabet="ab*/!.\\[] #\n", max_size=30), st.booleans())
def test_any_gitignore_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, rules: str, nested: bool
) -> None:
    root = tmp_path_factory.mktemp("rules")
    make(root, {"a": "", "b/a": "", "b/b/a.b": "", ("b/" if nested else "") + ".gitignore": rules})
    found, reasons = listed(root)
    assert set(found) <= {"a", "b/a", "b/b/a.b", ".gitignore", "b/.gitignore"}
    assert found or reasons


NAMES = [
    "a",
    "b",
    "ab",
    "a.b",
    "b.log",
    "two\nx",
    "x\n",
    "sp ",
    "\udcff.log",
    "#h",
    "!n",
    "[a]",
    "a*",
    "é",
    "a1",
]
PARTS = [
    "a", "b", "ab", "*", "**", "?", "*.log", "a*", "*b", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]",
    "\\*", "\\#h", "\\!n", "#h", "sp\\ ", "a.b", "\\[a\\]", "*x", "??", "a[[:digit:]]",
    "[[:alpha:]]", "[![:alpha:]]*", "é", "[é]*", "a**", "***", "a\\",
]  # fmt: skip
LINES = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "", "/"]),
    st.sampled_from(["", "", " ", "\r"]),
)
RULES = st.lists(LINES, min_size=1, max_size=4).map("\n".join)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=25)
@given(
    paths=st.lists(PATHS, min_size=1, max_size=12),
    top=RULES,
    inner=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3), RULES), max_size=3),
)
def test_ignored_files_are_those_of_git(
    paths: list[list[str]], top: str, inner: list[tuple[int, int, str]]
) -> None:
    assume(not any(map(git_differs, [top, *(rules for _, _, rules in inner)])))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True)
        make(root, {".gitignore": top})
        for parts in paths:
            path = root.joinpath(*parts)
            if not path.exists() and not any(part.is_file() for part in path.parents):
                make(root, {"/".join(parts): ""})
        for index, depth, rules in inner:
            around = root.joinpath(*paths[index % len(paths)][:depth])
            if around.is_dir():
                make(around, {".gitignore": rules})
        git = ["git", "-C", folder, "ls-files", "--others", "--exclude-standard", "-z"]
        given = subprocess.run(git, check=True, capture_output=True).stdout.split(b"\0")
        found = [file.path for file in file_filter.walk(root)]
        assert sorted(map(os.fsencode, found)) == sorted(filter(None, given))
        assert found == sorted(found, key=lambda path: [os.fsencode(p) for p in path.split("/")])
        for path in root.rglob("*"):
            inside = path.relative_to(root).as_posix()
            if path.is_file() and not inside.startswith(".git/"):
                assert (why_skipped(root, inside) is None) == (inside in found)
