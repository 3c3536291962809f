"""Commands of plug-ins: entry points of the group `draftline.commands`.

Each is a function like the `add_parser` of the modules here: it receives argparse's subparsers and
adds the command that it is offered as, whose `run` takes the parsed arguments and returns the exit
code.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import plugins
from engine.plugins import PluginError
from ui.common.errors import FAILED, Failure, say

GROUP = "draftline.commands"  # the group of entry points


def add_commands(commands: Any, argv: list[str]) -> None:
    """Add the command that `argv` names, or for help and an unknown name those of all plug-ins.

    For a command that is there already nothing is looked up. Raises Failure if the one that is
    named cannot be used; of others that cannot, a line on stderr says so.
    """
    word = argv[0] if argv else "--help"
    if word in commands.choices or word == "--version":
        return
    built_in = set(commands.choices)
    offered = plugins.offers(GROUP)
    for name in [word] if word in offered else offered:
        try:
            if name in built_in:
                raise plugins.shadowed(GROUP, name)
            plugins.load(GROUP, name, partial(_add, commands, name))
        except PluginError as error:
            if name == word:
                raise Failure(FAILED, str(error)) from error
            say(str(error))


def _add(commands: Any, name: str, offer: Any) -> None:
    """Add a command by the function that its package offers."""
    offer(commands)
    if name not in commands.choices:
        raise ValueError("it adds no command of that name")
