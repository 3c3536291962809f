"""The start of a session.

`initialize`, the client's settings, and progress while the model and the index load. `initialize`
is answered at once; everything slow follows it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.settings import SECTION
from lsp_server.sharing.consent import ask_to_download

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

log = logging.getLogger(__name__)

SETTINGS_TIMEOUT_S = 10.0  # seconds for the client's response to workspace/configuration
REPORT_INTERVAL_S = 0.25
AGREEMENT_S = 1.0  # seconds for all windows to send a setting that was changed for all of them
ALL_FILES = types.FileSystemWatcher(glob_pattern="**/*")


def start(server: Server, session: Session, notice: str = "") -> None:
    """Register the handlers of a session's start, when a `notice` is shown, and of its settings."""
    feature = server.feature
    options: list[Any] = []  # initializationOptions, until they are applied under newer settings
    loading = LoadingProgress(server, session)
    pulling, is_pull_due = asyncio.Lock(), False
    warned_of = [""]  # models that are not used here

    def configure(*values: Any) -> None:
        layers = [*options, *values]
        options.clear()
        for warning in session.configure(*layers):
            shown = types.ShowMessageParams(type=types.MessageType.Warning, message=warning)
            server.window_show_message(shown)
        if session.shared_engine.loaded is not None:  # another client loaded it
            session.index.open_soon()
        on_engine_changed()
        if session.other_model:
            session.spawn(warn_of_other_model())

    def on_engine_changed() -> None:
        loading.show()
        for engine in session.shared_engine.engines:
            if engine.state == "asking":
                session.spawn(ask_to_download(server, engine, session.name))

    async def warn_of_other_model() -> None:
        await asyncio.sleep(AGREEMENT_S)
        if (wanted := session.other_model) and wanted != warned_of[-1]:
            warned_of.append(wanted)
            message = (
                f"Draftline answers with {session.shared_engine.model} here, too, since other "
                f"windows use it: {wanted} replaces it once all of them name that; the setting "
                f'draftline.server, "own", gives this window an engine of its own'
            )
            shown = types.ShowMessageParams(type=types.MessageType.Warning, message=message)
            server.window_show_message(shown)

    @feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        session.begin()
        session.on_engine_changed = on_engine_changed
        options.append(params.initialization_options)
        supported = _experimental(params.capabilities)
        session.wants_status = supported.get("status") is True
        session.has_instruction_box = supported.get("instructionBox") is True
        session.has_chat = supported.get("chat") is True
        name = params.client_info.name if params.client_info else ""
        session.shows_next_inline = name == "Neovim" and supported.get("nextEdit") is not True
        session.index.set_roots(_roots(params))
        session.shared_engine.progress.append(loading.update)
        server.on_close.append(loading.close)

    @feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        if notice:
            session.warn(notice)
        configure(await _request_settings(server))
        await _register_watchers(server)

    @feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configured(params: types.DidChangeConfigurationParams) -> None:
        values: Any = params.settings
        if not isinstance(values, dict) or not values:
            pull_soon()
        elif SECTION in values or not _is_foreign(values):
            configure(values)  # at once: the next request relies on it

    def pull_soon() -> None:
        nonlocal is_pull_due
        if not is_pull_due:
            is_pull_due = True
            session.spawn(pull())

    async def pull() -> None:
        nonlocal is_pull_due
        async with pulling:  # one request for the settings at a time
            is_pull_due = False
            configure(await _request_settings(server))

    @feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        session.index.set_roots([folder.uri for folder in server.workspace.folders.values()])


def _roots(params: types.InitializeParams) -> list[str]:
    """List the URIs of the workspace's folders, from the newest of three fields that says any."""
    if params.workspace_folders:
        return [folder.uri for folder in params.workspace_folders]
    if params.root_uri:
        return [params.root_uri]
    if params.root_path and Path(params.root_path).is_absolute():
        return [Path(params.root_path).as_uri()]
    return []


def _experimental(capabilities: types.ClientCapabilities) -> dict[str, Any]:
    """Return the client's capabilities for our own methods."""
    experimental = capabilities.experimental
    ours = experimental.get(SECTION) if isinstance(experimental, dict) else None
    return ours if isinstance(ours, dict) else {}


