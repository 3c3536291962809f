"""The files for containers: the commands in them are commands of ours, and what they promise about
users, health and the build's context holds. No container engine runs here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from index.workspace import ignore_patterns
from tests.api.test_startup import AcceleratorError, failing
from tests.support.server import reciter, serve_model, wait_until
from ui.api.security import rules_for
from ui.cli.main import make_parser

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "containers"
IMAGES = ("cpu", "cuda")
VARIABLES = {"DRAFTLINE_DOMAIN": "draftline.example.org", "DRAFTLINE_API_KEY": "0123456789abcdef"}


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(name, rest) for name, rest in lines]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, after those of the stages that it is built from."""
    found: dict[str, list[tuple[str, str]]] = {}
    current = ""
    for name, rest in dockerfile():
        if name == "FROM":
            base, _, current = rest.split()
            found[current] = list(found.get(base, []))
        elif current:
            found[current].append((name, rest))
    return found


def last(stage: str, instruction: str) -> str:
    return [rest for name, rest in stages()[stage] if name == instruction][-1]


def compose(name: str) -> dict[str, Any]:
    """The services of a compose file."""
    return dict(yaml.safe_load((FOLDER / name).read_text("utf-8"))["services"])


def filled(text: str) -> str:
    """A text of a compose file with its variables."""
    return re.sub(r"\$\{(\w+)[^}]*\}", lambda match: VARIABLES[match[1]], text)


@pytest.mark.parametrize("image", IMAGES)
def test_images_run_our_command_as_a_user(image: str) -> None:
    entry = json.loads(last(image, "ENTRYPOINT"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert len(entry) == 1 and entry[0] in scripts
    args = make_parser([]).parse_args(json.loads(last(image, "CMD")))
    assert args.command == "serve" and args.host == "0.0.0.0" and not args.yes
    assert last(image, "EXPOSE") == str(args.port)
    user = re.fullmatch(r"(\d+):(\d+)", last(image, "USER"))
    assert user and 0 not in map(int, user.groups())
    assert any(f"--uid {user[1]} " in rest for name, rest in stages()[image] if name == "RUN")


@pytest.mark.parametrize("image", IMAGES)
def test_what_images_keep_is_in_the_volume(image: str) -> None:
    volume = last(image, "VOLUME")
    variables = dict(
        word.split("=", 1)
        for name, rest in stages()[image]
        if name == "ENV"
        for word in rest.split()
    )
    assert variables["HOME"] == volume and variables["DRAFTLINE_HOME"].startswith(f"{volume}/")
    assert compose("compose.yaml")["draftline"]["volumes"] == [f"models:{volume}"]


def test_the_default_image_is_that_for_the_cpu() -> None:
    assert list(stages())[-1] == "cpu"
    for name, service in {"compose.yaml": "cpu", "compose.cuda.yaml": "cuda"}.items():
        assert compose(name)["draftline"]["build"]["target"] == service


def test_images_have_the_page_and_only_that_for_cards_has_torch() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for image, wanted in {"cpu": {"page"}, "cuda": {"page", "gpu"}}.items():
        runs = [rest for name, rest in stages()[f"packages-{image}"] if name == "RUN"]
        extras = set(re.findall(r"\[([a-z,]+)\$", " ".join(runs))[0].strip(",").split(","))
        assert extras == wanted <= set(known["optional-dependencies"])
        assert any("torch" in rest for rest in runs) == ("gpu" in wanted)


def test_every_stage_that_is_copied_from_exists() -> None:
    seen: set[str] = set()
    for name, rest in dockerfile():
        if name == "FROM":
            seen.add(rest.split()[-1])
        elif match := re.search(r"--from=(\S+)", rest):
            assert match[1] in seen, rest


def test_the_health_check_sees_a_server_and_its_absence(tmp_path: Path) -> None:
    """Under the rules of a server that listens on all addresses, with a key."""
    command = json.loads(last("cpu", "HEALTHCHECK").partition(" CMD ")[2])
    assert command[:2] == ["python", "-c"] and ":8000/health" in command[2]
    rules = rules_for("0.0.0.0", "0.0.0.0", VARIABLES["DRAFTLINE_API_KEY"])

    def check(port: int) -> int:
        code = command[2].replace(":8000", f":{port}")
        proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        result = subprocess.run([sys.executable, "-c", code], env=proxy, capture_output=True)
        return result.returncode

    with serve_model(reciter(tmp_path / "model"), rules=rules) as server:
        assert check(server.port) == 0
        server.engine.worker.submit(failing(AcceleratorError("CUDA error"))).result()
        wait_until(lambda: server.engine.failure)
        assert check(server.port) != 0
    assert check(server.port) != 0


def test_the_team_server_is_a_command_of_ours() -> None:
    service = compose("compose.yaml")["draftline"]
    args = make_parser([]).parse_args([filled(word) for word in service["command"]])
    assert (args.command, args.host, args.port) == ("serve", "0.0.0.0", 8000)
    assert args.allow_host == [VARIABLES["DRAFTLINE_DOMAIN"]]
    assert filled(service["environment"]["DRAFTLINE_API_KEY"]) == VARIABLES["DRAFTLINE_API_KEY"]
    # Left out, not empty, where it is not set: an empty login is an error.
    assert service["environment"]["DRAFTLINE_AUTH"] is None


def test_only_the_proxy_is_reached_and_it_reaches_the_server() -> None:
    services = compose("compose.yaml")
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    caddyfile = (FOLDER / "Caddyfile").read_text("utf-8")
    assert caddyfile.split() == ["{$DRAFTLINE_DOMAIN}", "{", "reverse_proxy", "draftline:8000", "}"]
    assert "DRAFTLINE_DOMAIN" in services["proxy"]["environment"]
    assert "./Caddyfile:/etc/caddy/Caddyfile:ro" in services["proxy"]["volumes"]


def test_the_context_has_what_a_build_needs_and_nothing_else() -> None:
    patterns = ignore_patterns.compile_patterns((ROOT / ".dockerignore").read_bytes())

    def is_left_out(path: str) -> bool:
        names = path.encode().split(b"/")
        folders = (b"/".join(names[:end]) + ignore_patterns.FOLDER for end in range(1, len(names)))
        return any(map(patterns.decide, (*folders, path.encode())))

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    needed = [f"{package}/__init__.py" for package in packages]
    needed += ["pyproject.toml", "constraints.txt", "CMakeLists.txt", project["project"]["readme"]]
    needed += project["project"]["license-files"]
    needed += re.findall(r"\w+/[\w/]+\.cpp", (ROOT / "CMakeLists.txt").read_text("utf-8"))
    for path in needed:
        assert (ROOT / path).is_file() and not is_left_out(path), path
    for path in (".git/config", ".venv/bin/python", ".env", "containers/.env", "build/x", "bench/x",
                 "index/_core.so", "engine/__pycache__/config.pyc", "models/x.gguf"):  # fmt: skip
        assert is_left_out(path), path
