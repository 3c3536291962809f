"""The parser of the command line: errors that name what was probably meant, help that fits."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from ui.common.errors import USAGE, Failure
from ui.common.terminal import hung


class Formatter(argparse.HelpFormatter):
    """Help whose paragraphs are filled, and whose tables keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(_filled(each, width, indent) for each in paragraphs) + "\n"

    def _format_usage(self, *args: Any) -> str:
        """Break the lines that argparse leaves too long: groups of options that exclude others."""
        width = self._width - self._current_indent
        lines = super()._format_usage(*args).split("\n")
        return "\n".join(line if len(line) <= width else hung(line, width) for line in lines)


def _filled(paragraph: str, width: int, indent: str) -> str:
    lines = paragraph.split("\n")
    if not any(re.search(r"^\s|\S\s{2,}\S", line) for line in lines):
        return textwrap.fill(
            " ".join(lines), width, initial_indent=indent, subsequent_indent=indent
        )
    return "\n".join(hung(indent + line, width) for line in lines)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"formatter_class": Formatter})

    def error(self, message: str) -> NoReturn:
        raise Failure(USAGE, f"{message}: see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the arguments of this command, all of which it must know."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            shown = [
                option
                for action in self._actions
                if action.help != argparse.SUPPRESS
                for option in action.option_strings
            ]
            meant = _meant(unknown[0].partition("=")[0], shown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            meant = _meant(str(value), choices) or f" (choose from {', '.join(choices)})"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{meant}")


def _meant(word: str, words: Iterable[str]) -> str:
    """Name the most similar of the words, if there is one."""
    from difflib import get_close_matches

    by_letters = {each.lstrip("-"): each for each in words}
    near = get_close_matches(word.lstrip("-"), by_letters, n=1)
    return f" (did you mean {by_letters[near[0]]}?)" if near else ""
