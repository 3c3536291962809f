"""Hostile model folders and GGUF files: each loads and answers, or is refused in one line that
names the file and what is wrong in it, before it takes much memory."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.config import Config
from engine.model.families import read_config
from engine.model.families.tensors import shapes_of
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts import chat_template
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, RequestError
from engine.weights import WeightsError, locate
from engine.weights.gguf.gguf_file import read_gguf
from tests.support.tiny_gguf import write_folder, write_gguf

CHAT = [{"role": "user", "content": "def add(a, b):\n    return a + b\n"}]
MAX_GROWTH_KB = 300 << 10  # of the largest resident memory, through one attack
REFUSALS = (WeightsError, UnsupportedModel, RequestError)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model folder, to be copied and spoilt. Answers once, so that what torch takes for
    its first pass is no growth of an attack."""
    folder = write_folder(tmp_path_factory.mktemp("sound") / "model", "qwen2")
    assert outcome(folder) == ""
    return folder


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be spoilt."""
    shutil.copytree(model, tmp_path / "model")
    return tmp_path / "model"


def outcome(folder: Path, dtype: str = "f32") -> str:
    """The line that refuses the folder; "" where it loads, writes a conversation and runs."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        tokenizer = Tokenizer(folder)
        target = TorchTarget(folder, Config(device="cpu", dtype=dtype, threads=1))
        run(target, tokenizer.chat(CHAT))
    except REFUSALS as error:
        return one_line(error)
    finally:
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KB
    return ""


def run(target: TorchTarget, ids: list[int]) -> None:
    """Read a prompt and decode a token, where the context has room."""
    if ids and len(ids) + 1 < target.context:
        target.begin(ids, 1)
        for _ in target.prefill(ids, 1):
            pass
        target.forward(ids[-1], Draft())


def one_line(error: Exception) -> str:
    """The message of a refusal, which must be one printable line."""
    assert str(error).isprintable() and 20 < len(str(error)) < 1200, str(error)
    return str(error)


def change(file: Path, **fields: Any) -> None:
    """Replace fields of a JSON file; NaN and Infinity are written as Python's json does."""
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


VALUES = (None, True, 0, -1, 1 << 40, 1e308, math.nan, "", "x" * 999, [], [[]], {}, {"a": {}})

# -- config.json ---------------------------------------------------------------------------------

FIELDS: list[tuple[str, Any]] = [
    *(("num_hidden_layers", value) for value in (10**9, -1, 0, 1.5, "2", True, [2], math.nan, 3)),
    *(("hidden_size", value) for value in (1 << 40, -64, 0, math.nan, math.inf, 32)),
    *(("intermediate_size", value) for value in (1 << 50, 0, {"a": 1})),
    *(("num_attention_heads", value) for value in (0, 3, 10**9, "4")),
    *(("num_key_value_heads", value) for value in (3, -2)),
    *(("head_dim", value) for value in (15, 1 << 30, 0)),
    *(("vocab_size", value) for value in (0, 1 << 31, True)),
    *(("max_position_embeddings", value) for value in (-1, 0, 10**12, 1 << 24, 1e300)),
    *(("rms_norm_eps", value) for value in (math.nan, math.inf, -1.0, "small")),
    *(("rope_parameters", value) for value in ([], "default", 7)),
    *(("model_type", value) for value in (["llama"], 7, True)),
    *(("hidden_act", value) for value in ([], {})),
    *(("eos_token_id", value) for value in (-5, "end", [[1]], 1 << 40, [True])),
    *(("layer_types", value) for value in ([[]], {}, "full_attention")),
    *(("embedding_multiplier", value) for value in (0, math.nan, [1.0])),
    *(("logits_scaling", value) for value in (0.0, -1, math.inf)),
    *(("no_rope_layers", value) for value in ([2], [[1]], {"0": 1})),
    ("no_rope_layer_interval", 0),
    ("mlp_bias", 1),
    ("tie_word_embeddings", "yes"),
    ("sliding_window", "wide"),
    ("quantization_config", []),
    ("rope_scaling", []),
    ("num_experts", 10**9),
    ("text_config", [1]),
]


