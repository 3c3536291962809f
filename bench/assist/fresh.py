"""Make tasks for `python -m bench assist --tasks` of packages that nobody here has seen.

    python -m bench assist-fresh --since DATE --packages NAME ... [--npm NAME ...] --out FILE
        [--edits N] [--completions N] [--seed S]

pip fetches the newest wheel of each package (npm its archive), with the user's own settings; no
code of theirs is run. A package is left out, with a line that says why, if that release was
uploaded before DATE, is installed here, or has no permissive licence. FILE gets one task a line,
and the folder beside it, FILE without its suffix, the sources. Every task has a file of its own,
taken with the seed: whole definitions or files of 20 to 200 lines with an instruction
(bench/assist/instructions.py), and places to complete.
"""

from __future__ import annotations

import email
import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from bench.assist.instructions import block_end, instruction, kinds, places, selections
from bench.common.cli import argument_parser, complain
from bench.common.report import say, write_text
from bench.replay.collect import check_name, check_text, language_of
from index.workspace.file_filter import Skipped, load, walk

PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|ISC|0BSD|Unlicense|Zlib|PSF)\b", re.I)
COPYLEFT = re.compile(r"GPL|MPL|EPL|proprietary|commercial", re.I)
LANGUAGES = ("python", "javascript", "typescript")
OTHER_FOLDERS = {"test", "tests", "testing", "dist", "build", "docs", "node_modules"}
COMPILED = "__esModule"  # a compiler wrote this JavaScript
LEAST_LINES = 40  # lines of a file with a place to complete
CONSTANT_YEAR = 2021  # builds that are repeatable give their files earlier dates


@dataclass(frozen=True)
class Package:
    """An unpacked release."""

    folder: Path
    name: str
    version: str
    licence: str
    date: str  # of its newest file, or of --since where all files have a constant date


@dataclass(frozen=True)
class FreshTask:
    """An instruction for a selection, or a place to complete; offsets are code points."""

    name: str
    part: str  # edits | completions
    kind: str
    package: str
    version: str
    date: str
    licence: str
    folder: str  # of the package, in the folder of sources
    file: str  # in that folder
    language: str
    text: str
    selection: tuple[int, int]  # empty at a place to complete
    instruction: str = ""
    follows: str = ""  # what the author wrote at that place and is not typed yet

    @property
    def before(self) -> str:
        """The text before the cursor."""
        return self.text[: self.selection[0]]

    @property
    def after(self) -> str:
        return self.text[self.selection[1] :]

    @property
    def lines(self) -> int:
        """Return the lines selected, or those of the file where nothing is."""
        start, stop = self.selection
        return len((self.text[start:stop] or self.text).split("\n"))


def read_tasks(path: Path) -> list[FreshTask]:
    """Read a file of tasks. ValueError names the line that is none."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            task = FreshTask(**json.loads(line))
            found.append(FreshTask(**asdict(task) | {"selection": tuple(task.selection)}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not a task of assist-fresh") from error
    return found


# -- packages ----------------------------------------------------------------------------------


def fetch_wheel(name: str, since: str, folder: Path) -> Package:
    """Fetch and unpack a package's newest wheel. Skipped says why not."""
    if name.lower() in {one.name.lower() for one in importlib.metadata.distributions()}:
        raise Skipped("installed here")
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as place:
        if subprocess.run([*pip, "-d", place, name], capture_output=True).returncode:
            raise Skipped("pip finds no wheel")
        wheel = next(Path(place).glob("*.whl"))
        version = wheel.name.split("-")[1]
        older = [*pip, "-d", f"{place}/older", "--uploaded-prior-to", since, f"{name}=={version}"]
        if not subprocess.run(older, capture_output=True).returncode:
            raise Skipped(f"{version} was uploaded before {since}")
        return unpacked(wheel, name, since, folder)


def unpacked(wheel: Path, name: str, since: str, folder: Path) -> Package:
    """Unpack a wheel. Skipped for one that is not pure Python, or of another licence."""
    version = wheel.name.split("-")[1]
    if not wheel.name.endswith("-none-any.whl"):
        raise Skipped("not pure Python")
    target = folder / f"{name}-{version}"
    with zipfile.ZipFile(wheel) as archive:
        newest = max(datetime(*one.date_time[:3], tzinfo=UTC) for one in archive.infolist())
        info = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(archive.read(info))
        said = about.get_all("License-Expression", []) + about.get_all("Classifier", [])
        names = [one.rpartition("::")[2] for one in said if "::" not in one or "License" in one]
        licence = permissive(", ".join(names) or (about.get("License") or "")[:60])
        archive.extractall(target)
    date = since if newest.year < CONSTANT_YEAR else newest.date().isoformat()
    return Package(target, name, version, licence, date)


def fetch_npm(name: str, since: str, folder: Path) -> Package:
    """Fetch and unpack a package of npm. Skipped says why not."""
    ask = ["npm", "view", name, "time", "version", "license", "--json"]
    answer = subprocess.run(ask, capture_output=True, text=True)
    if answer.returncode:
        raise Skipped("npm does not find it")
    about = json.loads(answer.stdout)
    version, licence = about["version"], str(about.get("license", ""))
    date = about["time"][version][: len("2026-01-01")]
    if date < since:
        raise Skipped(f"{version} was uploaded before {since}")
    target = folder / f"{name.strip('@').replace('/', '-')}-{version}"
    with tempfile.TemporaryDirectory() as place:
        pack = ["npm", "pack", "--ignore-scripts", f"{name}@{version}"]
        if subprocess.run(pack, cwd=place, capture_output=True).returncode:
            raise Skipped("npm does not pack it")
        with tarfile.open(next(Path(place).glob("*.tgz"))) as archive:
            archive.extractall(target, filter="data")
    return Package(target, name, version, permissive(licence), date)


