"""VS Code itself (code-server in headless Chromium) with the extension, the real server and the
default model. What is done there stands in vscode.mjs; here everything is started and ended.

`DRAFTLINE_TEST_CACHE` names the folder for code-server; screenshots go to the artefacts.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser_scenarios import Scenarios, end
from tests.support.private_home import TEST_CACHE

pytestmark = pytest.mark.editors
HERE = Path(__file__).parent
EXTENSION = HERE.parent.parent / "editors" / "vscode"
CHROMIUM = "/usr/bin/chromium"
PATIENCE = 300  # seconds until code-server listens
SCENARIOS = [
    "walkthrough",
    "status",
    "switches",
    "ghost",
    "accepted is told",
    "typing cancels",
    "accept all",
    "one by one",
    "typing beside an edit",
    "cancel an edit",
    "code action",
    "quick fix",
    "an instruction from the menu",
    "edit in files",
    "a rename by the language server",
    "a rename by the language server in several files",
    "next edit in a closed file",
    "next edit elsewhere",
    "next edit",
    "chat",
    "chat: places",
    "chat: apply",
    "chat: files are named",
    "chat: stop and begin anew",
    "explain",
    "chat in a dark and a light theme",
    "commit message",
    "edit: written into the file",
    "edit: Escape puts the old text back",
    "edit: typing above it",
    "edit: typing into it",
    "edit: saving what is half-written",
    "edit: change by change",
    "edit: deleted lines are shown",
    "edit: a hint where CodeLens is off",
    "edit: a code action in the file",
    "edit: a file that is renamed meanwhile",
    "edit: a server that ends meanwhile",
    "find the server",
    "choose a model",
    "a model that is not here",
    "a missing program",
    "install the server",
]

# Named like a module of Python's own: the server must not take it for that.
NUMBERS = """def double(x):
    return x * 2


def triple(x):
    return x * 3


def quadruple(x):


"""
SHOP = '''def total(amount, price):
    """What is to be paid."""
    tax = 0.2

    # before tax
    net = amount * price

    # with tax
    if amount > 100:
        net = net * 0.9

    return net * (1 + tax)
'''
ROOM = """def area(width, height):
    inner = height - 2
    return width * inner


print(area(3, 4))
"""
TAX = """def net(amount, rate):
    return amount * (1 - rate)
"""
BILL = """from tax import net


def pay(amount):
    return net(amount, 0.2)
"""
CIRCLE = """def circumference(radius):
    return 2 * 3.14159 * radius


print(circumference(1))
"""
RING = """from circle import circumference


def ring(inner, outer):
    return circumference(outer) - circumference(inner)
"""
PAGE = """body {
  colour: red;
}
"""
CART = """export function sum(prices: number[]): number {
  let total = 0;
  for (const price of prices) total += price;
  return total;
}

const rate: number = "a mistake, by which the test sees that TypeScript's server is ready";
"""
ORDER = """import { sum } from "./cart";

console.log(sum([1, 2]));
"""
UNUSED = """import os
import sys
import re