def test_a_field_that_no_model_can_have_is_named(folder: Path) -> None:
    sound = (folder / "config.json").read_bytes()
    # Sizes that could be another model's are refused by the first tensor that has another shape.
    other = [("hidden_size", 32), ("num_hidden_layers", 3)]
    for field, value in FIELDS:
        (folder / "config.json").write_bytes(sound)
        change(folder / "config.json", **{field: value})
        message = outcome(folder)
        assert "config.json" in message, (field, value)
        assert f"'{field}'" in message or (field, value) in other, (field, value)


def test_a_nested_field_is_named_too(folder: Path) -> None:
    for theta in (0, -1.0, math.nan, math.inf, "big", []):
        changed(folder, rope_parameters={"rope_type": "default", "rope_theta": theta})
        assert "'rope_theta'" in outcome(folder), theta


LENGTHENED = {
    "linear": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
             "mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 1.2},
    "longrope": {"short_factor": [1.0] * 8, "long_factor": [1.0] * 8, "attention_factor": 1.2},
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        "llama3",
        *(pytest.param(one, marks=pytest.mark.full) for one in LENGTHENED if one != "llama3"),
    ],
)
def test_a_rotary_embedding_with_a_hostile_parameter_is_a_model_or_a_line(
    folder: Path, kind: str
) -> None:
    sound = {"rope_type": kind, **LENGTHENED[kind]}
    assert outcome(changed(folder, rope_parameters=sound)) == ""
    for name in LENGTHENED[kind]:
        for value in (*VALUES, 1e-300, 5e-324, [1e-300] * 8, 1e6, 1 << 24):
            changed(folder, rope_parameters=sound | {name: value}, rope_theta=1e12)
            outcome(folder)


def changed(folder: Path, **fields: Any) -> Path:
    change(folder / "config.json", **fields)
    return folder


