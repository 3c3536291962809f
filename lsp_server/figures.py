"""The figures of one client's answers, its status, and its statistics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from engine.config import DEFAULT_MODEL
from engine.records import Step

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace
    from lsp_server.completion.completion_cache import CompletionCache
    from lsp_server.settings import Settings
    from lsp_server.shared_engine import SharedEngine

SPEED_DECAY = 0.97  # factor per pass, for the average of tokens per second


class Figures:
    """Sums over a client's answers, and how fast the latest ones were written.

    `totals` counts cancelled answers, tokens, accepted tokens and passes; it has the seconds of
    prefill ("reading"), of decoding ("writing"), and of either for cancelled answers ("wasted").
    """

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self._recent = (0.0, 0.0)  # tokens and seconds, decaying with each pass

    def count(self, step: Step) -> None:
        """Add one pass, including tokens behind the end of the answer."""
        totals = self.totals
        if step.prefill:
            totals["reading"] += step.seconds
            return
        tokens = step.accepted + 1
        totals["tokens"] += tokens
        totals["accepted"] += step.accepted
        totals["passes"] += 1
        totals["writing"] += step.seconds
        old_tokens, old_seconds = (each * SPEED_DECAY for each in self._recent)
        self._recent = (old_tokens + tokens, old_seconds + step.seconds)

    @property
    def tokens_per_second(self) -> float | None:
        tokens, seconds = self._recent
        return round(tokens / seconds, 1) if seconds else None

    @property
    def accepted_share(self) -> float | None:
        tokens = self.totals["tokens"]
        return round(self.totals["accepted"] / tokens, 3) if tokens else None


class Measured(Protocol):
    """The part of a session that its status tells of."""

    shared_engine: SharedEngine
    settings: Settings
    enabled: bool
    figures: Figures
    completions: CompletionCache

    @property
    def workspace(self) -> Workspace | None: ...

    @property
    def running(self) -> int: ...


def status_of(session: Measured) -> dict[str, Any]:
    """Return the parameters of draftline/status."""
    shared, workspace = session.shared_engine, session.workspace
    state, message = str(shared.state), shared.message
    if state == "ready" and session.running:
        state = "busy"
    if not session.enabled:
        state, message = "off", "turned off: draftline.toggle turns it on"
    return {
        "state": "loading" if state in ("idle", "asking") else state,
        "message": message,
        "model": shared.model or session.settings.model or DEFAULT_MODEL,
        "device": shared.engine.info.device if shared.engine else session.settings.device,
        "tokensPerSecond": session.figures.tokens_per_second,
        "acceptedShare": session.figures.accepted_share,
        "files": len(workspace.documents) if workspace else None,
        "tokens": workspace.size if workspace else None,
        "downloads": [{"model": offer.model, "bytes": offer.size} for offer in shared.offers],
    }


def stats_of(session: Measured) -> dict[str, Any]:
    """Return the figures of a client's answers and index. Nothing of it leaves the machine."""
    engine, completions = session.shared_engine.engine, session.completions
    return {
        **status_of(session),
        "answers": dict(session.figures.totals),
        "completions": {**completions.counts, "acceptedCharacters": completions.accepted},
        "readingTokensPerSecond": round(engine.info.prefill_tokens_per_s, 1) if engine else None,
        "running": session.running,
        "index": asdict(session.workspace.stats()) if session.workspace else None,
    }
