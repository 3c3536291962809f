"""`draftline demo`: its two runs differ by speculation alone, and it says what they took."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Config, Engine, Request
from tests.support.command import EOS, FENCE, chain_model, draftline
from ui.demo import answer

LETTERS = "zqxjkvbpygfwmucldrhsnioate" + "ETAOINSHRDLCUMWFGYPBVKJXQZ" + "9081726354"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes letters in an order that stands nowhere else."""
    return chain_model(tmp_path_factory.mktemp("chain") / "model", LETTERS, EOS, context=8192)


@pytest.mark.usefixtures("home")
def test_a_run_copies_nothing_of_an_earlier_one(chain: Path) -> None:
    config = Config(model=str(chain), threads=2, library=False)
    request = Request("complete", "x = 1\n", max_tokens=100)
    with Engine(config) as engine:
        plain, _ = answer(engine, request, speculation=False)
        learnt = engine.parts.model.weights
        drafted, _ = answer(engine, request, speculation=True)
        assert plain.text == drafted.text == LETTERS
        assert drafted.usage.accepted < len(LETTERS) / 4, "the plain answer was copied"
        assert len(engine.parts.history.of("")) == 1 and engine.parts.model.weights is not learnt
        again = engine.submit(request).result()  # without forgetting it is
        assert again.usage.accepted > len(LETTERS) / 2


def test_it_shows_both_speeds_and_that_the_texts_are_equal(tmp_path: Path) -> None:
    model = chain_model(tmp_path / "model", "pas(x)", FENCE, context=8192)
    found = draftline(tmp_path, "demo", "--model", str(model))
    said = found.stdout.decode()
    assert found.returncode == 0, found.stderr.decode()
    assert "both texts are equal" in said and "times as fast" in said
    assert "plain" in said and "with speculation" in said
