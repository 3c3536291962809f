"""The tasks in Python: instructions, and places to complete."""

from __future__ import annotations

from bench.assist.task import GERMAN, EditTask, every, place, renamed, swap
from bench.assist.tokens import COMMENT, DOCSTRING

INVENTORY = "inventory.py"
LOGS = "logs.py"
MIRROR = "mirror.py"
SLOTS = "calendar_slots.py"
INVENTORY_TESTS = """
from datetime import date as _date
_stock = Inventory()
for _sku, _price, _count in (("a", 100, 3), ("b", 250, 8), ("c", 10, 0)):
    _stock.add_item(Item(_sku, _sku.upper(), _price, _count))
assert _stock.total_value() == 2300 and Inventory().total_value() == 0
"""

EDITS = [
    EditTask(
        "rename-attribute", "rename", "inventory.py", "class Inventory:", "return taken",
        "Rename the attribute `bookings` to `ledger`.",
        every(r"self\.bookings\b", "self.ledger") + renamed("bookings", "ledger"),
    ),
    EditTask(
        "rename-local", "rename", "inventory.py", "def total_value", "wanted in item.name",
        "Rename the variable `wanted` to `needle`.",
        renamed("wanted", "needle"),
    ),
    EditTask(
        "rename-constant", "rename", "inventory.py", "LOW_STOCK = 5", "< LOW_STOCK",
        "Rename LOW_STOCK to MIN_STOCK.",
        renamed("LOW_STOCK", "MIN_STOCK"),
    ),
    EditTask(
        "docstrings", "docstring", "inventory.py", "def to_record", "return f\"{cents",
        "Add a docstring to every function.",
        swap(
            "-> dict[str, object]:\n", '-> dict[str, object]:\n    """D."""\n',
            "path: Path) -> None:\n", 'path: Path) -> None:\n    """D."""\n',
            "-> Inventory:\n", '-> Inventory:\n    """D."""\n',
            "-> str:\n", '-> str:\n    """D."""\n',
        ),
        free=(DOCSTRING,),
    ),
    EditTask(
        "method-docstring", "docstring", "inventory.py", "    def book(", "        return total",
        "Add a docstring to total_value.",
        swap("-> int:\n", '-> int:\n        """D."""\n'),
        free=(DOCSTRING,), needs=("Add to or take from the stock of an item",),
    ),
    EditTask(
        "unused-import", "imports", "inventory.py", '"""Stock of', "than is there.",
        "Remove the unused import.",
        swap("import os\n", ""),
    ),
    EditTask(
        "sum", "rewrite", "inventory.py", "    def total_value", "return sorted(low",
        "Use sum() with a generator expression in total_value instead of the loop.",
        swap(
            "        total = 0\n        for item in self.items.values():\n"
            "            total += item.value_cents\n        return total\n",
            "        return sum(item.value_cents for item in self.items.values())\n",
        ),
        needs=(r"\bsum\(",), lacks=(r"total \+=",), tests=INVENTORY_TESTS,
        within=("def total_value",),
    ),
    EditTask(
        "frozen", "rewrite", "inventory.py", "@dataclass", "    day: date",
        "Make the dataclass Booking frozen.",
        swap("@dataclass\nclass Booking", "@dataclass(frozen=True)\nclass Booking"),
    ),
    EditTask(
        "delete-method", "delete", "inventory.py", "    def find", "return taken",
        "Delete the method history.",
        swap(
            "    def history(self, sku: str) -> list[Booking]:\n"
            "        return [booking for booking in self.bookings if booking.sku == sku]\n\n", ""
        ),
    ),
    EditTask(
        "types", "types", "logs.py", "class Entry:", "return Entry(match",
        "Add type hints to all parameters and return values.",
        swap(
            "host, method, path, status, size):",
            "host: str, method: str, path: str, status: int, size: int) -> None:",
            "def is_error(self):", "def is_error(self) -> bool:",
            "def __repr__(self):", "def __repr__(self) -> str:",
            "def parse_line(line):", "def parse_line(line: str) -> Entry | None:",
        ) + swap(
            "host, method, path, status, size):",
            "host: str, method: str, path: str, status: int, size: int):",
            "def is_error(self):", "def is_error(self) -> bool:",
            "def __repr__(self):", "def __repr__(self) -> str:",
            "def parse_line(line):", "def parse_line(line: str) -> Entry | None:",
        ),
    ),
    EditTask(
        "empty-average", "fix", "logs.py", "def bytes_by_host", "return total / count",
        "average_size must return 0.0 if there are no entries.",
        swap("    return total / count", "    return total / count if count else 0.0"),
        tests="""
assert average_size([]) == 0.0
assert average_size([Entry("h", "GET", "/", 200, 4), Entry("h", "GET", "/", 200, 8)]) == 6
""",
        within=("def average_size",),
    ),
    EditTask(
        "elif", "rewrite", "logs.py", "def classify", 'return "server error"',
        "Every branch returns: use plain `if` instead of `elif`, and no `else`.",
        (lambda text: text.replace("elif", "if")
         .replace('    else:\n        return "server', '    return "server'),),
    ),
    EditTask(
        "prints", "delete", "logs.py", "def classify", 'return ", ".join',
        "Remove all print statements.",
        swap(
            '    print("summarizing", len(entries), "entries")\n', "",
            "    for kind, count in kinds.items():\n        print(kind, count)\n", "",
            '    print("worst paths", worst)\n', "",
        ) + swap(
            '    print("summarizing", len(entries), "entries")\n', "",
            "    for kind, count in kinds.items():\n        print(kind, count)\n", "",
            "    worst = errors_by_path(entries).most_common(3)\n", "",
            '    print("worst paths", worst)\n', "",
        ),
    ),
    EditTask(
        "exception", "rewrite", "logs.py", "def retry", 'raise AssertionError',
        "Catch ValueError as well as OSError.",
        swap("except OSError:", "except (OSError, ValueError):")
        + swap("except OSError:", "except (ValueError, OSError):"),
    ),
    EditTask(
        "translate", "translate", "calendar_slots.py", "def merge", "return merged",
        "Translate the comments to English.",
        swap(
            "Zuerst nach Beginn sortieren, damit ein Durchgang reicht.",
            "First sort by start, so that one pass is enough.",
            "Der letzte Termin reicht in diesen hinein: beide werden einer.",
            "The last slot reaches into this one: both become one.",
            "Kein Überlapp, also ein neuer Termin.", "No overlap, so a new slot.",
        ),
        free=(COMMENT,), lacks=(GERMAN,),
    ),
    EditTask(
        "parameters", "rewrite", "calendar_slots.py", "def free", "return gaps",
        "Add parameters `opens` and `closes` with the defaults OPENS and CLOSES, and use them.",
        swap(
            "minutes: int) ->", "minutes: int, opens: int = OPENS, closes: int = CLOSES) ->",
            "at = OPENS\n", "at = opens\n",
            "if CLOSES - at", "if closes - at",
            "Slot(at, CLOSES)", "Slot(at, closes)",
        ) + swap(
            "minutes: int) ->", "minutes: int, opens=OPENS, closes=CLOSES) ->",
            "at = OPENS\n", "at = opens\n",
            "if CLOSES - at", "if closes - at",
            "Slot(at, CLOSES)", "Slot(at, closes)",
        ),
    ),
    EditTask(
        "validate", "fix", "calendar_slots.py", "def parse_time", "return slot",
        "parse_time: raise a ValueError if the hours are not from 0 to 23 or the minutes not from "
        "0 to 59.",
        swap(
            "    return int(hours) * 60 + int(minutes)\n",
            "    if not (0 <= int(hours) <= 23 and 0 <= int(minutes) <= 59):\n"
            '        raise ValueError(f"{text}: not a time")\n'
            "    return int(hours) * 60 + int(minutes)\n",
        ),
        tests="""
assert parse_time("00:00") == 0 and parse_time("23:59") == 1439
for _text in ("24:00", "09:60", "-1:10"):
    try:
        parse_time(_text)
    except ValueError:
        continue
    raise AssertionError(_text)
""",
        within=("def parse_time",),
    ),
    EditTask(
        "return-list", "rewrite", "calendar_slots.py", "def busiest_hour", "sorted(lines)",
        "day_plan should return the list of lines instead of one string.",
        swap("-> str:", "-> list[str]:", '"\\n".join(sorted(lines))', "sorted(lines)"),
        tests="""
assert day_plan([Slot(480, 1080)]) == ["08:00-18:00 busy"]
assert day_plan([])[0] == "08:00-18:00 free"
""",
        needs=("-> list",), within=("def day_plan",),
    ),
    EditTask(
        "sort-imports", "imports", "mirror.py", '"""Copies', "CHUNK =",
        "Sort the imports.",
        swap(
            "import sys\nimport json\nimport hashlib\nfrom pathlib import Path\nimport os\n"
            "import argparse\nfrom datetime import datetime\n",
            "import argparse\nimport hashlib\nimport json\nimport os\nimport sys\n"
            "from datetime import datetime\nfrom pathlib import Path\n",
        ) + swap(
            "import sys\nimport json\nimport hashlib\nfrom pathlib import Path\nimport os\n"
            "import argparse\nfrom datetime import datetime\n",
            "import argparse\nfrom datetime import datetime\nimport hashlib\nimport json\n"
            "import os\nfrom pathlib import Path\nimport sys\n",
        ),
    ),
    EditTask(
        "f-strings", "rewrite", "mirror.py", "def write_state", 's" % (name, size, seconds)',
        "Use f-strings instead of the % operator.",
        swap(
            '"%s: %d bytes in %d minutes" % (name, size, seconds // 60)',
            'f"{name}: {size} bytes in {seconds // 60} minutes"',
            '"%s: empty" % name', 'f"{name}: empty"',
            '"%s: %d bytes in %.1f s" % (name, size, seconds)',
            'f"{name}: {size} bytes in {seconds:.1f} s"',
        ),
        tests="""
assert message("a", 5, 120) == "a: 5 bytes in 2 minutes" and message("a", 0, 1) == "a: empty"
assert message("a", 5, 1.25) == "a: 5 bytes in 1.2 s"
""",
        lacks=('" %',), within=("def message",),
    ),
    EditTask(
        "with-open", "rewrite", "mirror.py", "def read_state", "indent=1)\n    file.close()",
        "Open files in with statements.",
        swap(
            "    file = open(path)\n    state = json.load(file)\n    file.close()\n",
            "    with open(path) as file:\n        state = json.load(file)\n",
            '    file = open(path, "w")\n    json.dump(state, file, indent=1)\n    file.close()\n',
            '    with open(path, "w") as file:\n        json.dump(state, file, indent=1)\n',
        ),
        tests="""
_path = Path("state.json")
assert read_state(_path) == {}
write_state(_path, {"a": 1})
assert read_state(_path) == {"a": 1} and _path.read_text() == '{\\n "a": 1\\n}'
""",
        needs=(r"(?s)with open\(.*with open\(",), lacks=(r"\.close\(\)",),
        within=("def read_state", "def write_state"),
    ),
    EditTask(
        "mutable-default", "fix", "mirror.py", "def collect", "return False",
        "Fix the mutable default argument of collect.",
        swap(
            "def collect(folder, found=[]):\n",
            "def collect(folder, found=None):\n    if found is None:\n        found = []\n",
        ),
        tests="""
import pathlib as _pathlib
_folder = _pathlib.Path("a"); (_folder / "b").mkdir(parents=True)
(_folder / "b" / "c").write_text("x"); (_folder / "d").write_text("y")
assert [each.name for each in collect(_folder)] == ["c", "d"]
assert [each.name for each in collect(_folder)] == ["c", "d"]
""",
        lacks=(r"found=\[\]", r"found: list = \[\]"), within=("def collect",),
    ),
    EditTask(
        "translate-more", "translate", "mirror.py", "def is_hidden", "part.replace(target)",
        "Translate the comments into English.",
        swap(
            "prüft, ob ein Teil des Pfades mit einem Punkt beginnt",
            "checks whether a part of the path starts with a dot",
            "den Ordner anlegen, falls er fehlt", "make the folder if it is missing",
            "erst unter einem anderen Namen schreiben, dann umbenennen",
            "first write under another name, then rename",
        ),
        free=(COMMENT,), lacks=(GERMAN,),
    ),
    EditTask(
        "increment", "rewrite", "mirror.py", "def mirror", "return count",
        "Write `count = count + 1` as an augmented assignment.",
        swap("count = count + 1", "count += 1"),
    ),
]  # fmt: skip

