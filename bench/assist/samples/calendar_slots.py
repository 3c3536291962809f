"""Free slots in calendars. Times are minutes since midnight."""

from typing import NamedTuple

OPENS = 8 * 60
CLOSES = 18 * 60


class Slot(NamedTuple):
    start: int
    end: int

    @property
    def minutes(self) -> int:
        return self.end - self.start


def overlaps(one: Slot, other: Slot) -> bool:
    return one.start < other.end and other.start < one.end


def merge(slots: list[Slot]) -> list[Slot]:
    # Zuerst nach Beginn sortieren, damit ein Durchgang reicht.
    ordered = sorted(slots)
    merged: list[Slot] = []
    for slot in ordered:
        # Der letzte Termin reicht in diesen hinein: beide werden einer.
        if merged and slot.start <= merged[-1].end:
            last = merged.pop()
            merged.append(Slot(last.start, max(last.end, slot.end)))
        else:
            # Kein Überlapp, also ein neuer Termin.
            merged.append(slot)
    return merged


def free(busy: list[Slot], minutes: int) -> list[Slot]:
    """Gaps of at least so many minutes between the busy slots of a day."""
    gaps = []
    at = OPENS
    for slot in merge(busy):
        if slot.start - at >= minutes:
            gaps.append(Slot(at, slot.start))
        at = max(at, slot.end)
    if CLOSES - at >= minutes:
        gaps.append(Slot(at, CLOSES))
    return gaps


def first_common(calendars: list[list[Slot]], minutes: int) -> Slot | None:
    """The first slot that is free in all calendars."""
    busy = [slot for calendar in calendars for slot in calendar]
    gaps = free(busy, minutes)
    if not gaps:
        return None
    return Slot(gaps[0].start, gaps[0].start + minutes)


def parse_time(text: str) -> int:
    """Minutes of a time such as 09:30."""
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def show_time(at: int) -> str:
    return f"{at // 60:02d}:{at % 60:02d}"


def parse_slot(text: str) -> Slot:
    """A slot such as 09:30-10:15."""
    start, end = text.split("-")
    slot = Slot(parse_time(start), parse_time(end))
    if slot.end <= slot.start:
        raise ValueError(f"{text}: ends before it starts")
    return slot


def busiest_hour(slots: list[Slot]) -> int:
    """The hour with the most minutes taken."""
    taken = [0] * 24
    for slot in slots:
        for minute in range(slot.start, slot.end):
            taken[minute // 60] += 1
    return taken.index(max(taken))


def day_plan(slots: list[Slot]) -> str:
    lines = []
    for slot in merge(slots):
        lines.append(f"{show_time(slot.start)}-{show_time(slot.end)} busy")
    for slot in free(slots, 30):
        lines.append(f"{show_time(slot.start)}-{show_time(slot.end)} free")
    return "\n".join(sorted(lines))
