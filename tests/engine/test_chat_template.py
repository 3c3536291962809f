"""Chat templates render as transformers renders them, in a process of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.prompts.chat_template import SLOT, ChatTemplate
from engine.records import RequestError

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
