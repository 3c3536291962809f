"""The wheel: what is in it, that two builds are equal, and README's commands, run from a clean
environment in a folder that is not the source."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from reportlab.pdfgen.canvas import Canvas

from bench.install import install
from engine.weights import locate

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("index", "engine", "lsp_server", "research", "ui")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
TIMEOUT_S = 300  # a backstop for a busy machine

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
TYPED = [
    line.partition("  #")[0].rstrip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if language == "sh" and re.search(r"(^|\| )draftline ", line)
]
PROSE = re.sub(r"^```\w+\n.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
NAMED = sorted({" ".join(words.split()) for words in re.findall(r"`(draftline\s[^`]+)`", PROSE)})
SERVERS = [command for command in NAMED if command.startswith("draftline serve")]
CLIENT, LIBRARY = (block for language, block in BLOCKS if language == "python")

SMALLEST, SMALL = "smollm2-135m", "qwen2.5-coder-0.5b"
PLACEHOLDERS = {"NAME": SMALLEST, "FILE": "draftline.log"}
USAGE = 2
# What ends with an error here, and words of it; everything else succeeds.
REFUSED = {
    "draftline mcp": "pip install 'draftline[mcp]'",
    "draftline models add": "arguments are required: PATH",
    "draftline storage remove": "--yes agrees",  # it asks, and here is no terminal
    "draftline verify URL": "not an address: write http://HOST:PORT",
}

APP = '''"""Settings in files."""

from __future__ import annotations

import json
import os


def exists(path):
    """Whether there are settings."""
    return os.path.isfile(path)


def load(path):
    """The settings in a file."""
    print(f"reading {path}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save(path, settings):
    """Write settings into a file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file, indent=2)
    print(f"wrote {path}")


def merge(first, second):
    """Both settings; the second win."""
    return {**first, **second}


def names(settings):
    return sorted(settings)


def without(settings, name):
    return {key: value for key, value in settings.items() if key != name}


def count(settings):
    return len(settings)
'''
TEST = """import ast
from pathlib import Path


def test_app():
    ast.parse((Path(__file__).parents[1] / "app.py").read_text("utf-8"))
"""
SNIPPET = '''# ... existing code ...

def merge(first, second):
    """Both settings; the second win."""
    return first | second


