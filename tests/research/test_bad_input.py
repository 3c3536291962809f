"""Drafters that cannot be: pairs, heads and corpora that do not fit, in one line each.

Through the command line, in this process: the exit code, nothing on stdout, and on stderr one line
that names both sides and the remedy. What trains them is tested in test_cli_train_heads.py.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.drafting.methods import datastore, sdsat
from engine.drafting.methods.eagle_head import shape_of, untrained_head
from engine.drafting.methods.specdec import AcceptanceHead
from tests.conftest import byte_bpe, tiny_model
from tests.support.drafters import toy_tokenizer
from ui.cli.main import main

CODE = "def add(left, right):\n    return left + right\n"
HEADS = {  # folder -> the drafter that takes it
    "stop": "specdec++:model=./small,head=./{}",
    "eagle": "eagle2:head=./{},total=9,depth=2,width=2",
    "slots": "sdsat:tokens=./{}",
}
KINDS = {"stop": "acceptance head", "eagle": "eagle head", "slots": "adaptive tokens"}
MODEL = {"stop": "small", "eagle": "big", "slots": "big"}  # whose states a head takes
OTHER = {"stop": "big", "eagle": "small", "slots": "small"}


def make_head(kind: str, folder: Path, model: Path) -> None:
    """One that has learnt nothing, for that model."""
    if kind == "stop":
        AcceptanceHead(32).save(folder, model)
    elif kind == "eagle":
        untrained_head(shape_of(json.loads((model / "config.json").read_text())), 0).save(
            folder, model
        )
    else:
        sdsat.save(folder, torch.ones(2, 32), model)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one tokenizer, one of another, a head of each kind, a corpus, a file."""
    folder = tmp_path_factory.mktemp("bad")
    for seed, name in enumerate(("big", "small", "other")):
        tiny_model(folder / name, seed=seed)
    byte_bpe(folder / "other", 290)
    weights = load_file(folder / "small" / "model.safetensors")
    weights["model.norm.weight"] *= 1.5  # as no two trained models share them
    save_file(weights, folder / "small" / "model.safetensors", {"format": "pt"})
    for kind in HEADS:
        make_head(kind, folder / kind, folder / MODEL[kind])
        make_head(kind, folder / f"{kind}-of-other", folder / OTHER[kind])
    tokenizer = toy_tokenizer()
    texts = [np.array(tokenizer.encode(CODE), np.int32)]
    datastore.save(
        datastore.build(texts), folder / "texts", tokenizer.fingerprint, {"model": "tiny"}
    )
    datastore.save(datastore.build(texts), folder / "foreign", "another", {"model": "gpt5"})
    (folder / "cut").write_bytes((folder / "texts").read_bytes()[:-9])
    (folder / "a.py").write_text(CODE)
    return folder


