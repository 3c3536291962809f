"""`draftline chat`: a conversation with the model in the terminal.

A line such as `/help` is a command; `!!help` is the same. Ctrl-C stops an answer and keeps what was
written; at the prompt it ends the conversation, as Ctrl-D does. Only `/save` writes to disk.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.conversation import Conversation, ConversationError
from ui.cli.options import (
    OUTPUT,
    add_command,
    add_max_tokens,
    add_options,
    checked_text,
    group,
    sampling,
)
from ui.common.consent import choose_model
from ui.common.errors import FAILED, OK, Failure, say
from ui.common.interrupt import AnswerInterrupt
from ui.common.loading import join_or_open
from ui.common.terminal import write_json

if TYPE_CHECKING:
    from engine import Done, Piece, Request, Step
    from engine.remote.any_engine import AnyEngine
    from ui.common.answer_view import AnswerView, Tally

COMMANDS = """\
/help          show these commands
/bye           leave; so does Ctrl-D
/reset         forget the conversation
/remove        forget the last question and its answer
/regen         answer the last question again; if text is drawn by chance, anew
/save FILE     write the conversation to a new file
/load FILE     continue a saved conversation
"""
COMMAND = re.compile(r"(?:/|!!)([a-z]+)(?:\s+(.*))?")  # a path has more than letters
ENDS = ("bye", "exit", "quit")
DEFAULT_MAX_TOKENS = 1024
VERDICT_COLOURS = {"accepted draft": "red", "correction": "blue", "bonus": "magenta"}


def add_parser(commands: Any) -> None:
    """Add the `chat` command."""
    parser = add_command(
        commands,
        "chat",
        run,
        "talk with the model",
        f"Talk with the model, one line a message. Commands:\n\n{COMMANDS}",
    )
    add = parser.add_argument
    add("--system", default="", metavar="TEXT", help="the system message")
    add("--multiline", action="store_true", help="a message ends with an empty line")
    add("--no-history", action="store_true", help="answer each message on its own")
    group(parser, OUTPUT).add_argument(
        "--json", action="store_true", help="print each answer as a JSON object"
    )
    add_max_tokens(parser)
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Talk until the end of the input."""
    choices = sampling(args)
    if args.system:
        checked_text(args.system, "--system")
    choose_model(args)
    from ui.common.answer_view import AnswerView, no_colour

    colour_of = colour_of_verdict if args.verbose else no_colour
    with AnswerView(colour_of, args.json) as view:
        view.phase("loading")
        with join_or_open(args, view.progress) as engine:
            view.end_line()
            _talk(Chat(args, engine, view, choices), args.multiline)
    return OK


def _talk(chat: Chat, multiline: bool) -> None:
    if sys.stdin and sys.stdin.isatty():
        from engine import Engine

        say("/help shows the commands, /bye ends the conversation")
        for line in chat.engine.warnings if isinstance(chat.engine, Engine) else ():
            say(line)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing in input()
    while (message := read_message(multiline)) is not None:
        if not chat.take(message):
            break


def read_message(multiline: bool) -> str | None:
    """Read the next message, without empty lines before it; None at the end of the input."""
    lines: list[str] = []
    while (line := _read_line("... " if lines else "you: ")) is not None:
        if not lines and not line.strip():
            continue
        if not line:
            break
        lines.append(line)
        if not multiline or COMMAND.fullmatch(lines[0].strip()):
            break
    return "\n".join(lines) if lines else None


def _read_line(prompt: str) -> str | None:
    """Read the next line without its line end; None at the end of the input."""
    if not sys.stdin:
        return None
    if not sys.stdin.isatty():
        line = sys.stdin.buffer.readline().decode("utf-8", "replace")
        return line.rstrip("\r\n") if line else None
    try:
        if sys.stdout and sys.stdout.isatty():
            line = input(prompt)
        else:
            print(prompt, end="", file=sys.stderr, flush=True)
            line = input()
        return line.encode("utf-8", "replace").decode()
    except EOFError:
        print(file=sys.stderr)  # the shell's prompt goes on a line of its own
        return None
    except UnicodeDecodeError:
        say("the input is not UTF-8: set the terminal to UTF-8")
        return _read_line(prompt)


def colour_of_verdict(step: Step, piece: Piece) -> str:
    """Choose the colour of an accepted draft, or of the model's own token.

    The latter is a correction if a drafted token was rejected, else the bonus token.
    """
    if piece.source != "model":
        return VERDICT_COLOURS["accepted draft"]
    return VERDICT_COLOURS["correction" if step.accepted < step.drafted else "bonus"]


