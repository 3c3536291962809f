"""Sums of a shop's day, as a person wrote them. They wait to be edited."""

from collections import Counter


def total(sales: list[dict]) -> float:
    """What all sales brought."""
    result = 0.0
    for sale in sales:
        result += sale["price"] * sale["count"]
    return round(result, 2)


def by_hour(sales: list[dict]) -> dict[int, float]:
    """What the sales of each hour brought."""
    hours: dict[int, float] = {}
    for sale in sales:
        hour = sale["time"].hour
        hours[hour] = hours.get(hour, 0.0) + sale["price"] * sale["count"]
    return hours


def busiest(sales: list[dict]) -> int | None:
    """The hour that brought most, None on a day without any."""
    hours = by_hour(sales)
    if not hours:
        return None
    return max(hours, key=lambda hour: hours[hour])


def best_sellers(sales: list[dict], most: int = 3) -> list[str]:
    """Names of what was sold most often."""
    counts: Counter[str] = Counter()
    for sale in sales:
        counts[sale["name"]] += sale["count"]
    return [name for name, count in counts.most_common(most)]


def returned(sales: list[dict]) -> list[dict]:
    """What was brought back: its count is below zero."""
    return [sale for sale in sales if sale["count"] < 0]


def by_clerk(sales: list[dict]) -> dict[str, list[dict]]:
    """The sales of each clerk, in the order of the day."""
    clerks: dict[str, list[dict]] = {}
    for sale in sales:
        clerks.setdefault(sale["clerk"], []).append(sale)
    return clerks


def discount(sales: list[dict], least: float, share: float) -> float:
    """What is given back to a customer who bought enough."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share is from 0 to 1, not {share}")
    bought = total(sales)
    if bought < least:
        return 0.0
    return round(bought * share, 2)


def report(sales: list[dict]) -> str:
    """The day in one line."""
    hour = busiest(sales)
    return f"{total(sales):.2f}, most at {hour}, {len(returned(sales))} brought back"
