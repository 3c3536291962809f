"""The workspace on disk: roots, links, deleted and renamed folders, and the saved index."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.prompts.tokenizer import Tokenizer
from index import Span, Workspace
from index.workspace import file_filter, persistence, segment_set
from index.workspace.segment import Segment, freeze
from index.workspace.token_cache import Encoder
from tests.conftest import byte_bpe
from tests.index.test_workspace import Model, answers
from tests.support.encoders import Bytes, Composed
from tests.support.faults import TIMEOUT_S, make_tree, small_segments, starts_warm


@pytest.fixture(params=["bytes", "composed", "bpe"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    if request.param == "bpe":
        folder = tmp_path_factory.mktemp("bpe")
        byte_bpe(folder)
        return Tokenizer(folder)
    return {"bytes": Bytes(), "composed": Composed()}[request.param]


def test_a_folder_is_indexed_oldest_first(
    tmp_path: Path, workspaces: Any, encoder: Encoder
) -> None:
    (tmp_path / "sub").mkdir()
    texts = {"sub/b.py": "value = e\u0301 1\n", "a.py": "value = 2\n", "sub/c.py": "value\n"}
    model = Model(encoder)
    for age, (path, text) in enumerate(texts.items()):
        (tmp_path / path).write_text(text, "utf-8")
        os.utime(tmp_path / path, ns=(0, 1000 * age))
        model.living[str(tmp_path / path)] = text
    (tmp_path / ".env").write_text("value = secret\n")
    (tmp_path / "data").write_bytes(b"value\0")
    calls: list[tuple[str, int, int]] = []
    workspace = workspaces(tmp_path, encoder)
    workspace.build(lambda *call: calls.append(call))
    assert calls[-1][1:] == (4, 4)
    assert workspace.paths == sorted(model.living)
    assert workspace.skipped == {
        str(tmp_path / ".env"): "may hold secrets",
        str(tmp_path / "data"): "binary",
    }
    for tail in encoder.encode_batch(["value", " = ", "val", "\n"]):
        assert answers(workspace, tail, 9) == model.match(tail, 9, None)


def test_several_and_nested_roots(tmp_path: Path, workspaces: Any) -> None:
    for path in ("one/a", "two/b", "one/in/c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"text of {path}")
    (tmp_path / "link").symlink_to(tmp_path / "two")
    roots = [tmp_path / "one", tmp_path / "link", tmp_path / "one/in", tmp_path / "one"]
    workspace = workspaces(roots)
    workspace.build()
    assert workspace.paths == [str(tmp_path / path) for path in ("one/a", "one/in/c", "two/b")]
    workspace.update(tmp_path / "link/b", "buffer")
    assert workspace.match(list(b"buf"))[0].path == str(tmp_path / "two/b")
    with pytest.raises(NotADirectoryError, match="no such"):
        workspaces([tmp_path / "no such"]).build()


def test_nothing_outside_the_roots_is_read(tmp_path: Path, workspaces: Any) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("do not read")
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    workspace = workspaces(tmp_path / "root")
    workspace.build()
    workspace.refresh([tmp_path / "root/link", tmp_path / "secret", "/etc/hostname"])
    assert workspace.paths == []
    (tmp_path / "root/link").unlink()
    (tmp_path / "root/link").write_text("may be read")
    workspace.refresh([tmp_path / "root/link"])
    assert workspace.match(list(b"may"))[0].length == 3
    (tmp_path / "root/link").unlink()
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    workspace.refresh([tmp_path / "root/link"])
    assert workspace.paths == []


def test_a_link_is_updated_with_its_target(tmp_path: Path, workspaces: Any) -> None:
    (tmp_path / "file").write_text("first text")
    (tmp_path / "link").symlink_to("file")
    workspace = workspaces(tmp_path)
    workspace.build()
    (tmp_path / "file").write_text("second text")
    workspace.refresh([tmp_path / "file"])
    assert workspace.match(list(b"first"))[0].length == 1
    found = workspace.match(list(b"second"))
    assert [one.path for one in found] == [str(tmp_path / "link"), str(tmp_path / "file")]
    (tmp_path / "file").unlink()
    workspace.refresh([tmp_path / "file"])
    assert workspace.paths == []


def test_a_root_is_deleted_and_recreated(tmp_path: Path, workspaces: Any) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("first text")
    workspace = workspaces(root)
    workspace.build()
    workspace.update(root / "open", "a buffer stays")
    shutil.rmtree(root)
    workspace.refresh()
    assert workspace.paths == [str(root / "open")]
    root.mkdir()
    (root / "a").write_text("second text")
    workspace.refresh()
    assert workspace.paths == [str(root / "a"), str(root / "open")]
    assert workspace.match(list(b"second"))[0].length == 6


def test_folders_are_removed_and_renamed(tmp_path: Path, workspaces: Any) -> None:
    for path in ("a/b/one", "a/two", "ab"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    encoder = Bytes()
    workspace = workspaces(tmp_path, encoder)
    workspace.build()
    seen = encoder.seen
    (tmp_path / "a").rename(tmp_path / "n")
    workspace.rename(tmp_path / "a", tmp_path / "n")
    assert workspace.paths == [str(tmp_path / path) for path in ("ab", "n/b/one", "n/two")]
    workspace.scan()
    assert encoder.seen == seen
    workspace.remove(tmp_path / "n/b")
    assert workspace.paths == [str(tmp_path / path) for path in ("ab", "n/two")]
    (tmp_path / "n" / "b" / "one").unlink()
    shutil.move(tmp_path / "n", tmp_path / "m")
    workspace.refresh([tmp_path / "n", tmp_path / "m"])
    assert workspace.paths == [str(tmp_path / path) for path in ("ab", "m/two")]


def test_find_returns_the_spans_of_a_text(tmp_path: Path, workspaces: Any) -> None:
    (tmp_path / "a").write_text("é one two one\n")
    (tmp_path / "b").write_text("one")
    os.utime(tmp_path / "a", (1, 1))
    workspace = workspaces(tmp_path)
    workspace.build()
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert workspace.find("one") == [Span(b, 0, 3), Span(a, 2, 5), Span(a, 10, 13)]
    assert workspace.find("one", 2) == [Span(b, 0, 3), Span(a, 2, 5)]
    assert workspace.find("") == workspace.find("none") == []
    (tmp_path / "b").write_text("changed since: one")
    assert workspace.find("one")[0].path == a


def tree_of(root: Path, files: dict[str, str]) -> None:
    for age, (path, text) in enumerate(files.items()):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
        os.utime(root / path, (1 + age, 1 + age))


@pytest.mark.parametrize("kind", ["bytes", "composed"])
def test_a_second_start_reads_only_what_changed(tmp_path: Path, workspaces: Any, kind: str) -> None:
    root = tmp_path / "root"
    texts = {f"dir{at % 3}/{at}": f"tëxt e\u0301 {at}\n" * at for at in range(30)}
    tree_of(root, texts)
    (root / "binary").write_bytes(b"\0")
    os.utime(root / "binary", (1, 1))
    kinds: Any = {"bytes": Bytes, "composed": Composed}
    first = workspaces(root, kinds[kind](), home=tmp_path / "home")
    first.build()
    first.update(root / "dir1/1", "only in the editor")
    first.close()
    encoder = kinds[kind]()
    seen: list[str] = []
    encode = encoder.encode_batch
    encoder.encode_batch = lambda texts: seen.extend(texts) or encode(texts)
    (root / "dir2/5").write_text("another text")
    (root / "dir0/3").unlink()
    second = workspaces(root, encoder, home=tmp_path / "home")
    second.build()
    read = set(seen) & {*texts.values(), "another text"}
    assert read <= {"another text", texts["dir1/1"]}
    assert second.skipped == {str(root / "binary"): "binary"}
    fresh = workspaces(root, kinds[kind]())
    fresh.build()
    assert second.paths == fresh.paths
    for text in (*texts.values(), "another text", "only in the editor"):
        (tail,) = encode([text])
        found = [(one.path, one.end, one.span(0, 9)) for one in second.match(tail, 9999)]
        expected = [(one.path, one.end, one.span(0, 9)) for one in fresh.match(tail, 9999)]
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_rejected_files_are_read_once(tmp_path: Path, workspaces: Any) -> None:
    (tmp_path / "b").write_bytes(b"\0")
    workspace = workspaces(tmp_path)
    workspace.build()
    workspace.refresh([tmp_path / "b"])
    workspace.scan()
    assert workspace.skipped == {str(tmp_path / "b"): "binary"}
    (tmp_path / "b").write_text("text now")
    workspace.refresh([tmp_path / "b"])
    assert workspace.skipped == {}
    (tmp_path / "b").write_bytes(b"\0")
    workspace.refresh([tmp_path / "b"])
    assert (workspace.paths, list(workspace.skipped.values())) == ([], ["binary"])
    (tmp_path / "b").unlink()
    workspace.refresh([tmp_path / "b"])
    assert workspace.skipped == {}


def test_indexes_of_other_roots_or_tokenizers_are_not_loaded(
    tmp_path: Path, workspaces: Any
) -> None:
    for name in ("one", "two"):
        tree_of(tmp_path / name, {"a": f"text of {name}"})
    one = workspaces(tmp_path / "one", home=tmp_path / "home")
    one.build()
    one.close()
    for roots, encoder in (([tmp_path / "two"], Bytes()), ([tmp_path / "one"], Composed())):
        other = workspaces(roots, encoder, home=tmp_path / "home")
        other.build()
        fresh = workspaces(roots, encoder)
        fresh.build()
        (tail,) = encoder.encode_batch(["text of"])
        assert other.paths == fresh.paths
        assert [m.length for m in other.match(tail)] == [m.length for m in fresh.match(tail)]


def test_an_incomplete_index_is_not_saved(tmp_path: Path, workspaces: Any) -> None:
    """Neither a workspace that was not built nor one that was cleared replaces the saved index."""
    tree_of(tmp_path / "root", {"a": "some text"})
    read = []
    for build in (True, False, True):
        workspace = workspaces(tmp_path / "root", home=tmp_path / "home")
        if build:
            workspace.build()
        workspace.update("buffer", "text of a buffer")
        read.append(workspace.stats().hits + workspace.stats().misses)
        workspace.close()
    assert read == [1, 0, 0]
    workspace = workspaces(tmp_path / "root", home=tmp_path / "home")
    workspace.build()
    workspace.clear()
    workspace.close()
    assert list((tmp_path / "home" / "index").rglob("table")) == []


def test_clear_deletes_the_saved_index(tmp_path: Path, workspaces: Any) -> None:
    tree_of(tmp_path / "root", {"a": "some text"})
    workspace = workspaces(tmp_path / "root", home=tmp_path / "home")
    workspace.build()
    workspace.compact()
    assert workspace.stats().disk > 0
    reader = workspaces(tmp_path / "root", home=tmp_path / "home")
    reader.build()
    with pytest.raises(PermissionError, match="another process"):
        reader.clear()
    workspace.clear()
    assert workspace.stats().disk == 0
    assert list((tmp_path / "home" / "index").rglob("*.part")) == []


def test_unused_indexes_are_deleted(tmp_path: Path, workspaces: Any) -> None:
    for name in ("old", "used", "new"):
        tree_of(tmp_path / name, {"a": f"text of {name}"})
    days = 24 * 3600
    tables: dict[str, Path] = {}
    for name, age in (("old", 91 * days), ("used", 91 * days), ("used", 0), ("new", 0)):
        before = set((tmp_path / "home").rglob("table"))
        workspace = workspaces(tmp_path / name, home=tmp_path / "home")
        workspace.build()
        workspace.close()
        for table in set((tmp_path / "home").rglob("table")) - before:
            tables[name] = table
            past = table.stat().st_mtime - age
            os.utime(table, (past, past))
    assert {name: table.exists() for name, table in tables.items()} == {
        "old": False,
        "used": True,
        "new": True,
    }


def test_indexes_beyond_the_limit_are_deleted_oldest_first(
    tmp_path: Path, workspaces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"

    def save(name: str) -> Path:
        """Index a folder; the table of its saved index."""
        before = set(home.rglob("table"))
        tree_of(tmp_path / name, {"a": f"text of {name}"})
        workspace = workspaces(tmp_path / name, home=home)
        workspace.build()
        workspace.close()
        (table,) = set(home.rglob("table")) - before
        return table

    tables = {name: save(name) for name in ("first", "second", "third")}
    for age, name in ((60, "first"), (180, "second"), (120, "third")):
        past = tables[name].stat().st_mtime - age
        os.utime(tables[name], (past, past))
    each = sum(path.stat().st_size for path in tables["first"].parent.iterdir())
    monkeypatch.setattr(persistence, "MAX_INDEX_BYTES", 3 * each + each // 2)
    own = save("fourth")
    left = {name for name, table in tables.items() if table.exists()}
    assert left == {"first", "third"} and own.exists()
    monkeypatch.setattr(persistence, "MAX_INDEX_BYTES", 0)
    own = save("fifth")
    assert list(home.rglob("table")) == [own]


def test_ignored_files_are_indexed_without_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    made = {"a.py": "1", "out/b.py": "2", "sub/c.py": "3", "sub/.gitignore": "c.py", ".env": "4"}
    for name, text in (made | {".gitignore": "out\n", "node_modules/d.js": "5"}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "link.py").symlink_to("out/b.py")
    everything = {file.path for file in file_filter.walk(tmp_path, gitignore=False)}
    assert everything == {*made, ".gitignore", "link.py"} - {".env"}
    assert everything - {file.path for file in file_filter.walk(tmp_path)} == {
        "out/b.py",
        "sub/c.py",
        "link.py",
    }
    assert {file_filter.lookup(tmp_path, path, False).path for path in everything} == everything
    with Workspace(tmp_path, Bytes(), gitignore=False) as workspace:
        workspace.build()
        workspace.refresh([tmp_path / "out/b.py"])
        assert {Path(path).name for path in workspace.paths} >= {"b.py", "c.py"}


@pytest.mark.parametrize("make", [str, Path, lambda root: [str(root)], lambda root: (root, root)])
def test_roots_are_one_path_or_several(tmp_path: Path, workspaces: Any, make: Any) -> None:
    (tmp_path / "a").write_text("text")
    workspace = workspaces(make(tmp_path))
    workspace.build()
    assert workspace.roots == (tmp_path,)
    assert workspace.paths == [str(tmp_path / "a")]


def test_closing_does_not_wait_for_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge is abandoned: what it would have merged is saved as it is."""
    root, home = tmp_path / "root", tmp_path / "home"
    make_tree(root, random.Random(1))
    small_segments(monkeypatch)
    merging, proceed = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def freeze_when_allowed(*args: Any) -> Segment:
        if threading.current_thread().name == "compactor":
            merging.set()
            in_time.append(proceed.wait(TIMEOUT_S))
        return freeze(*args)

    monkeypatch.setattr(segment_set, "freeze", freeze_when_allowed)
    workspace = Workspace(root, Bytes(), home)
    workspace.build()
    assert merging.wait(TIMEOUT_S)
    (root / "u").write_text("value = 7\n" * 9)  # goes to the active segment
    workspace.refresh([root / "u"])
    workspace.close()
    assert in_time == []
    saved = workspace._segments.segments
    proceed.set()
    workspace._compactor.join()
    assert in_time == [True]
    assert workspace._segments.segments == saved and len(saved) > 2
    starts_warm(root, home)


def test_compacting_freezes_and_merges_all_segments(workspaces: Any) -> None:
    workspace = workspaces()
    for path in "abc":
        workspace.update(path, f"text of {path}")
        workspace._segments.seal()
    workspace.compact()
    *frozen, active = workspace._segments.segments
    assert [one.size for one in frozen] == [workspace.size] and frozen[0].frozen
    assert active.size == 0
