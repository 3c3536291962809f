"""Failed attempts to get in, counted for each address or name in memory of a fixed size."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable

# Failed attempts from an address that are free, and the seconds until another one is allowed.
ADDRESS_BURST, ADDRESS_INTERVAL_S = 20, 10.0
SLOTS = 1 << 14  # slots of the table of failures; keys that share one are slowed down together
IPV6_NETWORK_BITS = 64  # bits; one client usually has such a network to itself

Clock = Callable[[], float]


class Failures:
    """Counts failed attempts by key.

    It is a leaky bucket that holds `burst` and leaks one every `interval_s` seconds. No key can
    displace another's count.
    """

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


def network_of(address: str) -> str:
    """Return the address, or the network of an IPv6 address.

    One client can use all addresses of the network.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, IPV6_NETWORK_BITS), strict=False))
