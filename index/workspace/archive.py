"""A saved index in one file, to copy to another machine or place.

The archive is an array file (see `array_file`): named arrays of numbers behind a header with their
SHA-256 digests. Nothing in it is run, unpacked by name or decompressed. Paths are relative to their
roots. It holds the text of all indexed files, as tokens.

An archive is untrusted. `read` refuses it unless every array has its digest, all arrays fit each
other, every token is one of the tokenizer's and every path lies below its root. What remains is the
archive's word for which text a file has: files with other digests are read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from index.workspace import array_file
from index.workspace.array_file import ArrayFile, Arrays
from index.workspace.persistence import (
    pack_strings,
    part_of,
    restore_segments,
    table_of,
    unknown_stamps,
    unpack_strings,
)
from index.workspace.segment import ARRAYS, Segment, freeze, move_in
from index.workspace.segment_set import SegmentSet
from index.workspace.segment_store import Part, SavedState, new_name
from index.workspace.token_cache import Encoder

FORMAT = 1
MAX_CHANGED = 1 << 62  # sequence number of a document
OFFSETS = ("offsets", "offset_ends")
PART_ARRAY = re.compile(r"part(\d{1,6})_([a-z_]{1,16})")
MAX_NAME_CHARS = 200  # characters; a tokenizer's or folder's name in an error message


class BadArchive(ValueError):
    """An archive that is refused; one line that names it, says why and what to do."""


@dataclass(frozen=True, slots=True)
class ArchiveInfo:
    """The description of an archive that its header holds."""

    tokenizer: str  # name of the model whose tokenizer made it
    roots: list[str]  # names of the indexed folders
    identity: str  # digest of all digests: equal for equal archives


def write(
    path: Path, saved: SavedState, roots: Sequence[Path], encoder: Encoder, tokenizer: str
) -> ArchiveInfo:
    """Write a saved index to a new file.

    FileExistsError if there is one; other OSErrors leave nothing of it.
    """
    if path.exists():
        raise FileExistsError(f"{path}: exists: choose another name, or delete it")
    names = [root.name for root in roots]
    segments = [_living(segment) for segment in restore_segments(saved, SegmentSet())]
    documents = [
        (at, document.place[1], document)
        for at, segment in enumerate(segments)
        for document in segment.documents
        if document.alive
    ]
    arrays = _relative_table(table_of(documents, {}), [str(root) for root in roots])
    for number, segment in enumerate(segments):
        part = part_of(segment)
        arrays |= {f"part{number}_{name}": one for name, one in part.arrays.items()}
    digests = {name: _digest(one) for name, one in arrays.items()}
    about = {"archive": FORMAT, "tokenizer": tokenizer, "roots": names, "digests": digests}
    array_file.write(path, encoder.fingerprint, about, arrays)
    return ArchiveInfo(tokenizer, names, _identity(digests))


def read(
    path: Path, roots: Sequence[Path], encoder: Encoder, tokenizer: str
) -> tuple[SavedState, ArchiveInfo]:
    """Return the saved index in an archive, for these roots, with new names of its parts.

    Its arrays are mapped. BadArchive if it is refused, OSError if it cannot be read.
    """
    try:
        file = ArrayFile(path)
        info = _about(file)
        if file.fingerprint != encoder.fingerprint:
            raise BadArchive(
                f"{path}: made with the tokenizer of {_short(info.tokenizer)} "
                f"({_short(file.fingerprint, 12)}), not that of {tokenizer} "
                f"({encoder.fingerprint[:12]}): name its model with --model"
            )
        for name, array in file.arrays.items():
            if _digest(array) != file.about["digests"][name]:
                raise file.damaged(f"'{name}' does not match its digest")
        saved = _saved_state(file, _matching_roots(file, info.roots, roots))
        _check(file, saved, len(encoder.byte_lengths))
    except array_file.Damaged as error:
        raise BadArchive(f"{error}: copy or export it again") from error
    return saved, info


def _about(file: ArrayFile) -> ArchiveInfo:
    """Return the header's fields. Raises Damaged."""
    match file.about:
        case {"archive": int(version)} if version != FORMAT:
            raise file.damaged(f"archive format {version}, expected {FORMAT}")
        case {
            "archive": int(),
            "tokenizer": str(name),
            "roots": list(roots),
            "digests": dict(digests),
        } if digests.keys() == file.arrays.keys() and all(
            isinstance(text, str) for text in (*roots, *digests.values())
        ):
            return ArchiveInfo(name, roots, _identity(digests))
    raise file.damaged("not an archive of an index")


def _matching_roots(file: ArrayFile, names: list[str], roots: Sequence[Path]) -> list[str]:
    """Match the archive's roots to these, by name if there are several."""
    if len(names) == len(roots) == 1:
        return [str(roots[0])]
    by_name = {root.name: str(root) for root in roots}
    if sorted(by_name) != sorted(names) or len(names) != len(roots):
        raise BadArchive(
            f"{file.path}: an index of the folders {_short(', '.join(names))}, not of "
            f"{', '.join(root.name for root in roots)}: name folders of those names"
        )
    return [by_name[name] for name in names]


