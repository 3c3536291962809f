"""`python -m bench gpu` on a CPU: forced edits, floors, cases that are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu import (
    compile_ahead,
    exact,
    experts,
    gpu,
    host,
    law,
    models,
    peer,
    products,
    run,
    steps,
)
from bench.gpu import edits as gpu_edits
from bench.gpu.generation import ForcedDraftline, ForcedRun, ForcedTransformers
from engine import Config
from engine.drafting import chain
from engine.model.torch.cuda.static_pass import BUCKETS
from engine.records import Draft

ROOT = Path(__file__).resolve().parents[2]

TINY = models.SHAPES["tiny"]
CPU = torch.device("cpu")
ONE = Config(device="cpu", dtype="f32", threads=1, graphs="static")


@pytest.fixture(scope="module")
def target() -> Any:
    return models.random_target("tiny", TINY, ONE)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return models.random_hf(TINY, CPU, torch.float32)


@pytest.fixture(scope="module")
def recorded() -> gpu_edits.RecordedEdits:
    return gpu_edits.load(gpu_edits.read(gpu_edits.SAMPLE), TINY["vocab_size"])


# -- models ----------------------------------------------------------------------------------------


def test_both_models_of_a_shape_are_the_same_model(target: Any, theirs: Any) -> None:
    ids = [3, 99, 7, 2048, 5, 5, 1]
    steps.clear(target)
    target.begin(ids[:1], 64)
    ours = target.forward(ids[0], chain(ids[1:], "test")).logits
    target.keep([])
    other = theirs(torch.tensor([ids])).logits[0]
    assert torch.allclose(ours, other, atol=1e-4) and ours.std() > 0


@pytest.mark.parametrize("name", list(models.SHAPES))
def test_weights_are_those_of_transformers(name: str) -> None:
    """Their names and shapes, and so the bytes that a floor counts."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    settings = models.SHAPES[name]
    config = CONFIG_MAPPING[settings["model_type"]](**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert models.shapes(settings) == {n: tuple(p.shape) for n, p in model.named_parameters()}
    whole = sum(p.numel() for p in model.parameters())
    assert models.weight_bytes(settings, 2) == 2 * whole
    tied = settings["tie_word_embeddings"]
    spared = 0 if tied else settings["vocab_size"] * settings["hidden_size"]
    assert models.read_bytes(settings, "bf16") == 2 * (whole - spared)
    if name != "tiny":  # in 8 bits, and in 4.25 with a head of 8
        head = settings["vocab_size"] * settings["hidden_size"]
        four = (whole - spared - head) * 17 / 32 + head
        assert models.read_bytes(settings, "int8") == pytest.approx(whole - spared, rel=1e-3)
        assert models.read_bytes(settings, "int4") == pytest.approx(four, rel=1e-3)


def test_sizes_are_the_published_ones() -> None:
    billions = {name: models.weight_bytes(one, 1) / 1e9
                for name, one in models.SHAPES.items()}  # fmt: skip
    assert billions["qwen2.5-coder-7b"] == pytest.approx(7.62, abs=0.01)
    assert billions["qwen2.5-coder-14b"] == pytest.approx(14.77, abs=0.01)
    assert billions["qwen2.5-coder-32b"] == pytest.approx(32.76, abs=0.01)
    assert billions["llama-2-7b"] == pytest.approx(6.74, abs=0.01)
    assert billions["qwen2.5-coder-1.5b"] == pytest.approx(1.54, abs=0.01)
    assert billions["qwen2.5-coder-0.5b"] == pytest.approx(0.494, abs=0.001)
    assert models.cache_bytes(models.SHAPES["llama-2-7b"], 1, 2) == 512 << 10


# -- recorded edits --------------------------------------------------------------------------------


def test_the_sample_is_of_files_and_of_selections(recorded: gpu_edits.RecordedEdits) -> None:
    kinds = [one.kind for one in recorded.answers]
    assert kinds.count("file") >= 4 and kinds.count("hunk") >= 4
    for one in recorded.answers:
        assert len(one.prompt) + len(one.output) < 4096, "Llama-2 could not write it"
    texts = [recorded.decode(one.output) for one in recorded.answers]
    edits = (ROOT / "bench" / "replay" / "sample_edits.jsonl").read_text("utf-8").splitlines()
    after = [json.loads(line)["after"] for line in edits]
    assert all(any(text in whole for whole in after) for text in texts)


def test_ids_are_the_tokenizers_own_if_the_vocabulary_is_large_enough() -> None:
    record = gpu_edits.read(gpu_edits.SAMPLE)
    large, small = (gpu_edits.load(record, vocab) for vocab in (152064, 4096))
    for one, other in zip(large.answers, small.answers, strict=True):
        assert one.output == [record["ids"][n] for n in other.output]
        assert large.decode(one.output) == small.decode(other.output)
    with pytest.raises(ValueError, match="fewer edits"):
        gpu_edits.load(record, 100)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 9)), max_size=10),
       st.lists(st.integers(0, 2), min_size=1, max_size=6))  # fmt: skip