# ... existing code ...
'''
NOTES = "# Lease\n\nThe lease of the garden shed begins on 1 March and ends on 28 February 2027.\n"
REPORT = ("Report of the garden club", "In May the club planted forty apple trees.")


def tracked() -> list[Path]:
    """Files that git tracks or would, relative to the root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def build_wheel(source: Path, folder: Path) -> Path:
    """The wheel of a source folder, built below `folder`."""
    constraints = ["--build-constraint", str(ROOT / "constraints.txt")]
    building = ["wheel", "-q", "--no-deps", *constraints, "-C", f"build-dir={folder / 'build'}"]
    subprocess.run([*PIP, *building, "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("draftline-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.full
def test_a_wheel_is_the_same_wherever_it_is_built(wheel: Path, tmp_path: Path) -> None:
    """Equal bytes from a clone in another folder; the version and the commit are git's."""
    source = tmp_path / "elsewhere" / "source"
    files = tracked()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    for path in files:  # with what is not committed yet
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    again = build_wheel(source, tmp_path)
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        native = [name for name in archive.namelist() if name.endswith(".so")]
        assert len(native) == 3
        for name in native:
            data = archive.read(name)
            assert str(ROOT).encode() not in data and b"pip-build-env" not in data, name
        built = archive.read("index/_build.py").decode()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    assert built == f'COMMIT = "{commit}"\n'


@pytest.mark.full
def test_a_wheel_holds_every_module_and_no_sources_of_native_code(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert {path.relative_to(ROOT).as_posix() for path in modules} <= names
    assert {"engine/py.typed", "index/py.typed"} <= names
    assert {name.rsplit("/")[-1] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert not [name for name in names if name.endswith((".cpp", ".hpp"))]
    assert {name.split("/")[0] for name in names} <= {
        *PACKAGES,
        next(name.split("/")[0] for name in names if ".dist-info/" in name),
    }


@dataclass(frozen=True)
class Installed:
    """A clean environment with the wheel in it, and a cache with the models of the tests."""

    bin: Path
    variables: dict[str, str]

    def run(self, folder: Path, *command: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command in `folder`."""
        ran = subprocess.run(
            command,
            cwd=folder,
            env=self.variables,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    environment = tmp_path_factory.mktemp("environment")
    home = tmp_path_factory.mktemp("home")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [*PIP, "--python", str(environment / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "-q", "--constraint", str(ROOT / "constraints.txt"), str(wheel)],
        check=True,
    )
    for name in (SMALLEST, SMALL):
        link_model(name, home / "models")
    runner = Path(sys.executable).with_name("pytest")  # the user's, not Draftline's
    (environment / "bin" / "pytest").symlink_to(runner)
    with tempfile.TemporaryDirectory(prefix="dl") as runtime:  # a socket's path is short
        yield Installed(
            environment / "bin",
            {
                "PATH": f"{environment / 'bin'}{os.pathsep}{os.defpath}",
                "HOME": str(home),
                "DRAFTLINE_HOME": str(home),
                "DRAFTLINE_MODEL": SMALL,
                "XDG_RUNTIME_DIR": runtime,
            },
        )
        end_processes_of(runtime)


def link_model(name: str, folder: Path) -> None:
    """Put a model into a cache's folder, without a copy where the file system allows it."""
    stored = locate(name)
    for path in (
        path for found in stored.parent.glob(f"{name}*") for path in [found, *found.rglob("*")]
    ):
        target = folder / path.relative_to(stored.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            try:
                os.link(path, target)
            except OSError:  # another file system
                shutil.copyfile(path, target)


def end_processes_of(runtime: str) -> None:
    """End the engines that the commands share, which would wait for more of them."""
    ours = [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("XDG_RUNTIME_DIR") == runtime
    ]
    for process in ours:
        process.kill()
    psutil.wait_procs(ours, TIMEOUT_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that README's commands name."""
    for name, text in (("app.py", APP), ("snippet.txt", SNIPPET), ("notes.md", NOTES)):
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_app.py").write_text(TEST, "utf-8")
    page = Canvas(str(tmp_path / "report.pdf"))
    for number, line in enumerate(REPORT):
        page.drawString(72, 750 - 20 * number, line)
    page.save()
    return tmp_path


@pytest.mark.full
def test_an_installation_is_measured(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", str(ROOT / "constraints.txt"))
    options = [str(wheel), "--model", SMALLEST, "--repeats", "1", "--out", str(tmp_path / "found")]
    assert install.main(options) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["results"]["installed"]
    assert 0 < found["bytecode"] < found["bytes"] < 300e6
    assert 0 < found["import_s"] < found["token_s"]


# -- README's commands, from the installed wheel -----------------------------------------------


def test_the_commands_of_readme_are_found() -> None:
    assert len(TYPED) > 9 and all("draftline" in line for line in TYPED)
    assert {"draftline lsp", "draftline serve", "draftline mcp"} <= set(NAMED)


@pytest.mark.full
@pytest.mark.parametrize("line", TYPED)
def test_lines_of_readme(line: str, installed: Installed, folder: Path) -> None:
    code, out, err = installed.run(folder, "bash", "-o", "pipefail", "-c", line)
    is_refused = "--apply" in line and "app.py: not written: " in err  # a small model may err
    assert code == (1 if is_refused else 0), out + err
    assert "Traceback" not in err
    written = (folder / "app.py").read_text("utf-8") != APP
    assert written == ("--apply" in line and not is_refused)


@pytest.mark.full
@pytest.mark.parametrize("command", [one for one in NAMED if one not in SERVERS])
def test_commands_that_readme_names(command: str, installed: Installed, folder: Path) -> None:
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    stdin = SESSION if words[1] == "lsp" and "--check" not in words else b""
    code, out, err = installed.run(folder, *words, stdin=stdin)
    if stdin:
        end_processes_of(installed.variables["XDG_RUNTIME_DIR"])
    assert "Traceback" not in err
    if command in REFUSED:
        assert code == USAGE and REFUSED[command] in err.splitlines()[-1], err
    else:
        assert code == 0, out + err


def framed(**message: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


SESSION = (
    framed(
        id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}}
    )
    + framed(method="initialized", params={})
    + framed(id=2, method="shutdown")
    + framed(method="exit")
)


@pytest.mark.full
@pytest.mark.parametrize("command", SERVERS)
def test_servers_of_readme(command: str, installed: Installed, folder: Path) -> None:
    """With the example for clients of OpenAI; without the packages of the page, and saying so."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*shlex.split(command), "--port", str(port)],  # the last one counts
        cwd=folder,
        env=installed.variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if f"{SMALL} at http" in line:
                break
        assert any("pip install 'draftline[page]'" in line for line in said), said
        if command == SERVERS[0]:
            run_client(port, folder)
        server.send_signal(signal.SIGINT)
        assert server.wait(TIMEOUT_S) in (0, 130)
    finally:
        server.kill()
        server.wait()


def run_client(port: int, folder: Path) -> None:
    """Run the example for clients of OpenAI, whose package Draftline does not need."""
    example = CLIENT.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    command = [sys.executable, "-c", example]
    ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.full
def test_the_library_example_of_readme(installed: Installed, folder: Path) -> None:
    code, out, err = installed.run(folder, str(installed.bin / "python"), "-c", LIBRARY)
    assert code == 0, err
    assert " tokens in " in out
    written = (folder / "app.py").read_text("utf-8") != APP
    assert written == ("+++ b/app.py" in out)  # a small model may have nothing to add


@pytest.mark.full
def test_the_demo_and_the_version(installed: Installed, folder: Path) -> None:
    code, out, err = installed.run(folder, "draftline", "demo", "--model", SMALL)
    assert code == 0 and "both texts are equal" in out, out + err
    assert re.fullmatch(
        r"draftline \S+( \(commit [0-9a-f]{12}\))?\n",
        installed.run(folder, "draftline", "--version")[1],
    )
