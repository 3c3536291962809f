"""Which server stands for speculation and which for none: a second one, or an option."""

from __future__ import annotations

from engine.remote.link import LinkError, Refused
from ui.verify.run import ModeServer, VerifyRun
from ui.verify.server import Options, VerifiedServer
from ui.verify.tasks import tasks

PROBES = 5  # edits, asked until one is drafted for
OTHER_RUN = 10**7  # added to a run's number: its prompts stay unknown to every cache
REMEDY = "name the same model on a server without speculation with --against"


def open_modes(
    run: VerifyRun, server: VerifiedServer, against: VerifiedServer | None, model: str
) -> str:
    """Open the servers, and set the run's modes.

    Returns why there is none without speculation; "" if there is one. Raises LinkError for the
    first server.
    """
    server.open(model)
    run.modes["with"] = ModeServer(server)
    try:
        if against is not None:
            against.open(model, server.model)
            run.modes["without"] = ModeServer(against)
            return ""
        taken = takes_option(server, run.number)
    except LinkError as error:
        run.notes.append(f"{error}.")
        return f"{(against or server).url} could not be asked without speculation"
    if taken:
        run.modes["without"] = ModeServer(server, plain=True)
        return ""
    if taken is None:
        return f"the server does not say that it guessed tokens, so that no option shows: {REMEDY}"
    return f"the server does not turn speculation off where a request asks for it: {REMEDY}"


def takes_option(server: VerifiedServer, number: int) -> bool | None:
    """Return whether the server turns speculation off where a request asks for it.

    True: it drafts, and with the option it does not. False: it drafts all the same. None: it has
    drafted nothing that it says, so that nobody can tell. Raises LinkError.
    """
    edits = [task for task in tasks(OTHER_RUN + number, PROBES) if task.kind == "edit"]
    for task in edits:
        if server.ask(task).drafted:
            try:
                return not server.ask(task, Options(plain=True)).drafted
            except Refused:  # it knows its options, and this is none
                return False
    return None


def idle(run: VerifyRun) -> str:
    """Say why the modes of a run are not what they should be; "" if they are.

    Only where the servers say how much they drafted.
    """
    if run.drafted.get("with") == 0:
        why = "the server says that it guessed no tokens"
        return f"{why}: switch speculation on, or let answers be longer with --tokens"
    if run.drafted.get("without"):
        return "the server without speculation guessed tokens too: start it without"
    return ""
