"""The tasks in Markdown: instructions, and places to complete."""

from __future__ import annotations

from bench.assist.task import EditTask, every, place, swap

BACKUP, CHANGES = "backup.md", "changes.md"

EDITS = [
    EditTask(
        "spelling", "fix", "backup.md", "## How it works", "same time.",
        "Correct the spelling mistakes.",
        swap("teh", "the", "overwriten", "overwritten", "interupted", "interrupted"),
    ),
    EditTask(
        "numbered", "rewrite", "backup.md", "# shelf", "## Usage",
        "Turn the bullet list into a numbered list.",
        swap("* Download", "1. Download", "* Unpack", "2. Unpack", "* Run", "3. Run")
        + every(r"(?m)^\* ", "1. "),
    ),
    EditTask(
        "table-row", "rewrite", "backup.md", "```sh", "only show what",
        "Add the option `--quiet` to the table: it prints errors only and is off by default.",
        swap(
            "would be copied | off |\n",
            "would be copied | off |\n| `--quiet` | print errors only | off |\n",
        ),
        needs=(r"(?im)^\| `--quiet` +\|[^|]*error[^|]*\| +off +\|$",),
        within=("| `--quiet`",),
    ),
    EditTask(
        "delete-section", "delete", "changes.md", "## 2.3.0", "30.",
        "Delete the section about version 2.2.1.",
        swap("## 2.2.1 (2026-02-17)\n\n### Fixed\n\n"
             "- A full disk is reported before the first block is written.\n\n", ""),
    ),
    EditTask(
        "dates", "rewrite", "changes.md", "## 2.2.1", "another folder.",
        "Write the dates in the headings like 4 May 2026.",
        swap("2026-02-17", "17 February 2026", "2026-01-30", "30 January 2026",
             "2025-11-12", "12 November 2025"),
    ),
]  # fmt: skip

COMPLETIONS = [
    place(BACKUP, "* Run ¦`shelf --version` to see that it works.¦", r"`shelf[^`]*`.*"),
    place(BACKUP, "| `--dry-run` | ¦only show what would be copied | off |¦",
          r"[^|]+\| *(`[^`]*`|\w+) *\|"),
    place(BACKUP, "shelf restore report.odt     # ¦brings back the newest version¦",
          r"\w+( \w+){2,}"),
    place(BACKUP, "by ¦`shelf clean`.¦", r"running `shelf \w+`."),
    place(CHANGES, "- Restoring a file with a name of 255 bytes ¦no longer fails.¦",
          r"(no longer|now) .*\."),
    place(BACKUP, "See [LICENSE](¦LICENSE¦)", r"LICENSE(\.\w+)?"),
    place(BACKUP, 'archive = "~/backup"\nkeep = ¦90¦'),
    place(CHANGES, "locked while they are written.\n\n### ¦Changed¦"),
    place(CHANGES, "| 3.0 | ¦encrypted archives | planned |¦", r"[^|]+\| *planned *\|"),
]  # fmt: skip
