"""How a client and its server get to know each other: capabilities, settings, folders, progress of
loading. `initialize` is answered at once; all that takes time follows."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.settings import SECTION

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

log = logging.getLogger(__name__)

ANSWER = 10.0  # s that a client gets to say its settings
EVERY = types.FileSystemWatcher(glob_pattern="**/*")


def start(server: Server, session: Session) -> None:
    """Register what a client's start and its settings need."""
    feature = server.feature
    options: list[Any] = []
    loading = Loading(server, session)

    def configure(*values: Any) -> None:
        _warn(server, session.configure(*values))
        session.spawn(loading.show())

    @feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        session.begin()
        options.append(params.initialization_options)
        able = _ours(params.capabilities)
        session.wants_status = able.get("status") is True
        session.has_instruction_box = able.get("instructionBox") is True
        name = params.client_info.name if params.client_info else ""
        session.shows_next_inline = name == "Neovim" and able.get("nextEdit") is not True
        uris = [folder.uri for folder in params.workspace_folders or []]
        root = params.root_uri or (params.root_path and f"file://{params.root_path}")
        session.index.set_roots(uris or ([root] if root else []))
        session.shared_engine.progress.append(loading.told)
        server.on_close.append(loading.close)

    @feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        values = await _asked(server)
        configure(*options, values)
        options.clear()
        await _register(server)

    @feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configured(params: types.DidChangeConfigurationParams) -> None:
        values: Any = params.settings
        if not isinstance(values, dict) or not values:
            session.spawn(pulled())
        elif SECTION in values or not _foreign(values):
            configure(values)  # at once: what is asked next counts on it

    async def pulled() -> None:
        configure(await _asked(server))

    @feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        session.index.set_roots([folder.uri for folder in server.workspace.folders.values()])


def _ours(capabilities: types.ClientCapabilities) -> dict[str, Any]:
    """What the client says about itself for us."""
    experimental = capabilities.experimental
    ours = experimental.get(SECTION) if isinstance(experimental, dict) else None
    return ours if isinstance(ours, dict) else {}


def _foreign(values: dict[str, Any]) -> bool:
    from lsp_server.settings import CHECKS

    return not any(key in CHECKS for key in values)


def _warn(server: Server, warnings: list[str]) -> None:
    for warning in warnings:
        shown = types.ShowMessageParams(type=types.MessageType.Warning, message=warning)
        server.window_show_message(shown)


async def _asked(server: Server) -> Any:
    """The client's settings; None where it does not answer."""
    able = server.client_capabilities.workspace
    if not able or not able.configuration:
        return None
    item = types.ConfigurationItem(section=SECTION)
    try:
        asked = server.workspace_configuration_async(types.ConfigurationParams([item]))
        return (await asyncio.wait_for(asked, ANSWER))[0]
    except (JsonRpcException, IndexError, TimeoutError) as error:
        log.warning("the client does not say its settings: %s", error or "no answer")
        return None


async def _register(server: Server) -> None:
    """Have changes of files and settings told, where that is to be asked for."""
    able = server.client_capabilities.workspace
    files = able.did_change_watched_files if able else None
    settings = able.did_change_configuration if able else None
    wanted: list[tuple[str, Any]] = []
    if files and files.dynamic_registration:
        watchers = types.DidChangeWatchedFilesRegistrationOptions([EVERY])
        wanted.append((types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watchers))
    if settings and settings.dynamic_registration:
        section = types.DidChangeConfigurationRegistrationOptions(section=SECTION)
        wanted.append((types.WORKSPACE_DID_CHANGE_CONFIGURATION, section))
    if wanted:
        asked = [types.Registration(str(uuid4()), method, options) for method, options in wanted]
        try:
            await server.client_register_capability_async(types.RegistrationParams(asked))
        except JsonRpcException as error:
            log.warning("the client does not tell of changes: %s", error)


class Loading:
    """Progress of the model and the index, in the client's own display."""

    def __init__(self, server: Server, session: Session) -> None:
        self._server, self._session = server, session
        self._shown = False
        self._latest: tuple[str, int, int] = ("starting", 0, 0)

    async def close(self) -> None:
        """The client is gone."""
        self._session.shared_engine.progress.remove(self.told)

    def told(self, what: str, done: int, of: int) -> None:
        """From any thread; shown four times a second at most."""
        self._latest = (what, done, of)

    async def show(self) -> None:
        """Until model and index are there. Once at a time, and only where something is loaded."""
        able = self._server.client_capabilities.window
        if self._shown or not self._session.is_starting() or not (able and able.work_done_progress):
            return
        self._shown = True
        try:
            await self._show(f"draftline-{uuid4()}")
        finally:
            self._shown = False

    async def _show(self, token: str) -> None:
        progress = self._server.work_done_progress
        try:
            await progress.create_async(token)
        except JsonRpcException as error:
            log.warning("the client shows no progress: %s", error)
            return
        progress.begin(token, types.WorkDoneProgressBegin(title="Draftline"))
        before = None
        while before is None or self._session.is_starting():
            if self._latest != before:
                before = what, done, of = self._latest
                percent = int(100 * done / of) if of else None
                report = types.WorkDoneProgressReport(message=what, percentage=percent)
                progress.report(token, report)
            await asyncio.sleep(0.25)
        message = self._session.shared_engine.message or None
        progress.end(token, types.WorkDoneProgressEnd(message=message))
        progress.tokens.pop(token, None)