def test_rows_that_agree_are_those_that_are_accepted(
    nodes: list[tuple[int, int]], expected: list[int]
) -> None:
    from engine.sampling.verify import accept

    draft = Draft()
    for n, (token, parent) in enumerate(nodes):
        draft.add(token, min(parent, n - 1), 1.0, "test")
    rows, tokens = gpu_edits.agreeing_rows(draft, expected)
    chosen = dict(zip(rows, tokens, strict=True))
    path, last = accept(draft, lambda row, depth: chosen.get(row, -1))
    end = len(path) == len(expected)  # the draft went on to the end of what is recorded
    assert [draft.tokens[n] for n in path] == expected[: len(path)]
    assert last == (-1 if end else expected[len(path)])


def test_every_method_writes_the_recorded_text(
    target: Any, theirs: Any, recorded: gpu_edits.RecordedEdits
) -> None:
    """`_play` and `ForcedTransformers` raise where it is another one."""
    ours = ForcedDraftline(target, recorded)
    answer = next(one for one in recorded.answers if one.kind == "hunk")
    plain, fast = ours.plain(answer), ours.draftline(answer)
    assert plain.tokens == fast.tokens == len(answer.output)
    assert plain.passes == len(answer.output) > 1.5 * fast.passes
    part = answer.from_middle(32)
    assert part.prompt == answer.prompt + answer.output[: (len(answer.output) - 32) // 2]
    one, several = ForcedTransformers(theirs)(part), ForcedTransformers(theirs, lookup=True)(part)
    assert one.passes == one.tokens == 31
    static = ForcedTransformers(theirs, capacity=4096)  # under torch.compile on a card
    assert static(part).tokens == static(part).passes == 31
    assert several.passes < several.tokens, "prompt lookup finds something in a hunk"


def test_a_different_text_is_an_error(target: Any, recorded: gpu_edits.RecordedEdits) -> None:
    answer = recorded.answers[-1].from_middle(20)
    ending = replace(recorded, eos=frozenset({answer.output[9]}))
    with pytest.raises(RuntimeError, match="differs from the recorded"):
        ForcedDraftline(target, ending).plain(answer)


# -- steps -----------------------------------------------------------------------------------------


def test_a_step_leaves_the_cache_as_it_was(target: Any) -> None:
    steps.clear(target)
    steps.place_at(target, 100, 16)
    before = target.sequence.cache[0][..., :100, :].clone()
    for _ in range(3):
        steps.step(target, steps.draft_of(16), 100)
    assert len(target.tokens) == 100
    assert torch.equal(target.sequence.cache[0][..., :100, :], before)


def test_the_floor_is_weights_and_live_cache(target: Any) -> None:
    """Counted from the tensors themselves."""
    steps.clear(target)
    steps.place_at(target, 299, 1)
    cache = target.sequence.cache[0][..., :300, :].nbytes
    weights = 4 * sum(p.numel() for p in models.random_hf(TINY, CPU, torch.float32).parameters())
    assert steps.floor_ms(TINY, target, 300, 1.0) == pytest.approx((weights + cache) / 1e6)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12))
def test_covered_time_is_counted_once(spans: list[tuple[int, int]]) -> None:
    points = {n for start, length in spans for n in range(start, start + length)}
    assert steps.union_length([(a, a + n) for a, n in spans]) == len(points)


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("_attend", "attention"),
        ("void flash::flash_fwd_kernel<...>", "attention"),
        ("nvjet_tst_64x8_64x16_1x1_v_bz_TNT", "matmuls"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "matmuls"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16>", "matmuls"),
        ("_product", "matmuls"),
        ("_add_norm", "norms_turns_gates"),
        ("void at::native::reduce_kernel<512, 1, ArgMaxOps<float>>", "choices"),
        ("_top_parts", "choices"),
        ("_top_merged", "choices"),
        ("void at::native::indexSelectSmallIndex<c10::BFloat16, long, unsigned int>", "lookups"),
        ("void at::native::vectorized_gather_kernel<16, long>", "lookups"),
        ("Memcpy HtoD (Pinned -> Device)", "transfers"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "other"),
    ],
)
def test_kernels_by_part(kernel: str, part: str) -> None:
    assert steps.part_of(kernel) == part


