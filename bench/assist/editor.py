"""An editor of the files of tasks: what the language server offers, as its user would see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.assist.fresh import FreshTask
from bench.assist.task import SAMPLES, CompletionTask, EditTask
from bench.latency.lsp_client import Client, PendingRequest
from bench.latency.places import position
from bench.replay.collect import language_of


@dataclass(frozen=True)
class Answer:
    """The answer to one request, as a user sees it."""

    text: str | None  # the file's new text, or what a completion inserts; None: only a reason
    reason: str  # why there is none, or why nothing has changed
    seconds: float
    warnings: tuple[str, ...] = ()  # shown with the edit
    by_rule: bool = False  # made without the model


class Editor:
    """Opens the files of a workspace, with the text before the user's change."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._folder = client, folder

    def edit(self, task: EditTask | FreshTask) -> Answer:
        """Ask for an edit of the task's selection."""
        text, (start, stop) = task.text, task.selection
        uri = self._open(task.file, text)
        where = {"start": position(text, start), "end": position(text, stop)}
        asked = self._client.begin("draftline/edit", {
            "textDocument": {"uri": uri}, "range": where, "instruction": task.instruction,
        }).wait()  # fmt: skip
        self._client.close(uri)
        if error := asked.message.get("error"):
            return Answer(None, str(error.get("message")), asked.seconds)
        result = asked.result
        new = applied(text, _text_edits(result["edit"], uri))
        # A server without checks and rules sends none of these.
        warnings, note = tuple(result.get("warnings") or ()), result.get("note") or ""
        by_rule = bool(result["stats"].get("rule"))
        return Answer(new, note, asked.seconds, warnings, by_rule)

    def complete(self, task: CompletionTask | FreshTask) -> Answer:
        """Ask for a completion as an editor does while its user types."""
        text = task.before + task.after
        uri = self._open(task.file, text)
        asked: PendingRequest = self._client.complete(uri, position(text, len(task.before))).wait()
        items = asked.result["items"]
        reason = "" if items else str(self._client.command("draftline.why")["why"])
        self._client.close(uri)
        return Answer(items[0]["insertText"] if items else None, reason, asked.seconds)

    def _open(self, file: str, text: str) -> str:
        uri = (self._folder / file).as_uri()
        self._client.open(uri, text, language=language_of(file))
        return uri


def write_samples(folder: Path) -> None:
    """Copy the samples to a workspace, so that the server indexes them as a user's project."""
    for path in SAMPLES.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())


def _text_edits(edit: dict[str, Any] | None, uri: str) -> list[dict[str, Any]]:
    """Return the changes that a WorkspaceEdit makes to one document."""
    if not edit:
        return []
    made = list((edit.get("changes") or {}).get(uri, []))
    for one in edit.get("documentChanges") or []:
        if one["textDocument"]["uri"] == uri:
            made += one["edits"]
    return made


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """Apply an editor's changes, all of which refer to the text before them, to a text."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(where: dict[str, int]) -> int:
        line = text[starts[where["line"]] :]
        units = line.encode("utf-16-le")[: 2 * where["character"]]
        return starts[where["line"]] + len(units.decode("utf-16-le"))

    spans = [(offset(e["range"]["start"]), offset(e["range"]["end"]), e["newText"]) for e in edits]
    for start, stop, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[stop:]
    return text
