"""Reads the access logs of a web server and says what happened."""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

LINE = re.compile(
    r'(?P<host>\S+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<method>\w+) (?P<path>\S+) [^"]*" '
    r"(?P<status>\d{3}) (?P<size>\d+|-)"
)
SLOW_S = 1.5
MAX_TRIES = 4


class Entry:
    def __init__(self, host, method, path, status, size):
        self.host = host
        self.method = method
        self.path = path
        self.status = status
        self.size = size

    def is_error(self):
        return self.status >= 400

    def __repr__(self):
        return f"Entry({self.method} {self.path} {self.status})"


def parse_line(line):
    match = LINE.match(line)
    if match is None:
        return None
    size = 0 if match["size"] == "-" else int(match["size"])
    return Entry(match["host"], match["method"], match["path"], int(match["status"]), size)


def parse(lines: Iterable[str]) -> Iterator[Entry]:
    for line in lines:
        entry = parse_line(line)
        if entry is not None:
            yield entry


def errors_by_path(entries: Iterable[Entry]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in entries:
        if entry.is_error():
            counts[entry.path] += 1
    return counts


def bytes_by_host(entries: Iterable[Entry]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for entry in entries:
        sizes[entry.host] += entry.size
    return dict(sizes)


def average_size(entries):
    total = 0
    count = 0
    for entry in entries:
        total += entry.size
        count += 1
    return total / count


def retry(call: Callable[[], str], wait_s: float = 0.5) -> str:
    """Call until it succeeds, at most MAX_TRIES times, waiting longer each time."""
    for number in range(MAX_TRIES):
        try:
            return call()
        except OSError:
            if number == MAX_TRIES - 1:
                raise
            time.sleep(wait_s * 2**number)
    raise AssertionError("not reached")


def classify(status: int) -> str:
    if status < 200:
        return "information"
    elif status < 300:
        return "success"
    elif status < 400:
        return "redirect"
    elif status < 500:
        return "client error"
    else:
        return "server error"


def summarize(entries: list[Entry]) -> str:
    print("summarizing", len(entries), "entries")
    kinds = Counter(classify(entry.status) for entry in entries)
    for kind, count in kinds.items():
        print(kind, count)
    worst = errors_by_path(entries).most_common(3)
    print("worst paths", worst)
    return ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))


def sessions(times: list[float], gap_s: float) -> list[list[float]]:
    """Groups of times between which at most gap_s seconds pass."""
    groups: list[list[float]] = []
    for at in sorted(times):
        if groups and at - groups[-1][-1] <= gap_s:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups
