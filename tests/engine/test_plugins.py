"""Plug-ins: drafters and commands that other packages add, and packages that fail at it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine, Request, plugins
from engine.drafting.registry import (
    BUILT_IN,
    DrafterSpec,
    drafter_names,
    drafter_spec,
    parse_choice,
    usable_drafters,
)
from tests.support.command import draftline, one_line

ROOT = Path(__file__).resolve().parents[2]
DRAFTERS, COMMANDS = "draftline.drafters", "draftline.commands"
SPEC = """from engine.drafting import NullDrafter
from engine.drafting.registry import DrafterSpec
SPEC = DrafterSpec("drafts nothing", lambda parts, options: lambda request: NullDrafter())
"""
COMMAND = """def add_parser(commands):
    parser = commands.add_parser("hello", help="greet")
    parser.set_defaults(run=lambda args: print("hello") or 0)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    plugins.offers.cache_clear()
    loaded = set(sys.modules)
    yield folder
    plugins.offers.cache_clear()
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def install(site: Path, package: str, group: str, name: str, value: str, code: str = "") -> None:
    """Install a package of one module with one entry point."""
    (site / f"{package}.py").write_text(code)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


# -- the package of the documentation --------------------------------------------------------------


def documented_package() -> dict[str, str]:
    """The two files in docs/methods.md, by name."""
    text = (ROOT / "docs" / "methods.md").read_text("utf-8")
    section = text.partition("## A drafter in a package of its own\n")[2].partition("\n## ")[0]
    (project,) = re.findall(r"^```toml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (module,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return {"pyproject.toml": project, "draftline_repeat.py": module}


def test_the_documented_package_installs_and_changes_no_answer(
    site: Path, tmp_path: Path, tiny: Any, home: Path
) -> None:
    files = documented_package()
    assert sum(len(text.splitlines()) for text in files.values()) <= 40
    source = tmp_path / "draftline-repeat"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--no-cache-dir", "--target", site, source],
        check=True, cwd=tmp_path,
    )  # fmt: skip
    assert (
        "repeat            what followed the last place"
        in draftline(site.parent, "drafters").stdout.decode()
    )
    config = Config(str(tiny()), dtype="f32", threads=1, library=False, drafter="repeat:tokens=5")
    with Engine(config) as engine:
        for seed in range(4):
            request = Request(
                "complete", "one two three " * 9, temperature=0.9 * (seed % 2), seed=seed,
                max_tokens=40,
            )  # fmt: skip
            plain = engine.submit(request, False).result()
            done = engine.submit(request).result()
            assert (done.text, done.reason) == (plain.text, plain.reason)
            assert done.usage.drafted > 0


# -- drafters --------------------------------------------------------------------------------------


def test_a_drafter_is_imported_only_when_it_is_named(site: Path) -> None:
    for package in ("first", "second"):
        install(site, package, DRAFTERS, package, f"{package}:SPEC", SPEC)
    assert parse_choice("auto").spec is BUILT_IN["auto"]
    assert plugins.offers.cache_info().misses == 0  # no package was even looked at
    assert {"first", "second"} <= set(drafter_names())
    assert not {"first", "second"} & set(sys.modules)
    assert isinstance(parse_choice("second").spec, DrafterSpec)
    assert "second" in sys.modules and "first" not in sys.modules


@pytest.mark.parametrize(
    ("value", "code", "why"),
    [
        ("broken:SPEC", "import no_such_module", "(ModuleNotFoundError: No module named"),
        ("broken:SPEC", "raise SystemExit('a\\nb')", "(SystemExit: a b)"),
        ("broken:SPEC", "def", "(SyntaxError: "),
        ("broken:OTHER", SPEC, "(AttributeError: "),
        ("broken:build", "def build(): ...", "(TypeError: a DrafterSpec is expected, not a functi"),
    ],
)
def test_a_broken_drafter_is_one_line_that_names_its_package(
    site: Path, value: str, code: str, why: str
) -> None:
    install(site, "broken", DRAFTERS, "odd", value, code)
    with pytest.raises(ValueError) as caught:
        drafter_spec("odd")
    message = str(caught.value)
    assert message.startswith(f"broken: draftline.drafters 'odd' cannot be used {why}")
    assert message.endswith(": update or uninstall the package") and "\n" not in message
    said: list[str] = []
    assert [*usable_drafters(said.append)] == [n for n in drafter_names() if n != "odd"]
    assert said == [message]


