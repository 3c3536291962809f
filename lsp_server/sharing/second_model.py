"""The use that one client makes of a model next to the main one: for completions or next edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.weights.errors import WeightsError

if TYPE_CHECKING:
    from lsp_server.settings import Settings
    from lsp_server.shared_engine import SharedEngine


class SecondModel:
    """The model that a setting of the client names, loaded when it is first asked for.

    `does`: what it is for, in warnings. `shares_index`: it needs the main model's tokenizer.
    """

    def __init__(self, client: str, setting: str, does: str, shares_index: bool = False) -> None:
        self._client, self._setting = client, setting
        self._does, self._shares_index = does, shares_index
        self._settings: Settings | None = None  # with which it was last asked for
        self._loads = 0  # of the main model, at that time
        self._refusal = ""  # why it cannot be used with these

    def shared(
        self, main: SharedEngine, own: SharedEngine, name: str, settings: Settings
    ) -> SharedEngine | None:
        """Return the engine of the model called `name`: its `own`, or the main one of that name.

        None without a name, and while the main one is not loaded. WeightsError where it cannot be
        used.
        """
        if main.loaded is None:
            return None
        is_main = bool(name) and name == main.model and main.elsewhere is None
        if not name or is_main:
            if self._settings is not None:
                self._settings = None
                own.leave(self._client)
            return main if is_main else None
        if settings is not self._settings or main.loads != self._loads:
            self._settings, self._loads, self._refusal = settings, main.loads, ""
            own.configure(self._client, name, settings.device)
        if self._refusal:
            raise WeightsError(self._refusal)
        if own.model != name:
            raise WeightsError(
                f"{own.model} {self._does} in other windows, so {name} does not here: name the "
                f"same draftline.{self._setting} in all of them"
            )
        if self._shares_index and own.loaded and not _is_same_tokenizer(own, main):
            own.leave(self._client)
            self._refusal = (
                f"draftline.{self._setting}: {name} has another tokenizer than {main.model}, whose "
                "index it would use: name a smaller model of the same family, or none"
            )
            raise WeightsError(self._refusal)
        return own


def _is_same_tokenizer(one: SharedEngine, other: SharedEngine) -> bool:
    engines = one.loaded, other.loaded
    return len({engine.encoder.fingerprint for engine in engines if engine}) == 1
