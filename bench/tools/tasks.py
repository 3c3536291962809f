"""Fifty requests that ask for a call of a tool, and requests for answers in a format."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
COUNT, FLAG = {"type": "integer"}, {"type": "boolean"}


class ToolRequest(NamedTuple):
    """A request, and the tool that it asks for."""

    tool: str
    text: str


def tool(name: str, description: str, optional: int = 0, **parameters: Any) -> str:
    """Make a tool as requests have it; the last `optional` parameters may be left out."""
    schema = {
        "type": "object",
        "properties": parameters,
        "required": [*parameters][: len(parameters) - optional],
        "additionalProperties": False,
    }
    return json.dumps({"name": name, "description": description, "parameters": schema})


TOOLS = (
    tool("read_file", "Read a file of the workspace.", 1, path=TEXT, max_lines=COUNT),
    tool("write_file", "Replace a file, or create it.", path=TEXT, content=TEXT),
    tool("list_files", "List the files of a folder.", 1, folder=TEXT, recursive=FLAG),
    tool("search", "Find a text in the workspace.", 1, pattern=TEXT, case_sensitive=FLAG),
    tool("run_command", "Run a command in the terminal.", command=TEXT),
    tool("get_weather", "The weather of a city.", 1, city=TEXT,
         unit={"enum": ["celsius", "fahrenheit"]}),
    tool("convert_currency", "Convert an amount of money.", amount=NUMBER, source=TEXT,
         target=TEXT),
    tool("create_event", "Add an event to the calendar.", 1, title=TEXT, date=TEXT,
         guests={"type": "array", "items": TEXT}),
    tool("send_mail", "Send a mail.", to=TEXT, subject=TEXT, body=TEXT),
    tool("set_timer", "Set a timer.", 1, minutes=COUNT, label=TEXT),
)  # fmt: skip

REQUESTS = tuple(
    ToolRequest(name, text)
    for name, texts in {
        "read_file": (
            "Show me what is in src/main.py.",
            "Read the first 20 lines of README.md.",
            "What does config/settings.toml contain?",
            "Open package.json.",
            "I need the contents of the file docs/install.md.",
        ),
        "write_file": (
            "Create notes.txt with the text: buy milk",
            "Write print('hello') to hello.py.",
            "Replace version.txt by 2.0.1",
            "Make a file .gitignore that ignores __pycache__ and .venv.",
            "Save the line DEBUG=1 in the file .env.example.",
        ),
        "list_files": (
            "Which files are in the folder tests?",
            "List everything below src, with all subfolders.",
            "What is in the docs folder?",
            "Show the files of the current folder.",
            "List the files in bench/results.",
        ),
        "search": (
            "Where in the workspace is the text TODO?",
            "Find all uses of parse_config.",
            'Search for "connection refused", whatever its case.',
            "Which files mention DATABASE_URL?",
            "Find the word deprecated in the workspace.",
        ),
        "run_command": (
            "Run the tests with pytest -q.",
            "Run git status.",
            "Install the dependencies with npm ci.",
            "Build the project: make all",
            "Show the running containers with docker ps.",
        ),
        "get_weather": (
            "What is the weather in Paris?",
            "How warm is it in Oslo, in celsius?",
            "Do I need an umbrella in London today?",
            "Weather in New York in fahrenheit, please.",
            "Is it raining in S\u00e3o Paulo?",
        ),
        "convert_currency": (
            "How much is 100 USD in EUR?",
            "Convert 25.50 GBP to JPY.",
            "What are 1000 yen in dollars?",
            "I have 80 euros. How many Swiss francs is that?",
            "Change 12 CAD into AUD.",
        ),
        "create_event": (
            "Put a dentist appointment on 2026-03-14 in my calendar.",
            "Schedule a team meeting on 2026-01-10 with Ann and Bob.",
            "Add my sister's birthday on 2026-07-02 to the calendar.",
            "Plan lunch with Chris on 2026-05-20.",
            "Create an event Release 2.0 on 2026-09-01.",
        ),
        "send_mail": (
            "Mail ann@example.com, subject Lunch, that I am ten minutes late.",
            "Send bob@example.com a mail: subject Report, text: the report is done.",
            "Write to team@example.com that the server is up again; subject: Server.",
            "Tell chris@example.com by mail, subject Thanks, thank you for the help.",
            "Send a mail to hr@example.com with the subject Vacation, asking for Friday off.",
        ),
        "set_timer": (
            "Set a timer for 10 minutes.",
            "Remind me of the pasta in 8 minutes.",
            "Start a timer of 25 minutes called focus.",
            "Wake me in an hour and a half.",
            "Timer: 3 minutes for the tea.",
        ),
    }.items()
    for text in texts
)

# Answers in a format: what is asked, and the schema of the answer.
FORMATS: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (text, {"type": "object", "properties": fields, "required": [*fields]})
    for text, fields in (
        ("Describe the city of Rome: its name, country, number of people, and three sights.",
         {"name": TEXT, "country": TEXT, "people": COUNT,
          "sights": {"type": "array", "items": TEXT}}),
        ("Invent a person: name, age, profession, and a short story of their life.",
         {"name": TEXT, "age": COUNT, "profession": TEXT, "story": TEXT}),
        ("A recipe for pancakes: title, minutes, ingredients, steps.",
         {"title": TEXT, "minutes": COUNT, "ingredients": {"type": "array", "items": TEXT},
          "steps": {"type": "array", "items": TEXT}}),
        ("Explain what a hash table is: a summary, its advantages, its drawbacks.",
         {"summary": TEXT, "advantages": {"type": "array", "items": TEXT},
          "drawbacks": {"type": "array", "items": TEXT}}),
        ("Review this function: def add(a, b): return a - b. Is it right? Why? How is it mended?",
         {"right": FLAG, "why": TEXT, "mended": TEXT}),
    )
)  # fmt: skip
