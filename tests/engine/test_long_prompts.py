"""Long texts are bounded without tokenizing, tokenized in pieces to the same ids, and stopped."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.edits import plain
from engine.prompts import builder, text_pieces
from engine.prompts import tokenizer as tokenizer_module
from engine.prompts.builder import longest_run, prompt_of
from engine.prompts.prompt_encoder import Cancelled, PromptEncoder
from engine.prompts.token_bounds import NFC_SHRINKAGE
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request, RequestError
from engine.weights import locate

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TRAINING = ["return left + right\n    self.x = 'é'\r\n\t\tit's 12 o'clock  ok\n\n\n"] * 9
WORDS = [
    "a",
    "1",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "it's",
    "left",
    "é",
    "e\u0301",
    "\u212b",
    "+",
    "```",
]
texts = st.lists(st.sampled_from(WORDS), max_size=60).map("".join) | st.text(max_size=40)


def byte_level(kind: str) -> Any:
    """A trained byte-level tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    splits = kind in ("gpt2", "digits")
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits)]
    if kind == "qwen2":
        steps.insert(0, pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"))
    if kind == "digits":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    if kind == "qwen2":
        made.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    made.train_from_iterator(TRAINING, trainer)
    return made


def sentencepiece() -> Any:
    """A tokenizer with bytes for what is not in its vocabulary, as Llama 2's."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", "l", "e", "le", "▁le", "é"]
    vocabulary = {name: number for number, name in enumerate(["<unk>", *names])}
    merges = [("l", "e"), ("▁", "le")]
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    return made


def incomplete() -> Any:
    """A tokenizer that drops what is not in its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE({"a": 0, "l": 1, "e": 2, "le": 3}, [("l", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def words() -> Any:
    """A tokenizer of another kind, of which nothing is known without tokenizing."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"left": 0, "a": 1, "<unk>": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


KINDS: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: byte_level(kind) for kind in ("gpt2", "qwen2", "digits", "whole")},  # type: ignore[misc]
    "sentencepiece": sentencepiece,
    "incomplete": incomplete,
    "words": words,
}
CUT = {"gpt2", "qwen2", "digits", "incomplete"}  # kinds whose texts can be cut


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    made = {}
    for kind, make in KINDS.items():
        folder = tmp_path_factory.mktemp(kind)
        make().save(str(folder / "tokenizer.json"))
        made[kind] = Tokenizer(folder)
    return made


@contextlib.contextmanager
def small_pieces() -> Iterator[None]:
    """Pieces of a few characters."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (text_pieces, tokenizer_module):
            patch.setattr(module, "PIECE_CHARS", 4)
        patch.setattr(tokenizer_module, "SHORT_CHARS", 2)
        yield


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_pieces_have_the_ids_of_the_whole_text(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    with small_pieces():
        assert tokenizer.encode(text) == ids
        assert [one for part in tokenizer.encode_in_pieces(text) for one in part] == ids
        assert "".join(text_pieces.pieces(text)) == text
    assert tokenizer.encode_with_offsets(text)[0].tolist() == ids


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_a_text_has_no_fewer_tokens_than_its_bytes_allow(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = tokenizers[kind]
    fewest = tokenizer.fewest_tokens(text)
    assert fewest <= len(tokenizer.encode(text))
    if kind in ("incomplete", "words"):
        assert tokenizer.fewest_tokens("\u00e9 \n" * 99) == 0, "these may be dropped"
    else:
        assert tokenizer.fewest_tokens("x" * 5000) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_cut_where_tokenizers_split_them(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    assert tokenizers[kind]._may_cut == (kind in CUT)
    text = "def f(x):\n    return 'a b'\n" * 2000
    parts = list(tokenizers[kind].encode_in_pieces(text))
    assert len(parts) == (len(list(text_pieces.pieces(text))) if kind in CUT else 1)
    assert max(map(len, text_pieces.pieces(text))) < text_pieces.PIECE_CHARS + 99


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("smollm2-135m", marks=pytest.mark.model),
        pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.full),
    ],
)
def test_real_vocabularies_are_bounded_and_cut(model: str) -> None:
    tokenizer = Tokenizer(locate(model))
    sources = sorted(Path(__file__).parents[2].glob("engine/*.py"))
    text = "".join(file.read_text("utf-8") for file in sources)
    for long in (text, text.replace("\n", "\r\n"), "e\u0301\u4e2d \U0001f60b1 " * 9000):
        ids = tokenizer.backend.encode(long, add_special_tokens=False).ids
        parts = list(tokenizer.encode_in_pieces(long))
        assert [one for part in parts for one in part] == ids
        assert len(parts) > len(long) // (2 * text_pieces.PIECE_CHARS)
        assert len(ids) // 40 < tokenizer.fewest_tokens(long) <= len(ids)


def test_composed_characters_are_not_much_shorter() -> None:
    """For every character: its longest canonically equivalent text. Of longer texts, each character
    of the NFC form stems from its own part."""
    longest: dict[str, int] = {}

    def size(char: str) -> int:
        return longest.get(char, len(char.encode()))

    points = [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
    for char in points:  # characters that NFC replaces by one other
        composed = unicodedata.normalize("NFC", char)
        if len(composed) == 1 and composed != char:
            longest[composed] = max(size(composed), len(char.encode()))
    for char in points:
        parts = unicodedata.normalize("NFD", char)
        if unicodedata.normalize("NFC", char) == char:
            most = max(size(char), sum(map(size, parts)))
            assert most <= NFC_SHRINKAGE * len(char.encode()), hex(ord(char))


def test_other_threads_run_while_a_long_text_is_tokenized(
    tokenizers: dict[str, Tokenizer],
) -> None:
    """With an endless switch interval another thread runs only when the GIL is released."""
    tokenizer, text = tokenizers["gpt2"], "return left + right\n" * 2000
    begin, ran = threading.Event(), threading.Event()

    def run() -> None:
        begin.wait()
        ran.set()

    thread = threading.Thread(target=run)
    before = sys.getswitchinterval()
    thread.start()
    sys.setswitchinterval(1000)
    try:
        begin.set()
        for _ in range(1000):
            tokenizer.encode(text)
            if ran.is_set():
                break
        assert ran.is_set()
    finally:
        sys.setswitchinterval(before)
        begin.set()
        thread.join()


# -- prompts -----------------------------------------------------------------------------------


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each piece of a text had, in order."""
    counts: list[int] = []
    whole = Tokenizer.encode_in_pieces

    def counted(self: Tokenizer, text: str) -> Iterator[list[int]]:
        for ids in whole(self, text):
            counts.append(len(ids))
            yield ids

    monkeypatch.setattr(Tokenizer, "encode_in_pieces", counted)
    return counts


LINE = "return left + right\n"
MANY = ({"role": "user", "content": ""},) * 1001


@pytest.mark.parametrize(
    "request_",
    [
        Request("complete", LINE * 9000),
        Request("chat", messages=({"role": "user", "content": LINE * 9000},)),
        Request("chat", messages=MANY),
        Request("edit", LINE * 9000, instruction="i"),
        Request("edit", "x", instruction=LINE * 9000),
        Request("edit", "x" + "`" * 90_000, selection=(0, 1), instruction="i"),
    ],
    ids=lambda request: f"{request.kind}",
)
def test_what_cannot_fit_is_not_tokenized(
    tiny: Any, tokenized: list[int], request_: Request
) -> None:
    tokenizer = Tokenizer(tiny("llama"))
    with pytest.raises(RequestError, match=r"at least \d+ tokens, the model's context is 1000: "):
        prompt_of(request_, tokenizer, 1000)
    assert sum(tokenized) < 200  # of the other texts, and the template's


def test_a_prompt_is_tokenized_up_to_the_context(
    tokenizers: dict[str, Tokenizer], tokenized: list[int]
) -> None:
    tokenizer, text = tokenizers["gpt2"], LINE * 9000
    whole, least = len(tokenizer.encode(text)), tokenizer.fewest_tokens(text)
    assert least < whole * 4 // 5
    tokenized.clear()
    with pytest.raises(RequestError):
        prompt_of(Request("complete", text), tokenizer, whole * 4 // 5)
    assert whole * 4 // 5 < sum(tokenized) < whole * 9 // 10 + 5000
    assert len(prompt_of(Request("complete", text), tokenizer, whole).ids) == whole


def test_a_cancelled_prompt_is_tokenized_no_further(
    tokenizers: dict[str, Tokenizer], tokenized: list[int]
) -> None:
    tokenizer = tokenizers["gpt2"]
    with pytest.raises(Cancelled):
        prompt_of(Request("complete", LINE * 9000), tokenizer, None, lambda: len(tokenized) == 3)
    assert len(tokenized) == 3


def test_the_tokens_of_all_texts_count(tokenizers: dict[str, Tokenizer]) -> None:
    encoder = PromptEncoder(tokenizers["gpt2"], context=10)
    one = encoder.encode("left")
    assert one == tokenizers["gpt2"].encode("left")
    with pytest.raises(RequestError, match="the prompt has at least 1"):
        for _ in range(11):
            encoder.encode("left")
    assert encoder.tokens <= 10 + len(one)


def test_predictions_are_cut(monkeypatch: pytest.MonkeyPatch, tiny: Any) -> None:
    monkeypatch.setattr(builder, "MAX_PREDICTION_CHARS", 7)
    tokenizer = Tokenizer(tiny("llama"))
    predictions = ("", "ab\r\n", "\ufeffcdefgh", "ij")
    request = Request("complete", "x", predictions=predictions)
    found = [tokenizer.decode(ids) for ids in prompt_of(request, tokenizer).predictions]
    assert found == ["ab\n", plain("\ufeffcd")]
    edit = Request("edit", "x", instruction="i", predictions=("new",))
    shown = [tokenizer.decode(ids) for ids in prompt_of(edit, tokenizer).predictions]
    assert shown == ["x\n```", "new"], "the edited text comes first"


@given(st.text("`a", max_size=30))
def test_the_longest_run(text: str) -> None:
    runs = [len(run) for run in text.split("a")]
    assert longest_run(text, "`") == max(runs)


def test_long_runs_are_found_quickly() -> None:
    assert longest_run("`" * 1_000_000 + "a" + "``a" * 1_000_000, "`") == 1_000_000


def test_a_vocabulary_with_tokens_of_several_words_is_not_cut(tmp_path: Path) -> None:
    byte_level("gpt2").save(str(tmp_path / "tokenizer.json"))
    spec = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    spec["model"]["vocab"]["leftĠright"] = len(spec["model"]["vocab"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    assert not Tokenizer(tmp_path)._may_cut