class Chat:
    """A conversation with an engine, and the view that shows it."""

    def __init__(
        self, args: argparse.Namespace, engine: AnyEngine, view: AnswerView, choices: dict[str, Any]
    ) -> None:
        self.args, self.engine, self.view, self.choices = args, engine, view, choices
        self.conversation = Conversation(args.system)
        self.first_turn = 0  # earlier turns are left out of the prompt
        self.regenerations = 0  # times that the last answer was written again
        self.commands: dict[str, Callable[[str], None]] = {
            "reset": self._reset,
            "remove": self._remove,
            "regen": self._regen,
            "save": self._save,
            "load": self._load,
            "help": lambda argument: print(COMMANDS, end="", file=sys.stderr),
        }

    def take(self, message: str) -> bool:
        """Answer a message, or run it as a command. Returns False if it ends the conversation."""
        command = COMMAND.fullmatch(message.strip())
        if not command:
            self.regenerations = 0
            self.answer(message)
            return True
        name, argument = command[1], command[2] or ""
        if name in ENDS:
            return False
        if name not in self.commands:
            say(f"/{name}: no such command: /help shows them")
            return True
        try:
            self.commands[name](argument)
        except ConversationError as error:
            say(str(error))
        return True

    def answer(self, question: str) -> bool:
        """Answer a question and keep both. Returns False if it cannot be answered."""
        from engine import RequestError
        from ui.common.answer_view import Tally

        self.view.tally = Tally()
        try:
            request = self._request(question)
            with AnswerInterrupt() as interrupt:
                speculation = not self.args.no_speculation
                job = self.engine.submit(request, speculation, client="chat")
                done = self.view.follow(job, interrupt)
            if done.reason == "failed":
                raise Failure(FAILED, f"the model failed, ask again: {done.error}")
        except (RequestError, Failure) as error:
            say(str(error))
            return False
        self.conversation.add(question, done.text)
        self._show(done)
        return True

    def _request(self, question: str) -> Request:
        """Make a request of the question after as many turns as fit the context.

        When it is full, a quarter is freed at once, so that the next prompts share a prefix with
        this one.
        """
        from engine import Request

        context = self.engine.context
        max_tokens = self.args.max_tokens or min(DEFAULT_MAX_TOKENS, context // 2)
        turns = len(self.conversation.turns)
        self.first_turn = before = min(self.first_turn, turns)
        tokens = self._prompt_tokens(question)
        if tokens + max_tokens > context:
            capacity = context * 3 // 4 - max_tokens
            while self.first_turn < turns and tokens > capacity:
                self.first_turn += 2
                tokens = self._prompt_tokens(question)
        if self.first_turn > before:
            say(f"the context is full: the model does not see the first {self.first_turn} messages")
        return Request(
            "chat",
            messages=self._messages(question),
            max_tokens=max_tokens,
            **self.choices | {"seed": self.choices["seed"] + self.regenerations},
        )

    def _messages(self, question: str) -> tuple[dict[str, str], ...]:
        turns = len(self.conversation.turns)
        return self.conversation.messages(
            question, turns if self.args.no_history else self.first_turn
        )

    def _prompt_tokens(self, question: str) -> int:
        return len(self.engine.chat(self._messages(question)))

    def _show(self, done: Done) -> None:
        """Show the figures and remarks below an answer."""
        from ui.common.answer_view import figures, print_stats

        tally = self.view.tally
        if self.args.json:
            write_json({"answer": done.text, "reason": done.reason} | figures(done, tally))
        if self.args.verbose:
            print_verdicts(done, tally)
        if self.args.stats:
            print_stats(done, tally)
        if done.reason == "cancelled":
            say("stopped: what was written is kept; /regen answers again")
        elif done.reason == "length":
            say("the answer was cut off: --max-tokens allows more")

    def _reset(self, argument: str) -> None:
        self.conversation.turns.clear()
        self.first_turn = 0
        say("the conversation is forgotten")

    def _remove(self, argument: str) -> None:
        question, _ = self.conversation.remove()
        say(f"removed: {question}")

    def _regen(self, argument: str) -> None:
        question, answer = self.conversation.remove()
        self.regenerations += 1
        if not self.answer(question):
            self.conversation.add(question, answer)

    def _save(self, argument: str) -> None:
        if not argument:
            raise ConversationError("/save: no file: write its name behind the command")
        self.conversation.save(Path(argument).expanduser())
        say(f"{argument}: {len(self.conversation.turns)} messages saved")

    def _load(self, argument: str) -> None:
        if not argument:
            raise ConversationError("/load: no file: write its name behind the command")
        self.conversation, self.first_turn = Conversation.load(Path(argument).expanduser()), 0
        say(f"{argument}: {len(self.conversation.turns)} messages loaded")


def print_verdicts(done: Done, tally: Tally) -> None:
    """Print on stderr how many drafts were accepted, in the colours of the text above."""
    from rich.console import Console
    from rich.text import Text

    counts = {
        "accepted draft": done.usage.accepted,
        "correction": tally.corrections,
        "bonus": tally.steps - tally.corrections,
    }
    parts = [Text(f"{name} {count}", VERDICT_COLOURS[name]) for name, count in counts.items()]
    line = Text(f"{done.usage.completion_tokens} tokens: ") + Text(", ").join(parts)
    line.append(f"; {done.usage.drafted} drafted in {done.usage.forwards} passes")
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)
