"""What the tools do: edit files, merge updates, search the workspace, ask documents.

A tool either does the whole of it or raises ToolFailure, and then nothing is changed.
Requests to the model take turns; a tool that is cancelled cancels its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.aio import follow
from engine.editing.apply_answer import MAX_MERGES, apply_outcome, merged
from engine.editing.apply_snippet import merge
from engine.editing.command_files import why_not_startup
from engine.editing.dialogue import Ask, dialogue, hold
from engine.editing.diff import diff
from engine.editing.edit import selection_of
from engine.editing.edits import EditRefused, too_long
from engine.editing.outcome import Outcome, why_unchanged
from engine.editing.text_file import FileChanged, FileError, read_text, replace_text
from engine.records import Done, Request, RequestError
from index.workspace.file_filter import EXEMPTIONS, Skipped, why_secret
from ui.common.errors import Failure
from ui.common.sources import support
from ui.mcp.roots import PathRefused, Roots

if TYPE_CHECKING:
    from engine.editing.apply_snippet import Merge
    from engine.editing.running.trial import Trial
    from engine.remote.any_engine import AnyEngine
    from index.documents.documents import Documents
    from index.workspace.workspace import Workspace

MAX_MATCHES = 100
MAX_ANSWERS = 5  # answers of a model that merges an update into a file that others write
T = TypeVar("T")


class ToolFailure(Exception):
    """The reason why a tool did nothing, in one line with the remedy.

    Below it is the diff of an edit that fails a check.
    """


class ChangedFile(ToolFailure):
    """A tool's failure because the file is no longer the one that was read."""


