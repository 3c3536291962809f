"""Logins to the page: passwords compared in constant time, and guesses that are slowed down.

Failed attempts are counted for each user and for each address, in memory of a fixed size. After a
burst of them, the next attempts are refused without a look at the password.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from starlette.exceptions import HTTPException

from ui.api.failures import ADDRESS_BURST, ADDRESS_INTERVAL_S, Clock, Failures, network_of
from ui.api.security import digest

# Failed attempts that are free, and the seconds until another one is allowed after them.
USER_BURST, USER_INTERVAL_S = 10, 30.0

client_address: ContextVar[str] = ContextVar("client_address", default="")  # the login request's


def password_check(
    users: Sequence[tuple[str, str]], clock: Clock = time.monotonic
) -> Callable[[str, str], bool]:
    """Make a check of names and passwords that takes constant time.

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
