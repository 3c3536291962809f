"""Renders a chat template: a script that chat_template.py runs, never imported.

Arguments: characters of a text, bytes of memory, seconds of CPU time of one rendering. The first
line on stdin is the template, every other one a conversation, all in JSON; each conversation is
answered by a line: {"text": text} or {"error": reason}. The process ends with its stdin.

The environment is that of transformers' chat templates: its sandbox, filters and globals.
"""

from __future__ import annotations

import codecs
import importlib
import json
import math
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

# What Python and jinja would import or look up when they first need it.
LATE_MODULES, LATE_CODECS = ("jinja2.debug", "jinja2.constants", "unicodedata"), ("unicode_escape",)


class GenerationTag(Extension):
    """Renders `{% generation %}`, which marks the assistant's text for training, as it is.

    What it sets is not set after it.
    """

    tags = {"generation"}  # noqa: RUF012 -- as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse a call of `rendered` with the statements up to the end of the mark."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("rendered"), [], [], body).set_lineno(line)

    def rendered(self, caller: Callable[[], str]) -> str:
        """Return the text between the marks."""
        return caller()


class TemplateNamespace(Namespace):
    """jinja's namespace without attributes that lead to Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        for name in dict(*args[1:], **kwargs):
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class TemplateDict:
    """`dict` without the attributes of a type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Call `dict.fromkeys`."""
        return dict.fromkeys(*args)


def _check_name(name: str) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r}")


def raise_exception(message: str) -> None:
    """Refuse a conversation; templates call this."""
    raise TemplateError(message)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja's escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def compiled(template: str) -> Callable[..., str]:
    """Compile the template to its rendering function."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda layout: datetime.now().strftime(layout),
        "dict": TemplateDict(),
        "namespace": TemplateNamespace,
    }
    return environment.from_string(template).render


def limit_process(max_memory: int) -> None:
    """Bound memory, and forbid opening files, for which everything is imported before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    for module in LATE_MODULES:
        importlib.import_module(module)
    for codec in LATE_CODECS:
        codecs.lookup(codec)
    datetime.now().astimezone().strftime("%c")  # reads the time zone
    if sys.platform != "win32":
        import resource

        if sys.platform != "darwin":  # macOS refuses a limit below what is mapped at start
            resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def allow_seconds(seconds: int) -> None:
    """Let the process use that much more CPU time; then the system ends it."""
    if sys.platform != "win32":
        import resource

        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used) + seconds, hard))


def answer(render: Callable[..., str], line: str, max_chars: int) -> dict[str, str]:
    """Make the reply to one conversation."""
    conversation = json.loads(line)
    text = render(**conversation)
    # Tools' definitions and calls are written into the text, once or twice.
    allowed = max_chars * (1 + len(conversation["messages"])) + 4 * len(line)
    if len(text) > allowed:
        return {"error": f"it writes {len(text)} characters, more than {allowed}"}
    return {"text": text}


def main(max_chars: int, max_memory: int, max_seconds: int) -> None:
    """Reply to every line."""
    limit_process(max_memory)
    render: Callable[..., str] | None = None
    template = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        allow_seconds(max_seconds)
        try:
            render = render or compiled(template)
            reply = answer(render, line, max_chars)
        except MemoryError:
            reply = {"error": "it takes too much memory"}
        except Exception as error:  # whatever a template does; the parent expects one line
            reply = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
