"""Stock of a small warehouse: what is there, what was booked, what must be ordered again."""

import json
import os
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

LOW_STOCK = 5


class OutOfStock(Exception):
    """More was taken than is there."""


@dataclass
class Item:
    sku: str
    name: str
    price_cents: int
    count: int = 0
    tags: set[str] = field(default_factory=set)

    @property
    def value_cents(self) -> int:
        return self.price_cents * self.count

    def is_low(self) -> bool:
        return self.count < LOW_STOCK


@dataclass
class Booking:
    sku: str
    change: int
    day: date


class Inventory:
    """Items by SKU, and all bookings in the order in which they were made."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.bookings: list[Booking] = []

    def add_item(self, item: Item) -> None:
        if item.sku in self.items:
            raise ValueError(f"{item.sku} is known already")
        self.items[item.sku] = item

    def book(self, sku: str, change: int, day: date) -> Item:
        """Add to or take from the stock of an item."""
        item = self.items[sku]
        if item.count + change < 0:
            raise OutOfStock(f"{sku}: {item.count} left, {-change} wanted")
        item.count += change
        self.bookings.append(Booking(sku, change, day))
        return item

    def total_value(self) -> int:
        total = 0
        for item in self.items.values():
            total += item.value_cents
        return total

    def low_items(self) -> list[Item]:
        """Items that must be ordered again, fewest first."""
        low = [item for item in self.items.values() if item.is_low()]
        return sorted(low, key=lambda item: item.count)

    def find(self, text: str) -> list[Item]:
        """Items whose name contains the text, whatever its case."""
        wanted = text.lower()
        return [item for item in self.items.values() if wanted in item.name.lower()]

    def history(self, sku: str) -> list[Booking]:
        return [booking for booking in self.bookings if booking.sku == sku]

    def turnover(self, first: date, last: date) -> dict[str, int]:
        """How many pieces of each item were taken out between two days, both included."""
        taken: dict[str, int] = {}
        for booking in self.bookings:
            if booking.change < 0 and first <= booking.day <= last:
                taken[booking.sku] = taken.get(booking.sku, 0) - booking.change
        return taken


def to_record(item: Item) -> dict[str, object]:
    return {
        "sku": item.sku,
        "name": item.name,
        "price_cents": item.price_cents,
        "count": item.count,
        "tags": sorted(item.tags),
    }


def save(inventory: Inventory, path: Path) -> None:
    records = [to_record(item) for item in inventory.items.values()]
    path.write_text(json.dumps(records, indent=2), encoding="utf-8")


def load(path: Path) -> Inventory:
    inventory = Inventory()
    for record in json.loads(path.read_text(encoding="utf-8")):
        tags = set(record.pop("tags"))
        inventory.add_item(Item(**record, tags=tags))
    return inventory


def format_price(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d} EUR"


def report(inventory: Inventory) -> str:
    """A table of the stock as plain text."""
    lines = []
    for item in sorted(inventory.items.values(), key=lambda item: item.name):
        mark = "!" if item.is_low() else " "
        lines.append(f"{mark} {item.name:<20} {item.count:>5} {format_price(item.price_cents)}")
    lines.append(f"total: {format_price(inventory.total_value())}")
    return "\n".join(lines)