@pytest.mark.parametrize("kind", ["gpt2", "phi", "no_such_model"])
def test_a_model_of_transformers_that_its_files_do_not_fill_is_not_made(
    folder: Path, kind: str
) -> None:
    sizes = {"n_embd": 8192, "n_layer": 64, "n_head": 64, "hidden_size": 8192, "head_dim": None}
    sizes |= {"num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 1 << 15}
    change(folder / "config.json", model_type=kind, architectures=None, **sizes)
    assert str(folder) in outcome(folder)


# -- files ---------------------------------------------------------------------------------------


def spoilt_files() -> dict[str, Callable[[Path], object]]:
    """Ways to spoil any file of a folder."""

    def outside(file: Path) -> None:
        place = file.parent.parent / f"outside-{file.name}"
        file.rename(place)
        file.symlink_to(place)

    def loop(file: Path) -> None:
        file.unlink()
        file.symlink_to(file.name)

    def pipe(file: Path) -> None:
        file.unlink()
        os.mkfifo(file)

    def directory(file: Path) -> None:
        file.unlink()
        file.mkdir()

    def sparse(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.truncate(1 << 38)

    return {
        "empty": lambda file: file.write_bytes(b""),
        "zeros": lambda file: file.write_bytes(bytes(4096)),
        "deep list": lambda file: file.write_bytes(b"[" * 200_000),
        "deep object": lambda file: file.write_bytes(b'{"a":' * 200_000),
        "many objects": lambda file: file.write_bytes(b'{"a":[' + b"{}," * 5_000_000 + b"{}]}"),
        "a list": lambda file: file.write_bytes(b"[]"),
        "not UTF-8": lambda file: file.write_bytes(b'{"\xff\xfe": 1}'),
        "long number": lambda file: file.write_bytes(b'{"a": ' + b"9" * 100_000 + b"}"),
        "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
        "outside": outside,
        "loop": loop,
        "pipe": pipe,
        "directory": directory,
        "sparse": sparse,
    }


FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
OPTIONAL = {"tokenizer_config.json"}  # what is not there is not read


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", sorted(spoilt_files()))
def test_a_file_that_is_none_is_refused_by_its_name(folder: Path, name: str, way: str) -> None:
    spoilt_files()[way](folder / name)
    message = outcome(folder)
    if name in OPTIONAL and way in {"loop", "pipe", "directory"}:
        assert message == ""
    else:
        assert name in message, message


# -- safetensors ---------------------------------------------------------------------------------


def header_of(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_header(file: Path, header: Any, data: bytes, size: int | None = None) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)


NAME = "model.layers.0.self_attn.q_proj.weight"
ENTRIES: dict[str, dict[str, Any]] = {
    "overlap": {"data_offsets": [0, 8192]},
    "beyond": {"data_offsets": [1 << 40, (1 << 40) + 8192]},
    "backwards": {"data_offsets": [8192, 0]},
    "negative": {"data_offsets": [-8192, 0]},
    "no pair": {"data_offsets": [1]},
    "not numbers": {"data_offsets": ["0", "8192"]},
    "unknown dtype": {"dtype": "X99"},
    "no dtype": {"dtype": ["BF16"]},
    "integers": {"dtype": "I16"},
    "other shape": {"shape": [32, 128]},
    "vector": {"shape": [4096]},
    "huge shape": {"shape": [1 << 40, 1 << 40]},
    "negative shape": {"shape": [-64, -64]},
    "text shape": {"shape": "64"},
    "no shape": {"shape": None},
}


@pytest.mark.parametrize("change_of", sorted(ENTRIES))
def test_a_safetensors_entry_that_lies_is_refused_by_its_name(folder: Path, change_of: str) -> None:
    header, data = header_of(folder / "model.safetensors")
    header[NAME] |= ENTRIES[change_of]
    write_header(folder / "model.safetensors", header, data)
    message = outcome(folder)
    assert NAME in message or "do not fill it" in message, message


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
def test_a_header_of_another_length_is_refused(folder: Path, size: int) -> None:
    file = folder / "model.safetensors"
    write_header(file, *header_of(file), size)
    assert "model.safetensors" in outcome(folder)


@pytest.mark.parametrize("entry", [None, [], 7, "x", {}, {"dtype": "BF16"}])
def test_a_header_with_other_entries_is_refused(folder: Path, entry: Any) -> None:
    file = folder / "model.safetensors"
    header, data = header_of(file)
    write_header(file, header | {"\x1b[31m\nred": entry}, data)
    assert "model.safetensors" in outcome(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    header, data = header_of(file)
    write_header(file, {f"{name}x" if name == NAME else name: one for name, one in header.items()},
                 data)  # fmt: skip
    assert NAME in outcome(folder)


def test_a_tensor_in_two_files_is_refused(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "second.safetensors")
    assert "in another file too" in outcome(folder)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/absolute.safetensors", "none", 7])
def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path, place: Any) -> None:
    shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {NAME: place}}))
    message = outcome(folder)
    assert "index.json" in message and "weight_map" in message


