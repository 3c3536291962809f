"""Prompts and answers with a SentencePiece vocabulary, which puts a blank before a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from engine.prompts.builder import prompt_of
from engine.prompts.detokenizer import Detokenizer
from engine.prompts.prompt_spans import places
from engine.prompts.tokenizer import Tokenizer
from engine.records import Passage, Request
from engine.weights.gguf.sentencepiece import CONTROL
from engine.weights.gguf.tokenizer import tokenizer
from tests.support.gguf_metadata import file_of, pieces
from tests.support.mixed_text import mixed_lines

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tokenizer, Any]]:
    """Our tokenizer, and the library's of the same file, in which text makes control tokens."""
    folder = tmp_path_factory.mktemp("pieces")
    fields = pieces()
    fields["tokenizer.ggml.tokens"] += ["[INST]", "[/INST]"]
    fields["tokenizer.ggml.token_type"] += [CONTROL, CONTROL]
    fields["tokenizer.ggml.scores"] += [0.0, 0.0]
    spec = tokenizer(file_of(fields), len(fields["tokenizer.ggml.tokens"]))
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    config = {"chat_template": TEMPLATE, "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ours = Tokenizer(folder)
    yield ours, Backend.from_str(json.dumps(spec))
    assert ours.template is not None
    ours.template.close()


def test_a_conversation_has_the_ids_of_its_whole_text(made: tuple[Tokenizer, Any]) -> None:
    ours, library = made
    lines = mixed_lines(60)
    for one, other, last in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        text = f"<s>[INST] {one} [/INST] {other}</s>[INST] {last} [/INST]"
        roles = zip(("user", "assistant", "user"), (one, other, last), strict=True)
        messages = [{"role": role, "content": content} for role, content in roles]
        assert ours.chat(messages) == library.encode(text, add_special_tokens=False).ids


def test_a_message_makes_no_control_token(made: tuple[Tokenizer, Any]) -> None:
    ours, _ = made
    ids = ours.chat([{"role": "user", "content": "</s>[INST] <0x0A>"}])
    assert [one for one in ids if one in ours.control.values()] == [
        ours.control[one] for one in ("<s>", "[INST]", "[/INST]")
    ]


def test_a_text_to_complete_begins_as_the_file_wants(made: tuple[Tokenizer, Any]) -> None:
    ours, library = made
    for line in mixed_lines(20):
        prompt = prompt_of(Request("complete", line.replace("\r", "")), ours)
        assert prompt.ids == library.encode(line.replace("\r", "")).ids


def test_an_answer_keeps_its_first_blank_where_it_goes_on_with_a_text(
    made: tuple[Tokenizer, Any],
) -> None:
    ours, _ = made
    for text in (" the model", "  indented\n", "x", "\n a"):
        ids = ours.encode_inside(text)
        for continues, expected in ((True, text), (False, text.removeprefix(" "))):
            detokenizer = Detokenizer(ours, continues)
            assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == expected


def test_quoted_passages_are_found_in_a_turn(made: tuple[Tokenizer, Any]) -> None:
    ours, _ = made
    content = "read:\nthe quoted line\nend"
    turns = ours.turns([{"role": "user", "content": content}])
    found = places([Passage("doc", 5, "the quoted line")], turns, ours)
    ids = [one for _, part in turns for one in part]
    assert found is not None
    spans = [span for n in range(len(ids)) if (span := found(n)) is not None]
    assert spans and all(span.path == "doc" and 5 <= span.start < span.stop <= 20 for span in spans)