def _living(segment: Segment) -> Segment:
    """Return the segment without the text of deleted documents and open buffers."""
    if segment.living == segment.size:
        return segment
    documents = [document for document in segment.documents if document.alive]
    ids = [(-1, -1)] * len(documents)
    made = freeze(documents, [document.tokens for document in documents], ids)
    move_in(made, ids, lambda path: (-1, -1))
    return made


def _relative_table(table: Arrays, roots: list[str]) -> Arrays:
    """Return the table of a saved index with relative paths.

    It lacks what another place cannot use.
    """
    numbers, inside = [], []
    tops = [_top(root) for root in roots]
    for path in unpack_strings(table, "path"):
        at = next(at for at, top in enumerate(tops) if path.startswith(top))
        numbers.append(at)
        inside.append(path[len(tops[at]) :])
    return {
        **pack_strings("path", inside),
        "root": np.array(numbers, np.int32),
        **{name: table[name] for name in ("segment", "number", "changed", "digest")},
    }


def _saved_state(file: ArrayFile, roots: list[str]) -> SavedState:
    """Return the archive as a saved index. Raises Damaged."""
    arrays = dict(file.arrays)
    try:
        table = {name: arrays.pop(name) for name in ("segment", "number", "changed", "digest")}
        inside = unpack_strings({name: arrays.pop(name) for name in ("path", "path_ends")}, "path")
        numbers = arrays.pop("root").tolist()
        paths = [_top(roots[at]) + one for at, one in zip(numbers, inside, strict=True)]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise file.damaged("its table is incomplete") from error
    if not all(at >= 0 and _is_below_root(one) for at, one in zip(numbers, inside, strict=True)):
        raise file.damaged("a path leads out of the indexed folder")
    if len(set(paths)) < len(paths) or any(len(column) != len(paths) for column in table.values()):
        raise file.damaged("its table is inconsistent")
    parts: dict[int, Arrays] = {}
    for name, array in arrays.items():
        found = PART_ARRAY.fullmatch(name)
        if not found or found[2] not in (*ARRAYS, *OFFSETS):
            raise file.damaged(f"unknown array '{name}'")
        parts.setdefault(int(found[1]), {})[found[2]] = array
    if sorted(parts) != list(range(len(parts))):
        raise file.damaged("a segment is missing")
    return SavedState(
        {},
        {
            **pack_strings("path", paths),
            **pack_strings("reason", []),
            **table,
            "stamp": unknown_stamps(len(paths)),
        },
        [Part(new_name(), parts[number]) for number in range(len(parts))],
    )


def _top(root: str) -> str:
    """Return the start of all paths below a root."""
    return f"{root.rstrip('/')}/"


def _is_below_root(path: str) -> bool:
    """Return whether a relative path is in its shortest form and stays below its folder."""
    first = path.split("/", 1)[0]
    return (
        bool(path)
        and "\0" not in path
        and os.path.normpath(path) == path
        and (first not in ("", ".", ".."))
    )


def _check(file: ArrayFile, saved: SavedState, vocabulary: int) -> None:
    """Raise Damaged unless the arrays can be queried like those of an index built here."""
    table = saved.table
    try:
        if not all(table[name].dtype.kind == "i" for name in ("segment", "number", "changed")):
            raise file.damaged("its table has other types")
        if table["digest"].dtype != np.uint8 or table["digest"].shape[1:] != (16,):
            raise file.damaged("its digests of files have another form")
        if len(table["changed"]) and table["segment"].min() < 0:
            raise file.damaged("a document is in no segment")
        if len(table["changed"]) and not (
            0 <= table["changed"].min() <= table["changed"].max() < MAX_CHANGED
        ):
            raise file.damaged("its documents have no order")
        for part, segment in zip(saved.parts, restore_segments(saved, SegmentSet()), strict=True):
            if part.arrays.keys() - set(OFFSETS) != set(ARRAYS):
                raise file.damaged("a segment is incomplete")
            segment.core.check()
            if int(part.arrays["text"].max()) >= vocabulary:
                raise file.damaged(f"a token above {vocabulary - 1}, the tokenizer's last")
            for document in segment.documents:
                starts = document.starts
                if starts is not None and (len(starts) != document.size + 1 or starts.min() < 0):
                    raise file.damaged("its offsets do not fit its documents")
    except array_file.Damaged:
        raise
    except (KeyError, IndexError, ValueError, TypeError, OverflowError) as error:
        raise file.damaged(f"its arrays contradict each other ({error})") from error


def _digest(array: Any) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _identity(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:32]


def _short(text: str, most: int = MAX_NAME_CHARS) -> str:
    """Shorten foreign text for a one-line message."""
    return "".join(char if char.isprintable() else "?" for char in text[:most])
