"""Drafters by name: which can be chosen, which are rejected, and unchanged answers on a model with
real layers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Config, Done, Engine, Request
from engine.drafting.registry import drafter_names, parse_choice
from research.methods import datastore
from tests.conftest import tiny_model
from tests.support.command import draftline, one_line
from tests.support.drafters import TOYS, VARIANTS, toy_tokenizer

TEXT = "def add(left, right):\n    return left + right\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus encoded with the tiny models' tokenizer."""
    file = tmp_path_factory.mktemp("corpus") / "texts"
    tokenizer = toy_tokenizer()
    texts = [np.array(tokenizer.encode(text), np.int32) for text in (TEXT, TEXT * 2)]
    datastore.save(datastore.build(texts), file, tokenizer.fingerprint, {"model": "tiny"})
    return file


@pytest.mark.parametrize(("budget", "said"), [(48, 1), (100, 0)])
@pytest.mark.parametrize("drafter", ["recycling", "rest", "sam:most=90"])
def test_drafts_that_no_pass_takes_are_announced(
    tiny: Any, store: Path, home: Path, caplog: pytest.LogCaptureFixture,
    drafter: str, budget: int, said: int,
) -> None:  # fmt: skip
    """Of a target with passes of static shape, which take 63 nodes, or as many as the budget."""
    corpus = None if drafter == "recycling" else store
    config = Config(
        model=str(tiny()), device="cpu", dtype="f32", threads=1, library=False, graphs="static",
        drafter=drafter, corpus=corpus, budget=budget,
    )  # fmt: skip
    with caplog.at_level(logging.WARNING), Engine(config):
        lines = [record.getMessage() for record in caplog.records]
    assert len([one for one in lines if "are cut to 63" in one]) == said, lines


# -- unchanged answers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Answers without speculation, by seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        with Engine(Config(model=str(tiny()), dtype="f32", threads=1, library=False)) as engine:
            return {
                seed: engine.submit(make_request(seed), False).result().text for seed in range(2)
            }


def make_request(seed: int) -> Request:
    """A greedy request for an even seed, a sampled one for an odd seed."""
    return Request(
        "complete",
        TEXT * 3,
        predictions=(TEXT,),
        temperature=0.9 * (seed % 2),
        top_p=0.95,
        seed=seed,
        max_tokens=40,
    )


