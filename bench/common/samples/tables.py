"""Small tables in text files: one row a line, columns separated by tabs."""

from pathlib import Path


def read_rows(path: Path) -> list[list[str]]:
    """Rows of a file, without blank lines and comments."""
    rows = []
    with path.open() as file:
        for line in file:
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                rows.append(line.split("\t"))
    return rows


def write_rows(path: Path, rows: list[list[str]]) -> None:
    """Write a file anew."""
    with path.open("w") as file:
        for row in rows:
            file.write("\t".join(row) + "\n")


def append_row(path: Path, row: list[str]) -> None:
    """Add one row at the end."""
    with path.open("a") as file:
        file.write("\t".join(row) + "\n")


def column(path: Path, name: str) -> list[str]:
    """One column, by the name in the first row."""
    rows = read_rows(path)
    if not rows or name not in rows[0]:
        return []
    place = rows[0].index(name)
    return [row[place] for row in rows[1:]]


def merge(paths: list[Path], target: Path) -> int:
    """Join several files into one; returns the number of rows written."""
    count = 0
    with target.open("w") as out:
        for path in paths:
            for row in read_rows(path):
                out.write("\t".join(row) + "\n")
                count += 1
    return count


def header(path: Path) -> str:
    """The first line of a file."""
    with path.open() as file:
        return file.readline().rstrip("\n")
