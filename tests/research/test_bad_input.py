"""Errors about draft models, heads and corpora that are damaged or do not match the model.

Through the command line, in this process: the exit code, nothing on stdout, and one line on stderr
that names both files and the remedy. Training is tested in tests/research/test_train_heads.py.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from research.methods import datastore, sdsat
from research.methods.eagle_head import shape_of, untrained_head
from research.methods.specdec import AcceptanceHead
from tests.conftest import byte_bpe, tiny_model
from tests.support.drafters import toy_tokenizer
from ui.cli.main import main

CODE = "def add(left, right):\n    return left + right\n"
HEADS = {  # folder -> the drafter that uses it
    "stop": "specdec++:model=./draft,head=./{}",
    "eagle": "eagle2:head=./{},total=9,depth=2,width=2",
    "slots": "sdsat:tokens=./{}",
}
KINDS = {"stop": "acceptance head", "eagle": "eagle head", "slots": "adaptive tokens"}
MODEL = {"stop": "draft", "eagle": "target", "slots": "target"}  # that a head is trained for
OTHER = {"stop": "target", "eagle": "draft", "slots": "draft"}


def make_head(kind: str, folder: Path, model: Path) -> None:
    """Save an untrained head for that model."""
    if kind == "stop":
        AcceptanceHead(32).save(folder, model)
    elif kind == "eagle":
        untrained_head(shape_of(json.loads((model / "config.json").read_text())), 0).save(
            folder, model
        )
    else:
        sdsat.save(folder, torch.ones(2, 32), model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with one tokenizer, one with another, a head of each kind, a corpus, a file."""
    root = tmp_path_factory.mktemp("bad")
    for seed, name in enumerate(("target", "draft", "other")):
        tiny_model(root / name, seed=seed)
    byte_bpe(root / "other", 290)
    weights = load_file(root / "draft" / "model.safetensors")
    weights["model.norm.weight"] *= 1.5  # trained models differ in it, too
    save_file(weights, root / "draft" / "model.safetensors", {"format": "pt"})
    for kind in HEADS:
        make_head(kind, root / kind, root / MODEL[kind])
        make_head(kind, root / f"{kind}-of-other", root / OTHER[kind])
    tokenizer = toy_tokenizer()
    texts = [np.array(tokenizer.encode(CODE), np.int32)]
    datastore.save(datastore.build(texts), root / "texts", tokenizer.fingerprint, {"model": "tiny"})
    datastore.save(datastore.build(texts), root / "foreign", "another", {"model": "gpt5"})
    (root / "truncated").write_bytes((root / "texts").read_bytes()[:-9])
    (root / "a.py").write_text(CODE)
    return root


