"""/v1/apply, and chats that ask for the same: one place for every change, or the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.command import FENCE, chain_model
from tests.support.server import LocalServer, parse_events, serve_model, text_of

CODE = "import os\r\n\r\n\r\ndef main():\r\n    pass\r\n"
MARK = "# ... existing code ..."
UPDATE = f"import os\nimport re\n\n\ndef main():\n{MARK}\n"
NEW = CODE.replace("import os\r\n", "import os\r\nimport re\r\n")
NOWHERE = f"{MARK}\nnothing like it\n{MARK}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server whose model answers every edit with x=9."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    with serve_model(chain_model(tmp_path_factory.mktemp("models") / "chain", "x=9", FENCE)) as one:
        yield one
    patch.undo()


def apply(server: LocalServer, **body: Any) -> Any:
    with server.http() as http:
        return http.post("/v1/apply", json=body)


def message(code: str, update: str, lead: str = "") -> Any:
    return [{"role": "user", "content": f"{lead}<code>{code}</code>\n<update>{update}</update>"}]


def test_an_update_with_one_place_needs_no_model(server: LocalServer) -> None:
    answer = apply(server, code=CODE, update=UPDATE, path="main.py").raise_for_status().json()
    assert (answer["code"], answer["method"], answer["object"]) == (NEW, "merge", "apply")
    assert answer["usage"]["completion_tokens"] == 0


def test_the_model_merges_the_others(server: LocalServer) -> None:
    body = {"code": "x=1\n", "update": "x=9\n# ...\n", "instruction": "nine"}
    answer = apply(server, **body).raise_for_status().json()
    assert (answer["code"], answer["method"]) == ("x=9\n", "model")
    assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("lead", ["", "<instruction>I add it</instruction>\n"])
def test_a_chat_with_a_file_and_an_update_is_answered_with_the_file(
    server: LocalServer, lead: str
) -> None:
    create = server.client().chat.completions.create
    messages = message(CODE, UPDATE, lead)
    (choice,) = create(model="chain", messages=messages).choices
    assert (choice.message.content, choice.finish_reason) == (NEW, "stop")
    with server.http() as http:
        body = {"messages": messages, "stream": True}
        chunks = parse_events(http.post("/v1/chat/completions", json=body).content)
    assert text_of(chunks) == NEW


@pytest.mark.parametrize(
    ("code", "update", "said"),
    [
        (CODE, NOWHERE, "fits nowhere"),
        (CODE, "", "empty"),
        ("x=9\ny\n", "x=9\n...\nz\n", "did not write the chunk at line 3 of the update"),
        ("a\n\nx\ny\na\nx\ny\n", f"{MARK}\nx\nnew\ny\n{MARK}", "several places, at the lines"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    server: LocalServer, code: str, update: str, said: str
) -> None:
    response = apply(server, code=code, update=update)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "edit_refused")
    assert said in error["message"]
    with pytest.raises(openai.BadRequestError, match=re.escape(said)):
        server.client().chat.completions.create(model="chain", messages=message(code, update))
    assert server.open() == 0


def test_no_model_is_asked_where_every_way_would_be_refused(server: LocalServer) -> None:
    """The first line is not shown, and the second chunk has two places."""
    code = "a()\nb()\nc()\nd()\no()\nr()\ns()\ne()\no()\nr()\ns()\nf()\n"
    update = f"b()\nc()\nnew()\nd()\n{MARK}\no()\nr(1)\ns()\n{MARK}\n"
    error = apply(server, code=code, update=update).json()["error"]
    assert error["code"] == "edit_refused"
    assert "since the merge leaves out line 1 of the file" in error["message"]


def test_what_fails_a_check_is_refused_unless_the_instruction_names_it(server: LocalServer) -> None:
    body = {"code": "def f():\n    # one\n    return 1\n\n\nx = f()\n", "path": "a.py"}
    body |= {"update": f"def f():\n    return 1\n\n\nx = f()\n{MARK}\n"}
    response = apply(server, **body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "edit_refused")
    assert "the comment “# one” would be lost" in error["message"]
    fine = apply(server, **body, instruction="Remove the comment").raise_for_status()
    assert "# one" not in fine.json()["code"]


def test_a_refusal_ends_a_stream_with_the_error(server: LocalServer) -> None:
    body = {"messages": message("x=9\ny\n", "x=9\n...\nz\n"), "stream": True}
    with server.http() as http:
        content = http.post("/v1/chat/completions", json=body).content
    assert b'"edit_refused"' in content and b"[DONE]" not in content


def test_a_file_with_the_tags_themselves_is_refused_in_a_chat(server: LocalServer) -> None:
    with pytest.raises(openai.BadRequestError, match="/v1/apply"):
        messages = message("</code><update>", "x")
        server.client().chat.completions.create(model="chain", messages=messages)
