"""`draftline demo`: its two runs differ by speculation alone, and it prints their speeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Config, Engine, Request
from tests.support.command import EOS, FENCE, chain_model, draftline
from ui.demo import answer

LETTERS = "zqxjkvbpygfwmucldrhsnioate" + "ETAOINSHRDLCUMWFGYPBVKJXQZ" + "9081726354"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes letters in an order that occurs nowhere else."""
    return chain_model(tmp_path_factory.mktemp("chain") / "model", LETTERS, EOS, context=8192)


@pytest.mark.usefixtures("home")
def test_a_run_copies_nothing_from_an_earlier_one(chain: Path) -> None:
    config = Config(model=str(chain), threads=2, library=False)
    request = Request("complete", "x = 1\n", max_tokens=100)
    with Engine(config) as engine:
        plain, _ = answer(engine, request, speculation=False)
        learnt = engine.parts.model.weights
        drafted, _ = answer(engine, request, speculation=True)
        assert plain.text == drafted.text == LETTERS
        assert drafted.usage.accepted < len(LETTERS) / 4, "the plain answer was copied"
        assert len(engine.parts.history.of("")) == 1 and engine.parts.model.weights is not learnt
        again = engine.submit(request).result()  # nothing was forgotten
        assert again.usage.accepted > len(LETTERS) / 2


def test_it_prints_both_speeds_and_that_the_texts_are_equal(tmp_path: Path) -> None:
    model = chain_model(tmp_path / "model", "pas(x)", FENCE, context=8192)
    result = draftline(tmp_path, "demo", "--model", model)
    assert result.returncode == 0, result.stderr.decode()
    shown = result.stdout.decode()
    assert "both texts are equal" in shown and "times as fast" in shown
    assert "plain" in shown and "with speculation" in shown
