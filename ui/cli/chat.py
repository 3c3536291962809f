"""`draftline chat`: a conversation with the model in the terminal.

A line that starts with `!!` is a command. Ctrl-C while an answer is written stops it and keeps what
is there; at the prompt it ends the command. Nothing is kept on disk but by `!!save`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.conversation import Conversation, ConversationError
from ui.cli.index import Failure, say
from ui.cli.options import (
    OK,
    add_command,
    add_max_tokens,
    add_options,
    checked,
    guarded,
    open_engine,
    sampling,
)

if TYPE_CHECKING:
    from engine import Done, Engine, Piece, Request, Step
    from ui.cli.answer_view import Writer

COMMANDS = """\
!!exit         leave; so does an empty message
!!reset        forget the conversation
!!remove       forget the last question and its answer
!!regen        answer the last question again; where text is sampled, by another seed
!!save FILE    write the conversation to a new file
!!load FILE    go on with a conversation that was saved
!!help         these commands
"""
LONGEST = 1024  # tokens of an answer
VERDICTS = {"accepted draft": "red", "correction": "blue", "bonus": "magenta"}


def add_parser(commands: Any) -> None:
    """Add the `chat` command. Its `run` default is this file's `run`."""
    parser = add_command(
        commands,
        "chat",
        "talk with the model",
        f"Talk with the model, a line a message. Commands:\n\n{COMMANDS}",
    )
    add = parser.add_argument
    add("--system", default="", metavar="TEXT", help="an instruction for the whole conversation")
    add("--multiline", action="store_true", help="a message ends with an empty line")
    add("--no-history", action="store_true", help="each message stands alone")
    add("--json", action="store_true", help="one JSON object an answer, for programs")
    add_max_tokens(parser)
    add_options(parser)
    parser.set_defaults(run=lambda args: guarded(run, args))


def run(args: argparse.Namespace) -> int:
    """Talk until the end of the input; the exit code."""
    choices = sampling(args)
    if args.system:
        checked(args.system, "--system")
    from ui.cli.answer_view import Writer, plainly

    paint = by_verdict if args.verbose else plainly
    with Writer(paint, args.json) as writer, open_engine(args, writer.progress) as engine:
        writer.rest()
        chat = Chat(args, engine, writer, choices)
        if sys.stdin and sys.stdin.isatty():
            say("an empty message ends the conversation; !!help names the commands")
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  input() edits lines with it
        while (message := read_message(args.multiline)).strip():
            if not chat.take(message):
                break
    return OK


def read_message(multiline: bool) -> str:
    """The next message, "" at the end of the input."""
    lines: list[str] = []
    while line := _read_line("... " if lines else "you: "):
        lines.append(line)
        if not multiline or lines[0].startswith("!!"):
            break
    return "\n".join(lines)


def _read_line(prompt: str) -> str:
    """One line without its end; "" where there is none."""
    if not sys.stdin:
        return ""
    if not sys.stdin.isatty():
        return sys.stdin.buffer.readline().decode("utf-8", "replace").rstrip("\r\n")
    try:
        if sys.stdout and sys.stdout.isatty():
            line = input(prompt)
        else:
            print(prompt, end="", file=sys.stderr, flush=True)
            line = input()
        return line.encode("utf-8", "replace").decode()
    except EOFError:
        return ""
    except UnicodeDecodeError:
        say("that was not UTF-8: set the terminal to it")
        return _read_line(prompt)


def by_verdict(step: Step, piece: Piece) -> str:
    """The colour of what became of a draft: accepted; or the model's own token, which corrected a
    draft or, where nothing was refused, came as a bonus."""
    if piece.source != "model":
        return VERDICTS["accepted draft"]
    return VERDICTS["correction" if step.accepted < step.drafted else "bonus"]


