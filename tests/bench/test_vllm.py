"""`python -m bench vllm` without vLLM: replayed edits, the prompts of tasks, what is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.common.tasks import from_file
from bench.replay.replay import SAMPLE
from bench.vllm import vllm
from bench.vllm.model_folder import safetensors_folder
from bench.vllm.replay import Ids, RecordedAnswer, play
from bench.vllm.server import DraftCounts, VllmAnswer, counts_of
from engine.prompts.tokenizer import Tokenizer
from tests.bench.conftest import RunBench
from tests.conftest import byte_bpe

METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0",model_name="served"} 18.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="served"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="served"} 211.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="served"} 1.85e+02
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 17.0
"""


def ahead(
    numbers: Sequence[int], sampled: list[list[int]], sizes: Ids, rows: Ids
) -> list[list[int]]:
    """The next two tokens of answers that count up, the second one wrong every time."""
    for place, (number, new) in enumerate(zip(numbers, sampled, strict=True)):
        row = rows[place, : sizes[place]].tolist()
        assert row[0] == number and row[-len(new) :] == new
    return [[new[-1] + 1, 0] for new in sampled]


def test_a_replay_verifies_drafts_and_counts_all_answers() -> None:
    counts = (1, 2, 7, 8, 3)
    answers = [RecordedAnswer([n], list(range(1, 1 + count))) for n, count in enumerate(counts)]
    for batch in (1, 2, 8):
        tally = play(ahead, answers, batch)
        assert tally.tokens == 21 and tally.accepted_tokens == tally.tokens - tally.steps
        assert tally.steps == 1 + 2 + 4 + 5 + 2


def test_counters_of_a_server_are_read_and_subtracted() -> None:
    counts = counts_of(METRICS)
    assert counts == DraftCounts(18, 211, 185)
    assert counts_of("") == DraftCounts() and DraftCounts().acceptance_length == 1
    assert counts.since(DraftCounts(8, 11, 85)).acceptance_length == 11


def test_edits_are_replayed_with_the_drafter_of_the_proposer(
    tmp_path: Path, run_bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    byte_bpe(tmp_path)
    edits = tmp_path / "edits.jsonl"
    lines = SAMPLE.read_text("utf-8").splitlines()
    edits.write_text("\n".join(sorted(lines, key=len)[:3]), "utf-8")
    monkeypatch.setattr("engine.drafting.stdlib_ngram.StdlibNgram.build", lambda self: iter(()))
    result = run_bench(
        vllm.main, "--replay", edits, "--model", tmp_path, "--limit", "3", "--batch", "1", "4",
        "--methods", "draftline",
        "--out", tmp_path / "out.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    record = json.loads(result.out.splitlines()[-1])
    assert json.loads((tmp_path / "out.json").read_text("utf-8")) == record
    assert [(row["mode"], row["batch"]) for row in record["rows"]] == [
        ("hunk", 1), ("hunk", 4), ("file", 1), ("file", 4)
    ]  # fmt: skip
    assert all(row["tokens_a_pass"] > 1.5 for row in record["rows"])


def test_tasks_are_asked_as_chats_about_a_code_block(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    task = {"id": "1", "instruction": " Rename x. ", "context": "import os\n", "before": "x = 1\n"}
    file.write_text(json.dumps(task), "utf-8")
    byte_bpe(tmp_path)
    tokenizer = Tokenizer(tmp_path)
    (prompt,) = vllm.prompts_of(from_file(file, 1), tokenizer)
    text = tokenizer.decode(prompt)
    assert "```python\nx = 1\n```\n\nRewrite this code: Rename x.\n" in text


@pytest.mark.parametrize("options", [[], ["--tasks", "a", "--replay", "b"]])
def test_one_source_is_needed(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        vllm.main(options)
    assert "give --tasks or --replay" in capsys.readouterr().err


def test_methods_are_measured_one_at_a_time_and_compared_in_the_end(tmp_path: Path) -> None:
    def row(method: str, *texts: str) -> dict[str, Any]:
        answers = [VllmAnswer(text, 10, 1.0) for text in texts]
        return vllm.row_of(method, 2, answers, DraftCounts(8, 20, 10), 4.0)

    out, record = tmp_path / "out.json", dict.fromkeys(("machine", "vllm", "model", "source"), "x")
    record |= {"settings": {"limit": 2}}
    assert vllm.kept_rows(out, record, ["plain"]) == []
    out.write_text(json.dumps(record | {"rows": [row("plain", "a", "b"), row("ngram", "c", "d")]}))
    rows = [*vllm.kept_rows(out, record, ["ngram"]), row("ngram", "a", "c")]
    vllm.compare_texts(rows)
    assert [(one["method"], one["differing"]) for one in rows] == [("plain", 0), ("ngram", 1)]
    assert rows[1]["acceptance_length"] == 2.25 and rows[1]["tokens_a_pass"] == 2.0
    assert rows[1]["tokens_per_s"] == 5.0 and rows[1]["accepted"] == 0.5
    with pytest.raises(ValueError, match="made with another value of 'settings': give"):
        vllm.kept_rows(out, record | {"settings": {}}, [])


def test_safetensors_are_taken_as_they_are(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").touch()
    assert safetensors_folder(model, tmp_path / "made") == model
    assert not (tmp_path / "made").exists()