@pytest.fixture(autouse=True)
def in_folder(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


# What `serve` says before it loads a model.
SERVER_LINES = (
    r"\A(draftline: listening on \S+ while the model loads\n)?(draftline: loading ./target\n)?"
)


def refused(capfd: pytest.CaptureFixture[str], *line: str) -> tuple[int, str]:
    """Run a command that fails. Returns the exit code and its line on stderr."""
    code = main([*line, "--model", "./target"])
    out, err = capfd.readouterr()
    assert out == "", out
    err = re.sub(SERVER_LINES, "", err)
    assert err.startswith("draftline: ") and err.count("\n") == 1, err
    assert Path("a.py").read_text() == CODE
    return code, err


def edit(capfd: pytest.CaptureFixture[str], drafter: str, *options: str) -> tuple[int, str]:
    return refused(capfd, "edit", "a.py", "-i", "x", "--drafter", drafter, *options)


@pytest.mark.parametrize("kind", HEADS)
def test_matching_heads_are_accepted(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise the tests below would prove nothing."""
    line = ["edit", "a.py", "-i", "x", "--max-tokens", "2", "--drafter", HEADS[kind].format(kind)]
    main([*line, "--model", "./target"])
    assert "./target" not in capfd.readouterr().err


# -- pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["draft-model:model=./other", "specdec++:model=./other,head=x"])
def test_draft_models_with_another_tokenizer(
    drafter: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = edit(capfd, drafter)
    assert code == 2
    assert "./other cannot draft for ./target: their tokenizers differ (token 2" in line
    assert "choose a draft model of the same tokenizer" in line


def test_a_missing_draft_model(capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, "draft-model:model=./missing")
    assert code == 3 and "missing" in line


@pytest.mark.parametrize(
    ("drafter", "why"),
    [
        ("draft-model", "option model is required: write draft-model:model=..."),
        ("specdec++:model=./draft", "option head is required: write specdec++:head=..."),
        ("eagle2", "option head is required: write eagle2:head=..."),
        ("sdsat", "option tokens is required: write sdsat:tokens=..."),
        ("draft-model:model=./draft,lengths=oracle", "lengths oracle: choose from constant"),
        ("same", "unknown drafter 'same': choose from auto, "),
        ("eagle2:heads=x", "no option 'heads': choose from: head, total"),
    ],
)
def test_unknown_drafters_and_bad_options(
    drafter: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = edit(capfd, drafter)
    assert code == 2 and why in line


# -- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HEADS)
def test_heads_of_another_model(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, HEADS[kind].format(f"{kind}-of-other"))
    ours = MODEL[kind]
    assert code == 2
    assert f"{kind}-of-other: trained for {OTHER[kind]}, not for {ours}: " in line
    assert f"use it with that model, or train one for {ours}" in line


@pytest.mark.parametrize("kind", HEADS)
def test_heads_of_another_kind(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = {"stop": "slots", "eagle": "stop", "slots": "eagle"}[kind]
    code, line = edit(capfd, HEADS[kind].format(wrong))
    assert code == 2
    assert f"{wrong}: contains '{KINDS[wrong]}', expected '{KINDS[kind]}'" in line


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(
    ("file", "damage", "why"),
    [
        ("model.safetensors", Path.unlink, "contains no model.safetensors: give the folder of"),
        ("config.json", Path.unlink, "contains no config.json: give the folder of"),
        ("model.safetensors", truncate, ": train it again"),
        ("model.safetensors", flip_a_bit, "do not match: train it again"),
        ("config.json", truncate, "cannot be read"),
        ("config.json", lambda file: file.write_text("[]"), ": train it again"),
        ("config.json", lambda file: file.write_bytes(b"\xff"), "cannot be read"),
        ("model.safetensors", lambda file: file.write_bytes(b""), "cannot be read"),
    ],
)
def test_damaged_checkpoints(
    kind: str, file: str, damage: Any, why: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = folder / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(folder / kind, damaged)
    damage(damaged / file)
    code, line = edit(capfd, HEADS[kind].format("damaged"))
    assert code == 2 and "damaged: " in line and why in line


@pytest.mark.parametrize("kind", HEADS)
def test_a_missing_head(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, HEADS[kind].format("missing"))
    assert (
        code == 2
        and f"missing: contains no config.json: give the folder of a trained {KINDS[kind]}" in line
    )


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "damage", "why"),
    [
        ("model.safetensors", truncate, "damaged (its tensors do not fill it: "),
        ("model.safetensors", lambda file: file.write_bytes(b""), "damaged (its header"),
        ("model.safetensors", lambda file: file.write_bytes(b"\xff" * 99), "damaged (its header"),
        ("config.json", lambda file: file.write_text("[]"), "damaged (no JSON object)"),
        ("config.json", lambda file: file.write_text("{"), "damaged (no JSON: "),
        ("tokenizer.json", lambda file: file.write_text("{"), "damaged (no JSON: "),
        ("tokenizer.json", Path.unlink, "has no tokenizer.json"),
    ],
)
def test_damaged_models(
    file: str, damage: Any, why: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the target model, as the draft model, and with `draftline two-models`."""
    damaged = folder / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(folder / "draft", damaged)
    damage(damaged / file)
    two = ["two-models", "-i", "x", "--draft-model", "./damaged"]
    lines = [["edit", "a.py", "-i", "x", "--model", "./damaged"], [*two, "--model", "./target"]]
    drafter = "draft-model:model=./damaged"
    lines += [["edit", "a.py", "-i", "x", "--model", "./target", "--drafter", drafter]]
    for line in lines:
        assert main(line) == 3
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and "damaged" in err and why in err


# -- corpora and other files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drafter", "file", "why"),
    [
        ("sam", "missing", "missing: no such corpus: make it with `draftline train corpus`"),
        ("rest", "truncated", "truncated: "),
        ("sam+recycling", "a.py", "a.py: "),
        ("sam", "foreign", "foreign: made for the tokenizer of gpt5, not of ./target: make it"),
        ("recycling", "texts", "drafter recycling does not use a corpus: try sam"),
        ("recycling:template=missing.json", None, "template missing.json: No such file"),
        ("rest", None, "nothing to copy from: give a corpus"),
    ],
)
def test_missing_or_mismatched_data(
    drafter: str, file: str | None, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = edit(capfd, drafter, *(["--corpus", file] if file else []))
    assert code == 2 and why in line and line.count(": ") >= 2


@pytest.mark.parametrize("command", ["ask", "summarize", "chat", "serve"])
def test_every_command_reports_the_same_error(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"ask": ["a.py", "-q", "left?"], "summarize": ["a.py"], "serve": ["--port", "0"]}
    drafter = ["--drafter", "draft-model:model=./other"]
    code, line = refused(capfd, command, *options.get(command, []), *drafter)
    assert code == 2 and "./other cannot draft for ./target: their tokenizers differ" in line


@pytest.mark.parametrize("command", ["edit", "ask", "summarize", "chat", "serve"])
def test_an_unknown_verification(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"edit": ["a.py", "-i", "x"], "ask": ["a.py", "-q", "x"], "summarize": ["a.py"]}
    code, line = refused(capfd, command, *options.get(command, []), "--verification", "both")
    assert code == 2 and "choose from" in line and "rejection" in line


def test_rejection_reaches_the_engine(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy texts are equal; sampled texts differ, since the random draws do."""
    texts = {}
    for verification in ("match", "rejection"):
        for temperature in ("0", "1"):
            line = ["edit", "a.py", "-i", "x", "--max-tokens", "20", "--json", "--seed", "3"]
            drafter = ["--drafter", "draft-model:model=./draft", "--verification", verification]
            main(
                [*line, "--temperature", temperature, *drafter, "--model", "./target", "--verbose"]
            )
            texts[verification, temperature] = capfd.readouterr().err
    assert texts["match", "0"] == texts["rejection", "0"]
    assert texts["match", "1"] != texts["rejection", "1"]
