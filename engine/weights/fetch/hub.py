"""Models from the hub, by huggingface_hub: safetensors, configs and tokenizers.

Pickled weights and repository code are never fetched. Nothing is asked of the hub unless the user
agreed to fetch a model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.weights.catalogue.builtins import LARGER, Builtin
from engine.weights.catalogue.local_models.hub_cache import blobs
from engine.weights.errors import OFFLINE, Progress, WeightsError
from engine.weights.fetch.checksums import check_sum, sha256_of

ANSWER_SECONDS = 5.0  # in which the hub must begin to answer
PATTERNS = (".safetensors", ".json", "merges.txt", ".jinja")
log = logging.getLogger(__name__)


class HubUnreachable(WeightsError):
    """No answer of the hub."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """The files of a hub repository that may be read: no pickles, no code."""

    revision: str
    files: dict[str, tuple[int, str | None]]  # name -> bytes, SHA-256 where the hub states it

    @property
    def gguf(self) -> str | None:
        """The GGUF file that has the weights; None for a folder of safetensors."""
        return next((name for name in self.files if name.endswith(".gguf")), None)

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())


def hub_list(repository: str) -> HubFiles:
    """Ask the hub for a repository's safetensors, configs and tokenizer.

    If it has a GGUF file and no safetensors, the list is that file; of several, the one that the
    list of models names.
    """
    with _client(f"{repository} (there is no such folder)"):
        from huggingface_hub import HfApi

        answer = HfApi().model_info(repository, files_metadata=True)
    revision = answer.sha or ""
    listed = {
        file.rfilename: (file.size or 0, file.lfs.sha256 if file.lfs else None)
        for file in answer.siblings or []
        if "/" not in file.rfilename
    }
    files = {name: about for name, about in listed.items() if name.endswith(PATTERNS)}
    ggufs = {name: about for name, about in listed.items() if name.endswith(".gguf")}
    if ggufs and not any(name.endswith(".safetensors") for name in files):
        if (known := LARGER.get(repository)) and known.file in ggufs:
            ggufs = {known.file: ggufs[known.file]}
        if len(ggufs) > 1:
            raise WeightsError(
                f"hub model {repository}: it has {len(ggufs)} GGUF files: download one of "
                f"{', '.join(sorted(ggufs))} and name the file"
            )
        return HubFiles(revision, ggufs)
    for needed in ("config.json", "tokenizer.json", ".safetensors"):
        if not any(name.endswith(needed) for name in files):
            raise WeightsError(
                f"hub model {repository}: it has no {needed}; pickled weights and slow tokenizers "
                "are not read: choose another model"
            )
    return HubFiles(revision, files)


def from_hub(
    repository: str, files: HubFiles, folder: Path, work: Path, progress: Progress
) -> None:
    """Download the listed files into `folder` and verify sizes and checksums."""
    total = files.size

    def report(got: int) -> None:
        progress(f"fetching {repository}", min(got, total), total)

    folder.mkdir()
    missing = [
        name
        for name, (_, sha256) in files.files.items()
        if not _linked(repository, sha256, folder / name)
    ]
    _get(repository, files.revision, missing, folder, work, report)
    for name, (size, sha256) in files.files.items():
        path = folder / name
        got = path.stat().st_size if path.is_file() else 0
        if got != size or (sha256 is not None and sha256_of(path) != sha256):
            raise WeightsError(
                f"hub model {repository}: {name} came truncated or altered "
                f"({got} of {size} bytes); pull again"
            )


def gguf_from_hub(model: Builtin, target: Path, work: Path, progress: Progress) -> None:
    """Fetch the publisher's own GGUF of a built-in model, and verify it by the same checksum.

    HubUnreachable where the hub does not answer at all.
    """
    if model.hub is None:
        raise WeightsError(f"{model.name}: the hub has no such file; pull it without `--from hub`")
    repository, file = model.hub
    folder = work / "hub"

    def report(got: int) -> None:
        progress(f"fetching {model.name} from the hub", min(got, model.size), model.size)

    got = folder / file
    folder.mkdir()
    if not _linked(repository, model.sha256, got):
        _check_answers()
        _get(repository, "main", [file], folder, work, report)
    check_sum(model.name, got.stat().st_size, sha256_of(got), model.size, model.sha256)
    got.rename(target)


def _check_answers() -> None:
    """Raise HubUnreachable where the hub does not answer: its own client tries for long."""
    try:
        with _client("anything"):
            from huggingface_hub import constants, get_session

            get_session().head(constants.ENDPOINT, timeout=ANSWER_SECONDS)
    except WeightsError as error:
        reason = f"{type(error.__cause__).__name__}: {error.__cause__}"
        raise HubUnreachable(f"the hub cannot be reached ({reason})") from error


def _linked(repository: str, sha256: str | None, target: Path) -> bool:
    """Make `target` a hard link to a file that the hub's cache holds.

    Its bytes are then not fetched again, and are on the disk once. False where the cache holds none
    that is whole.
    """
    for blob in blobs(repository, sha256) if sha256 else ():
        try:
            if sha256_of(blob) == sha256:
                os.link(blob, target)
                return True
        except OSError as error:  # on another disk, or not ours to link
            log.info("%s: cannot be linked, so it is fetched: %s", blob, error.strerror)
    return False


def _get(
    repository: str,
    revision: str,
    names: list[str],
    folder: Path,
    work: Path,
    report: Callable[[int], None],
) -> None:
    """Download files of a repository into a folder, and report the bytes that have come."""
    with _client(repository):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils.tqdm import tqdm

        got = 0

        class Received(tqdm):
            """A counter of bytes where the library would draw a bar."""

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> None:
                nonlocal got
                got += int(n or 0)
                report(got)

        for name in names:
            hf_hub_download(
                repository,
                name,
                revision=revision,
                local_dir=folder,
                cache_dir=work / "cache",  # it goes with `work`
                tqdm_class=Received,
            )


@contextmanager
def _client(what: str) -> Iterator[None]:
    """Set up the hub's client, without telemetry and messages of its own.

    WeightsError of one line where it fails. Files come over HTTP, which Ctrl-C ends at once; Xet
    would keep a cache of its own elsewhere.
    """
    try:
        from huggingface_hub import constants
        from huggingface_hub.utils import logging as messages

        constants.HF_HUB_DISABLE_TELEMETRY = constants.HF_HUB_DISABLE_XET = True
        messages.set_verbosity_error()  # type: ignore[no-untyped-call]
        yield
    except Exception as error:  # the libraries below share no base class
        line = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        why = f"{type(error).__name__}: {line}"
        raise WeightsError(f"cannot download {what} from the hub: {why}; {OFFLINE}") from error
