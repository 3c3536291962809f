"""A shop's basket: prices in cents, so that sums are exact."""

from collections import Counter

VAT = {"food": 7, "books": 7, "tools": 19}
FREE_SHIPPING = 5_000
SHIPPING = 490


def subtotal(items):
    """Cents for all goods, before discounts."""
    return sum(item["price"] * item["count"] for item in items)


def discount(items, percent):
    """Cents taken off: `percent` of every article bought more than once."""
    off = 0
    for item in items:
        if item["count"] > 1:
            off += item["price"] * item["count"] * percent // 100
    return off


def shipping(items):
    """Cents for the parcel; large orders travel free."""
    if not items:
        return 0
    if subtotal(items) >= FREE_SHIPPING:
        return 0
    return SHIPPING


def tax(items):
    """Cents of tax that the prices hold, by kind of goods."""
    parts = Counter()
    for item in items:
        rate = VAT.get(item["kind"], 19)
        gross = item["price"] * item["count"]
        parts[item["kind"]] += gross * rate // (100 + rate)
    return dict(parts)


def total(items, percent=0):
    """Cents to pay: goods, less the discount, plus shipping."""
    if percent < 0 or percent > 100:
        raise ValueError(f"percent {percent}: must lie between 0 and 100")
    goods = subtotal(items) - discount(items, percent)
    return goods + shipping(items)


def receipt(cents):
    """An amount as it is printed."""
    return f"{cents // 100}.{cents % 100:02d}"
