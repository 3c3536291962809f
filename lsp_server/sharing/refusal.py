"""A session without a server: the editor shows why there is none, once.

An error in answer to `initialize` would say it, too, but Neovim shows a traceback for that, and
editors start a server that ended again, in vain. So the session begins, offers nothing, and fails
each request with the reason, until the user has fixed it and restarts the server.
"""

from __future__ import annotations

import json
import os
from typing import Any

from engine.remote.framing import Frames, framed
from lsp_server.sharing.relay import CHUNK_BYTES, watch_process, write

FAILED = -32803  # error code; LSP's RequestFailed
ERROR = 1  # LSP's MessageType


def refuse(reason: str) -> None:
    """Serve stdin and stdout until the client leaves.

    Raises OSError if it is gone, NotLsp if it is no client.
    """
    session, frames = _Refusal(reason), Frames()
    while data := os.read(0, CHUNK_BYTES):
        for body in frames.feed(data):
            try:
                message = json.loads(body) if isinstance(body, bytes) else None
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict) and not session.take(message):
                return


class _Refusal:
    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._wants_status = False

    def take(self, message: dict[str, Any]) -> bool:
        """Answer a message of the client. False if it was the last one."""
        method, params = message.get("method"), message.get("params")
        if method == "initialize":
            self._begin(params if isinstance(params, dict) else {})
        elif method == "initialized":
            self._tell()
        if "method" in message and "id" in message:
            _send({"id": message["id"], **self._answer(method)})
        return bool(method != "exit")

    def _answer(self, method: Any) -> dict[str, Any]:
        if method == "initialize":
            return {"result": {"capabilities": {}, "serverInfo": {"name": "draftline"}}}
        if method == "shutdown":
            return {"result": None}
        return {"error": {"code": FAILED, "message": self._reason}}

    def _begin(self, params: dict[str, Any]) -> None:
        if type(pid := params.get("processId")) is int:
            watch_process(pid)
        found: Any = params
        for key in ("capabilities", "experimental", "draftline", "status"):
            found = found.get(key) if isinstance(found, dict) else None
        self._wants_status = found is True

    def _tell(self) -> None:
        method = "window/showMessage"
        params: dict[str, Any] = {"type": ERROR, "message": f"Draftline: {self._reason}"}
        if self._wants_status:
            method = "draftline/status"
            params = dict.fromkeys(("tokensPerSecond", "acceptedShare", "files", "tokens"))
            params |= {"state": "error", "message": self._reason, "model": "", "device": ""}
            params["downloads"] = []
        _send({"method": method, "params": params})


def _send(message: dict[str, Any]) -> None:
    write(framed(json.dumps({"jsonrpc": "2.0", **message}).encode()))
