"""A model's tokenizer on another machine: the few files that it is made of, stored by digest."""

from __future__ import annotations

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from engine.atomic_write import write_atomically
from engine.remote.messages import BadMessage
from index.cache_folder import MAX_TOKENIZERS, keep_newest, make_cache_folder

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)
MAX_CHARS = 64 << 20  # characters of a file
MAX_SENT_BYTES = 64 << 20  # bytes of all of them, as another machine sends them
# An object without others in it, of strings that are twice as many as the files
FLAT = re.compile(
    rb'\s*+\{(?:\s*+[:,]?+\s*+"(?:[^"\\]++|\\.)*+"){0,%d}+\s*+\}\s*+' % (2 * len(FILES)), re.DOTALL
)
FOLDER = "tokenizers"  # a folder in the cache folder
DIGEST = re.compile(r"[0-9a-f]{64}")
PRIVATE = 0o600


def read_sent(body: bytes) -> object:
    """Parse a JSON object of a few strings, and nothing else.

    Raises BadMessage.
    """
    if not FLAT.fullmatch(body):
        raise BadMessage("not the files of a tokenizer")
    try:
        return json.loads(body)
    except ValueError as error:
        raise BadMessage("not the files of a tokenizer") from error


def read_files(folder: Path) -> dict[str, str]:
    """Read the texts of those of the files that a model's folder has.

    Raises OSError, ValueError.
    """
    return {name: (folder / name).read_text("utf-8") for name in FILES if (folder / name).is_file()}


def digest_of(files: dict[str, str]) -> str:
    """Digest the files, which it identifies."""
    known = sha256()
    for name, text in sorted(files.items()):
        for part in (name.encode(), text.encode("utf-8", "surrogatepass")):
            known.update(b"%d:" % len(part) + part)
    return known.hexdigest()


def stored(home: Path, digest: str) -> Path | None:
    """Find the folder of the files with this digest below the cache folder `home`.

    None without it.
    """
    folder = home / FOLDER / digest
    return folder if folder.is_dir() else None


def store(home: Path, digest: str, files: object) -> Path:
    """Store files that another machine has sent, whole or not at all.

    BadMessage if they are others than announced, OSError.
    """
    if not isinstance(files, dict) or not {*files} <= {*FILES} or "tokenizer.json" not in files:
        raise BadMessage("not the files of a tokenizer")
    texts: dict[str, str] = {}
    for name, text in files.items():
        if not isinstance(text, str) or len(text) > MAX_CHARS:
            raise BadMessage(f"{name}: no text of {MAX_CHARS >> 20} MiB")
        texts[name] = text
    if digest_of(texts) != digest:
        raise BadMessage("the tokenizer is another one than announced")
    parent = home / FOLDER
    make_cache_folder(parent, levels=2)
    made = Path(mkdtemp(dir=parent))
    try:
        for name, text in texts.items():
            write_atomically(made / name, text.encode("utf-8", "surrogatepass"), PRIVATE)
        if stored(home, digest) is None:
            made.replace(parent / digest)
            keep_newest(
                (path for path in parent.iterdir() if DIGEST.fullmatch(path.name)), MAX_TOKENIZERS
            )
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return parent / digest
