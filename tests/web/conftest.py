"""Fixtures for the browser tests: Node with Playwright, `draftline serve` and test scripts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.weights import home
from tests.support.browser_scenarios import Scenarios
from tests.support.private_home import TEST_CACHE

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).parent
FETCH = ROOT / "tests" / "editors" / "fetch_vscode.sh"
CHROMIUM = "/usr/bin/chromium"
SHOTS = ROOT / "build" / "web"
LINE = re.compile(r"draftline: (\S+) at (http://\S+)/ \(page\) and /v1 \(API\)\n")

Serve = Callable[..., contextlib.AbstractContextManager[str]]
Play = Callable[..., contextlib.AbstractContextManager[Scenarios]]


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder with Node and playwright-core, downloaded if it is missing."""
    environment = os.environ | {"DRAFTLINE_TEST_CACHE": str(TEST_CACHE)}
    subprocess.run([FETCH], check=True, env=environment, timeout=2400)
    return TEST_CACHE / "vscode"


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """serve(*arguments, **variables) starts a server and yields its URL. It uses
    the installed models and its own documents."""
    models = home() / "models"

    @contextlib.contextmanager
    def started(*arguments: str | Path, **variables: str) -> Iterator[str]:
        draftline_home = tmp_path_factory.mktemp("home")
        if models.is_dir():
            shutil.copytree(models, draftline_home / "models", copy_function=os.link)
        command = [sys.executable, "-m", "ui.cli", "serve", "--port", "0", *map(str, arguments)]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = (
            os.environ | {"PYTHONPATH": paths, "DRAFTLINE_HOME": str(draftline_home)} | variables
        )
        SHOTS.mkdir(parents=True, exist_ok=True)
        with (
            (SHOTS / "server.log").open("a+") as log,
            subprocess.Popen(
                command,
                env=environment,
                cwd=draftline_home,
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            try:
                lines = []
                for line in process.stderr or ():
                    lines.append(line)
                    if match := LINE.fullmatch(line):
                        break
                else:
                    raise AssertionError(lines)
                yield match[2]
                process.send_signal(signal.SIGINT)
                rest = (process.stderr.read() if process.stderr else "").strip()
                assert process.wait(600) == 0 and rest == "", rest
            finally:
                process.kill()

    return started


@pytest.fixture(scope="session")
def play(node: Path) -> Play:
    """play(script, url, **parameters) starts a script and returns its scenarios."""

    def start(script: str, url: str, **parameters: Any) -> Scenarios:
        defaults = {"cache": str(node), "chromium": CHROMIUM, "url": url, "shots": str(SHOTS)}
        return Scenarios(node, HERE / script, defaults | parameters)

    return start