def test_differences_count_bits_and_flips() -> None:
    alone = torch.tensor([[1.0, 0.0], [1.0, 0.999], [9.0, 0.0]])
    together = torch.tensor([[1.0, 0.0], [0.999, 1.0], [0.0, 9.0]])
    found = exact.differences(alone, together)
    assert found == {"positions": 3, "same_bits": 1, "flips": 2, "flips_beyond_ties": 1}


def test_rows_are_equal_in_every_bucket_on_a_cpu(target: Any) -> None:
    alone = exact.logits_of(target, 1)
    for bucket in (8, 64):
        found = exact.differences(alone, exact.logits_of(target, bucket))
        assert found["same_bits"] == found["positions"] == 64 and found["flips"] == 0


# -- what is said ----------------------------------------------------------------------------------


def test_ratios_are_of_edits_that_both_had() -> None:
    def ran(seconds: float) -> ForcedRun:
        return ForcedRun(100, 50, seconds)

    runs = {
        ("plain", "file", "a", 0): ran(4.0),
        ("plain", "file", "a", 1): ran(2.0),
        ("draftline", "file", "a", 0): ran(1.0),
        ("draftline", "file", "a", 1): ran(0.5),
        ("draftline", "file", "b", 0): ran(0.5),
    }
    assert run.speed_and_ratio(runs, "plain") == {"tokens_per_s": 33.33, "ratio_to_plain": 1.0}
    assert run.speed_and_ratio(runs, "draftline") == {"tokens_per_s": 150.0, "ratio_to_plain": 4.0}
    assert run.speed_and_ratio(runs, "hf") is None


def test_a_memory_shortage_is_reported_with_numbers() -> None:
    assert models.free_bytes(CPU) is None
    assert models.memory_shortage("it takes", 10**15, None) is None
    assert models.memory_shortage("it takes", 10**9, 2 * 10**9) is None
    said = models.memory_shortage("it takes", 15 * 10**9, 2 * 10**9)
    assert said == "it takes 15.0 GB, 2.0 GB are free"