def test_files_of_the_hub_s_cache_are_links_that_are_followed(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    blobs = snapshot.parent.parent / "blobs"
    shutil.copytree(model, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    assert outcome(snapshot) == ""


# -- tokenizer.json ------------------------------------------------------------------------------

SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}


def nested(depth: int) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        one = {"type": "Sequence", "normalizers": [one]}
    return one


def replacing(text: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


TOKENIZERS: dict[str, dict[str, Any]] = {
    "no model": {"model": None},
    "a list of models": {"model": []},
    "no vocabulary": {"model": {"type": "BPE", "vocab": 7, "merges": []}},
    "negative id": {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
    "huge id": {"model": {"type": "BPE", "vocab": {"a": 1 << 31}, "merges": []}},
    "id beyond the model": {"model": {"type": "BPE", "vocab": {"a": 100_000}, "merges": []}},
    "unknown merge": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "z"]]}},
    "panic in a merge": {
        "model": {
            "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]],
            "continuing_subword_prefix": "prefix" * 40,
        }
    },
    "unigram": {"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0]]}},
    "unigram of numbers": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [1, 2]}},
    "unknown kind": {"model": {"type": "Tree", "vocab": {"a": 0}}},
    "added tokens": {"added_tokens": 7},
    "added token": {"added_tokens": [7]},
    "added token of no text": {"added_tokens": [{"id": 1, "content": ""}]},
    "added token beyond": {"added_tokens": [{"id": 1 << 40, "content": "x"}]},
    "many added tokens": {"added_tokens": [{"id": 1, "content": "x"}] * 100_000},
    "long added token": {"added_tokens": [{"id": 1, "content": "x" * (2 << 20)}]},
    "normalizer": {"normalizer": 7},
    "deep normalizer": {"normalizer": nested(400)},
    "growing normalizer": {"normalizer": replacing("a", "a" * 100)},
    "empty pattern": {"normalizer": replacing("", "x" * 1000)},
    "doubling normalizers": {
        "normalizer": {"type": "Sequence", "normalizers": [replacing("a", "aa")] * 40}
    },
    "no expression": {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "(a"}}},
    "endless expression": {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "(a+)+$"}}},
    "endless expression of blanks": {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "( +)+$"}}},
    "empty chunks": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "decoder": {"decoder": []},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_a_hostile_tokenizer_is_refused_by_its_file(folder: Path, name: str) -> None:
    change(folder / "tokenizer.json", **TOKENIZERS[name])
    assert "tokenizer.json" in outcome(folder)


def test_a_text_on_which_a_tokenizer_panics_is_refused(folder: Path) -> None:
    change(folder / "tokenizer.json", pre_tokenizer=SPLIT | {"pattern": {"Regex": "(z+)+$"}})
    tokenizer = Tokenizer(folder)
    text, words = "z" * 48 + "~", tokenizer.encode("ab")
    calls: list[Callable[[], object]] = [
        lambda: tokenizer.encode(text),
        lambda: tokenizer.encode(text + "a" * 10_000),
        lambda: tokenizer.encode_batch(["a", text]),
        lambda: tokenizer.encode_with_offsets(text),
        lambda: tokenizer.chat([{"role": "user", "content": text}]),
    ]
    for call in calls:
        with pytest.raises(RequestError) as caught:
            call()
        assert "tokenizer" in one_line(caught.value)
    assert tokenizer.encode("ab") == words


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template": 7},
        {"chat_template": ["x"] * 3 + [{"name": 1, "template": 2}], "bos_token": [1]},
        {"chat_template": "x" * (2 << 20)},
        {"bos_token": 7},
        {"eos_token": {"content": [1]}},
    ],
)
def test_a_hostile_tokenizer_config_is_refused_or_has_no_template(
    folder: Path, fields: dict[str, Any]
) -> None:
    change(folder / "tokenizer_config.json", **fields)
    message = outcome(folder)
    assert "tokenizer_config.json" in message or ("chat_template" in fields and not message)


# -- chat templates ------------------------------------------------------------------------------