def test_a_name_that_is_taken_twice_is_nobodys(site: Path) -> None:
    for package in ("one", "two"):
        install(site, package, DRAFTERS, "same", f"{package}:SPEC", SPEC)
    with pytest.raises(ValueError, match=r"^one, two: .*'same' is offered more than once: uninst"):
        parse_choice("same")
    assert not {"one", "two"} & set(sys.modules)


def test_no_package_replaces_a_drafter_of_draftline(site: Path) -> None:
    install(site, "thief", DRAFTERS, "auto", "thief:SPEC", SPEC)
    said: list[str] = []
    assert parse_choice("auto").spec is usable_drafters(said.append)["auto"] is BUILT_IN["auto"]
    assert said == [
        "thief: draftline.drafters 'auto' is not used: Draftline has its own: update or uninstall "
        "the package"
    ]
    assert "thief" not in sys.modules


def test_a_name_that_cannot_be_typed_is_refused(site: Path) -> None:
    install(site, "odd", DRAFTERS, "two words", "odd:SPEC", SPEC)
    said: list[str] = []
    usable_drafters(said.append)
    assert len(said) == 1 and said[0].startswith("odd: draftline.drafters 'two words': not a name")


def test_the_list_of_drafters_goes_on_without_a_broken_one(site: Path) -> None:
    install(site, "broken", DRAFTERS, "odd", "broken:SPEC", "import no_such_module")
    result = draftline(site.parent, "drafters")
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stdout.decode().splitlines()] == [
        name for name in drafter_names() if name != "odd"
    ]
    assert result.stderr.startswith(b"draftline: broken: draftline.drafters 'odd' cannot be used")


# -- commands --------------------------------------------------------------------------------------


def test_a_package_adds_a_command(site: Path) -> None:
    install(site, "greeter", COMMANDS, "hello", "greeter:add_parser", COMMAND)
    result = draftline(site.parent, "hello")
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, [b"hello"], b"")
    assert b"hello     greet" in draftline(site.parent, "--help").stdout


def test_other_commands_start_without_the_plug_ins(site: Path) -> None:
    install(site, "greeter", COMMANDS, "hello", "greeter:add_parser", COMMAND)
    for arguments in (["--version"], ["edit", "--help"], ["lsp", "--help"], ["train", "--help"]):
        assert draftline(site.parent, *arguments).returncode == 0
        assert "greeter" not in sys.modules, arguments
    assert draftline(site.parent, "hello", "--help").returncode == 0
    assert "greeter" in sys.modules


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("hello", "import no_such_module", "'hello' cannot be used (ModuleNotFoundError: "),
        ("hello", "def add_parser(commands): 1 / 0", "'hello' cannot be used (ZeroDivisionError: "),
        ("other", COMMAND, "'other' cannot be used (ValueError: it adds no command of that name"),
    ],
)
def test_a_broken_command_breaks_no_other(site: Path, name: str, code: str, why: str) -> None:
    install(site, "broken", COMMANDS, name, "broken:add_parser", code)
    line = f"draftline: broken: draftline.commands {why}"
    result = draftline(site.parent, name)
    assert result.returncode == 1 and one_line(result).startswith(line)
    result = draftline(site.parent, "--help")
    assert result.returncode == 0 and b"two-models" in result.stdout
    assert result.stderr.decode().startswith(line) and result.stderr.count(b"\n") == 1


def test_no_package_replaces_a_command_of_draftline(site: Path) -> None:
    install(site, "thief", COMMANDS, "edit", "thief:add_parser", COMMAND.replace("hello", "edit"))
    result = draftline(site.parent, "--help")
    assert result.stderr == (
        b"draftline: thief: draftline.commands 'edit' is not used: Draftline has its own: update "
        b"or uninstall the package\n"
    )
    assert b"--whole-file" in draftline(site.parent, "edit", "--help").stdout
    assert "thief" not in sys.modules
