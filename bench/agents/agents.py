"""Let coding agents edit files through `draftline serve`: is the protocol all that they need?

    python -m bench agents [--agents aider,opencode] [--tasks rename,add] [--model NAME]

Each agent that is installed gets each task in a new folder with one small file and in an empty
home, with the recipe of docs/clients.md. Agents cannot run commands, as far as they have a switch
for that; still, use a machine on which nothing is lost if a small model writes elsewhere. What the
table says: whether the files were as the task wishes, which is the model's merit, and the requests
that the server refused or failed, of which there should be none. --keep DIR keeps the folders and
what the agents printed. With `--model scripted` a model without weights makes the right calls for
the task "rename": then every agent must get it done, and the run takes a minute.

Exit code 1: a request was refused or failed, or the scripted model's edit was not made.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.agents import scripted_model
from bench.agents.recipes import AGENTS, AgentRequest, Recipe
from bench.agents.tasks import FILE, SOURCE, TASKS, Task
from bench.common import report
from bench.common.cli import argument_parser, complain
from bench.common.environment import environment, results_path
from bench.serving.serving import Server, server_of
from engine import DEFAULT_MODEL

Row = dict[str, Any]
REQUEST = re.compile(r'draftline_requests_total\{route="([^"]*)",status="([^"]*)"\}')
FAILED_ANSWERS = 'draftline_answers_total{end="failed"}'
SCRIPTED = "scripted"
OUTPUT, FOLDER, HOME = "output.txt", "repository", "home"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM")  # variables; none holds a key of a service


def run_task(name: str, task_name: str, server: Server, model: str, place: Path, limit: int) -> Row:
    """Give an agent a task in the empty folder `place`, for at most `limit` seconds."""
    task = TASKS[task_name]
    folder, home = place / FOLDER, place / HOME
    folder.mkdir(parents=True)
    home.mkdir()
    (folder / FILE).write_text(SOURCE, "utf-8")
    request = AgentRequest(server.url, model, str(home), task.text, FILE)
    before, began = server.figures(), perf_counter()
    code = run_agent(AGENTS[name](request), folder, home, place / OUTPUT, limit)
    seconds = perf_counter() - began
    server.wait_idle()
    answered, errors = requests_between(before, server.figures())
    return {
        "agent": name,
        "task": task_name,
        "exit": code,
        "done": is_done(task, folder),
        "changed": changed_files(folder),
        "requests": answered,
        "errors": errors,
        "seconds": round(seconds, 1),
    }


def run_agent(recipe: Recipe, folder: Path, home: Path, output: Path, limit: int) -> int | None:
    """Run an agent; returns its exit code, or None if it was ended after `limit` seconds."""
    for path, text in recipe.files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text, "utf-8")
    variables = {key: os.environ[key] for key in KEPT_VARIABLES if key in os.environ}
    variables |= {"HOME": str(home), **recipe.variables}
    with output.open("wb") as out:
        process = subprocess.Popen(
            recipe.command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:  # children of the process may outlive it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def requests_between(
    before: dict[str, float], after: dict[str, float]
) -> tuple[int, dict[str, int]]:
    """Count the requests that were answered, and those that were not.

    They are counted by route and status. A client that hangs up is no error.
    """
    answered, errors = 0, {}
    for name, value in after.items():
        count = int(value - before.get(name, 0))
        found = REQUEST.fullmatch(name)
        if not count or (found and found[1] == "/metrics"):
            continue
        if found and found[2].startswith(("4", "5")):
            errors[f"{found[1]} {found[2]}"] = count
        elif found:
            answered += count
        elif name == FAILED_ANSWERS:
            errors["answers that failed"] = count
    return answered, errors


def is_done(task: Task, folder: Path) -> bool:
    try:
        return task.done(folder)
    except (OSError, SyntaxError, ValueError):
        return False


def changed_files(folder: Path) -> list[str]:
    """Return the files that are new, changed or gone. Hidden ones are the agent's own."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    found = {path.as_posix() for path in paths if not path.as_posix().startswith(".")}
    if FILE in found and (folder / FILE).read_bytes() == SOURCE.encode():
        return sorted(found - {FILE})
    return sorted(found | {FILE})


