"""Read a library's loans from a CSV file and say what is overdue. `draftline demo` edits this."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta


@dataclass
class Loan:
    """One book that somebody took home."""

    reader: str
    title: str
    taken: date


class LoanBook:
    """The loans of one library, by reader."""

    def __init__(self, days: int = 28, fine: float = 0.2) -> None:
        self.days = days
        self.fine = fine
        self.loans: dict[str, list[Loan]] = defaultdict(list)

    def load(self, path: str) -> int:
        """Read loans from a CSV file with the columns reader, title and taken."""
        count = 0
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                taken = date.fromisoformat(row["taken"])
                loan = Loan(row["reader"].strip(), row["title"].strip(), taken)
                self.loans[loan.reader].append(loan)
                count += 1
        print(f"read {count} loans from {path}")
        return count

    def due(self, loan: Loan) -> date:
        """The day on which a book must be back."""
        return loan.taken + timedelta(days=self.days)

    def overdue(self, today: date) -> list[Loan]:
        """All loans that should have ended before today, the oldest first."""
        late = [loan for loans in self.loans.values() for loan in loans if self.due(loan) < today]
        return sorted(late, key=lambda loan: loan.taken)

    def owed(self, reader: str, today: date) -> float:
        """What a reader has to pay today, in euros."""
        total = 0.0
        for loan in self.loans.get(reader, []):
            days_late = (today - self.due(loan)).days
            if days_late > 0:
                total += days_late * self.fine
        return round(total, 2)

    def save(self, path: str, today: date) -> None:
        """Write what every reader owes as JSON."""
        owed = {reader: self.owed(reader, today) for reader in self.loans}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(owed, file, indent=2)
        print(f"wrote {len(owed)} readers to {path}")


def remind(book: LoanBook, today: date) -> list[str]:
    """One line for everybody who is late."""
    lines = []
    for loan in book.overdue(today):
        late = (today - book.due(loan)).days
        lines.append(f"{loan.reader}: {loan.title!r} is {late} days late")
    return lines