def test_a_case_that_fails_is_left_out() -> None:
    one = run.GpuBench(gpu.arguments(["--device", "cpu"]))
    with one.case("this"):
        raise torch.OutOfMemoryError("tried to allocate 3 GiB")
    assert one.left_out == ["this: tried to allocate 3 GiB"] and not one.failed
    with one.case("that"):
        raise KeyError("x")
    assert one.failed and one.left_out[1].startswith("that: FAILED, KeyError")
    one.options.budget_s = -1
    one.allow(1)
    assert one.late


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--shapes", "huge"], "huge: choose from"),
        (["--buckets", "0"], "write numbers above 0"),
        (["--contexts", "64"], "larger than every bucket"),
        (["--repeats", "0"], "--repeats: must be 1 or more"),
        (["--nodes", "256"], "--nodes: must be 255 or less"),
        (["--buckets", "256"], "--nodes 127 have 128 rows at most"),
        (["--buckets", "128", "--dtype", "fp8"], "--nodes 48 have 64 rows at most"),
        (["--only", "words"], "words: choose from steps, parts, edits"),
    ],
)
def test_bad_options_are_named(
    options: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        gpu.arguments(options)
    assert names in capsys.readouterr().err


@pytest.mark.parametrize(("nodes", "widest"), [("9", 64), ("63", 64), ("64", 128), ("255", 256)])
def test_passes_are_as_wide_as_the_budget_needs(nodes: str, widest: int) -> None:
    options = gpu.arguments(["--nodes", nodes])
    assert options.buckets == [rows for rows in BUCKETS if rows <= widest]


def test_the_time_between_passes_is_measured_on_a_stub_card(
    recorded: gpu_edits.RecordedEdits,
) -> None:
    """Nothing is run, the recorded texts are written, and the parts add up."""
    target = models.random_target("tiny", TINY, host.config(20))
    short = replace(recorded, answers=[recorded.answers[6].from_middle(40)])
    found = host.host_us(target, short, 20)
    assert found["steps"] <= 40 and found["tokens_per_step"] > 1
    assert 0 < found["nodes_per_step"] <= 20 == found["budget"]
    assert all(found[part] >= 0 for part in host.PARTS)
    assert found["host_us"] > 0


# -- the law -------------------------------------------------------------------------------------


def test_drafts_change_no_text_and_are_accepted(target: Any) -> None:
    lines = [*law.texts(target)]
    assert len(lines) == 3 * 5 and all(one["differs_at"] is None for one in lines)
    greedy = {one["draft"]: one["passes"] for one in lines if one["request"] == "greedy"}
    assert greedy.pop("none") == law.WRITTEN and max(greedy.values()) < law.WRITTEN / 3


def test_a_text_that_drafts_change_is_found(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a card whose rows depend on each other would."""
    plain, written = law.write, []

    def flipped(*given: Any) -> tuple[list[int], int]:
        text, passes = plain(*given)
        written.append(text)
        return (text if len(written) % 5 else [*text[:10], -1, *text[11:]]), passes

    monkeypatch.setattr(law, "write", flipped)
    monkeypatch.setattr(law, "WRITTEN", 16)
    assert {one["differs_at"] for one in law.texts(target)} == {None, 10}


def test_logits_beside_those_of_transformers(target: Any, theirs: Any) -> None:
    for one in law.compare_logits(target, theirs):
        assert one["error"] < 1e-3 and one["same_choice"] == 1.0


# -- a peer, experts, kernels ahead of time ------------------------------------------------------


def test_the_peer_writes_what_transformers_writes() -> None:
    untied = TINY | {"tie_word_embeddings": False}
    one = peer.Peer(untied, CPU, 64, torch.float32)
    theirs = models.random_hf(untied, CPU, torch.float32)
    ids = [7]
    one.token.fill_(7)
    for _ in range(20):
        one.step()
        ids.append(int(one.token))
    expected = theirs.generate(torch.tensor([[7]]), max_new_tokens=20, do_sample=False)
    assert ids == expected[0].tolist() and len(set(ids)) > 3


def test_steps_of_experts_grow_the_cache_and_leave_it() -> None:
    one = experts.model(experts.SMALL, ONE)
    assert len(experts.growing(one)) == experts.GROWN
    assert len(one.tokens) == experts.CACHED + experts.GROWN
    (line,) = experts.measure(one, experts.SMALL, 10.0)
    assert line["layers"] == 2 and all(line[f"rows_{rows}_ms"] > 0 for rows in experts.ROWS)


def test_bytes_of_experts_that_rows_choose() -> None:
    """Qwen3-30B-A3B's: a row reads 8 of 128 experts of a layer, many rows nearly all."""
    layers, expert = 4, 3 * 2048 * 768 * 2
    one, many = (experts.read_bytes(experts.LARGE, rows) for rows in (1, 64))
    assert many - one == pytest.approx(
        layers * expert * (128 * (1 - (15 / 16) ** 64) - 8), rel=1e-6
    )
    assert one == pytest.approx(2 * 151936 * 2048 + layers * (8 * expert + 2 * 19e6), rel=0.02)


def test_what_is_to_be_compiled_is_read(tmp_path: Path) -> None:
    one = compile_ahead.wanted("qwen2.5-coder-0.5b:int4:exact:256")
    assert (one.format, one.exact, one.rows) == ("int4", True, 256)
    assert one.settings["num_hidden_layers"] == 1
    assert compile_ahead.wanted("tiny:bf16").rows == 64
    own = tmp_path / "config.json"
    own.write_text(json.dumps(TINY), "utf-8")
    assert compile_ahead.wanted(f"{own}:f32").settings["hidden_size"] == 64


@pytest.mark.parametrize(
    "text", ["tiny", "tiny:bf17", "tiny:bf16:100", "tiny:bf16:f32", "huge:bf16"]
)
def test_what_cannot_be_compiled_is_named(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "unused")
    with pytest.raises(SystemExit):
        compile_ahead.main([text])
    assert text.split(":")[0] in capsys.readouterr().err


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(models.SHAPES))
def test_products_are_those_of_the_layers(name: str) -> None:
    """All weights of a layer but the norms and biases, each once."""
    settings = models.SHAPES[name]
    shapes = models.shapes(settings)
    layer = sum(
        prod(shape)
        for name, shape in shapes.items()
        if name.startswith("model.layers.0.") and len(shape) == 2
    )
    assert sum(prod(shape) for shape in products.matrices(settings).values()) == layer


def test_a_product_is_measured_by_its_rows() -> None:
    """On a CPU only torch's own; a row's bits are the same there."""
    assert list(products.makers(CPU)) == ["bf16"]
    found = [*products.measure("bf16", (96, 64), products.makers(CPU)["bf16"], CPU)]
    assert [one["rows"] for one in found] == [*products.ROWS]
    assert all(one["us"] > 0 and one["same_bits"] for one in found)


def test_results_that_are_near_are_told_from_others() -> None:
    expected = torch.ones(3, 4)
    assert products.near(expected * 1.01, expected)
    assert not products.near(expected * 1.05, expected) and not products.near(-expected, expected)
