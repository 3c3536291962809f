"""Nothing is fetched without consent: at the terminal, by --yes, or not at all."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from engine.weights import model_list
from engine.weights.catalogue.builtins import HubModel
from engine.weights.fetch import download
from engine.weights.model_list import Machine
from lsp_server.sharing.consent import question
from tests.support.command import draftline, one_line
from tests.support.tiny_gguf import usual_models
from ui.common import consent
from ui.common.errors import NO_MODEL, Failure


@pytest.fixture(autouse=True)
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual models are `tiny` and `small`, which pip finds; the cache is empty."""
    usual_models(tmp_path, monkeypatch)
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    (tmp_path / "a.py").write_text("x=1\n")
    (tmp_path / "a.txt").write_text("x\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> Terminal:
    """A user types at a terminal; returns what it shows."""
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", shown)
    return shown


@pytest.mark.parametrize(
    "command",
    [
        ("edit", "a.py", "-i", "do"),
        ("ask", "a.txt", "-q", "why?"),
        ("summarize", "a.txt"),
        ("chat",),
        ("serve", "--port", "0"),
        ("two-models", "-i", "x", "--draft-model", "small", "--model", "tiny"),
        ("index", "--model", "tiny"),
    ],
    ids=lambda one: one[0],
)
def test_without_a_terminal_nothing_is_fetched(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = draftline(tmp_path, *command)
    assert done.returncode == NO_MODEL, done.stderr
    assert "draftline models pull" in one_line(done) and "GB" in one_line(done)
    assert not (tmp_path / "home" / "models").exists()


def test_yes_fetches_and_says_what(tmp_path: Path) -> None:
    done = draftline(tmp_path, "chat", "--yes", "--max-tokens", "2", stdin=b"hello\n")
    assert done.returncode == 0, done.stderr
    assert b"draftline: fetching tiny: " in done.stderr
    assert (tmp_path / "home" / "models" / "tiny").is_dir()
    again = draftline(tmp_path, "chat", "--max-tokens", "2", stdin=b"hello\n")
    assert again.returncode == 0 and b"fetching" not in again.stderr


@pytest.mark.parametrize(
    ("typed", "model", "chosen"),
    [
        ("1\n", None, "tiny"),
        ("2\n", None, "small"),
        ("what?\n3\n 2 \n", None, "small"),
        ("1\n", "small", "small"),
    ],
)
def test_the_terminal_asks_which_model(
    monkeypatch: pytest.MonkeyPatch, typed: str, model: str | None, chosen: str
) -> None:
    shown = at_terminal(monkeypatch, typed)
    assert consent.agreed(model) == chosen
    text = shown.getvalue()
    assert "GB are free" in text and ("tiny: " in text) == (model is None)


def test_a_larger_model_that_runs_well_here_is_offered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = HubModel(4_700_000_000, "Apache-2.0", is_gguf=True, least_memory=1)
    monkeypatch.setattr(model_list, "LARGER", {"maker/large": known})
    monkeypatch.setattr(download, "LARGER", {"maker/large": known})
    monkeypatch.setattr(download, "free_where_the_cache_is", lambda: 10**12)
    machine = Machine(10**11, 10**11, 0, native_bf16=True, bandwidth=47e9)
    monkeypatch.setattr(Machine, "this", lambda measured=False: machine)
    shown = at_terminal(monkeypatch, "3\n")
    assert consent.agreed(None) == "maker/large"
    last = "3  maker/large: 4.7 GB, Apache-2.0, about 10 tokens/s; answers better"
    assert last in shown.getvalue()
    offers = download.downloads()
    assert [one.model for one in offers] == ["tiny", "small", "maker/large"]
    assert "maker/large (4.7 GB, Apache-2.0, about 10 tokens/s), which answers" in question(offers)
    monkeypatch.setattr(download, "free_where_the_cache_is", lambda: 10**9)
    assert [one.model for one in download.downloads()] == ["tiny", "small"]


@pytest.mark.parametrize("typed", ["n\n", "No\n", ""])
def test_who_does_not_agree_gets_nothing(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    at_terminal(monkeypatch, typed)
    with pytest.raises(Failure, match="models pull tiny"):
        consent.agreed(None)


def test_who_names_no_model_gets_the_one_that_is_there(tmp_path: Path) -> None:
    assert draftline(tmp_path, "models", "pull", "small", "--no-library").returncode == 0
    assert consent.agreed(None) == "small"
    with pytest.raises(Failure, match="tiny is not on this machine"):
        consent.agreed("tiny")
