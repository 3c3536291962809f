"""`python -m bench agents`: tasks, recipes, and that refused requests are noticed. The agents here
are small scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.agents import agents, scripted_model
from bench.agents.agents import changed_files, is_done, requests_between, run_agent, run_task
from bench.agents.recipes import AGENTS, AgentRequest, Recipe
from bench.agents.scripted_model import NEW, OLD
from bench.agents.tasks import FILE, SOURCE, TASKS
from bench.serving.serving import Server
from tests.bench.conftest import RunBench
from tests.support.server import LocalServer, serve_model

ROOT = Path(__file__).resolve().parents[2]
FAREWELL = '\n\ndef farewell(name: str) -> str:\n    return f"Goodbye, {name}!"\n'
DONE = {
    "rename": {FILE: SOURCE.replace("greet(", "welcome(")},
    "add": {FILE: SOURCE + FAREWELL},
    "create": {FILE: SOURCE, "notes.txt": "Nothing to see here.\n"},
}
TOOLS = {  # a few of each agent's
    "opencode": ("bash", "edit", "glob", "read", "write"),
    "pi": ("read", "edit", "write"),
    "cn": ("Read", "Write", "Edit"),
    "qwen": ("edit", "glob", "read_file", "write_file"),
    "codex": ("exec_command", "view_image"),
}
SENDS = """
import json, sys, urllib.error, urllib.request
url, task, body = sys.argv[1:]
request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError:
    pass