print(sys.path)
"""
LONG = "".join(SHOP.replace("total", f"total_{number}") + "\n\n" for number in range(8))
STREAM = "".join(SHOP.replace("total", f"total_{number}") + "\n\n" for number in range(4))
FILES = {
    "numbers.py": NUMBERS,
    "shop.py": SHOP,
    "stock.py": SHOP,
    "moved.py": SHOP,
    "room.py": ROOM,
    "long.py": LONG,
    "stream.py": STREAM,
    "parting.py": STREAM,
    "shelf.py": SHOP,
    "rack.py": SHOP,
    "unused.py": UNUSED,
    "toll.py": TAX,
    "tax.py": TAX,
    "bill.py": BILL,
    "circle.py": CIRCLE,
    "ring.py": RING,
    "page.css": PAGE,
    "cart.ts": CART,
    "order.ts": ORDER,
    "tsconfig.json": "{}\n",
}
SETTINGS = {
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": True,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.wordWrap": "off",
    "telemetry.telemetryLevel": "off",
    # No messages of others beside ours, and nothing asked of a network meanwhile.
    "extensions.ignoreRecommendations": True,
    "extensions.autoCheckUpdates": False,
    "git.enabled": False,
    "draftline.editView": "diff",  # the scenarios of edits in the file say so
    "draftline.maxTimeMs": 60_000,  # the machine may be busy
}


def put_uv(folder: Path, server: list[str]) -> None:
    """Make a program `uv` that writes its arguments to `uv.log` and installs a program that starts
    the server. The real one would fetch some 70 packages."""
    folder.mkdir()
    lines = {
        "server": [f"exec {shlex.join(server)}"],
        "uv": [
            'printf "%s\\n" "$@" > "$0.log"',
            'mkdir -p "$UV_TOOL_BIN_DIR"',
            f'ln -s {shlex.quote(str(folder / "server"))} "$UV_TOOL_BIN_DIR/draftline"',
        ],
    }
    for name, body in lines.items():
        (folder / name).write_text("\n".join(["#!/bin/sh", *body, ""]), "utf-8")
        (folder / name).chmod(0o755)


@pytest.fixture(scope="module")
def cache() -> Path:
    """The folder with code-server, its Node and playwright-core; fetched where it is missing."""
    script = HERE / "fetch_vscode.sh"
    environment = os.environ | {"DRAFTLINE_TEST_CACHE": str(TEST_CACHE)}
    subprocess.run([script], check=True, env=environment, timeout=1200)
    return TEST_CACHE / "vscode"


@pytest.fixture(scope="module")
def extension() -> Path:
    """The extension, built from what is in the tree."""
    if not (EXTENSION / "node_modules").is_dir():
        subprocess.run(["npm", "ci", "--fetch-retries=6"], cwd=EXTENSION, check=True, timeout=1200)
    subprocess.run(["npm", "run", "package"], cwd=EXTENSION, check=True, timeout=1200)
    return EXTENSION / "draftline.vsix"


@pytest.fixture(scope="module")
def scenarios(
    tmp_path_factory: pytest.TempPathFactory,
    cache: Path,
    extension: Path,
    server_command: list[str],
    server_environment: dict[str, str],
    artefacts: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Scenarios]:
    """VS Code in a browser, with the extension installed and a workspace open."""
    chosen = {item.name for item in request.session.items}
    wanted = [each for each in SCENARIOS if f"test_in_vs_code[{each}]" in chosen]
    root = tmp_path_factory.mktemp("vscode")
    put_uv(root / "tools", server_command)
    wheel = root / "draftline-0.1.0-cp312-abi3-linux_x86_64.whl"
    wheel.touch()
    environment = server_environment | {
        "PATH": f"{cache / 'node24' / 'bin'}{os.pathsep}{server_environment['PATH']}",
        "XDG_BIN_HOME": str(root / "tools"),  # code-server's PATH is the login shell's
    }
    workspace = root / "workspace"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text, "utf-8")
    own = workspace / ".venv" / "bin" / "draftline"  # offered, not started
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\nexit 1\n")
    own.chmod(0o755)
    go = root / "go"  # the scenario "walkthrough" makes it, once it has seen that the server starts
    command = ["sh", "-c", f"until [ -e '{go}' ]; do sleep 0.1; done; exec \"$@\"", "sh"]
    settings = SETTINGS | {"draftline.command": [*command, *server_command]}
    # The server's own settings are those of the machine, all others those of the user.
    for kind in ("User", "Machine"):
        (root / "data" / kind).mkdir(parents=True)
        (root / "data" / kind / "settings.json").write_text(json.dumps(settings), "utf-8")
    code: list[str | Path] = [cache / "node_modules" / ".bin" / "code-server"]
    code += ["--config", root / "config.yaml"]
    code += ["--user-data-dir", root / "data", "--extensions-dir", root / "extensions"]
    installing = [*code, "--install-extension", extension]
    subprocess.run(installing, check=True, env=environment, timeout=1200)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    quiet = ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    serving = [*code, "--auth", "none", "--bind-addr", address, *quiet, workspace]
    with (artefacts / "code-server.log").open("w") as log:
        running = subprocess.Popen(
            serving, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(f"http://{address}/healthz", running)
        place = {
            "cache": str(cache),
            "chromium": CHROMIUM,
            "url": f"http://{address}/",
            "workspace": str(workspace),
            "shots": str(artefacts),
            "settings": str(root / "data" / "Machine" / "settings.json"),
            "defaults": json.dumps(settings),
            "missing": "no-such-draftline",
            "wheel": str(wheel),
            "uvLog": str(root / "tools" / "uv.log"),
            "go": str(go),
            "wanted": ["walkthrough", "status", *wanted],
            "codeServer": running.pid,
        }
        with Scenarios(cache, HERE / "vscode.mjs", place, environment) as scenarios:
            yield scenarios
    finally:
        end(running)


def wait_for(url: str, running: subprocess.Popen[Any]) -> None:
    """Return once `url` answers; fail when it never does or its server ended."""
    end = time.monotonic() + PATIENCE
    while True:
        assert running.poll() is None, f"code-server ended with {running.returncode}: see its log"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, f"code-server did not listen within {PATIENCE} s"
            time.sleep(0.2)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_vs_code(scenario: str, scenarios: Scenarios) -> None:
    error = scenarios.error(scenario)
    assert error is None, error
