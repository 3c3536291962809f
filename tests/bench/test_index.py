"""`python -m bench index`: the compared indexes against a naive search, figures, and output."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.index import corpus as index_corpus
from bench.index import index, scale
from bench.index.compare import ratio, same_length
from bench.index.folder import HashTokenizer, PreparedTokenizer
from bench.index.jobs import IndexProcesses
from bench.index.peers import PEERS, TAIL, ComparedIndex, DraftlineIndex, Ids
from tests.bench.conftest import RunBench
from tests.oracles import naive

ROOT = Path(__file__).resolve().parents[2]

IDS = st.lists(st.integers(0, 3), max_size=25).map(lambda ids: np.array(ids, np.int32))
DOCUMENTS = st.lists(IDS, min_size=1, max_size=5)
TIMES = st.lists(st.floats(0.1, 1000.0), min_size=1, max_size=5)
SCHEMA = {
    "index", "tokens", "build_tokens_per_s", "bytes_per_token", "disk_bytes_per_token",
    "update_ms", "match_us_p50", "match_us_p99", "cold_start_s", "warm_start_s",
}  # fmt: skip


def built(name: str, documents: list[Ids]) -> ComparedIndex:
    try:
        peer = PEERS[name]()
        peer.build(list(documents))
    except ImportError as error:
        pytest.skip(str(error))
    return peer


# -- the indexes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
@settings(max_examples=60)
@given(documents=DOCUMENTS, tails=st.lists(IDS, min_size=1, max_size=5), data=st.data())
def test_every_index_agrees_with_the_naive_search(
    name: str, documents: list[Ids], tails: list[Ids], data: st.DataObject
) -> None:
    peer = built(name, documents)
    if data.draw(st.booleans()):  # a document changes
        number, documents = data.draw(st.integers(0, len(documents) - 1)), list(documents)
        documents[number] = data.draw(IDS)
        peer.update(number, documents[number])
    oracle = naive.Automaton()
    for document in documents:
        oracle.add(document)
    for tail in tails:
        found = oracle.match(tail, followed=name == "draftline").length
        most = max(len(tail) - 1, 0) if name == "arctic" else TAIL
        assert peer.match(tail) == min(found, most)


@settings(max_examples=60)
@given(DOCUMENTS, st.integers(1, 4), st.integers(0, 30), st.lists(IDS, min_size=1, max_size=5))
def test_the_match_does_not_depend_on_the_number_of_segments(
    documents: list[Ids], frozen: int, young: int, tails: list[Ids]
) -> None:
    one, many = DraftlineIndex(), DraftlineIndex()
    one.build(documents)
    many.shape(documents, frozen, young)
    assert len(many.parts) == frozen
    assert sum(part.size for part in [*many.parts, many.young]) == sum(map(len, documents))
    assert [one.match(tail) for tail in tails] == [many.match(tail) for tail in tails]


def test_a_saved_suffix_array_answers_as_before(tmp_path: Path) -> None:
    documents = [np.array([1, 2, 70_000, 1, 2, 3], np.int32), np.array([2, 70_000], np.int32)]
    peer, tail = built("suffix-array", documents), np.array([9, 2, 70_000], np.int32)
    peer.save(tmp_path)
    again = PEERS["suffix-array"]()
    again.load(tmp_path)
    assert again.match(tail) == peer.match(tail) == 2


def test_an_index_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    corpus, left_out = tmp_path / "corpus.npz", list[str]()
    text = np.arange(3000, dtype=np.int32)
    index_corpus.write(corpus, [text[:1000], text[1000:]], text, tails=3, changes=2)
    compared = IndexProcesses(["draftline", "python"], corpus, tmp_path, left_out)
    try:
        twice = {"draftline": 2, "python": 2}
        assert {name: len(many) for name, many in compared.do("build", twice).items()} == twice
        assert set(compared.do("shape", twice, frozen=1, young=0)) == {"draftline"}
        assert len(left_out) == 1 and left_out[0].startswith("python: ended at shape")
        answers = compared.do("match", twice)
        assert set(answers) == {"draftline"}
        assert answers["draftline"][0]["lengths"][:3] == [TAIL] * 3
    finally:
        compared.close()


# -- the text ----------------------------------------------------------------------------------


@given(st.lists(IDS.filter(len), min_size=1, max_size=5), st.integers(1, 300))
def test_a_corpus_has_the_requested_size_and_repeats_its_patterns(
    documents: list[Ids], tokens: int
) -> None:
    text = np.concatenate(documents)
    cut = np.concatenate(index_corpus.cut(documents, tokens))
    assert len(cut) == tokens
    assert np.array_equal(cut[: len(text)], text[:tokens])
    for start in range(0, tokens, len(text)):
        again = cut[start : start + len(text)]
        pairs = set(zip(again.tolist(), text.tolist(), strict=False))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@given(st.lists(st.text("ab \n", max_size=9), max_size=150), st.integers(1, 500))
def test_nothing_is_lost_between_batches(texts: list[str], tokens: int) -> None:
    encoder = HashTokenizer()
    every = [id for ids in encoder.encode_batch(texts) for id in ids.tolist()]
    stream = iter(texts)
    found = [id for ids in index_corpus.collect(stream, encoder, tokens) for id in ids.tolist()]
    assert found == every[:tokens]


@given(st.lists(IDS.filter(lambda ids: len(ids) > 1), min_size=1, max_size=11))
def test_prepared_ids_are_returned_for_their_text_and_cover_it(documents: list[Ids]) -> None:
    encoder = PreparedTokenizer(documents)
    texts = [encoder.text(number) for number in range(len(documents))]
    assert len(set(texts)) == len(texts)
    for text, ids, right in zip(texts, encoder.encode_batch(texts), documents, strict=True):
        assert np.array_equal(ids, right)
        assert int(encoder.byte_lengths[ids].sum()) == len(text.encode())


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_the_stand_in_knows_where_each_token_starts(text: str) -> None:
    ids, starts = HashTokenizer().encode_with_offsets(text)
    words = [text[a:b] for a, b in pairwise([*starts.tolist(), len(text)])]
    assert "".join(words) == text
    again = [HashTokenizer().encode_batch([word])[0].tolist() for word in words]
    assert again == [[id] for id in ids.tolist()]


# -- arithmetic and drawing --------------------------------------------------------------------


@settings(max_examples=20)
@given(TIMES, st.sampled_from([0.5, 1.0, 4.0]))
def test_times_that_are_longer_by_a_factor_are_that_ratio(times: list[float], by: float) -> None:
    found = ratio({"draftline": times, "python": [one * by for one in times[:2]]}, "python")
    assert found == pytest.approx([by, by, by])
    assert ratio({"python": times}, "python") is None


def test_lengths_are_compared_as_far_as_an_index_can_go() -> None:
    matches = {
        "suffix-array": [{"lengths": [64, 5]}],
        "arctic": [{"lengths": [63, 5]}],
        "python": [{"lengths": [63, 5]}],
    }
    assert same_length(matches, "arctic") == 1.0
    assert same_length(matches, "python") == 0.5


# -- a run -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_ends_with_one_json_line_that_is_also_the_file(
    tmp_path: Path, run_bench: RunBench
) -> None:
    out = tmp_path / "out.json"
    ran = run_bench(index.main, "--quick", "--source", ROOT, "--out", out)
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    assert line == json.loads(out.read_text("utf-8"))
    assert {"cpu", "cores", "memory_gb"} <= line["machine"].keys()
    rows = {row["index"]: row for row in line["results"]}
    missing = {why.partition(":")[0] for why in line["left_out"]}
    assert rows.keys() | missing == PEERS.keys() and {"draftline", "python"} <= rows.keys()
    for row in rows.values():
        assert row.keys() >= SCHEMA and row["tokens"] == 20_000
        assert all(row[key] > 0 for key in ("build_tokens_per_s", "match_us_p50", "update_ms"))
    ours = rows["draftline"]
    assert all(ours[key] > 0 for key in SCHEMA - {"index"})
    assert [form["frozen"] for form in ours["forms"]] == [1, 1, 2, 4, 8]
    assert line["folder"]["warm"]["tokenised"] == 0, "a warm start tokenised something"
    assert line["folder"]["checkout"]["lost"] == 0 and line["folder"]["checkout"]["files"] == 20
    assert all(what["what"] in ran.out for what in line["targets"])
    assert sorted(tmp_path.iterdir()) == [out], "something is left over"


@pytest.mark.full
def test_scale_is_measured_by_size(tmp_path: Path, run_bench: RunBench) -> None:
    out = tmp_path / "scale.json"
    options = ["--scale", "--quick", "--tokens", "20000,60000", "--work", tmp_path]
    ran = run_bench(index.main, *options, "--source", ROOT, "--out", out)
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    assert [row["tokens"] for row in line["results"]] == [20_000, 60_000]
    for row in line["results"]:
        assert all(row[key] > 0 for _, key, _, _ in scale.COLUMNS if key != "peak_mb")
        assert row["peak_mb"] >= 0  # by samples, which a busy machine may have none of
    assert len(line["targets"]) == 5 and all(one["what"] in ran.out for one in line["targets"])
    assert sorted(tmp_path.iterdir()) == [out], "something is left over"


@given(DOCUMENTS.map(lambda all: [one for one in all if len(one)]).filter(len), st.integers(1, 300))
def test_the_files_of_a_size_are_those_of_the_corpus(documents: list[Ids], tokens: int) -> None:
    files = list(scale._repeated(documents, tokens))
    expected = index_corpus.cut(documents, tokens)
    assert [one.tolist() for one in files] == [one.tolist() for one in expected]


def test_growth_is_measured_and_drawn(tmp_path: Path, run_bench: RunBench) -> None:
    out = tmp_path / "growth.json"
    options = ["--growth", "--quick", "--repeats", "1", "--tokens", "2000,4000"]
    ran = run_bench(index.main, *options, "--source", ROOT, "--out", out)
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    sizes = [row["tokens"] for row in line["results"] if row["index"] == "draftline"]
    assert sizes == [2000, 4000]
    drawn = ElementTree.parse(out.with_suffix(".svg"))
    assert drawn.getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--tokens", "many"], "--tokens many"),
        (["--tokens", "999"], "--tokens 999"),
        (["--repeats", "0"], "--repeats 0"),
        (["--source", "nowhere"], "nowhere: not a folder"),
        (["--tokenizer", "nowhere.json"], "nowhere.json: no such file"),
        (["--work", "nowhere"], "--work nowhere: not a folder"),
        (["--scale", "--growth"], "not allowed with"),
    ],
)
def test_bad_options_are_named(run_bench: RunBench, arguments: list[str], names: str) -> None:
    ran = run_bench(index.main, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert names in ran.err.splitlines()[-1]


def test_too_little_source_is_an_error(tmp_path: Path, run_bench: RunBench) -> None:
    (tmp_path / "one.py").write_text("x = 1\n", "utf-8")
    ran = run_bench(index.main, "--quick", "--source", tmp_path)
    assert ran.code == 1 and ran.out == ""
    assert "tokens" in ran.err.splitlines()[-1] and "--source" in ran.err.splitlines()[-1]