open("hello.py", "a").write("# more\\n")
"""


@pytest.fixture
def server(tiny: Any, home: Any) -> Any:
    with serve_model(tiny("llama")) as served:
        yield served


def bench_server(served: LocalServer) -> Server:
    return Server(psutil.Process(), served.url)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_done_by_its_files_and_by_no_others(name: str, tmp_path: Path) -> None:
    for other, files in {**DONE, "nothing": {FILE: SOURCE}, "broken": {FILE: "def"}}.items():
        folder = tmp_path / other
        folder.mkdir()
        for path, text in files.items():
            (folder / path).write_text(text, "utf-8")
        assert is_done(TASKS[name], folder) == (name == other)
    assert not is_done(TASKS[name], tmp_path)


def test_changed_files(tmp_path: Path) -> None:
    assert changed_files(tmp_path) == [FILE]
    (tmp_path / FILE).write_text(SOURCE, "utf-8")
    (tmp_path / ".aider.history").write_text("", "utf-8")
    assert changed_files(tmp_path) == []
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.py").write_text("", "utf-8")
    assert changed_files(tmp_path) == ["more/a.py"]
    (tmp_path / FILE).write_text(SOURCE + "\n", "utf-8")
    assert changed_files(tmp_path) == [FILE, "more/a.py"]


@pytest.mark.parametrize("name", AGENTS)
def test_a_recipe_names_the_server_the_model_and_the_task(name: str) -> None:
    request = AgentRequest("http://127.0.0.1:1234", "some-model", "/tmp/home", "Do it.", FILE)
    recipe = AGENTS[name](request)
    said = "\n".join([*recipe.command, *recipe.files.values(), *recipe.variables.values()])
    assert recipe.command[0] == name and "Do it." in recipe.command
    assert "http://127.0.0.1:1234/v1" in said and "some-model" in said
    for path, text in recipe.files.items():
        assert not Path(path).is_absolute()
        if path.endswith(".json"):
            json.loads(text)


def scripted(url: str, body: dict[str, Any]) -> Any:
    """An agent that sends one request and then changes the file."""

    def agent(request: AgentRequest) -> Recipe:
        command = (sys.executable, "-c", SENDS, f"{url}/v1/chat/completions", request.task)
        return Recipe((*command, json.dumps(body)))

    return agent


@pytest.mark.parametrize(
    ("body", "answered", "errors"),
    [
        ({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}, 1, {}),
        ({"messages": []}, 0, {"/v1/chat/completions 400": 1}),
        ({"messages": [], "model": "another"}, 0, {"/v1/chat/completions 400": 1}),
    ],
)
def test_refused_requests_are_counted(
    body: dict[str, Any],
    answered: int,
    errors: dict[str, int],
    server: LocalServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(AGENTS, "scripted", scripted(server.url, body))
    row = run_task("scripted", "add", bench_server(server), "model", tmp_path / "run", 60)
    assert row["exit"] == 0 and row["changed"] == [FILE] and not row["done"]
    assert (row["requests"], row["errors"]) == (answered, errors)


def test_failed_answers_and_unknown_paths_are_errors_and_hanging_up_is_none() -> None:
    before = {'draftline_requests_total{route="other",status="404"}': 1.0}
    after = {
        'draftline_requests_total{route="other",status="404"}': 3.0,
        'draftline_requests_total{route="/v1/chat/completions",status="none"}': 1.0,
        'draftline_requests_total{route="/metrics",status="200"}': 9.0,
        'draftline_answers_total{end="failed"}': 1.0,
        'draftline_answers_total{end="stop"}': 5.0,
    }
    assert requests_between(before, after) == (1, {"other 404": 2, "answers that failed": 1})


def test_an_agent_gets_a_home_and_no_secrets_and_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret")
    show = "import os; print(dict(os.environ), open(os.environ['HOME'] + '/.a/b').read())"
    recipe = Recipe((sys.executable, "-c", show), {".a/b": "settings"}, {"MORE": "1"})
    output = tmp_path / "output"
    assert run_agent(recipe, tmp_path, tmp_path, output, 60) == 0
    said = output.read_text("utf-8")
    assert "settings" in said and "'MORE': '1'" in said and "secret" not in said
    waits = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'input()'], "
    waits += "stdin=subprocess.PIPE); time.sleep(600)"
    assert run_agent(Recipe((sys.executable, "-c", waits)), tmp_path, tmp_path, output, 1) is None
    own = [one for one in psutil.Process().children(recursive=True) if one.is_running()]
    assert not [one for one in own if "time.sleep(600)" in " ".join(one.cmdline())]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--agents", "cursor"), "--agents cursor: choose from aider"),
        (("--tasks", "all"), "--tasks all: choose from rename"),
        (("--limit", "0"), "--limit 0: must be 1 or more"),
        (("--keep", ROOT), "is not empty"),
    ],
)
def test_bad_options_are_named(options: Any, named: str, run_bench: RunBench) -> None:
    result = run_bench(agents.main, *options)
    assert result.code == 2 and named in result.err and not result.out


def test_the_scripted_model_answers_every_agent() -> None:
    assert {*scripted_model.answers({})} == {*AGENTS}
    assert scripted_model.answers({})["aider"] == [scripted_model.WHOLE_FILE]


def test_no_agent_is_installed(monkeypatch: pytest.MonkeyPatch, run_bench: RunBench) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = run_bench(agents.main, "--agents", "pi,cn")
    assert result.code == 2 and "none of pi, cn is installed" in result.err


@pytest.mark.parametrize("agent", TOOLS)
def test_the_scripted_model_reads_edits_and_ends(agent: str, tmp_path: Path, home: Any) -> None:
    """As an agent with these tools sees it, over all turns."""
    scripted_model.save(tmp_path / "model", {agent: "/project/hello.py"})
    tools = [{"type": "function", "function": {"name": name}} for name in TOOLS[agent]]
    with serve_model(tmp_path / "model") as served:
        client = served.client()
        messages: list[Any] = [{"role": "user", "content": "Rename the function."}]
        made = []
        while True:
            request: Any = {"model": "model", "messages": messages, "tools": tools}
            message = client.chat.completions.create(**request).choices[0].message
            if not message.tool_calls:
                break
            messages.append(message.model_dump())
            for call in message.tool_calls:
                made.append(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})
        assert message.content == scripted_model.DONE
    if agent == "codex":  # edits by a command
        assert made == [{"cmd": scripted_model.COMMAND}]
        return
    said = json.dumps(made)
    assert all(json.dumps(part)[1:-1] in said for part in (*OLD, *NEW))
    assert agent == "pi" or made[0] == {next(iter(made[0])): "/project/hello.py"}
