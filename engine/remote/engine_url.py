"""The address of an engine of another machine, and the key for it.

The key is taken from the environment or the key ring of the system, never from the command line,
which other users of this machine can read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from engine.remote.address import AddressError

ENGINE_VARIABLE = "DRAFTLINE_ENGINE"  # the default of --engine
KEY_VARIABLE = "DRAFTLINE_ENGINE_KEY"
KEY_RING_SERVICE = "draftline"  # the key ring's service; its keys are by the engine's address
OPENAI = "openai:"  # before the address of a server of OpenAI's protocol


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """The address of an engine, without a slash at its end."""

    url: str
    is_openai: bool = False  # OpenAI's protocol, not Draftline's
    socket: Path | None = None  # the socket of this machine at which the engine is found

    def __str__(self) -> str:
        if self.socket is not None:
            return str(self.socket)
        return f"{OPENAI}{self.url}" if self.is_openai else self.url

    @property
    def host(self) -> str:
        """The host, with the port if the address has one."""
        return urlsplit(self.url).netloc

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        from engine.remote.address import check_loopback

        parts = urlsplit(self.url)
        try:
            check_loopback(parts.hostname or "")
        except AddressError:
            return parts.scheme == "https"
        return True

    def key(self, from_environment: bool = True) -> str:
        """Return the key to send; "" for none.

        `from_environment`: KEY_VARIABLE may be meant for this address, else the key ring alone
        counts. AddressError for one that no header can hold.
        """
        if self.socket is not None:
            return ""
        named = os.environ.get(KEY_VARIABLE) if from_environment else ""
        key = named or self._stored_key()
        if not key.isascii() or not key.isprintable() or " " in key:
            raise AddressError(f"{KEY_VARIABLE}: not a key: ASCII characters without blanks")
        return key

    def _stored_key(self) -> str:
        """Look the key up in the key ring, where the package `keyring` is installed."""
        try:
            import keyring
            from keyring.errors import KeyringError
        except ImportError:
            return ""
        try:
            return keyring.get_password(KEY_RING_SERVICE, str(self)) or ""
        except KeyringError as error:
            why = " ".join(str(error).split())
            raise AddressError(f"the key ring: {why}: unlock it, or set {KEY_VARIABLE}") from error


def parse_engine(text: str, option: str = "--engine") -> EngineUrl:
    """Parse `http://HOST:PORT`, `https://HOST`, or either after `openai:`.

    Raises AddressError, which names the `option` and repeats the scheme and the host at most: what
    else there is may be a key.
    """
    is_openai = text.startswith(OPENAI)
    url = text.removeprefix(OPENAI).rstrip("/")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # ValueError for a port that is none
    except ValueError:
        raise AddressError(f"{option}: not a host and a port: write http://HOST:PORT") from None
    if "@" in parts.netloc:
        raise AddressError(f"{option}: an address has no key or name: set {KEY_VARIABLE}")
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        raise AddressError(f"{option}: not an address: write http://HOST:PORT")
    if "?" in url or "#" in url:
        shown = f"{parts.scheme}://{parts.netloc}"
        raise AddressError(
            f"{option} {shown}: leave out what follows ? or #; for a key set {KEY_VARIABLE}"
        )
    return EngineUrl(url, is_openai)
