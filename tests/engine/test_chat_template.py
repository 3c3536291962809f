"""Chat templates render as transformers renders them, in a process of their own."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.prompts.chat_template import SLOT, ChatTemplate
from engine.prompts.tokenizer import Tokenizer
from engine.records import RequestError
from tests.support.tiny_gguf import byte_tokens

ROLES = ["system", "user", "assistant", "user"]
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content|trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama": "{{ bos_token }}{% for m in messages %}{% if loop.first and m['role'] == 'system' %}"
    "[INST] <<SYS>>\n{{ m['content'] }}\n<</SYS>>\n{% else %}{{ m.content ~ eos_token }}{% endif %}"
    "{% endfor %}",
    "white space": "  {% if true %}\n  a\n  {%- set x = 1 -%}\n  {{ x }}\n  {% endif %}\n  b\n\n",
    "namespace": "{%- set ns = namespace(last=-1, found=false) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}",
    "loop controls": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
    "{{ m.content }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "json": "{{ messages|tojson }}{{ {'b': '<é>', 'a': [1, none]}|tojson(indent=2) }}"
    "{{ dict(a=1)|tojson(sort_keys=true, separators=(',', ':')) }}",
    "filters": "{{ messages|map(attribute='role')|join(', ')|title }}"
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ 'a\nb'|indent(2) }}"
    "{{ messages[1:]|length }}{{ messages[::-1][0].role }}{{ 3|string ~ '7'|int }}",
    "macro": "{% macro turn(m, end='.') %}{{ m.role }}: {{ m.content }}{{ end }}{% endmacro %}"
    "{% for m in messages %}{{ turn(m) }}{% endfor %}",
    "missing": "{% if tools is defined and tools %}t{% endif %}{{ messages[0].name }}"
    "{{ documents is none }}{{ messages[0]['tool_calls'] is defined }}{{ unknown }}",
    "texts": "{% if messages[0].content is string and 'x' not in messages[0].content %}"
    "{{ messages[0].content.split('</think>')[-1].lstrip('\n') }}{% endif %}",
    "dict": "{% for k, v in dict.fromkeys(['a', 'b'], 1).items() %}{{ k }}{{ v }}{% endfor %}",
    "scope of generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}"
    "{{ x }}{% endgeneration %}{{ x }}{% endfor %}",
    "HTML": "{{ {'<b>': \"it's & <i>\"}|tojson }}{{ messages[0].content|tojson(indent=1) }}",
    "time": "{% if strftime_now is defined %}{{ strftime_now('%%Y') }}{% endif %}",
    "tokens": "{{ bos_token is defined }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token }}",
    "reversed": "{% set ns = namespace(i=messages|length - 1) %}{% for m in messages[::-1] %}"
    "{% if ns.i > 0 and m.role == 'user' and not(m.content.startswith('<tool_response>')) %}"
    "{{ ns.i }}{% set ns.i = 0 %}{% endif %}{% endfor %}{{ messages[-1].content.rstrip('\n') }}",
    "alternation": "{% for m in messages[1:] %}{% if (m['role'] == 'user') != (loop.index0 % 2 == "
    "0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% set role = 'model' if m.role "
    "== 'assistant' else m.role %}{{ role ~ '\n' ~ m['content']|trim }}{% endfor %}",
    "parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.content "
    "is iterable %}{% for one in m.content %}{{ one.text }}{% endfor %}{% endif %}{% endfor %}",
    "tools": "{% if tools is not none %}{{ tools|length }}{% endif %}{% if documents %}d{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}t{% endif %}{{ m.get('name', 'x') }}{% endfor %}",
    "range": "{% for n in range(3) %}{{ loop.cycle('odd', 'even') }}{{ n }}{% endfor %}",
}


@pytest.fixture
def made() -> Iterator[list[ChatTemplate]]:
    """Templates to close after the test."""
    templates: list[ChatTemplate] = []
    yield templates
    for one in templates:
        one.close()


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_renders_as_with_transformers(name: str, made: list[ChatTemplate]) -> None:
    made.append(ChatTemplate(TEMPLATES[name], bos_token="<s>", eos_token="</s>"))
    messages = [{"role": role, "content": SLOT.format(n)} for n, role in enumerate(ROLES)]
    (expected,), _ = render_jinja_template(
        [messages], chat_template=TEMPLATES[name], add_generation_prompt=True, bos_token="<s>",
        eos_token="</s>",
    )  # fmt: skip
    assert made[0].render(ROLES) == expected


def test_a_template_s_own_reason_is_passed_on(made: list[ChatTemplate]) -> None:
    text = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}fine"
    made.append(ChatTemplate(text))
    with pytest.raises(RequestError, match="no system"):
        made[0].render(["system"])
    assert made[0].render(["user"]) == "fine"


def test_one_process_serves_every_thread_and_another_one_follows_it(
    made: list[ChatTemplate],
) -> None:
    made.append(ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}"))
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = made[0].render(["user"] * number)

    for _ in range(2):
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {n: "user" * n for n in range(1, 9)}
        made[0].close()


def test_its_process_has_no_keys_in_its_environment(
    made: list[ChatTemplate], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DRAFTLINE_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, "a secret")
    before = {child.pid for child in psutil.Process().children()}
    made.append(ChatTemplate("{{ messages[0].role }}"))
    made[0].render(["user"])
    started = [child for child in psutil.Process().children() if child.pid not in before]
    (variables,) = [
        child.environ() for child in started if "template_child" in str(child.cmdline())
    ]
    assert "a secret" not in variables.values() and variables["PATH"] == os.environ["PATH"]


PARTS_ONLY = (
    "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %};{% endfor %}"
)


@pytest.mark.parametrize("template", [PARTS_ONLY, "{% if messages[0].content is string %}"
    "{{ raise_exception('parts') }}{% endif %}" + PARTS_ONLY])  # fmt: skip
def test_messages_come_in_parts_where_the_template_drops_others(
    template: str, made: list[ChatTemplate]
) -> None:
    made.append(ChatTemplate(template))
    assert made[0].render(["user", "assistant"]) == f"{SLOT.format(0)};{SLOT.format(1)};"


def test_a_template_that_drops_all_messages_keeps_its_text_or_reason(
    made: list[ChatTemplate],
) -> None:
    made += [ChatTemplate("none"), ChatTemplate("{{ raise_exception('never') }}")]
    assert made[0].render(["user"]) == "none"
    with pytest.raises(RequestError, match="never"):
        made[1].render(["user"])


@pytest.mark.parametrize(
    "no_system",
    ["{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", ""],
)
def test_a_system_message_is_never_lost(no_system: str, tmp_path: Path) -> None:
    """Where the template refuses or drops it, it becomes a part of the user's message."""
    template = no_system + (
        "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n"
        "{% endif %}{% endfor %}"
    )
    words = {name: n for n, name in enumerate(byte_tokens())}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    spec = {"model": {"type": "BPE", "vocab": words, "merges": []}, "pre_tokenizer": level}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec | {"decoder": level}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.template is not None
    system, user = ({"role": role, "content": f"the {role}'s"} for role in ("system", "user"))
    try:
        text = tokenizer.decode(tokenizer.chat([system, user]))
        assert text == "user: the system's\n\nthe user's\n"
        assert tokenizer.decode(tokenizer.chat([user])) == "user: the user's\n"
    finally:
        tokenizer.template.close()
