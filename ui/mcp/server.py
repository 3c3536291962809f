"""The tools as a server of the Model Context Protocol, with the protocol's own package."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import ListRoots, Resolve
from mcp.types import CallToolResult, InputRequiredResult, ListRootsResult, ToolAnnotations
from pydantic import Field, ValidationError

from index.documents.formats import FORMATS
from index.version import own_version
from ui.mcp.roots import PathRefused, Roots, folders_of, home_folder
from ui.mcp.tools import ToolFailure, Tools

INSTRUCTIONS = (
    "Edits files with a small model on this machine, and answers with the diff: read it. For a "
    "change that you can write yourself, apply_edit takes only the changed lines, each with three "
    "lines of the file around it. edit does simple work by instruction."
)

USE_FILE_URIS = "name folders of this machine, as `file:///home/me/project`"


def ask_roots(context: Context) -> ListRoots | None:
    """Ask for the client's roots, if it answers that."""
    capabilities = context.client_capabilities
    return ListRoots() if capabilities and capabilities.roots else None


ClientRoots = Annotated[ListRootsResult | None, Resolve(ask_roots)]
Force = Annotated[bool, Field(description="write what failed a check, once its diff has been read")]
PathInRoots = Annotated[str, Field(description="absolute, or relative to the first root")]


class _Server(MCPServer):
    """A server that tells the client which of its roots cannot be used."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool and return its result. ToolError if it fails."""
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError) and cause.title == ListRootsResult.__name__:
                roots = ", ".join(repr(problem["input"]) for problem in cause.errors())
                raise ToolError(f"the client's roots: {roots}: {USE_FILE_URIS}") from error
            raise


def make_server(tools: Tools, folders: Sequence[Path]) -> MCPServer:
    """Make a server of the tools.

    They work in the client's roots, as far as they are in `folders`. A client without roots works
    in `folders`, or in the current folder if there are none.
    """
    server = _Server(
        "draftline",
        instructions=INSTRUCTIONS,
        version=own_version(),
        log_level="WARNING",
    )
    own = Roots.of(folders)

    def roots_of(listed: ListRootsResult | None) -> Roots:
        if listed is None:
            return own if own.folders else _current_folder()
        try:
            named = Roots.of(folders_of([str(root.uri) for root in listed.roots]))
        except PathRefused as error:
            raise ToolError(str(error)) from error
        return named.within(own) if own.folders else named

    @server.tool(annotations=ToolAnnotations(destructive_hint=True), structured_output=False)
    async def apply_edit(
        path: PathInRoots,
        update: Annotated[
            str,
            Field(
                description="the changed lines, three lines of the file before and after each "
                "change, and `// ... existing code ...` in place of all other lines"
            ),
        ],
        client: ClientRoots,
        instruction: Annotated[
            str, Field(description="what the update is for; names what it deletes")
        ] = "",
        force: Force = False,
    ) -> str:
        """Merge an update into a file, write it and return the diff.

        An update that is seen to lose a definition or a comment, or breaks the syntax, is not
        written. Lines may still be put in a wrong place: read the diff.
        """
        work = tools.apply_edit(roots_of(client), path, update, instruction, force)
        return await _answered(work)

    @server.tool(annotations=ToolAnnotations(destructive_hint=True), structured_output=False)
    async def edit(
        path: PathInRoots,
        instruction: Annotated[str, Field(description="for example: rename path to source")],
        client: ClientRoots,
        first_line: Annotated[int | None, Field(description="of the lines to edit, from 1")] = None,
        last_line: Annotated[int | None, Field(description="included")] = None,
        force: Force = False,
    ) -> str:
        """Edit a file, or lines of it, by an instruction, write it and return the diff.

        An edit that fails a check, for example because it loses a definition, is not written.
        """
        lines = None
        if first_line is not None or last_line is not None:
            first = 1 if first_line is None else first_line
            lines = (first, first if last_line is None else last_line)
        return await _answered(tools.edit(roots_of(client), path, instruction, lines, force))

    @server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    async def find(
        text: Annotated[str, Field(description="exact, may have several lines")],
        client: ClientRoots,
        most: Annotated[int, Field(description="places to return")] = 20,
    ) -> str:
        """Find an exact text in all text files of the roots.

        Each place is a line `path:line:column  line`, the file that changed last first.
        """
        return await _answered(tools.find(roots_of(client), text, most))

    @server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    async def ask_documents(
        question: str,
        paths: Annotated[list[str], Field(description=FORMATS)],
        client: ClientRoots,
    ) -> str:
        """Answer a question from documents, with the places that the answer was copied from."""
        return await _answered(tools.ask_documents(roots_of(client), question, paths))

    return server


def _current_folder() -> Roots:
    """Take the current folder as the only root.

    ToolError if the home folder is in it: some clients start servers in `/`, and nobody has chosen
    that.
    """
    roots = Roots.of([Path()])
    folder, home = roots.folders[0], home_folder()
    if folder == folder.parent or (home is not None and roots.holds(home)):
        remedy = "name the folder of a project: `draftline mcp FOLDER`, or as a root of the client"
        raise ToolError(f"{folder}: too much to work in: {remedy}")
    return roots


async def _answered(work: Awaitable[str]) -> str:
    """Wait for the tool's result; a failure becomes the protocol's error, which the agent reads."""
    try:
        return await work
    except ToolFailure as error:
        raise ToolError(str(error)) from error