@pytest.fixture(autouse=True)
def there(place: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def refused(capfd: pytest.CaptureFixture[str], *given: str) -> tuple[int, str]:
    """Exit code and the line."""
    code = main([*given, "--model", "./big"])
    out, err = capfd.readouterr()
    assert out == "", out
    err = err.removeprefix("draftline: loading ./big\n")  # a server says that
    assert err.startswith("draftline: ") and err.count("\n") == 1, err
    assert Path("a.py").read_text() == CODE
    return code, err


def edit(capfd: pytest.CaptureFixture[str], drafter: str, *more: str) -> tuple[int, str]:
    return refused(capfd, "edit", "a.py", "-i", "x", "--drafter", drafter, *more)


@pytest.mark.parametrize("kind", HEADS)
def test_the_good_ones_are_taken(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Else the tests below would show nothing."""
    line = ["edit", "a.py", "-i", "x", "--max-tokens", "2", "--drafter", HEADS[kind].format(kind)]
    main([*line, "--model", "./big"])
    assert "./big" not in capfd.readouterr().err


# -- pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["draft-model:model=./other", "specdec++:model=./other,head=x"])
def test_pairs_of_other_tokenizers(drafter: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, drafter)
    assert code == 2
    assert "./other cannot draft for ./big: their tokenizers differ (token 2" in line
    assert "choose a draft model of the same tokenizer" in line


def test_a_draft_model_that_there_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, "draft-model:model=./gone")
    assert code == 3 and "gone" in line


@pytest.mark.parametrize(
    ("drafter", "why"),
    [
        ("draft-model", "option model is required: write draft-model:model=..."),
        ("specdec++:model=./small", "option head is required: write specdec++:head=..."),
        ("eagle2", "option head is required: write eagle2:head=..."),
        ("sdsat", "option tokens is required: write sdsat:tokens=..."),
        ("draft-model:model=./small,lengths=oracle", "lengths oracle: choose from constant"),
        ("same", "unknown drafter 'same': choose from auto, "),
        ("eagle2:heads=x", "no option 'heads': choose from: head, total"),
    ],
)
def test_drafters_and_options_that_there_are_not(
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


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(
    ("file", "harm", "why"),
    [
        ("model.safetensors", Path.unlink, "contains no model.safetensors: give the folder of"),
        ("config.json", Path.unlink, "contains no config.json: give the folder of"),
        ("model.safetensors", cut, ": train it again"),
        ("model.safetensors", flipped, "do not match: train it again"),
        ("config.json", cut, "cannot be read"),
        ("config.json", lambda file: file.write_text("[]"), ": train it again"),
        ("config.json", lambda file: file.write_bytes(b"\xff"), "cannot be read"),
        ("model.safetensors", lambda file: file.write_bytes(b""), "cannot be read"),
    ],
)
def test_checkpoints_that_are_not_whole(
    kind: str, file: str, harm: Any, why: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    harmed = place / "harmed"
    shutil.rmtree(harmed, ignore_errors=True)
    shutil.copytree(place / kind, harmed)
    harm(harmed / file)
    code, line = edit(capfd, HEADS[kind].format("harmed"))
    assert code == 2 and "harmed: " in line and why in line


@pytest.mark.parametrize("kind", HEADS)
def test_a_folder_that_is_gone(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, line = edit(capfd, HEADS[kind].format("gone"))
    assert (
        code == 2
        and f"gone: contains no config.json: give the folder of a trained {KINDS[kind]}" in line
    )


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "harm", "why"),
    [
        ("model.safetensors", cut, "damaged (its tensors do not fill it): copy or fetch"),
        ("model.safetensors", lambda file: file.write_bytes(b""), "damaged (its tensors"),
        ("model.safetensors", lambda file: file.write_bytes(b"\xff" * 99), "damaged (its tensors"),
        ("config.json", lambda file: file.write_text("[]"), "damaged (no JSON object)"),
        ("config.json", lambda file: file.write_text("{"), "damaged (no JSON: "),
        ("tokenizer.json", lambda file: file.write_text("{"), "damaged (no JSON: "),
        ("tokenizer.json", Path.unlink, "has no tokenizer.json"),
    ],
)
def test_models_that_are_not_whole(
    file: str, harm: Any, why: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The one that answers, the one that drafts, and both of `draftline two-models`."""
    harmed = place / "harmed"
    shutil.rmtree(harmed, ignore_errors=True)
    shutil.copytree(place / "small", harmed)
    harm(harmed / file)
    two = ["two-models", "-i", "x", "--draft-model", "./harmed"]
    lines = [["edit", "a.py", "-i", "x", "--model", "./harmed"], [*two, "--model", "./big"]]
    drafter = "draft-model:model=./harmed"
    lines += [["edit", "a.py", "-i", "x", "--model", "./big", "--drafter", drafter]]
    for line in lines:
        assert main(line) == 3
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and "harmed" in err and why in err


# -- corpora and other files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drafter", "file", "why"),
    [
        ("sam", "gone", "gone: no such corpus: make it with `draftline train corpus`"),
        ("rest", "cut", "cut: "),
        ("sam+recycling", "a.py", "a.py: "),
        ("sam", "foreign", "foreign: made for the tokenizer of gpt5, not of ./big: make it"),
        ("recycling", "texts", "drafter recycling does not use a corpus: try sam"),
        ("recycling:template=gone.json", None, "template gone.json: No such file"),
        ("rest", None, "nothing to copy from: give a corpus"),
    ],
)
def test_data_that_is_missing_or_does_not_fit(
    drafter: str, file: str | None, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = edit(capfd, drafter, *(["--corpus", file] if file else []))
    assert code == 2 and why in line and line.count(": ") >= 2


@pytest.mark.parametrize("command", ["ask", "summarize", "chat", "serve"])
def test_every_command_says_it_alike(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    more = {"ask": ["a.py", "-q", "left?"], "summarize": ["a.py"], "serve": ["--port", "0"]}
    given = [command, *more.get(command, []), "--drafter", "draft-model:model=./other"]
    code, line = refused(capfd, *given)
    assert code == 2 and "./other cannot draft for ./big: their tokenizers differ" in line


@pytest.mark.parametrize("command", ["edit", "ask", "summarize", "chat", "serve"])
def test_ways_to_verify(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    more = {"edit": ["a.py", "-i", "x"], "ask": ["a.py", "-q", "x"], "summarize": ["a.py"]}
    code, line = refused(capfd, command, *more.get(command, []), "--verification", "both")
    assert code == 2 and "choose from" in line and "rejection" in line


def test_rejection_reaches_the_engine(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy text is the same; sampled text has its own draws."""
    texts = {}
    for way in ("match", "rejection"):
        for heat in ("0", "1"):
            line = ["edit", "a.py", "-i", "x", "--max-tokens", "20", "--json", "--seed", "3"]
            drafter = ["--drafter", "draft-model:model=./small", "--verification", way]
            main([*line, "--temperature", heat, *drafter, "--model", "./big", "--verbose"])
            texts[way, heat] = capfd.readouterr().err
    assert texts["match", "0"] == texts["rejection", "0"]
    assert texts["match", "1"] != texts["rejection", "1"]
