"""Readings of a tide station: parsing, checking, smoothing and finding high water.

A station writes one line per reading: the time in UTC, the water level in centimetres above chart
datum, and the battery voltage. This module turns such lines into readings, drops the implausible
ones, and finds the times of high and low water. It has no dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

READING_INTERVAL = timedelta(minutes=6)
MAX_GAP = timedelta(minutes=30)
MAX_RISE_CM = 45.0  # per reading; faster changes are errors of the float
MIN_BATTERY_VOLTS = 11.4
LEVEL_RANGE_CM = (-80.0, 940.0)
RETRY_SECONDS = (5, 20, 60, 300)


class StationError(ValueError):
    """A line that is not a reading. The message names the line's number."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement of the float gauge."""

    time: datetime
    level_cm: float
    battery_volts: float

    @property
    def weak_battery(self) -> bool:
        """Whether the battery should be replaced at the next visit."""
        return self.battery_volts < MIN_BATTERY_VOLTS


def parse_line(line: str, number: int = 1) -> Reading:
    """Parse `2025-03-01T06:12Z;412.5;12.7`.

    The three fields are separated by semicolons. Raises StationError if a field is missing or is
    not a number, or if the time has no zone.
    """
    fields = line.strip().split(";")
    if len(fields) != 3:
        raise StationError(f"line {number}: expected 3 fields, found {len(fields)}")
    try:
        time = datetime.fromisoformat(fields[0].replace("Z", "+00:00"))
        level, volts = float(fields[1]), float(fields[2])
    except ValueError as error:
        raise StationError(f"line {number}: {error}") from error
    if time.tzinfo is None:
        raise StationError(f"line {number}: the time has no zone; write it in UTC with a Z")
    return Reading(time, level, volts)


def plausible(readings: Iterable[Reading]) -> Iterator[Reading]:
    """Drop readings that cannot be true.

    A reading is dropped if its level is outside LEVEL_RANGE_CM, if it is older than the one before
    it, or if the level changed by more than MAX_RISE_CM since the last reading that was kept. After
    a gap longer than MAX_GAP the change is not checked.
    """
    last: Reading | None = None
    low, high = LEVEL_RANGE_CM
    for one in readings:
        if not low <= one.level_cm <= high:
            continue
        if last is not None:
            if one.time <= last.time:
                continue
            near = one.time - last.time <= MAX_GAP
            if near and abs(one.level_cm - last.level_cm) > MAX_RISE_CM:
                continue
        last = one
        yield one


def smooth(levels: Sequence[float], half_width: int = 4) -> list[float]:
    """A moving average with weights in the shape of a raised cosine.

    Waves and passing ships move the float for a minute or two; a window of nine readings removes
    them without shifting the time of high water. At both ends the window is cut off and its
    weights are scaled to a sum of one.
    """
    weights = [
        1 + math.cos(math.pi * at / (half_width + 1)) for at in range(-half_width, half_width + 1)
    ]
    smoothed = []
    for center in range(len(levels)):
        total = weight_sum = 0.0
        for offset, weight in enumerate(weights, -half_width):
            if 0 <= center + offset < len(levels):
                total += weight * levels[center + offset]
                weight_sum += weight
        smoothed.append(total / weight_sum)
    return smoothed


@dataclass(frozen=True, slots=True)
class Turn:
    """High or low water."""

    time: datetime
    level_cm: float
    high: bool


def find_turns(
    readings: Sequence[Reading], min_distance: timedelta = timedelta(hours=4)
) -> list[Turn]:
    """The times of high and low water, in order.

    The levels are smoothed first. Of two turns of the same kind that are closer than
    `min_distance`, the more extreme one is kept. The first and the last hour are ignored, since a
    turn cannot be told from the end of the data there.
    """
    levels = smooth([one.level_cm for one in readings])
    edge = timedelta(hours=1)
    turns: list[Turn] = []
    for number in range(1, len(levels) - 1):
        before, at, after = levels[number - 1 : number + 2]
        high = before < at >= after
        if not high and not before > at <= after:
            continue
        time = readings[number].time
        if time - readings[0].time < edge or readings[-1].time - time < edge:
            continue
        turn = Turn(time, round(at, 1), high)
        same = next((one for one in reversed(turns) if one.high == high), None)
        if same and time - same.time < min_distance:
            if (turn.level_cm > same.level_cm) == high:
                turns[turns.index(same)] = turn
            continue
        turns.append(turn)
    return turns


def surge(observed_cm: float, predicted_cm: float) -> str:
    """The warning level for the difference between the observed and the predicted tide.

    Below 50 cm there is no warning; from 50 cm it is "watch", from 100 cm "warning", and from
    150 cm "severe", at which the harbour gates are closed.
    """
    difference = observed_cm - predicted_cm
    for limit, name in ((150, "severe"), (100, "warning"), (50, "watch")):
        if difference >= limit:
            return name
    return "none"


def retry_delays(attempts: int) -> Iterator[int]:
    """The seconds to wait before each attempt to reach the station by radio.

    The delays are those of RETRY_SECONDS; the last one is repeated. The station sleeps for five
    minutes after each transmission, so that trying more often is of no use.
    """
    for number in range(attempts):
        yield RETRY_SECONDS[min(number, len(RETRY_SECONDS) - 1)]


def daily_means(readings: Iterable[Reading]) -> dict[str, float]:
    """The mean level of each day in UTC, by ISO date.

    Days with fewer than 200 of the 240 possible readings are left out, because a mean over part of
    a tidal cycle is biased.
    """
    days: dict[str, list[float]] = {}
    for one in readings:
        days.setdefault(one.time.date().isoformat(), []).append(one.level_cm)
    return {day: sum(levels) / len(levels) for day, levels in days.items() if len(levels) >= 200}
