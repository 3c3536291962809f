"""The house rules that a machine can check: who imports whom, the map, sizes, pins, the wheel.

Says nothing about behaviour. The tables below are the rules; to change one, change it here and in
CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("index", "engine", "lsp_server", "ui", "bench", "tests")
LINES = 350

# Room -> the rooms it may import.
ARROWS = {
    "index": set(),
    "engine": {"index"},
    "lsp_server": {"index", "engine"},
    "ui": {"index", "engine"},
    "bench": {"index", "engine", "lsp_server", "ui", "bench"},
    "tests": {"index", "engine", "ui", "lsp_server", "bench"},
}

# The one exception: file -> the room it may import lazily, inside a function.
LAZY_ARROWS = {"ui/cli/main.py": "lsp_server"}

# Third-party package -> the files, or folders ending in "/", that may import it. What is missing
# here may be imported nowhere in index, engine, lsp_server and ui.
WALLS = {
    "accelerate": ["engine/research/distributed_map.py"],
    "fastapi": ["ui/"],
    "filelock": ["engine/weights/", "index/workspace/segment_store.py"],
    "gguf": ["engine/weights/"],
    "gradio": ["ui/web/"],
    "huggingface_hub": ["engine/weights/"],
    "jinja2": ["engine/prompts/chat_template.py"],
    "lsprotocol": ["lsp_server/"],
    "markdown_it": ["index/documents/formats/headings.py"],
    "model2vec": ["index/documents/embeddings.py"],
    "numpy": ["index/", "engine/", "lsp_server/protocol/positions.py"],
    "pathspec": ["index/workspace/file_filter.py"],
    "platformdirs": ["engine/weights/"],
    "prometheus_client": ["ui/api/metrics.py"],
    "psutil": ["engine/", "lsp_server/protocol/process.py", "ui/"],
    "pydantic": ["ui/"],
    "pydantic_core": ["ui/"],
    "pygls": ["lsp_server/"],
    "pypdfium2": ["index/documents/formats/pdf.py"],
    "rich": ["ui/"],
    "safetensors": ["engine/weights/", "engine/model/llama.py", "engine/drafting/", "engine/research/train/"],
    "selectolax": ["index/documents/formats/html.py"],
    "starlette": ["ui/"],
    "tokenizers": ["engine/prompts/builder.py", "engine/prompts/token_bytes.py", "engine/weights/"],
    "torch": [
        "engine/model/llama.py", "engine/model/llama_q8.py", "engine/model/hf_model.py", "engine/model/ops.py",
        "engine/model/target.py", "engine/research/train/", "engine/sampling/verify.py", "engine/sampling/rejection_sampling.py",
        "engine/drafting/draft_model.py", "engine/drafting/methods/head_checkpoint.py",
        "engine/drafting/methods/specdec.py", "engine/drafting/methods/eagle.py",
        "engine/drafting/methods/eagle_head.py", "engine/drafting/methods/sdsat.py",
        "engine/research/two_models.py", "engine/research/model_pair.py", "engine/research/comparison.py", "engine/research/distributed_map.py",
        "engine/model/row_invariance.py", "engine/sampling/batched.py", "engine/model/placement.py", "engine/model/cuda/triton_ops.py",
        "engine/model/cuda/cuda_graphs.py", "engine/model/random_weights.py", "engine/model/kv_cache.py", "engine/model/cuda/static_forward.py",
        "engine/model/cuda/torch_ops.py",
    ],
    "transformers": ["engine/model/hf_model.py", "engine/research/train/", "engine/research/model_pair.py"],
    "triton": ["engine/model/cuda/triton_ops.py"],
    "uvicorn": ["ui/cli/serve.py"],
    "watchdog": ["index/workspace/watch.py"],
    "websockets": ["lsp_server/protocol/transport.py"],
}  # fmt: skip

# Needed by another dependency at run time, imported by nobody here.
UNIMPORTED: set[str] = set()

# In an extra, imported where it is asked for.
OPTIONAL = {"accelerate", "model2vec"}

# Imported, and brought by the dependency that it is a part of.
BROUGHT = {"pydantic-core", "triton"}

# Too slow for `draftline --help`: importing any of the light modules brings in none of these.
HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "rich",
    "gguf",
    "huggingface_hub",
    "pygls",
    "fastapi",
    "pydantic",
    "uvicorn",
    "gradio",
)
LIGHT = (
    "index",
    "engine",
    "engine.config",
    "engine.records",
    "ui",
    "ui.cli.main",
    "lsp_server.cli",
)


def house_files() -> Iterator[Path]:
    """Every source file of the rooms, relative to the root."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in {".py", ".pyi", ".cpp", ".hpp"}:
                yield path.relative_to(ROOT)


def product_files() -> Iterator[Path]:
    """The Python files that are installed."""
    installed = {"index", "engine", "lsp_server", "ui"}
    return (path for path in house_files() if path.parts[0] in installed and path.suffix == ".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(top-level name, whether inside a function) of every import, relative ones resolved."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], inside
        elif isinstance(node, ast.ImportFrom):
            name = path.parts[0] if node.level else node.module or ""
            yield name.split(".")[0], inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return walk(tree(path), False)


def allowed(path: Path, places: list[str]) -> bool:
    name = path.as_posix()
    return any(name.startswith(each) if each.endswith("/") else name == each for each in places)


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for path in (each for each in house_files() if each.suffix == ".py"):
        room = path.parts[0]
        for name, lazy in imports(path):
            by_exception = lazy and LAZY_ARROWS.get(path.as_posix()) == name
            if name in ROOMS and name != room and name not in ARROWS[room] and not by_exception:
                wrong.append(f"{path} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_third_party_packages_stay_behind_their_walls() -> None:
    wrong = []
    for path in product_files():
        for name in sorted({name for name, _ in imports(path)}):
            ours = name in ROOMS or name in sys.stdlib_module_names
            if not ours and not allowed(path, WALLS.get(name, [])):
                wrong.append(f"{path} imports {name}: not among {WALLS.get(name, 'the walls')}")
    assert not wrong, "\n".join(wrong)


def test_light_modules_bring_in_nothing_heavy() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {LIGHT!r}: importlib.import_module(name)\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_native_cores_know_nothing_of_python() -> None:
    """Only bindings.cpp speaks Python; everything else in core/ could serve any host."""
    for path in house_files():
        if path.suffix in {".cpp", ".hpp"} and path.name != "bindings.cpp":
            text = (ROOT / path).read_text(encoding="utf-8")
            assert not re.search(r"#include\s*[<\"](Python\.h|nanobind)", text), path


def test_nothing_unpickles_or_runs_foreign_code() -> None:
    wrong = []
    for path in product_files():
        wrong += [f"{path}: {n}" for n, _ in imports(path) if n in {"pickle", "shelve", "marshal"}]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
                    wrong.append(f"{path}:{node.lineno}: {node.func.id}()")
                for keyword in node.keywords:
                    off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                    if keyword.arg in {"shell", "trust_remote_code"} and not off:
                        wrong.append(f"{path}:{node.lineno}: {keyword.arg}=")
    assert not wrong, "\n".join(wrong)


def test_the_map_lists_every_file_and_only_those() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## The house map", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^(?:\w+/)+\w+\.(?:py|pyi|cpp|hpp)(?=  )", section, re.MULTILINE)
    assert len(listed) == len(set(listed)), "a file is listed twice"
    present = {
        path.as_posix()
        for path in house_files()
        if path.name != "__init__.py" or (ROOT / path).read_text(encoding="utf-8").count("\n") > 5
    }
    unlisted = sorted(present - set(listed))
    assert not unlisted, f"not in CONTRIBUTING.md's map: {', '.join(unlisted)}"
    gone = sorted(each for each in listed if not (ROOT / each).is_file())
    assert not gone, f"in CONTRIBUTING.md's map, but not in the tree: {', '.join(gone)}"


@pytest.mark.parametrize("path", list(house_files()), ids=str)
def test_files_are_short(path: Path) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= LINES, f"{path}: {lines} lines, at most {LINES}: find the second noun in it"


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> list[Requirement]:
    """All that pyproject.toml asks for, extras and the build's own included."""
    data = pyproject()
    project = data["project"]
    lists = [data["build-system"]["requires"], project["dependencies"]]
    lists += project.get("optional-dependencies", {}).values()
    return [Requirement(line) for each in lists for line in each]


def pins() -> dict[str, str]:
    """constraints.txt: normalised name -> exact version."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert canonicalize_name(name) not in found, f"{name} is pinned twice"
            found[canonicalize_name(name)] = version
    return found


def test_every_requirement_has_a_pin_inside_its_range() -> None:
    for requirement in requirements():
        pin = pins().get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement}: no pin in constraints.txt"
        assert requirement.specifier.contains(pin), f"{requirement}: pinned to {pin}"


def test_every_requirement_is_a_range() -> None:
    for requirement in requirements():
        operators = {each.operator for each in requirement.specifier}
        assert ">=" in operators and "==" not in operators, f"{requirement}: wants a range"


def test_pins_accept_a_local_version() -> None:
    assert SpecifierSet(f"=={pins()['torch']}").contains(f"{pins()['torch']}+cpu")


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="only make's .venv is pinned")
def test_everything_installed_is_pinned() -> None:
    wrong = []
    for each in importlib.metadata.distributions():
        name, version = canonicalize_name(each.metadata["Name"]), each.version.split("+")[0]
        if name != "draftline" and pins().get(name) != version:
            wrong.append(f"{name}=={version} is installed, constraints.txt: {pins().get(name)}")
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_required_and_the_reverse() -> None:
    used = {canonicalize_name(name) for path in product_files() for name, _ in imports(path)}
    used -= {canonicalize_name(name) for name in {*ROOMS, *sys.stdlib_module_names}}
    used = {{"markdown-it": "markdown-it-py"}.get(name, name) for name in used}
    project = pyproject()["project"]
    asked = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert used - asked == OPTIONAL | BROUGHT, "imported, but not in pyproject's dependencies"
    assert asked - used == UNIMPORTED, "in pyproject's dependencies, but not imported"


def tracked() -> list[Path]:
    """Files that git tracks or would."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_this_machine() -> None:
    # Joined here, so that this file does not name them either.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "download.py" + "torch.org"]
    hosts += ["npm" + "js.org", "npm" + "js.com", "debian" + ".org"]
    places = ["/opt" + "/wheels", "/opt" + "/pypi", "/work" + "/main", "/root" + "/."]
    if len(ROOT.parts) > 2:
        places.append(f"{ROOT}/")
    wrong = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        wrong += [f"{path.relative_to(ROOT)}: {each}" for each in hosts + places if each in text]
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
def test_a_wheel_works_from_another_folder(tmp_path: Path) -> None:
    """A wheel holds every module and both native cores, no sources of them, and the licence."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    constraints = ["--build-constraint", str(ROOT / "constraints.txt")]
    building = ["wheel", "-q", "--no-deps", *constraints, "-C", f"build-dir={tmp_path / 'build'}"]
    subprocess.run([*pip, *building, "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("draftline-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {path.as_posix() for path in product_files()} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".cpp", ".hpp"))]
    assert {name.split("/")[0] for name in names} <= {
        *("index", "engine", "lsp_server", "ui"),
        next(name.split("/")[0] for name in names if ".dist-info/" in name),
    }

    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    installing = ["install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([*pip, *installing], check=True)
    # -S: without it the editable install's import hook would answer instead of the wheel.
    packages = str(Path(pytest.__file__).parent.parent)
    code = (
        f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({packages!r})\n"
        "import engine.model._kernels, index._core, ui.cli.main\n"
        "print(engine.model._kernels.__file__, index._core.__file__, ui.cli.__file__, sep='\\n')\n"
        "sys.exit(ui.cli.main.main(['--help']))"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [sys.executable, "-S", "-c", code]
    result = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, env=clean)
    assert result.returncode == 0, result.stderr
    assert all(line.startswith(str(site)) for line in result.stdout.splitlines()[:3])
    assert "usage: " in result.stdout