class Chat:
    """One conversation, its engine and what is shown of its answers."""

    def __init__(
        self, args: argparse.Namespace, engine: Engine, writer: Writer, choices: dict[str, Any]
    ) -> None:
        self.args, self.engine, self.writer, self.choices = args, engine, writer, choices
        self.talk = Conversation(args.system)
        self.start = 0  # turns before it stay out of the prompt
        self.again = 0  # how often the last question was asked again
        self.commands: dict[str, Callable[[str], None]] = {
            "reset": self._reset,
            "remove": self._remove,
            "regen": self._regen,
            "save": self._save,
            "load": self._load,
            "help": lambda rest: print(COMMANDS, end="", file=sys.stderr),
        }

    def take(self, message: str) -> bool:
        """Do what a message says; False where it ends the conversation."""
        if not message.startswith("!!"):
            self.again = 0
            self.answer(message)
            return True
        name, _, rest = message[2:].strip().partition(" ")
        if name == "exit":
            return False
        if name not in self.commands:
            say(f"!!{name}: no command: !!help names them")
            return True
        try:
            self.commands[name](rest.strip())
        except ConversationError as error:
            say(str(error))
        return True

    def answer(self, question: str) -> bool:
        """Answer, and keep both; what cannot be answered is told and not kept."""
        from engine import RequestError
        from ui.cli.answer_view import Stop
        from ui.terminal import Tally

        self.writer.tally = Tally()
        steps: list[Step] = []
        try:
            request = self._request(question)
            with Stop() as stop:
                speculation = not self.args.no_speculation
                job = self.engine.submit(request, speculation, client="chat")
                done = self.writer.follow(job, stop, steps.append)
        except (RequestError, Failure) as error:
            say(str(error))
            return False
        self.talk.add(question, done.text)
        self._show(done, steps)
        return True

    def _request(self, question: str) -> Request:
        """The conversation as far back as the context goes. Where it is full, a quarter of it is
        freed at once: the next prompts begin as this one does, so they need not be read again."""
        from engine import Request

        context = self.engine.context
        answer = self.args.max_tokens or min(LONGEST, context // 2)
        turns = self.talk.turns
        self.start = min(self.start, len(turns))
        before = self.start
        if self._length(question) + answer > context:
            while self.start < len(turns) and self._length(question) + answer > context * 3 // 4:
                self.start += 2
        if self.start > before:
            say(f"the model's context is full: it does not see the first {self.start} messages")
        return Request(
            "chat",
            messages=self._messages(question),
            max_tokens=answer,
            **self.choices | {"seed": self.choices["seed"] + self.again},
        )

    def _messages(self, question: str) -> tuple[dict[str, str], ...]:
        start = len(self.talk.turns) if self.args.no_history else self.start
        return self.talk.messages(question, start)

    def _length(self, question: str) -> int:
        return len(self.engine.chat(self._messages(question)))

    def _show(self, done: Done, steps: list[Step]) -> None:
        """What is told below an answer."""
        from ui.cli.answer_view import figures
        from ui.terminal import print_stats

        tally = self.writer.tally
        if self.args.json:
            result = {"answer": done.text, "reason": done.reason} | figures(done, tally)
            self.writer.write(json.dumps(result) + "\n")
        if self.args.verbose:
            say_verdicts(done, steps)
        if self.args.stats:
            print_stats(done, tally)
        if done.reason == "cancelled":
            say("stopped: what was written is kept; !!regen answers again")
        elif done.reason == "length":
            say("the answer was cut: --max-tokens allows more")

    def _reset(self, rest: str) -> None:
        self.talk.turns.clear()
        self.start = 0
        say("the conversation is forgotten")

    def _remove(self, rest: str) -> None:
        question, _ = self.talk.remove()
        say(f"removed: {question}")

    def _regen(self, rest: str) -> None:
        question, answer = self.talk.remove()
        self.again += 1
        if not self.answer(question):
            self.talk.add(question, answer)

    def _save(self, rest: str) -> None:
        if not rest:
            raise ConversationError("!!save: names no file: write its name behind it")
        self.talk.save(Path(rest).expanduser())
        say(f"{rest}: {len(self.talk.turns)} messages saved")

    def _load(self, rest: str) -> None:
        if not rest:
            raise ConversationError("!!load: names no file: write its name behind it")
        self.talk, self.start = Conversation.load(Path(rest).expanduser()), 0
        say(f"{rest}: {len(self.talk.turns)} messages; the conversation goes on there")


def say_verdicts(done: Done, steps: list[Step]) -> None:
    """What became of the drafts, in the colours of the text above."""
    from rich.console import Console
    from rich.text import Text

    written = [step for step in steps if step.prefill is None]
    corrected = sum(step.accepted < step.drafted for step in written)
    counts = {
        "accepted draft": done.usage.accepted,
        "correction": corrected,
        "bonus": len(written) - corrected,
    }
    parts = [Text(f"{name} {count}", VERDICTS[name]) for name, count in counts.items()]
    told = Text(f"{done.usage.completion_tokens} tokens: ") + Text(", ").join(parts)
    told.append(f"; {done.usage.drafted} drafted in {done.usage.forwards} passes")
    Console(stderr=True, highlight=False).print(told, soft_wrap=True)
