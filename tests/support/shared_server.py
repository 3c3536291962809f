"""This user's shared server, on a thread of the test's process or as a process of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.remote.address import Address, listen, shared_address
from lsp_server.protocol.transport import SocketServer
from lsp_server.server import create
from lsp_server.shared_engine import SharedEngine

TIMEOUT_S = 180  # a backstop for a busy machine


@contextmanager
def private_runtime(home: Path) -> Iterator[Path]:
    """DRAFTLINE_HOME is `home`, and sockets are in a folder of this context's own; its path is
    short, as a socket's must be."""
    with tempfile.TemporaryDirectory(prefix="dl") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setenv("DRAFTLINE_HOME", str(home))
        patch.delenv("DRAFTLINE_SERVER", raising=False)
        patch.delenv("DRAFTLINE_MODEL", raising=False)
        yield Path(folder)


@contextmanager
def shared_server(home: Path, model: str = "") -> Iterator[ThreadServer]:
    """The shared server of a `private_runtime`, on a thread of this process; with a `model` as if
    an editor had configured it."""
    with private_runtime(home):
        address = shared_address()
        assert address is not None
        server = ThreadServer(address)
        try:
            if model:
                server.shared_engine.configure("an editor", model, "auto")
            yield server
        finally:
            server.close()


class ThreadServer:
    """`shared_engine` and `address` of a server on a thread."""

    def __init__(self, address: Address) -> None:
        self.shared_engine, self.address = SharedEngine(), address
        self._listener = listen(address)
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._is_listening.wait(TIMEOUT_S)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        accepting = await SocketServer(lambda: create(self.shared_engine), self._listener).start()
        self._is_listening.set()
        await self._stop.wait()
        accepting.close()

    def close(self) -> None:
        """End it, as a crash would: its clients are disconnected."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(TIMEOUT_S)
            self.shared_engine.close(TIMEOUT_S)
        assert self.address.path is not None
        self.address.path.unlink(missing_ok=True)