COMPLETIONS = [
    place(INVENTORY,
          "def value_cents(self) -> int:\n        ¦return self.price_cents * self.count¦",
          r"return self\.count \* self\.price_cents"),
    place(INVENTORY, "def is_low(self) -> bool:\n        return ¦self.count < LOW_STOCK¦",
          r"self\.count <= LOW_STOCK"),
    place(INVENTORY,
          'in self.items:\n            ¦raise ValueError(f"{item.sku} is known already")¦',
          r'raise \w+\(f"[^"]*\{item\.sku\}[^"]*"\)'),
    place(INVENTORY, 'raise OutOfStock(¦f"{sku}: {item.count} left, {-change} wanted"¦)',
          r'f?"[^"]*"'),
    place(INVENTORY, "self.items.values():\n            ¦total += item.value_cents¦\n",
          r"total \+= item\.price_cents \* item\.count"),
    place(INVENTORY, "low = [¦item for item in self.items.values() if item.is_low()¦]"),
    place(INVENTORY, "return sorted(low, key=¦lambda item: item.count¦)",
          r"lambda \w+: \w+\.count"),
    place(INVENTORY, "wanted = text.lower()\n        ¦return [item for item in self.items.values() "
          "if wanted in item.name.lower()]¦"),
    place(INVENTORY, "return [booking for booking in self.bookings if ¦booking.sku == sku¦]"),
    place(INVENTORY, "for booking in self.bookings:\n            if ¦booking.change < 0 and "
          "first <= booking.day <= last:¦\n"),
    place(INVENTORY, '"price_cents": item.price_cents,\n        ¦"count": item.count,¦\n'
          '        "tags": sorted(item.tags),§\n    }'),
    place(INVENTORY, 'path.write_text(¦json.dumps(records, indent=2), encoding="utf-8"¦)',
          r"json\.dumps\(records.*\).*"),
    place(INVENTORY, "inventory = Inventory()\n    for record in ¦"
          'json.loads(path.read_text(encoding="utf-8"))¦:',
          r"json\.loads\(path\.read_text\(.*\)\)"),
    place(INVENTORY, 'def format_price(cents: int) -> str:\n    ¦return '
          'f"{cents // 100}.{cents % 100:02d} EUR"¦',
          tests='assert format_price(1205).startswith("12.05")'),
    place(INVENTORY, 'mark = "!" if ¦item.is_low() else " "¦', r'item\.is_low\(\) else ".*"'),
    place(INVENTORY, "total += item.val¦ue_cents¦\n"),
    place(INVENTORY, '-> dict[str, int]:\n        """¦How many pieces of each item were taken out '
          'between two days, both included."""¦\n', r'[A-Z][^"]*"""'),
    place(INVENTORY, 'A table of the stock as plain text."""\n    ¦lines = []¦\n'
          "    for item in sorted(inventory.items.values(), key=lambda item: item.name):\n"
          '        mark = "!" if item.is_low() else " "\n'
          '        lines.append(f"{mark} {item.name:<20} {item.count:>5} '
          '{format_price(item.price_cents)}")\n'
          '    lines.append(f"total: {format_price(inventory.total_value())}")\n'
          '    return "\\n".join(lines)§', r"(lines|rows|table)(: list\[str\])? = \[.*\]"),
    place(INVENTORY,
          'f"{mark} {item.name:<20} ¦{item.count:>5} {format_price(item.price_cents)}"¦)',
          r'\{item\.count.*\{.*"'),
    place(MIRROR, "while True:\n            ¦chunk = file.read(CHUNK)¦\n            if not chunk:"),
    place(MIRROR, "json.dump(state, ¦file, indent=1)¦\n", r"file.*\)"),
    place(MIRROR, 'minutes" % (¦name, size, seconds // 60)¦\n'),
    place(MIRROR, "if entry.is_dir():\n            ¦collect(entry, found)¦\n        else:",
          r"found\.extend\(collect\(entry.*\)\)", r"collect\(entry, found=found\)"),
    place(MIRROR, "part = target.with_name(¦target.name + \".part\"¦)",
          r'f"\{target\.name\}\.\w+"', r'target\.name \+ ".*"'),
    place(MIRROR, "log.append((¦datetime.now().isoformat(), str(goal)¦))", r".*\bgoal\b.*"),
    place(MIRROR, 'parser.add_argument("target", ¦type=Path)¦', r"type=Path.*\)"),
    place(MIRROR, "return digest(source) ¦!= digest(target)¦"),
    place(LOGS, "if groups and at - groups[-1][-1] <= gap_s:\n            ¦groups[-1].append(at)¦\n"
          "        else:"),
    place(LOGS, 'gap_s seconds pass."""\n    ¦groups: list[list[float]] = []¦\n'
          "    for at in sorted(times):\n"
          "        if groups and at - groups[-1][-1] <= gap_s:\n"
          "            groups[-1].append(at)\n        else:\n            groups.append([at])\n"
          "    return groups§", r"\w+(: list\[list\[float\]\])? = \[\]"),
    place(LOGS, "match = LINE.match(line)\n    ¦if match is None:¦\n        return None§",
          r"if not match:( return None)?", "if match is None: return None"),
    place(LOGS, 'size = 0 if match["size"] == "-" else ¦int(match["size"])¦'),
    place(LOGS, "entry = parse_line(line)\n        if ¦entry is not None:¦", "entry:"),
    place(LOGS, "if entry.is_error():\n            ¦counts[entry.path] += 1¦"),
    place(LOGS, "for entry in entries:\n        sizes[¦entry.host] += entry.size¦"),
    place(LOGS, "for entry in entries:\n        ¦total += entry.size¦\n        count += 1§"),
    place(LOGS, "time.sleep(¦wait_s * 2**number¦)", r"wait_s.*"),
    place(LOGS, 'status < 400:\n        return ¦"redirect"¦', r'"redirect\w*"'),
    place(LOGS, "worst = errors_by_path(entries).¦most_common(3)¦", r"most_common\(\d*\)"),
    place(LOGS, "if groups and ¦at - groups[-1][-1] <= gap_s¦:",
          r"at - groups\[-1\]\[-1\] < gap_s"),
    place(SLOTS, "def minutes(self) -> int:\n        return ¦self.end - self.start¦"),
    place(SLOTS, "return one.start < other.end and ¦other.start < one.end¦",
          r"one\.end > other\.start"),
    place(SLOTS, "merged.append(Slot(last.start, ¦max(last.end, slot.end)¦))",
          r"max\(slot\.end, last\.end\)"),
    place(SLOTS, "if slot.start - at >= minutes:\n            ¦gaps.append(Slot(at, slot.start))¦"),
    place(SLOTS, "if not gaps:\n        ¦return None¦\n"),
    place(SLOTS, 'hours, minutes = ¦text.split(":")¦\n', r"map\(int, text\.split\(\":\"\)\)",
          tests='assert parse_time("09:30") == 570'),
    place(SLOTS, 'return f"{at // 60:02d}:¦{at % 60:02d}"¦'),
    place(SLOTS, 'if slot.end <= slot.start:\n        raise ValueError(¦f"{text}: ends before it '
          'starts"¦)', r'f?"[^"]*"'),
    place(SLOTS, "return taken.index(¦max(taken)¦)"),
    place(SLOTS, 'merge(slots):\n        lines.append(¦f"{show_time(slot.start)}-'
          '{show_time(slot.end)} busy"¦)',
          r'f".*\{show_time\(slot\.start\)\}.*\{show_time\(slot\.end\)\}.*"'),
]  # fmt: skip