@pytest.fixture(scope="module")
def trained(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A draft model, and untrained heads."""
    import torch

    from research.methods import sdsat
    from research.methods.eagle_head import shape_of, untrained_head
    from research.methods.specdec import AcceptanceHead

    folder = tmp_path_factory.mktemp("trained")
    paths = {name: folder / name for name in ("draft", "stop", "eagle", "slots")}
    tiny_model(paths["draft"], seed=5)
    AcceptanceHead(32).save(paths["stop"], paths["draft"])
    settings = json.loads((tiny() / "config.json").read_text())
    untrained_head(shape_of(settings), 0).save(paths["eagle"], tiny())
    sdsat.save(paths["slots"], torch.ones(2, 32), tiny())
    return paths


MODELS = (
    "draft-model:model={draft}",
    "draft-model:model={draft},lengths=constant,most=3",
    "draft-model:model={draft},lengths=confident,threshold=0.9",
    "auto+draft-model:model={draft}",
    "draft-model:model={draft},lengths=heuristic",
    "specdec++:model={draft},head={stop}",
    "eagle2:head={eagle}",
    "eagle2:head={eagle},total=9,depth=3,width=2",
    "eagle2:head={eagle},total=0,depth=2,width=3",
    "sam+eagle2:head={eagle},threshold=2",
    "sdsat:tokens={slots}",
    "sdsat:tokens={slots},tree=yes",
)


def test_every_drafter_is_covered() -> None:
    """The others, which only some GGUF files have a layer for, in test_mtp.py."""
    covered = {parse_choice(text).name for text in (*TOYS, *MODELS)}
    assert covered | {"mtp", "auto+mtp"} == set(drafter_names())


@pytest.fixture(scope="module")
def engine(tiny: Any, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with a corpus, whose requests choose their drafters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        config = Config(
            str(tiny()), dtype="f32", threads=1, drafter="sam", corpus=store, library=False
        )
        with Engine(config) as engine:
            yield engine


@pytest.mark.parametrize("text", [*TOYS, *VARIANTS, *MODELS])
def test_no_drafter_changes_an_answer(
    text: str, engine: Engine, answers: dict[int, str], trained: dict[str, Path]
) -> None:
    """On layers in f32, with several consecutive requests."""
    name = text.format(**trained)
    drafted = 0
    cached: list[int] = []
    engine.forget()
    for seed in (0, 1, 0):
        done = engine.submit(make_request(seed), drafter=name, owner=name).result()
        assert done.reason != "failed", done.error
        assert done.text == answers[seed], (name, seed)
        drafted += done.usage.drafted
        cached.append(done.usage.cached_tokens)
    assert cached[0] == 0 < cached[1], "the first one reads the prompt"
    assert drafted


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("sam+recycling", "recycling"),
        pytest.param("sam+eagle2:head={eagle}", "eagle", marks=pytest.mark.full),
    ],
)
def test_combined_drafters_draft_from_both(
    name: str,
    other: str,
    tiny: Any,
    answers: dict[int, str],
    trained: dict[str, Path],
    home: Path,
) -> None:
    """One answer has chains from the text where enough tokens match and the other drafter's trees
    elsewhere, and is unchanged. An answer given as a prediction is copied."""
    name, seen = name.format(**trained), list[set[str]]()
    config = Config(str(tiny()), dtype="f32", threads=1, drafter=name, library=False)
    with Engine(config) as engine:
        make = engine.drafters[name]

        def watched(wanted: Any) -> Any:
            drafter = make(wanted)
            propose = drafter.propose

            def recorded(context: Any, target: Any) -> Any:
                seen.append(set((draft := propose(context, target)).sources))
                return draft

            drafter.propose = recorded  # type: ignore[method-assign]
            return drafter

        engine.drafters[name] = watched
        for seed in answers:
            again = replace(make_request(seed), predictions=(TEXT, answers[seed][:20]))
            for request in (make_request(seed), again):
                seen.clear()
                assert engine.submit(request).result().text == answers[seed]
                assert seen.count({other}) > 0 and seen.count({"context"}) > 0
                assert set().union(*seen) == {other, "context"}


def test_corpus_drafters_can_draft_from_a_workspace(tiny: Any, tmp_path: Path, home: Path) -> None:
    """The workspace replaces a corpus."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text(TEXT * 4)
    for name in ("sam:bias=0", "rest:least=1", "sam+recycling:bias=0,threshold=1"):
        config = Config(
            str(tiny()), threads=1, drafter=name, workspace=tmp_path / "work", library=False
        )
        with Engine(config) as engine:
            job = engine.submit(Request("complete", "def add(left, right):\n", max_tokens=9))
            pieces = [piece for step in job if not isinstance(step, Done) for piece in step.pieces]
            assert pieces and job.result().usage.drafted > 0, name


def test_a_request_may_choose_its_drafter(tiny: Any, store: Path, home: Path) -> None:
    """Each is loaded once; an engine with a corpus also offers drafters that do not use it."""
    config = Config(str(tiny()), dtype="f32", threads=1, drafter="sam", corpus=store, library=False)
    with Engine(config) as engine:
        plain = engine.submit(make_request(0), False).result()
        for name in TOYS:
            for _ in range(2):
                assert engine.submit(make_request(0), drafter=name).result().text == plain.text
        assert [*engine.drafters] == ["sam", *(name for name in TOYS if name != "sam")]
        with pytest.raises(ValueError, match="unknown drafter 'same'"):
            engine.submit(make_request(0), drafter="same")


def test_forget_resets_draft_lengths(tiny: Any, home: Path) -> None:
    """For drafters loaded with the engine and for those loaded by a request."""
    name = f"draft-model:model={tiny()},lengths=heuristic,most={{}}"
    config = Config(str(tiny()), dtype="f32", threads=1, drafter=name.format(9), library=False)
    with Engine(config) as engine:
        for drafter in ("", name.format(7)):
            drafted = []
            for forget in (False, False, True):
                if forget:
                    engine.forget()
                drafted.append(
                    engine.submit(make_request(0), drafter=drafter).result().usage.drafted
                )
            assert drafted[0] == drafted[2] != drafted[1]


# -- rejected choices ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown drafter '': choose from auto, draft-model, "),
        ("same", "unknown drafter 'same': choose from auto, draft-model, "),
        ("auto:budget=3", "drafter auto: no option 'budget': it has no options"),
        ("sam:alpha=3", "drafter sam: no option 'alpha': choose from: most, factor, across, bias"),
        ("sam:most", "drafter sam: most: write a number, such as 60"),
        ("sam:most=-1", "drafter sam: most=-1: write a number, such as 60"),
        ("sam:most=1.5", "drafter sam: most=1.5: write a number, such as 60"),
        ("sam:most=9999999", "drafter sam: most=9999999: write 1000000 or less"),
        ("sam:factor=1.2.3", "drafter sam: factor=1.2.3: write a number, such as 4.0"),
        ("sam:factor=.", "drafter sam: factor=.: write a number, such as 4.0"),
        ("recycling:cold=1", "drafter recycling: cold=1: write yes or no"),
        ("recycling:template=", "drafter recycling: template=: write a name"),
    ],
)
def test_unknown_names_and_options_are_rejected(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_choice(text)
    assert str(caught.value).startswith(why) and "\n" not in str(caught.value)


@given(st.text(max_size=12), st.sampled_from(drafter_names()))
def test_any_text_is_parsed_or_rejected(text: str, name: str) -> None:
    for choice in (text, f"{name}:{text}", f"{name}:bias={text}", f"sam:factor={text}"):
        try:
            assert parse_choice(choice).name in drafter_names()
        except ValueError as error:
            assert any(
                words in str(error) for words in (": choose from", ": write ", ": it has no")
            )


def test_options_have_the_type_of_their_default() -> None:
    choice = parse_choice("sam+recycling:run=15,threshold=0,template=2.2.2,cold=yes")
    expected = {"run": 15, "threshold": 0, "template": "2.2.2", "cold": True}
    assert (choice.name, choice.options) == ("sam+recycling", expected)
    assert parse_choice("sam:factor=2").options == {"factor": 2.0}


@pytest.mark.parametrize(
    ("drafter", "file", "why"),
    [
        ("same", None, "unknown drafter 'same'"),
        ("rest", None, "drafter rest: nothing to copy from: give a corpus"),
        (
            "auto",
            "texts",
            "auto does not use a corpus: try sam, sam\\+recycling, sam\\+eagle2, rest",
        ),
        ("prompt-lookup", "gone", "prompt-lookup does not use a corpus"),
        ("sam", "gone", "gone: no such corpus"),
        (
            "draft-model",
            None,
            "drafter draft-model: option model is required: write draft-model:model=",
        ),
        ("draft-model:model=x,lengths=long", None, "lengths long: choose from constant, heuristic"),
        ("specdec++:model=x", None, "option head is required: write"),
        ("eagle2:head=gone", None, "gone"),
        ("recycling:width=65", None, "width 65: choose 1 to 64 successors"),
        ("recycling:template=gone", None, "template gone: No such file"),
    ],
)
def test_unusable_drafters_fail_at_startup(
    drafter: str, file: str | None, why: str, tiny: Any, store: Path, home: Path
) -> None:
    corpus = None if file is None else store.parent / file
    with pytest.raises(ValueError, match=why):
        Engine(Config(model=str(tiny()), drafter=drafter, corpus=corpus))


def test_an_unknown_drafter_fails_before_any_download(home: Path) -> None:
    with pytest.raises(ValueError, match="unknown drafter 'same'"):
        Engine(Config(model="no/such-model", drafter="same"))
    assert not home.exists()


# -- command line ----------------------------------------------------------------------------------


def test_the_list_has_one_line_per_drafter(tmp_path: Path) -> None:
    result = draftline(tmp_path, "drafters")
    lines = result.stdout.decode().splitlines()
    assert (result.returncode, result.stderr) == (0, b"")
    assert [line.split()[0] for line in lines] == drafter_names()
    assert all(len(line) <= 100 for line in lines)
    verbose = draftline(tmp_path, "drafters", "-v").stdout.decode()
    for line in verbose.splitlines():
        if line.startswith(" ") and "=..." not in line:
            parse_choice(line.strip())  # the listed options can be parsed
    assert "sam:most=60,factor=4.0,across=8,bias=5" in verbose


@pytest.mark.parametrize("command", ["edit", "ask", "summarize", "chat", "serve"])
def test_unknown_drafters_give_one_line_errors(command: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TEXT)
    arguments = {"edit": ["a.py", "-i", "x"], "ask": ["a.py", "-q", "x"], "summarize": ["a.py"]}
    result = draftline(tmp_path, command, *arguments.get(command, []), "--drafter", "same")
    assert result.returncode == 2
    assert "unknown drafter 'same': choose from auto, " in one_line(result)


@pytest.mark.full
def test_the_chosen_drafter_reaches_the_engine(tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TEXT)
    edit = ["edit", "a.py", "-i", "x", "--drafter", "sam", "--corpus", "gone"]
    ask = ["ask", "a.py", "-q", "what is left?", "--drafter", "rest"]
    for arguments, why in (
        (edit, "gone: no such corpus: make it"),
        (ask, "nothing to copy from: give"),
    ):
        result = draftline(tmp_path, *arguments, "--model", tiny())
        assert result.returncode == 2 and why in one_line(result)
