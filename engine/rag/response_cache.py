"""Texts that a model has finished, kept in the cache folder: what was asked -> what it wrote.

One small JSON file a text, written whole, for the user alone. Only what the same model wrote for
exactly the same request is given back, so nothing changes but the time it takes. The files that
were written longest ago make room. It asks no model.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from engine.records import Request
from engine.weights import home, locate

if TYPE_CHECKING:
    from engine.engine import Engine

FILES = 4096  # that are kept
VERSION = 2  # another number where something else is made of an answer before it is kept
logger = logging.getLogger(__name__)


class Finished:
    """The texts of one model. Several processes may share the folder."""

    def __init__(self, folder: Path, model: str) -> None:
        """`folder` is made when the first text is kept. `model`: what its answers depend on."""
        self.folder, self.model = folder, model

    def get(self, request: Request) -> str | None:
        """What was written for exactly this request."""
        file = self._file(request)
        try:
            text = json.loads(file.read_text("utf-8"))["text"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            logger.warning("%s: no text that was finished: it is written anew", file)
            return None
        return text if isinstance(text, str) else None

    def put(self, request: Request, text: str) -> None:
        """Keep a text. A folder that cannot be written is only logged."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".new")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    json.dump({"text": text}, out)
                    out.flush()
                    os.fsync(out.fileno())
                Path(name).replace(self._file(request))
            finally:
                Path(name).unlink(missing_ok=True)
            self._make_room()
        except OSError as error:
            logger.warning("%s: cannot keep what is finished: %s", self.folder, error.strerror)

    def _file(self, request: Request) -> Path:
        """Named by all that the text depends on."""
        asked = (request.kind, request.messages, request.max_tokens, request.stop)
        how = (request.temperature, request.top_k, request.top_p, request.seed)
        return self.folder / f"{_digest([VERSION, self.model, *asked, *how])}.json"

    def _make_room(self) -> None:
        files = [*self.folder.glob("*.json")]
        if len(files) > FILES:
            for _, file in sorted((one.stat().st_mtime_ns, one) for one in files)[:-FILES]:
                file.unlink(missing_ok=True)


def kept(engine: Engine) -> Finished:
    """The texts that an engine's model has finished, in the cache folder."""
    folder = locate(engine.config.model)
    dtype = f"{engine.info.dtype} {engine.info.device}"
    key = model_key(engine.config.model, dtype, engine.encoder.fingerprint, folder)
    return Finished(home() / "finished", key)


def model_key(name: str, dtype: str, tokenizer: str, folder: Path) -> str:
    """What a model's answers depend on: its name, number format, tokenizer and weights' files."""
    files = sorted((one.name, one.stat()) for one in folder.iterdir() if one.is_file())
    sizes = [(file, known.st_size, known.st_mtime_ns) for file, known in files]
    return _digest([name, dtype, tokenizer, sizes])


def _digest(what: object) -> str:
    return sha256(json.dumps(what).encode()).hexdigest()
