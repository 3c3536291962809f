"""Logins to the page: passwords compared in constant time, and guesses that are slowed down.

Failed attempts are counted for each user and for each address, in memory of a fixed size. After a
burst of them, the next attempts are refused without a look at the password.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from starlette.exceptions import HTTPException

from ui.api.security import digest

# Failed attempts that are free, and the seconds until another one is allowed after them.
USER_BURST, USER_INTERVAL_S = 10, 30.0
ADDRESS_BURST, ADDRESS_INTERVAL_S = 20, 10.0
SLOTS = 1 << 14  # of the table of failures; keys that share a slot are slowed down together
IPV6_NETWORK_BITS = 64  # which one client usually has to itself

client_address: ContextVar[str] = ContextVar("client_address", default="")  # of the login request

Clock = Callable[[], float]


class Failures:
    """Counts failed attempts by key: a leaky bucket that holds `burst` and leaks one every
    `interval_s` seconds. No key can displace another's count."""

    def __init__(self, burst: int, interval_s: float, clock: Clock = time.monotonic) -> None:
        self._tolerance_s, self._interval_s, self._clock = burst * interval_s, interval_s, clock
        self._secret = secrets.token_bytes(32)  # so that nobody can choose keys that share a slot
        self._empty_at: dict[int, float] = {}  # slot -> when its bucket is empty

    def wait_s(self, key: str) -> float:
        """Seconds until another attempt is allowed; 0 if it is now."""
        full_s = self._empty_at.get(self._slot(key), 0.0) - self._clock()
        return max(0.0, full_s + self._interval_s - self._tolerance_s)

    def add(self, key: str) -> None:
        """Count a failed attempt."""
        slot = self._slot(key)
        empty_at = max(self._clock(), self._empty_at.get(slot, 0.0))
        self._empty_at[slot] = empty_at + self._interval_s

    def _slot(self, key: str) -> int:
        data = key.encode("utf-8", "surrogatepass")
        return int.from_bytes(hmac.digest(self._secret, data, "sha256")[:4]) % SLOTS


def password_check(
    users: Sequence[tuple[str, str]], clock: Clock = time.monotonic
) -> Callable[[str, str], bool]:
    """A check of names and passwords that takes constant time.

    It raises HTTPException 429 while attempts for the name, or from `client_address`, have to wait.
    """
    known = [(digest(name), digest(password)) for name, password in users]
    by_user = Failures(USER_BURST, USER_INTERVAL_S, clock)
    by_address = Failures(ADDRESS_BURST, ADDRESS_INTERVAL_S, clock)

    def check(name: str, password: str) -> bool:
        network = network_of(client_address.get())
        if wait_s := max(by_user.wait_s(name), by_address.wait_s(network)):
            seconds = math.ceil(wait_s)
            message = f"too many failed logins: retry in {seconds} s"
            raise HTTPException(429, message, {"retry-after": str(seconds)})
        given_name, given_password = digest(name), digest(password)
        matches = [
            hmac.compare_digest(given_name, known_name)
            & hmac.compare_digest(given_password, known_password)
            for known_name, known_password in known
        ]
        if any(matches):
            return True
        by_user.add(name)
        by_address.add(network)
        return False

    return check


def network_of(address: str) -> str:
    """The address, or the network of an IPv6 address, all of whose addresses one client can use."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, IPV6_NETWORK_BITS), strict=False))
