"""Every parameter of /v1/chat/completions and /v1/completions: what it does, or that it is refused.

The table in docs/api.md is made of the schemas here: `table()` is what it must say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.records import Request, RequestError
from tests.support.protocols import CHAT, openai_error
from tests.support.server import HELLO, LocalServer
from ui.api.fields import NOT_SUPPORTED
from ui.api.requests import chat_request, completion_request
from ui.api.schemas import ChatRequest, CompletionRequest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "api.md"
PROPERTIES = {
    "chat": ChatRequest.model_json_schema()["properties"],
    "completion": CompletionRequest.model_json_schema()["properties"],
}
NAMES = sorted({name for properties in PROPERTIES.values() for name in properties})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
BEGUN = [*HELLO, {"role": "assistant", "content": "The"}]

# A value of each parameter that changes the engine's request, with what must be there beside it.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "chat_template_kwargs": ({"enable_thinking": False}, {}),
    "continue_final_message": (True, {"messages": BEGUN}),
    "frequency_penalty": (0.5, {}),
    "guided_choice": (["yes", "no"], {}),
    "guided_json": (SCHEMA, {}),
    "guided_regex": ("[a-c]+/", {}),
    "ignore_eos": (True, {}),
    "json_schema": (SCHEMA, {}),
    "logit_bias": ({"7": -100}, {}),
    "logprobs": (None, {}),  # a flag in chats, else a number: see below
    "max_completion_tokens": (3, {"max_tokens": 5}),
    "max_tokens": (3, {}),
    "messages": ([{"role": "user", "content": "x"}], {}),
    "min_p": (0.1, {}),
    "min_tokens": (3, {}),
    "n_predict": (3, {}),
    "parse_special": (False, {}),
    "prediction": ({"type": "content", "content": "x"}, {}),
    "presence_penalty": (0.5, {}),
    "prompt": ("another", {}),
    "reasoning_effort": ("none", {}),
    "repetition_penalty": (1.1, {}),
    "response_format": ({"type": "json_object", "schema": SCHEMA}, {}),
    "seed": (3, {}),
    "stop": (["a"] * 64, {}),
    "stop_token_ids": ([7], {}),
    "structured_outputs": ({"regex": "a+"}, {}),
    "suffix": ("x", {}),
    "temperature": (0.5, {"seed": 1}),
    "tool_choice": ("required", {"tools": [TOOL]}),
    "tools": ([TOOL], {}),
    "top_k": (3, {}),
    "top_logprobs": (3, {"logprobs": True}),
    "top_p": (0.5, {}),
}
# Parameters of the response, or of several requests; other tests have them.
OF_THE_RESPONSE = {
    "best_of", "echo", "model", "n", "parallel_tool_calls", "safety_identifier", "speculation",
    "stream", "stream_options", "user",
}  # fmt: skip
# Values that are refused, each with those that are not.
OTHER_REFUSALS = {"add_generation_prompt": (False, True), "modalities": (["audio"], ["text"])}


def refused(kind: str) -> dict[str, list[Any]]:
    """The parameters without support, and the values that say what holds anyway."""
    return {
        name: known["enum"]
        for name, known in PROPERTIES[kind].items()
        if "description" not in known
    }


def request_of(kind: str, **fields: Any) -> Request:
    if kind == "chat":
        return chat_request(ChatRequest.model_validate({"messages": HELLO} | fields))
    return completion_request(CompletionRequest.model_validate({"prompt": "x"} | fields))


def test_every_parameter_is_tested() -> None:
    assert sorted({*CHANGES, *OF_THE_RESPONSE, *OTHER_REFUSALS, *refused("chat")}) == NAMES


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, known in PROPERTIES.items() for name in CHANGES if name in known],
)
def test_a_parameter_reaches_the_engine(kind: str, name: str) -> None:
    value, others = CHANGES[name]
    if name == "logprobs":
        value = True if kind == "chat" else 2
    plain = request_of(kind, **others)
    assert request_of(kind, **others | {name: value}) != plain


@pytest.mark.parametrize("kind", PROPERTIES)
def test_what_is_not_supported_is_refused_by_name(reciting: LocalServer, kind: str) -> None:
    path = CHAT if kind == "chat" else "/v1/completions"
    body = {"messages": HELLO} if kind == "chat" else {"prompt": "x"}
    with reciting.http() as http:
        for name, neutral in refused(kind).items():
            for value in ("other", ["other"], {"other": 1}, 12.5, True, False, 1, 0):
                if any(value == one and type(value) is type(one) for one in neutral):
                    continue
                error = openai_error(http.post(path, json=body | {name: value}), 400)
                assert error["param"] == name
                assert error["message"] == f"{name}: {NOT_SUPPORTED}", value
        every = {name: neutral[-1] for name, neutral in refused(kind).items()}
        assert http.post(path, json=body | every).status_code == 200


@pytest.mark.parametrize("name", OTHER_REFUSALS)
def test_other_values_are_refused_by_name(name: str) -> None:
    value, fine = OTHER_REFUSALS[name]
    assert request_of("chat", **{name: fine}) == request_of("chat")
    with pytest.raises((RequestError, ValueError), match=name):
        request_of("chat", **{name: value})


@pytest.mark.parametrize(
    ("fields", "begin"),
    [
        ({"json_schema": SCHEMA, "guided_json": SCHEMA}, "guided_json: not together"),
        ({"top_logprobs": 3}, "top_logprobs: only together"),
        ({"logit_bias": {"999999": 1}}, "logit_bias: the model has the token ids"),
        ({"stop_token_ids": [999999]}, "stop_token_ids: the model has the token ids"),
        ({"continue_final_message": True}, "messages: to go on with"),
        (
            {"continue_final_message": True, "messages": BEGUN, "json_schema": SCHEMA},
            "continue_final_message: not together",
        ),
        ({"min_tokens": 3, "json_schema": SCHEMA}, "min_tokens: not together"),
        ({"ignore_eos": True, "guided_choice": ["a"]}, "ignore_eos: not together"),
        ({"guided_regex": "(?=a)b"}, "guided_regex: the expression cannot be enforced"),
        ({"guided_json": {"$ref": "#"}}, "guided_json: the schema cannot be enforced: a $ref"),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs"),
        ({"stop": ["a"] * 65}, "stop: must be"),
        ({"n": 129}, "n: must be 1 to 128"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(
    reciting: LocalServer, fields: dict[str, Any], begin: str
) -> None:
    with reciting.http() as http:
        error = openai_error(http.post(CHAT, json={"messages": HELLO} | fields), 400)
    assert error["message"].startswith(begin)


# -- the table ---------------------------------------------------------------------------------


def table() -> str:
    """The table of docs/api.md."""
    rows = ["| | |", "|---|---|"]
    others = []
    for name in NAMES:
        routes = [kind for kind, properties in PROPERTIES.items() if name in properties]
        texts = {kind: PROPERTIES[kind][name].get("description", "") for kind in routes}
        told = {kind: " ".join(text.split()) for kind, text in texts.items() if text}
        where = "" if len(told) == 2 else f" ({''.join(told)}s)"
        if len({*told.values()}) > 1:
            meaning = "; ".join(f"{kind}s: {text}" for kind, text in told.items())
            rows.append(f"| `{name}` | {meaning} |")
        elif told:
            rows.append(f"| `{name}`{where} | {''.join({*told.values()})} |")
        for kind in routes:
            if kind not in told:
                values = [json.dumps(one) for one in PROPERTIES[kind][name]["enum"][1:]]
                neutral = f" ({', '.join(values)})" if values else ""
                others.append(f"`{name}`{f' in {kind}s' if told else ''}{neutral}")
    listed = ", ".join(dict.fromkeys(others))
    return "\n".join([*rows, "", f"Refused, but for null and the values in brackets: {listed}."])


def test_the_table_of_the_documentation_is_the_schemas() -> None:
    text = DOCS.read_text("utf-8").partition("\n## Parameters\n\n")[2].partition("\n\n## ")[0]
    assert " ".join(text.split()) == " ".join(table().split()), f"write this:\n{table()}"