ROUND = "{% for a in range(99999) %}"
ENDLESS = {  # run until their time is over
    "loops in loops": ROUND * 4 + "{% endfor %}" * 4,
    "power": "{{ 7 ** 99999999 }}",
    "large integers": "{{ (7 ** 9999999) ** 9 }}",
    "all pairs": "{% set l = range(99999)|list %}{% for a in l %}{{ '' if -1 in l }}{% endfor %}",
    "operators": "{{ 1" + "+1" * 100_000 + " }}",
    "many words": "{{ lipsum(n=9999999) }}",
    "text of a shared list": "{% set n = namespace(x=[1]) %}"
    "{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "shared lists": "{% set n = namespace(x=[1]) %}{% set m = namespace(x=[1]) %}"
    "{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% set m.x = [m.x, m.x] %}{% endfor %}"
    "{{ n.x == m.x }}",
}
LARGE = {  # stopped by the limits of memory, text or depth
    "multiplied": "{{ 'x' * 10**9 }}",
    "multiplied list": "{{ [1] * 10**10 }}",
    "padded": "{{ 'x'.ljust(10**10) }}",
    "centred": "{{ 'x'|center(10**10) }}",
    "formatted": "{{ '{:10000000000d}'.format(1) }}",
    "percent": "{{ '%01000000000d' % 1 }}",
    "doubled": "{% set n = namespace(x='xxxxxxxx') %}"
    "{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "replaced": "{{ ('x' * 50000).replace('x', 'y' * 50000) }}",
    "indented": "{{ 'a\n' * 9 | indent(10**9) }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "long text": ROUND + "0123456789{% endfor %}",
    "all messages again": "{% for a in range(50) %}{{ messages[0].content }}{% endfor %}",
    "a message that is not there": "\ue0007\ue001",
    "range": "{% for a in range(10**9) %}{% endfor %}",
    "macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "loop within itself": "{% for a in [messages] recursive %}{{ loop([messages]) }}{% endfor %}",
    "brackets": "{{ " + "(" * 50_000 + ")" * 50_000 + " }}",
    "blocks": "{% if 1 %}" * 50_000,
}
INTERNALS = {  # lead to Python's internals, or out of the process
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "by string": "{{ ''['__class__']['__base__'] }}",
    "by filter": "{{ (''|attr('__class__')).mro() }}",
    "by format": "{{ '{0.__class__.__base__}'.format('')[1000] }}",
    "by map": "{{ ([''] | map(attribute='__class__') | list)[0].mro() }}",
    "cycler": "{{ cycler.__init__.__globals__.os.system('touch escaped') }}",
    "globals": "{{ raise_exception.__globals__['sys'].exit() }}",
    "namespace": "{% set n = namespace(__class__=1) %}",
    "late namespace": "{% set n = namespace() %}{% set n._x = 1 %}",
    "an include": "{% include 'chat_template.jinja' %}",
    "an import": "{% import 'os' as os %}",
    "a change": "{{ messages.append(1) }}",
    "an undefined name": "{{ open('/etc/hostname').read() }}",
    "no template": "{% for %}",
    "an exception": "{{ raise_exception('\x1b[31m\nred') }}",
}
TEMPLATES = {**LARGE, **INTERNALS}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates get one second of CPU time at most, and maybe next to none: only for those that are
    refused in any case."""
    monkeypatch.setattr(chat_template, "MAX_CPU_SECONDS", 0)  # beyond the second that has begun


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "name",
    [*sorted(TEMPLATES), *(pytest.param(name, marks=pytest.mark.full) for name in sorted(ENDLESS))],
)
def test_a_hostile_template_costs_one_line(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "chat_template.jinja").write_text((TEMPLATES | ENDLESS)[name])
    tokenizer = Tokenizer(folder)
    for _ in range(2):  # what it did the first time does not help it the second
        with pytest.raises(RequestError) as caught:
            tokenizer.chat(CHAT)
        assert "chat template" in one_line(caught.value)
    assert not (tmp_path / "escaped").exists()


def test_after_a_template_ran_out_of_time_the_next_conversation_is_answered(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% set large = messages|length + 6 %}"  # a constant would be computed in any case
        "{% if messages[0].role == 'system' %}{{ large ** 99999999 }}{% endif %}"
        "{{ messages[0].content }}"
    )
    tokenizer = Tokenizer(folder)
    whole = tokenizer.chat(CHAT)
    assert whole == tokenizer.encode(CHAT[0]["content"])
    with pytest.raises(RequestError, match="seconds"):
        tokenizer.chat([{"role": "system", "content": ""}])
    assert tokenizer.chat(CHAT) == whole


# -- GGUF ----------------------------------------------------------------------------------------

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(one: Any) -> bytes:
    """A metadata value with its type."""
    if isinstance(one, Raw):
        return one.data
    if isinstance(one, bool):
        return struct.pack("<I?", BOOL, one)
    if isinstance(one, int):
        return struct.pack("<Ii", I32, one) if -1 << 31 <= one < 0 else struct.pack("<IQ", U64, one)
    if isinstance(one, float):
        return struct.pack("<If", F32, one)
    if isinstance(one, str):
        return struct.pack("<I", STRING) + string(one)
    values = [value(entry) for entry in one]
    kind = values[0][:4] if values else struct.pack("<I", U32)
    return struct.pack("<I", ARRAY) + kind + struct.pack("<Q", len(one)) + b"".join(
        entry[4:] for entry in values
    )  # fmt: skip


class Raw:
    """A metadata value as its bytes: type, then value."""

    def __init__(self, kind: int, data: bytes) -> None:
        self.data = struct.pack("<I", kind) + data


class File:
    """A GGUF as its parts, which can be changed one by one."""

    def __init__(self, path: Path) -> None:
        sound = read_gguf(path)
        self.fields = [(key, value(one)) for key, one in sound.fields.items()]
        start = min(one.start for one in sound.tensors.values())
        self.tensors = [
            (name, tuple(reversed(one.shape)), one.kind, one.start - start)
            for name, one in sound.tensors.items()
        ]
        self.data = sound.data[0][start:]
        self.counts: tuple[int, int] | None = None
        self.alignment = 32

    def set(self, key: str, one: Any) -> None:
        self.fields = [field for field in self.fields if field[0] != key] + [(key, value(one))]

    def write(self, path: Path) -> None:
        counts = self.counts or (len(self.tensors), len(self.fields))
        made = b"GGUF" + struct.pack("<IQQ", 3, *counts)
        made += b"".join(string(key) + one for key, one in self.fields)
        for name, shape, kind, offset in self.tensors:
            made += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            made += struct.pack("<IQ", kind, offset)
        made += bytes(-len(made) % self.alignment)
        path.write_bytes(made + self.data)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_gguf(path, "qwen2")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))


def refusal(path: Path) -> str:
    """The line that refuses a GGUF; "" where it is a model that runs."""
    try:
        folder = locate(str(path))
    except WeightsError as error:
        assert str(path) in str(error)
        return one_line(error)
    return outcome(folder, "auto")


@pytest.mark.usefixtures("home")
def test_the_parts_of_a_gguf_make_it_again(sound: Path, tmp_path: Path) -> None:
    File(sound).write(tmp_path / "m.gguf")
    assert refusal(tmp_path / "m.gguf") == ""


deep = struct.pack("<I", U32)
for _ in range(2000):
    deep = struct.pack("<IQ", ARRAY, 1) + deep  # an array of one array of one ...

GGUF_FIELDS: list[tuple[str, Any]] = [
    *(("general.alignment", one) for one in (0, -32, 3, 48, 1 << 40, 32.0, "32", [32], True)),
    *(("general.architecture", one) for one in (7, "\x1b[31m\n", ["qwen2"], "gpt9")),
    *(("qwen2.block_count", one) for one in (10**9, -2, 0, 2.0, "2", [2], 3)),
    *(("qwen2.embedding_length", one) for one in (1 << 40, 0, -64, math.nan, 32)),
    *(("qwen2.attention.head_count", one) for one in (0, -4, 3, 1 << 33, "4")),
    *(("qwen2.attention.head_count_kv", one) for one in (0, 3, [2], [2, 4])),
    *(("qwen2.attention.key_length", one) for one in (0, 15, 1 << 40)),
    *(("qwen2.context_length", one) for one in (0, -1, 1 << 40, "128")),
    *(("qwen2.feed_forward_length", one) for one in (0, 1 << 50, [96], [96, 64])),
    *(("qwen2.rope.freq_base", one) for one in (0.0, -1.0, math.nan, math.inf, "x")),
    *(("qwen2.attention.layer_norm_rms_epsilon", one) for one in (math.nan, -1.0, [1.0])),
    *(("qwen2.rope.scaling.type", one) for one in (7, [], "none of ours")),
    *(("qwen2.rope.scaling.factor", one) for one in (0.0, -1.0, math.nan, math.inf, "4")),
    *(("qwen2.rope.scaling.attn_factor", one) for one in (2.0, math.nan, "1")),
    *(("qwen2.attention.sliding_window", one) for one in (-1, 16, "wide")),
    *(("tokenizer.ggml.tokens", one) for one in ([], ["a", "a"], [1, 2], "abc", ["a"] * 5000)),
    *(("tokenizer.ggml.token_type", one) for one in ([], [1.0, 2.0], 3)),
    *(("tokenizer.ggml.merges", one) for one in (["a"], ["a b c"], ["no such"], [1], 7)),
    *(("tokenizer.ggml.model", one) for one in (1, "llama")),
    *(("tokenizer.ggml.pre", one) for one in ([], "no such")),
    ("tokenizer.ggml.eos_token_id", "end"),
    ("tokenizer.ggml.padding_token_id", [1]),
    ("tokenizer.chat_template", 7),
    ("deep", Raw(ARRAY, deep)),
    ("long array", Raw(ARRAY, struct.pack("<IQ", U32, (1 << 64) - 1))),
    ("long array of bytes", Raw(ARRAY, struct.pack("<IQ", BOOL, 1 << 31))),
    ("long array of arrays", Raw(ARRAY, struct.pack("<IQ", ARRAY, 1 << 62))),
    ("long string", Raw(STRING, struct.pack("<Q", (1 << 64) - 1))),
    ("unknown type", Raw(77, b"")),
    ("unknown entries", Raw(ARRAY, struct.pack("<IQ", 77, 1))),
    ("\x1b[31m\nred", Raw(77, b"")),
]  # fmt: skip


@pytest.mark.usefixtures("home")
def test_a_gguf_field_that_no_model_can_have_is_named(sound: Path, tmp_path: Path) -> None:
    for key, one in GGUF_FIELDS:
        file = File(sound)
        file.set(key, one)
        file.write(tmp_path / "m.gguf")
        message = refusal(tmp_path / "m.gguf")
        named = key in message or repr(key) in message
        # A size that could be another model's is refused by the first tensor of another shape.
        assert named or (message and one in (32, 3)) or "not supported" in message, (key, message)


def spoil_tensors() -> dict[str, Callable[[File], None]]:
    """Ways to spoil the list of tensors."""

    def first(file: File, **parts: Any) -> None:
        entry = dict(zip(("name", "shape", "kind", "offset"), file.tensors[0], strict=True)) | parts
        file.tensors[0] = (entry["name"], entry["shape"], entry["kind"], entry["offset"])

    return {
        "beyond": lambda file: first(file, offset=1 << 40),
        "beyond 64 bits": lambda file: first(file, offset=(1 << 64) - 32),
        "overlap": lambda file: first(file, offset=file.tensors[1][3]),
        "huge": lambda file: first(file, shape=(1 << 32, 1 << 32)),
        "empty": lambda file: first(file, shape=(64, 0)),
        "no shape": lambda file: first(file, shape=()),
        "five dimensions": lambda file: first(file, shape=(64, 1, 1, 1, 269)),
        "three dimensions": lambda file: first(file, shape=(64, 1, 269)),
        "odd rows": lambda file: first(file, shape=(63, 269)),
        "unknown kind": lambda file: first(file, kind=7777),
        "integers": lambda file: first(file, kind=26),
        "twice": lambda file: file.tensors.append(file.tensors[0]),
        "renamed": lambda file: first(file, name="\x1b[31m\nred"),
        "many tensors": lambda file: setattr(file, "counts", ((1 << 64) - 1, len(file.fields))),
        "many fields": lambda file: setattr(file, "counts", (1, (1 << 64) - 1)),
        "field twice": lambda file: file.fields.append(file.fields[0]),
        "no data": lambda file: setattr(file, "data", b""),
    }


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("way", sorted(spoil_tensors()))
def test_a_gguf_whose_tensors_are_not_there_is_refused(
    sound: Path, tmp_path: Path, way: str
) -> None:
    file = File(sound)
    spoil_tensors()[way](file)
    file.write(tmp_path / "m.gguf")
    assert refusal(tmp_path / "m.gguf")


# -- random damage -------------------------------------------------------------------------------

COUNTS = [30, pytest.param(1000, marks=pytest.mark.full)]


def damaged(data: bytes, chance: random.Random, header: int) -> bytes:
    """Bytes with a few changes, most of them in the first `header`, and sometimes cut."""
    bad = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(header if chance.random() < 0.9 else len(bad))
        bad[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if chance.random() < 0.1:
        del bad[chance.randrange(len(bad)) :]
    return bytes(bad)


def altered(one: Any, chance: random.Random) -> Any:
    """A JSON value in which one value, at any depth, is another or missing."""
    if isinstance(one, dict) and one and chance.random() < 0.9:
        key = chance.choice(sorted(one))
        rest = {name: entry for name, entry in one.items() if name != key}
        return rest if chance.random() < 0.1 else rest | {key: altered(one[key], chance)}
    if isinstance(one, list) and one and chance.random() < 0.9:
        at = chance.randrange(len(one))
        return [*one[:at], altered(one[at], chance), *one[at + 1 :]]
    return chance.choice(VALUES)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_gguf_is_a_model_or_a_line(sound: Path, tmp_path: Path, count: int) -> None:
    data = sound.read_bytes()
    header = min(one.start for one in read_gguf(sound).tensors.values())
    for seed in range(count):
        path = tmp_path / "m.gguf"
        path.write_bytes(damaged(data, random.Random(seed), header))
        refusal(path)


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_folder_is_a_model_or_a_line(model: Path, tmp_path: Path, count: int) -> None:
    for seed in range(count):
        chance, folder = random.Random(seed), tmp_path / "model"
        shutil.copytree(model, folder)
        file = folder / chance.choice((*FILES, "generation_config.json"))
        if file.suffix == ".json" and chance.random() < 0.8:
            file.write_text(json.dumps(altered(json.loads(file.read_text()), chance)))
        elif file.suffix != ".json" and chance.random() < 0.5:
            header, rest = header_of(file)
            write_header(file, altered(header, chance), rest)
        else:
            file.write_bytes(damaged(file.read_bytes(), chance, min(file.stat().st_size, 4000)))
        outcome(folder)
        shutil.rmtree(folder)


SHAPES: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama", "qwen2", "qwen3", "mistral", "granite", "smollm3"),
    "hidden_size": (1, 2, 7, 31, 32, 33, 50, 64),
    "intermediate_size": (1, 3, 32, 33, 100),
    "num_hidden_layers": (1, 2),
    "head_dim": (2, 4, 8, 10, 16, 34, 64, 512),
    "vocab_size": (1, 2, 5, 33, 257),
    "max_position_embeddings": (1, 2, 3, 17, 300),
    "rope_theta": (1e-3, 1.0, 1e12),
    "tie_word_embeddings": (False, True),
    "attention_bias": (False, True),
    "mlp_bias": (False, True),
    "no_rope_layer_interval": (1, 2),
}


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.full)])
def test_a_model_of_odd_sizes_runs_or_is_a_line(tmp_path: Path, count: int) -> None:
    """Its config and its tensors agree, so that it reaches the kernels."""
    for seed in range(count):
        chance = random.Random(seed)
        config = {name: chance.choice(values) for name, values in SHAPES.items()}
        kv_heads = chance.choice((1, 2, 3))
        heads = {"num_attention_heads": kv_heads * chance.choice((1, 2, 5))}
        config |= heads | {"num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6}
        (tmp_path / "config.json").write_text(json.dumps(config))
        shapes = shapes_of(read_config(config))
        kind = chance.choice((torch.float32, torch.bfloat16, torch.float16, torch.float64))
        made = {name: torch.randn(shape).to(kind) for name, shape in shapes.items()}
        save_file(made, tmp_path / "model.safetensors")
        dtype = chance.choice(("f32", "bf16", "q8"))
        try:
            target = TorchTarget(tmp_path, Config(device="cpu", dtype=dtype, threads=1))
        except REFUSALS as error:
            one_line(error)
            continue
        run(target, list(range(min(5, target.context, target.vocab) - 1)))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gpt2", "phi"])
def test_a_damaged_folder_of_transformers_is_a_model_or_a_line(
    tiny: Any, tmp_path: Path, kind: str
) -> None:
    for seed in range(100):
        chance, folder = random.Random(seed), tmp_path / "model"
        shutil.copytree(tiny(kind), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(altered(config, chance)))
        outcome(folder)
        shutil.rmtree(folder)