def _is_foreign(values: dict[str, Any]) -> bool:
    """Return whether these are the settings of another server."""
    from lsp_server.settings import CHECKS

    return not any(key in CHECKS for key in values)


async def _request_settings(server: Server) -> Any:
    """Request the client's settings; None if it does not send them."""
    workspace = server.client_capabilities.workspace
    if not workspace or not workspace.configuration:
        return None
    item = types.ConfigurationItem(section=SECTION)
    try:
        response = server.workspace_configuration_async(types.ConfigurationParams([item]))
        return (await asyncio.wait_for(response, SETTINGS_TIMEOUT_S))[0]
    except (JsonRpcException, IndexError, TimeoutError) as error:
        log.warning("the client did not send its settings: %s", error or "no response")
        return None


async def _register_watchers(server: Server) -> None:
    """Ask to be notified of changed files and settings, if the client wants to be asked."""
    workspace = server.client_capabilities.workspace
    files = workspace.did_change_watched_files if workspace else None
    settings = workspace.did_change_configuration if workspace else None
    wanted: list[tuple[str, Any]] = []
    if files and files.dynamic_registration:
        watchers = types.DidChangeWatchedFilesRegistrationOptions([ALL_FILES])
        wanted.append((types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watchers))
    if settings and settings.dynamic_registration:
        section = types.DidChangeConfigurationRegistrationOptions(section=SECTION)
        wanted.append((types.WORKSPACE_DID_CHANGE_CONFIGURATION, section))
    if wanted:
        made = [types.Registration(str(uuid4()), method, options) for method, options in wanted]
        try:
            await server.client_register_capability_async(types.RegistrationParams(made))
        except JsonRpcException as error:
            log.warning("the client will not notify of changes: %s", error)


class LoadingProgress:
    """The progress of the model and the index in the client's own display."""

    def __init__(self, server: Server, session: Session) -> None:
        self._server, self._session = server, session
        self._is_shown = False
        self._latest: tuple[str, int, int] = ("starting", 0, 0)

    def update(self, what: str, done: int, total: int) -> None:
        """Remember the latest progress; from any thread."""
        self._latest = (what, done, total)

    async def close(self) -> None:
        """Stop following the progress: the client is gone."""
        self._session.shared_engine.progress.remove(self.update)

    def show(self) -> None:
        """Start reporting progress until the model and the index are there, unless they are."""
        window = self._server.client_capabilities.window
        can_show = window is not None and window.work_done_progress
        if can_show and not self._is_shown and self._session.is_starting():
            self._is_shown = True
            self._session.spawn(self._show())

    async def _show(self) -> None:
        try:
            while await self._report(f"draftline-{uuid4()}") and self._session.is_starting():
                pass  # a download has begun or ended, which can be cancelled
        finally:
            self._is_shown = False

    async def _report(self, token: str) -> bool:
        """Report until all is there, or a download begins or ends. False if the client refuses."""
        progress = self._server.work_done_progress
        try:
            await progress.create_async(token)
        except JsonRpcException as error:
            log.warning("the client shows no progress: %s", error)
            return False
        main = self._session.shared_engine
        engine = next((one for one in main.engines if one.state == "loading"), main)
        is_fetching = engine.is_fetching
        begin = types.WorkDoneProgressBegin(title="Draftline", cancellable=is_fetching or None)
        progress.begin(token, begin)
        progress.tokens[token].add_done_callback(
            lambda future: engine.cancel_fetch() if future.cancelled() else None
        )
        shown = None
        while shown is None or (self._session.is_starting() and is_fetching == engine.is_fetching):
            if self._latest != shown:
                shown = what, done, total = self._latest
                percent = int(100 * done / total) if total else None
                report = types.WorkDoneProgressReport(message=what, percentage=percent)
                progress.report(token, report)
            await asyncio.sleep(REPORT_INTERVAL_S)
        message = engine.message or None
        progress.end(token, types.WorkDoneProgressEnd(message=message))
        progress.tokens.pop(token, None)
        return True