class Tools:
    """The tools of one client.

    `open_engine` loads or joins an engine and may raise Failure, as may `open_workspace`, which
    opens the index of folders. Both are called when first needed. `make_trial` prepares the user's
    check of an edit.
    """

    def __init__(
        self,
        open_engine: Callable[[], AnyEngine],
        open_workspace: Callable[[Sequence[Path]], Workspace],
        documents: Documents,
        make_trial: Callable[[Path], Trial | None] = lambda file: None,
    ) -> None:
        self._open_engine, self._open_workspace = open_engine, open_workspace
        self._documents, self._make_trial = documents, make_trial
        self._engine: AnyEngine | None = None
        self._workspaces: dict[tuple[Path, ...], Workspace] = {}
        self._turn = asyncio.Lock()

    def close(self) -> None:
        """End the engine and close the indexes."""
        for workspace in self._workspaces.values():
            workspace.close()
        self._documents.close()
        if self._engine is not None:
            self._engine.close()

    # -- editing -------------------------------------------------------------------------------

    async def apply_edit(
        self, roots: Roots, path: str, update: str, instruction: str, force: bool = False
    ) -> str:
        """Merge changed lines into a file, write it, and return how, and the diff.

        What fails a check is written only with `force`. What others write meanwhile stays: the
        lines are merged into that.
        """
        request, place = await self._placed(roots, path, update, instruction)
        most = MAX_ANSWERS if place.text is None else MAX_MERGES
        for _ in range(most - 1):
            with suppress(ChangedFile):
                return await self._merge(roots, path, request, place, force)
            request, place = await self._placed(roots, path, update, instruction)
        return await self._merge(roots, path, request, place, force)

    async def _placed(
        self, roots: Roots, path: str, update: str, instruction: str
    ) -> tuple[Request, Merge]:
        """Make the request for an update, and merge that without a model, if possible."""
        file, text = await asyncio.to_thread(_read, roots, path)
        try:
            request = Request("edit", text, str(file), instruction=instruction, update=update)
            return request, await asyncio.to_thread(merge, text, update, str(file))
        except (EditRefused, RequestError) as error:
            raise ToolFailure(f"{path}: {error}") from error

    async def _merge(
        self, roots: Roots, path: str, request: Request, place: Merge, force: bool
    ) -> str:
        """Write the file with an update merged into it; ChangedFile if it has another text now."""
        file, text = Path(request.path), request.text
        try:
            if place.text is not None:
                done, how = merged(place.text), "merged without a model"
            else:
                done, how = await self._ask(request), f"merged by the model: {place.doubt}"
            outcome = await asyncio.to_thread(apply_outcome, request, done)
        except (EditRefused, RequestError) as error:
            raise ToolFailure(f"{path}: {error}") from error
        remedy = "correct the update, or say in the instruction that it is intended"
        _refuse_failed(roots, file, text, outcome, force, remedy)
        notes = [f"Forced: {warning}" for warning in outcome.warnings]
        note = "; ".join([how, *notes])
        return await asyncio.to_thread(self._write_indexed, roots, file, text, outcome.text, note)

    async def edit(
        self,
        roots: Roots,
        path: str,
        instruction: str,
        lines: tuple[int, int] | None,
        force: bool = False,
    ) -> str:
        """Edit a file, or lines of it, by an instruction, write it and return the diff.

        What fails a check is written only with `force`.
        """
        file, text = await asyncio.to_thread(_read, roots, path)
        try:
            selection = selection_of(text, lines) if lines else None
            request = Request("edit", text, str(file), selection=selection, instruction=instruction)
            outcome = await hold(
                dialogue(request, trial=self._make_trial(file)), self._ask_for_edit
            )
        except (EditRefused, RequestError) as error:
            raise ToolFailure(f"{path}: {error}") from error
        if outcome.text == text:
            return f"Nothing changed: {outcome.rule or why_unchanged(request)}."
        remedy = "say more precisely what to change, or name fewer lines"
        _refuse_failed(roots, file, text, outcome, force, remedy)
        notes = [f"made by rule: {outcome.rule}"] if outcome.rule else []
        notes += outcome.notes
        if outcome.failed:
            notes += [f"Forced: {warning}" for warning in outcome.warnings]
        elif outcome.checked or not outcome.rule:
            notes += [outcome.seen]
        note = "; ".join(notes)
        return await asyncio.to_thread(self._write_indexed, roots, file, text, outcome.text, note)

    def _write_indexed(self, roots: Roots, file: Path, old: str, new: str, note: str) -> str:
        """Write the file, so that `find` has its new text at once; as the function `_write`."""
        answer = _write(roots, file, old, new, note)
        for folders, workspace in [*self._workspaces.items()]:
            if any(file.is_relative_to(folder) for folder in folders):
                workspace.refresh([file])
        return answer

    async def _ask_for_edit(self, question: Ask) -> Done:
        """Ask the model, if it may edit so much at once. ToolFailure if not."""
        request, engine = question.request, await self._opened()
        if why := too_long(request, engine.info.model):
            raise ToolFailure(f"{request.path}: {why}: name the lines to edit")
        return await self._ask(request)

    # -- reading -------------------------------------------------------------------------------

    async def find(self, roots: Roots, text: str, most: int) -> str:
        """Find the places of a text in the indexed files, newest file first.

        Files that `_resolved` refuses are left out.
        """
        from ui.common.find import matches

        if not text:
            raise ToolFailure("the text is empty: give the text to find")
        if not roots.folders:
            raise ToolFailure("the client named no folder of this machine to search in")
        most = max(1, min(most, MAX_MATCHES))

        def search() -> str:
            workspace = self._workspaces.get(roots.folders)
            if workspace is None:
                workspace = self._workspaces[roots.folders] = self._open_workspace(roots.folders)
            git_files = roots.git_files()

            def shown(path: str) -> bool:
                try:
                    roots.resolve(path, git_files)
                except PathRefused:
                    return False
                return True

            found, more = matches(workspace, text, most, shown)
            lines = [f"{one.path}:{one.line}:{one.column}  {line}" for one, line in found]
            lines += [f"There are more than {most} places."] * more
            return "\n".join(lines) or "This text is in no indexed file."

        async with self._turn:
            return await _in_thread(search)

    async def ask_documents(self, roots: Roots, question: str, paths: Sequence[str]) -> str:
        """Answer a question from documents, with the places that the answer copies from."""
        from engine.rag.answer import cite_answer, prepare, second_question, with_verdict
        from index.documents.documents import DocumentError

        def files_of() -> list[Path]:
            files = [_resolved(roots, path) for path in paths]
            for file in files:
                _refuse_secret(roots, file, "")
            return files

        files = await asyncio.to_thread(files_of)
        engine = await self._opened()

        def read() -> dict[str, str]:
            documents = [self._documents.add(file, file.name) for file in files]
            for file, document in zip(files, documents, strict=True):
                _refuse_secret(roots, file, document.text)
            return {document.id: document.text for document in documents}

        try:
            texts = await asyncio.to_thread(read)
            prepared = await asyncio.to_thread(
                prepare, question, self._documents, [*texts], engine, engine.context
            )
            if prepared.request is None:
                return prepared.not_found
            done = await self._ask(prepared.request)
            answer = cite_answer(prepared, done.text)
            if second := second_question(prepared, answer, engine.folder):
                answer = with_verdict(answer, (await self._ask(second)).text)
        except (DocumentError, RequestError) as error:
            raise ToolFailure(str(error)) from error
        return f"{answer.text}\n\n{support(answer, texts.__getitem__)}"

    # -- the model -----------------------------------------------------------------------------

    async def _opened(self) -> AnyEngine:
        async with self._turn:
            if self._engine is None:
                self._engine = await _in_thread(self._open_engine)
            return self._engine

    async def _ask(self, request: Request) -> Done:
        """Ask the model. RequestError if it cannot be asked, ToolFailure if it fails."""
        engine = await self._opened()
        async with self._turn:
            job = await asyncio.to_thread(lambda: engine.submit(request))
            done = Done("failed", error="the engine ended")
            async with aclosing(follow(job)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        done = event
        if done.reason == "failed":
            raise ToolFailure(f"the model failed: {done.error}")
        return done


async def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. A Failure that it raises becomes a ToolFailure."""
    try:
        return await asyncio.to_thread(work)
    except Failure as error:
        raise ToolFailure(str(error)) from error


def _resolved(roots: Roots, path: str) -> Path:
    try:
        return roots.resolve(path)
    except PathRefused as error:
        raise ToolFailure(" ".join(str(error).split())) from error
    except ValueError as error:  # a NUL, or a half of a surrogate pair
        raise ToolFailure(f"{path!r}: not a valid file name: {error}") from error


def _read(roots: Roots, path: str) -> tuple[Path, str]:
    """Read a file that a tool is about to change, and return it with its text."""
    file = _resolved(roots, path)
    if why := why_not_startup(roots.relative(file)):
        raise ToolFailure(f"{path}: {why}")
    if file.name.lower() == EXEMPTIONS:
        raise ToolFailure(f"{path}: it names the secrets that are shown: change it yourself")
    try:
        return file, read_text(file)
    except FileError as error:
        raise ToolFailure(str(error)) from error


def _refuse_secret(roots: Roots, file: Path, text: str) -> None:
    """Raise ToolFailure if a file of this text, or name, may hold secrets.

    An agent is not shown those.
    """
    try:
        why = why_secret(str(file), text, roots.folders)
    except Skipped as skipped:  # the file of exemptions cannot be used
        why = str(skipped)
    if why:
        remedy = f"answer without it, or let the user name it in {EXEMPTIONS} of the root"
        raise ToolFailure(f"{roots.relative(file)}: {why}: {remedy}")


def _refuse_failed(
    roots: Roots, file: Path, old: str, outcome: Outcome, force: bool, remedy: str
) -> None:
    """Raise ToolFailure with the diff of an edit that fails a check, unless it is forced."""
    if outcome.failed and not force:
        name = roots.relative(file)
        raise ToolFailure(
            f"{name}: not written: {outcome.warning}: {remedy}, or write it all the same with "
            f"force\n\n{diff(old, outcome.text, name)}"
        )


def _write(roots: Roots, file: Path, old: str, new: str, note: str) -> str:
    """Replace the file's text, if it is still `old`, and return the note and the diff.

    ChangedFile if the file has another text now.
    """
    if new == old:
        return "Nothing changed: the file has the update already."
    try:
        replace_text(file, new, old)
    except FileChanged as error:
        raise ChangedFile(str(error)) from error
    except FileError as error:
        raise ToolFailure(str(error)) from error
    head = f"{note}\n\n" if note else ""
    return head + diff(old, new, roots.relative(file))