def permissive(licence: str) -> str:
    """Return the licence if it is permissive, by its name. Raises Skipped otherwise."""
    if COPYLEFT.search(licence) or not PERMISSIVE.search(licence):
        raise Skipped(f"licence: {licence or 'not named'}")
    return " ".join(licence.split())


# -- tasks -------------------------------------------------------------------------------------


def sources(package: Package) -> Iterator[tuple[str, str, str]]:
    """Yield path, language and text of the package's files that are written by hand."""
    for file in walk(package.folder, None, False):
        try:
            language = language_of(file.path)
            check_name(file.path)
            if (
                language not in LANGUAGES
                or file.path.endswith(".d.ts")
                or not OTHER_FOLDERS.isdisjoint(file.path.split("/"))
            ):
                continue
            text = load(file)[0]
            check_text(text, language)
            if COMPILED in text:
                continue
            selections(language, text)  # its grammar is read
        except (Skipped, SyntaxError):
            continue
        yield file.path, language, text


class Maker:
    """Takes tasks from packages in turn; each kind of instruction about equally often."""

    def __init__(self, packages: list[Package], seed: int) -> None:
        self._chance = Random(seed)
        self._files = [(one, [*sources(one)]) for one in packages]
        for _, files in self._files:
            self._chance.shuffle(files)
        self._made = Counter[str]()  # by kind

    def take(self, part: str, count: int) -> Iterator[FreshTask]:
        """Take so many tasks, or fewer where the files end."""
        left = count
        while left and any(files for _, files in self._files):
            for package, files in self._files:
                while files and left:
                    path, language, text = files.pop()
                    made = (self._edit if part == "edits" else self._place)(language, text)
                    if made:
                        about = package.name, package.version, package.date, package.licence
                        about += (package.folder.name,)
                        name = f"{part[0]}{count - left + 1:02}"
                        yield FreshTask(name, part, made.pop(0), *about, path, language, *made)
                        left -= 1
                        break

    def _edit(self, language: str, text: str) -> list[Any]:
        spans = selections(language, text)
        self._chance.shuffle(spans)
        rare = sorted(kinds(language), key=lambda kind: (self._made[kind], self._chance.random()))
        for kind in rare:
            for start, stop in spans:
                if said := instruction(kind, language, text[start:stop], self._chance):
                    self._made[kind] += 1
                    return [kind, text, (start, stop), said]
        return []

    def _place(self, language: str, text: str) -> list[Any]:
        found = places(language, text) if text.count("\n") >= LEAST_LINES else []
        if not found:
            return []
        cursor, end = self._chance.choice(found)
        kind = self._chance.choice(("rest of a line", "rest of a block"))
        if kind == "rest of a block":
            end = max(end, block_end(text, cursor))
        return [kind, text[:cursor] + text[end:], (cursor, cursor), "", text[cursor:end]]


def make(packages: list[Package], options: Namespace) -> list[FreshTask]:
    """Make the tasks, and leave each place's file in the workspace as its user has it."""
    maker = Maker(packages, options.seed)
    made = [*maker.take("edits", options.edits), *maker.take("completions", options.completions)]
    folders = {one.folder.name: one.folder for one in packages}
    for task in made:
        (folders[task.folder] / task.file).write_text(task.text, "utf-8", newline="")
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("assist-fresh", __doc__)
    add = parser.add_argument
    add("--since", required=True, help="a date: the packages' releases were uploaded later")
    add("--packages", nargs="*", default=[], metavar="NAME", help="of pip's index")
    add("--npm", nargs="*", default=[], metavar="NAME", help="of npm's")
    add("--edits", type=int, default=30, help="how many (30)")
    add("--completions", type=int, default=30, help="how many (30)")
    add("--seed", type=int, default=1, help="of the choice of files, places and wordings")
    add("--out", type=Path, required=True, help="a file for the tasks, one a line")
    options = parser.parse_args(argv)
    folder, found = options.out.with_suffix(""), []
    if folder.exists():
        complain("assist-fresh", f"{folder}: is there already: remove it, or choose another --out")
        return 2
    try:
        since = datetime.fromisoformat(options.since).date().isoformat()
    except ValueError:
        complain("assist-fresh", f"--since {options.since}: not a date such as 2026-10-01")
        return 2
    for fetch, names in ((fetch_wheel, options.packages), (fetch_npm, options.npm)):
        for name in names:
            try:
                found.append(fetch(name, since, folder))
            except (Skipped, OSError) as reason:
                say(f"{name}: left out: {reason}")
    made = make(found, options)
    lines = (json.dumps(asdict(task), ensure_ascii=False) + "\n" for task in made)
    write_text(options.out, "".join(lines))
    say(f"{len(made)} tasks of {len(found)} packages")
    return 0 if made else 1
