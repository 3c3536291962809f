"""`draftline verify` against small servers: exact ones, noisy ones, and ones that it cannot ask."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Result, draftline
from tests.support.openai_server import OTHER, Asked, OpenAiServer, serving
from ui.verify import server as asking
from ui.verify.tasks import tasks

KEY = "0123456789abcdef"


def verify(folder: Path, server: OpenAiServer, *arguments: str, **variables: str) -> Result:
    return draftline(folder, "verify", server.url, *arguments, **variables)


def report_of(result: Result) -> dict[str, Any]:
    """The report of a run with --json."""
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == found["exit_code"]
    return found


def rows(report: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (row["speculation"], row["compared"]): (row["differing"], row["of"])
        for row in report["table"]
    }


def hashed(text: str, one_in: int) -> bool:
    """Whether a request is among every nth, by the letters of its text alone."""
    return sum(text.encode()) % one_in == 0


def chance(asked: Asked, one_in: int) -> bool:
    """Whether the text changes this time: one time in n, with and without speculation."""
    drawn = hashlib.sha256(f"{asked.text}{asked.time}".encode()).digest()
    return int.from_bytes(drawn[:4]) % one_in == 0


def test_an_exact_server_differs_nowhere_in_all_ways_of_asking(tmp_path: Path) -> None:
    """Forty that copy and forty that do not; cold only once, whoever asks first."""
    with serving(OpenAiServer()) as server:
        result = verify(tmp_path, server, "--json", "--run", "7")
    report = report_of(result)
    assert report["exit_code"] == 0 and not result.stderr and not report["differences"]
    assert rows(report) == {
        (mode, compared): (0, of)
        for mode in ("with", "without")
        for compared, of in (
            ("asked again", 80),
            ("new and cached prompt", 40),
            ("alone against four at once", 80),
        )
    } | {
        ("both", "alone, cached prompt"): (0, 80),
        ("both", "four at once"): (0, 80),
        ("both", "sampled, fixed seed"): (0, 10),
    }
    assert report["modes"]["with"]["guessed_tokens"] > 0
    assert report["modes"]["with"]["accepted_tokens"] > 0
    assert report["modes"]["without"]["guessed_tokens"] == 0
    bodies = [body for body in server.bodies if body["messages"][0]["content"].startswith("[7-")]
    greedy = [body for body in bodies if body["temperature"] == 0]
    asked = Counter(
        (body["messages"][0]["content"], body.get("speculation", True)) for body in greedy
    )
    texts = {text for text, _ in asked}
    assert len(texts) == 80 and len({re.sub(r"^\[.*?\] ", "", text) for text in texts}) == 80
    assert sum("```" in text for text in texts) == 40
    assert {asked[text, True] + asked[text, False] for text in texts} == {5}
    assert Counter(asked[text, True] for text in texts) == {2: 40, 3: 40}
    assert {body["seed"] for body in bodies} == {0, 20}
    assert {body["max_tokens"] for body in bodies} == {16, 32}


def test_speculation_that_changes_texts_is_found(tmp_path: Path) -> None:
    def differs(asked: Asked) -> bool:
        return asked.drafts and hashed(asked.text, 5)

    few = ("--run", "7", "--requests", "10")
    with serving(OpenAiServer(differs=differs, margin=0.01)) as server:
        report = report_of(verify(tmp_path, server, "--json", *few))
        shown = verify(tmp_path, server, *few)
    expected = {task.text for task in tasks(7, 10) if hashed(task.text, 5)}
    assert report["exit_code"] == 1 and 0 < len(expected) < 20
    found = rows(report)
    assert found["both", "alone, cached prompt"] == found["both", "four at once"]
    assert found["both", "four at once"] == (len(expected), 20)
    assert found["with", "asked again"] == found["without", "asked again"] == (0, 20)
    differences = [one for one in report["differences"] if one["compared"] == "four at once"]
    assert {one["text"] for one in differences} == expected
    for one in differences:
        assert one["start"] == 11 and one["margin"] == pytest.approx(0.01)
        assert one["first"][10:].startswith(OTHER) and not one["second"][10:].startswith(OTHER)
    text = shown.stdout.decode()
    assert shown.returncode == 1 and "Yes: " in text
    assert "1.01 times as likely" in text and "a near tie" in text
    assert 'with:    "other' in text


def test_a_wide_margin_is_no_near_tie(tmp_path: Path) -> None:
    def differs(asked: Asked) -> bool:
        return asked.drafts

    with serving(OpenAiServer(differs=differs, margin=1.5)) as server:
        result = verify(tmp_path, server, "--requests", "2")
    assert result.returncode == 1 and b"no near tie" in result.stdout


@pytest.mark.full
def test_noise_is_not_laid_to_speculation(tmp_path: Path) -> None:
    """A server whose texts change by themselves, as often with as without."""

    def differs(asked: Asked) -> bool:
        return chance(asked, 4)

    with serving(OpenAiServer(differs=differs)) as server:
        report = report_of(verify(tmp_path, server, "--json", "--run", "1"))
    found = rows(report)
    assert found["without", "asked again"][0] > 3 and found["both", "alone, cached prompt"][0] > 3
    assert report["exit_code"] == 2 and "Not to be told: " in report["verdict"]


@pytest.mark.full
def test_more_than_the_noise_is_laid_to_speculation(tmp_path: Path) -> None:
    def differs(asked: Asked) -> bool:
        return hashed(asked.text, 2) if asked.drafts else chance(asked, 25)

    with serving(OpenAiServer(differs=differs)) as server:
        report = report_of(verify(tmp_path, server, "--json", "--run", "1"))
    found = rows(report)
    assert 0 < found["without", "asked again"][0] < found["both", "alone, cached prompt"][0]
    assert report["exit_code"] == 1 and report["verdict"].startswith("Yes: ")


def test_a_prompt_cache_that_changes_texts_is_told_apart(tmp_path: Path) -> None:
    """Texts of the first time differ from later ones, and speculation changes none."""

    def differs(asked: Asked) -> bool:
        return asked.time == 0 and hashed(asked.text, 3)

    with (
        serving(OpenAiServer(differs=differs)) as server,
        serving(OpenAiServer(differs=differs, speculates=False)) as plain,
    ):
        few = ("--run", "7", "--requests", "10", "--json")
        report = report_of(verify(tmp_path, server, "--against", plain.url, *few))
    found = rows(report)
    assert found["with", "new and cached prompt"][0] > 3
    assert found["with", "asked again"] == found["both", "alone, cached prompt"] == (0, 20)
    assert report["exit_code"] == 0


def test_against_a_second_server(tmp_path: Path) -> None:
    with (
        serving(OpenAiServer(takes_option=False)) as server,
        serving(OpenAiServer(speculates=False)) as plain,
    ):
        few = ("--requests", "5", "--json")
        report = report_of(verify(tmp_path, server, "--against", plain.url, *few))
    assert report["exit_code"] == 0
    assert rows(report)["with", "new and cached prompt"] == (0, 10)
    assert rows(report)["both", "alone, new prompt"] == (0, 10)
    assert not any("speculation" in body for body in [*server.bodies, *plain.bodies])


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (OpenAiServer(takes_option=False), "does not turn speculation off"),
        (OpenAiServer(says_drafts=False), "does not say that it guessed tokens"),
        (OpenAiServer(speculates=False), "does not say that it guessed tokens"),
    ],
    ids=["no option", "says nothing", "does not speculate"],
)
def test_without_a_baseline_the_rest_is_measured(
    tmp_path: Path, server: OpenAiServer, why: str
) -> None:
    with serving(server):
        report = report_of(verify(tmp_path, server, "--json", "--requests", "4"))
    assert report["exit_code"] == 2 and why in report["verdict"]
    assert rows(report) == {
        ("with", "asked again"): (0, 8),
        ("with", "new and cached prompt"): (0, 8),
        ("with", "alone against four at once"): (0, 8),
    }


@pytest.mark.parametrize("counts", [False, True], ids=["by answer", "by metrics"])
def test_servers_that_guess_nothing_or_in_both_modes_show_nothing(
    tmp_path: Path, counts: bool
) -> None:
    say: dict[str, Any] = {"counts": counts, "says_drafts": not counts}
    with (
        serving(OpenAiServer(speculates=False, **say)) as idle,
        serving(OpenAiServer(takes_option=False, **say)) as busy,
    ):
        few = ("--requests", "2", "--json")
        first = report_of(verify(tmp_path, idle, "--against", idle.url, *few))
        second = report_of(verify(tmp_path, busy, "--against", busy.url, *few))
    assert (first["exit_code"], second["exit_code"]) == (2, 2)
    assert "guessed no tokens: switch speculation on" in first["verdict"]
    assert "guessed tokens too: start it without" in second["verdict"]


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "line"),
    [
        (OpenAiServer(html=True), "answers no stream of events"),
        (OpenAiServer(key=KEY), "the key is missing or wrong: set DRAFTLINE_ENGINE_KEY"),
        (OpenAiServer(silent=True), "for 0.3 s"),
        (OpenAiServer(models=None, fails_after=0), "out of memory"),
    ],
    ids=["HTML", "key", "silent", "no routes"],
)
def test_a_server_that_cannot_be_asked_gets_one_line(
    tmp_path: Path, server: OpenAiServer, line: str
) -> None:
    with serving(server):
        limit = ("--timeout", "0.3") if server.silent else ()
        result = verify(tmp_path, server, *limit)
    assert result.returncode == 2 and not result.stdout
    (shown,) = result.stderr.decode().splitlines()
    assert re.search(line, shown) and server.url in shown


def test_nobody_listens(tmp_path: Path) -> None:
    with serving(OpenAiServer()) as server:
        pass
    result = verify(tmp_path, server)
    assert result.returncode == 2 and result.stderr.count(b"\n") == 1
    assert b"is the server running?" in result.stderr


@pytest.mark.parametrize(
    ("server", "note"),
    [
        (OpenAiServer(models=None), "lists no models at /models"),
        (OpenAiServer(models=b"<html>"), "lists no models at /models"),
        (OpenAiServer(models=b'{"data": [{"id": 3}, 4]}'), "lists no models at /models"),
        (OpenAiServer(seeded=False), "Seeds are not honoured"),
    ],
    ids=["no models", "models are HTML", "models are wrong", "no seeds"],
)
def test_odd_servers_are_measured_all_the_same(
    tmp_path: Path, server: OpenAiServer, note: str
) -> None:
    with serving(server):
        report = report_of(verify(tmp_path, server, "--json", "--requests", "3"))
    assert report["exit_code"] == 0 and rows(report)["both", "alone, cached prompt"] == (0, 6)
    assert [each for each in report["notes"] if note in each]


def test_a_second_server_that_cannot_be_asked_leaves_the_rest(tmp_path: Path) -> None:
    with serving(OpenAiServer()) as server, serving(OpenAiServer(key=KEY)) as locked:
        few = ("--against", locked.url, "--requests", "2")
        result = verify(tmp_path, server, *few)
        opened = report_of(verify(tmp_path, server, *few, "--json", DRAFTLINE_ENGINE_KEY=KEY))
        elsewhere = locked.url.replace("127.0.0.1", "localhost")
        few = ("--against", elsewhere, "--requests", "2")
        kept = verify(tmp_path, server, *few, DRAFTLINE_ENGINE_KEY=KEY)
    text = result.stdout.decode()
    assert result.returncode == 2 and "the key is missing or wrong" in " ".join(text.split())
    assert re.search(r"asked again +0 of 2 +0 of 2", text)
    assert opened["exit_code"] == 2 and "guessed tokens too" in opened["verdict"]
    assert b"the key is missing" in b" ".join(kept.stdout.split()), "it is for the first host"


def test_what_was_answered_before_a_server_failed_is_shown(tmp_path: Path) -> None:
    with serving(OpenAiServer(fails_after=30)) as server:
        report = report_of(verify(tmp_path, server, "--json", "--requests", "10"))
    assert report["exit_code"] == 2
    differing, of = rows(report)["both", "alone, cached prompt"]
    assert differing == 0 and 5 < of < 20
    (note,) = [
        each for each in report["notes"] if "out of memory" in each and "without" not in each
    ]
    assert "missing" in note
    assert len(server.bodies) == 30, "asked no more after a few failures"


def test_the_model_is_the_named_one_or_the_same_on_both(tmp_path: Path) -> None:
    two, other = b'{"data": [{"id": "one"}, {"id": "two"}]}', b'{"data": [{"id": "three"}]}'
    few = ("--requests", "1", "--json")
    with (
        serving(OpenAiServer(models=two)) as server,
        serving(OpenAiServer(models=two, speculates=False)) as plain,
        serving(OpenAiServer(models=other, speculates=False)) as odd,
    ):
        same = report_of(verify(tmp_path, server, *few, "--against", plain.url, "--model", "two"))
        apart = report_of(verify(tmp_path, server, *few, "--against", odd.url))
        wrong = verify(tmp_path, server, *few, "--model", "four")
    assert {mode["model"] for mode in same["modes"].values()} == {"two"}
    assert {body["model"] for body in plain.bodies} == {"two"}
    assert {mode["model"] for mode in apart["modes"].values()} == {"one", "three"}
    assert any("name different models" in note for note in apart["notes"])
    assert wrong.returncode == 2 and b"has no model four: name one of one, two" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["localhost:8000"], "URL: not an address"),
        (["http://k@127.0.0.1/v1"], "URL: an address has no key"),
        (["http://127.0.0.1/v1", "--against", "x"], "--against: not an address"),
        (["http://127.0.0.1/v1", "--requests", "41"], "there are 40 of each kind"),
        (["http://127.0.0.1/v1", "--tokens", "0"], "give a whole number of 1 or more"),
        (["http://127.0.0.1/v1", "--timeout", "0"], "give seconds above 0"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], line: str) -> None:
    result = draftline(tmp_path, "verify", *arguments)
    assert result.returncode == 2 and line in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1


def test_a_bug_while_asking_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with serving(OpenAiServer()) as server:
        monkeypatch.setattr(asking, "read_reply", broken)
        result = verify(tmp_path, server)
    assert result.returncode == 1 and b"a bug in draftline" in result.stderr