def version_of(program: str) -> str:
    """Return what `PROGRAM --version` prints."""
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": home},
        )
    found = re.findall(r"\d+\.\d+[\w.]*", ran.stdout or ran.stderr)
    return found[-1] if found else "unknown"


def show(record: Row) -> None:
    """Print the table."""
    out = report.console_with_header(record, 110, "requests of an agent, in the order of the runs")
    heads = "agent version task done exit changed requests errors seconds"
    lines = [
        [
            row["agent"],
            record["agents"][row["agent"]],
            row["task"],
            "yes" if row["done"] else "no",
            "time out" if row["exit"] is None else str(row["exit"]),
            ", ".join(row["changed"]),
            str(row["requests"]),
            ", ".join(f"{count} x {name}" for name, count in row["errors"].items()) or "none",
            f"{row['seconds']:.0f}",
        ]
        for row in record["rows"]
    ]
    out.print(report.table("tasks of agents", heads, lines))


def read_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("agents", __doc__)
    add = parser.add_argument
    add("--agents", default=",".join(AGENTS), help="default: those that are installed")
    add("--tasks", default=",".join(TASKS))
    add(
        "--model", default=DEFAULT_MODEL, help="a built-in name, a folder, a GGUF file, or scripted"
    )
    add("--limit", type=int, default=600, metavar="SECONDS", help="for each task")
    add("--keep", type=Path, metavar="DIR", help="an empty folder for what the agents leave")
    add("--out", type=Path, help="results file; default: bench/results/agents-...json")
    options = parser.parse_args(argv)
    for name, known in (("agents", AGENTS), ("tasks", TASKS)):
        chosen = getattr(options, name).split(",")
        if unknown := [one for one in chosen if one not in known]:
            parser.error(f"--{name} {unknown[0]}: choose from {', '.join(known)}")
        setattr(options, name, chosen)
    if options.limit < 1:
        parser.error(f"--limit {options.limit}: must be 1 or more")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep {options.keep}: is not empty")
    installed = [name for name in options.agents if shutil.which(name)]
    if not installed:
        parser.error(f"none of {', '.join(options.agents)} is installed")
    if options.model == SCRIPTED:
        options.tasks = ["rename"]
    options.agents = installed
    options.queue = 32
    return options


@contextlib.contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """Make the folder of all runs, deleted at the end unless it is to be kept."""
    if keep:
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="draftline-agents-") as place:
        yield Path(place)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    began = perf_counter()
    model = Path(options.model).name
    runs = [(agent, task) for agent in options.agents for task in options.tasks]
    rows = []
    try:
        versions = {agent: version_of(agent) for agent in options.agents}
        with workplace(options.keep) as place:
            places = {run: place / "-".join(run) for run in runs}
            if options.model == SCRIPTED:
                files = {run[0]: str(at / FOLDER / FILE) for run, at in places.items()}
                scripted_model.save(place / SCRIPTED, files)
                options.model = str(place / SCRIPTED)
            with server_of(options) as server:
                for number, ((agent, task), at) in enumerate(places.items()):
                    report.progress("agents", number, len(runs), task, agent)
                    rows.append(run_task(agent, task, server, model, at, options.limit))
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        complain("agents", error)
        return 2
    record = {
        **environment("cpu"),
        "bench": "agents",
        "model": model,
        "threads": os.cpu_count(),
        "agents": versions,
        "seconds": round(perf_counter() - began),
        "rows": rows,
    }
    show(record)
    report.write_json(options.out or results_path("agents", model), record)
    report.print_json_line(record)
    bad = [row for row in rows if row["errors"] or (model == SCRIPTED and not row["done"])]
    return 1 if bad else 0
