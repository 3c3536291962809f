"""A cache of responses on disk, keyed by everything that they depend on.

One small JSON file per response, private to the user and written atomically. A response is reused
only for exactly the same request to the same model, so that reuse changes nothing but the time.
The oldest files are evicted first.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from engine.atomic_write import write_atomically
from engine.records import Request
from engine.weights import home
from index.cache_folder import MAX_ANSWERS, check_cache_folder, keep_newest, make_cache_folder

if TYPE_CHECKING:
    from engine.remote.any_engine import AnyEngine

VERSION = 3  # change it whenever a response is processed differently before it is stored
logger = logging.getLogger(__name__)


class ResponseCache:
    """The responses of one model. Processes may share the folder."""

    def __init__(self, folder: Path, model: str) -> None:
        """Take the folder, which the first `put` creates.

        `model`: a hash of what the responses depend on next to the request, as `model_key` returns
        it.
        """
        self.folder, self.model = folder, model

    def get(self, request: Request) -> str | None:
        """Return the response to exactly this request, if it is stored."""
        file = self._file(request)
        try:
            check_cache_folder(self.folder)
            text = json.loads(file.read_text("utf-8"))["text"]
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s: cannot read responses: %s", error.filename, error.strerror)
            return None
        except (ValueError, KeyError, TypeError):
            logger.warning("%s: not a cached response; it will be generated again", file)
            return None
        return text if isinstance(text, str) else None

    def put(self, request: Request, text: str) -> None:
        """Store a response. Failure to write is only logged."""
        try:
            make_cache_folder(self.folder)
            write_atomically(self._file(request), json.dumps({"text": text}).encode(), 0o600)
            self._evict()
        except OSError as error:
            logger.warning("%s: cannot store responses: %s", self.folder, error.strerror)

    def _file(self, request: Request) -> Path:
        prompt = (request.kind, request.messages, request.max_tokens, request.stop)
        sampling = (request.temperature, request.top_k, request.top_p, request.seed)
        return self.folder / f"{_digest([VERSION, self.model, *prompt, *sampling])}.json"

    def _evict(self) -> None:
        keep_newest(self.folder.glob("*.json"), MAX_ANSWERS)


def response_cache(engine: AnyEngine) -> ResponseCache | None:
    """Open the responses of an engine's model in the cache folder.

    None for a model that may become another one unnoticed.
    """
    if engine.folder is None:
        return None
    dtype = f"{engine.info.dtype} {engine.info.device}"
    key = model_key(engine.config.model, dtype, engine.encoder.fingerprint, engine.folder)
    return ResponseCache(home() / "finished", key)


def model_key(name: str, dtype: str, tokenizer: str, folder: Path) -> str:
    """Hash what a model's responses depend on: name, dtype, tokenizer and weight files."""
    files = sorted((path.name, path.stat()) for path in folder.iterdir() if path.is_file())
    stats = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return _digest([name, dtype, tokenizer, stats])


def _digest(value: object) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()
