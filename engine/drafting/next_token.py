"""The drafter in use: one calibrated model of the next token, over all text that may be copied.

Where the answer stands in the text that it repeats, that text around and far from there, the answer
so far, what this session wrote before, the workspace's files, the language's library, the
substitutions seen in this answer, and what the model itself last held likely after a token: each
says what may come next. A log-linear model weighs them, a tree grows best first by path
probability, and ends where the next node is not worth its time. All of that is native
(engine/drafting/core); here it is given its texts, and told the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.drafting import DraftContext, NullDrafter
from engine.drafting._drafting import Drafter as Native
from engine.drafting._drafting import Recycling, Vocabulary, Weights
from engine.drafting.methods.token_recycling import update_table
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.model.cost_model import Cost
from engine.records import Draft
from index.records import Span
from index.workspace.workspace import Workspace

WeightKind = Literal["file", "hunk"]  # a whole file is repeated; a part of one, or nothing
BORDER = -1  # between two texts
PROMPT_TAIL_TOKENS = 96  # tokens of the prompt that count as written before the answer
LEARNING_RATE = 0.2  # rate of what is learnt while drafting (engine/train fits what is shipped)
CONFIDENT_RUN_TOKENS = 12  # agreeing tokens inside a copy: other files are not asked
# of other files: nodes, branches, agreeing tokens at most, occurrences looked at, agreeing at least
WORKSPACE_QUERY = (48, 8, 64, 64, 2)
Ids = NDArray[np.int32]


class NextTokenModel:
    """What the drafters of all requests share, and what they learn together."""

    def __init__(
        self, vocabulary: Vocabulary, library: StdlibNgram, weights: dict[WeightKind, Weights]
    ) -> None:
        self.vocabulary, self.library, self.weights = vocabulary, library, weights


class NextTokenDrafter(NullDrafter):
    """Drafts one answer."""

    def __init__(
        self,
        model: NextTokenModel,
        cost: Cost,
        budget: int,
        workspace: Workspace | None = None,
        recycling: Recycling | None = None,
        without: str = "",
    ) -> None:
        """`recycling`: the model's own table, which goes on being filled. `without`: one part that
        is left out, to see what it is worth (_drafting.pyi; or "learning")."""
        self.without, self.recycling = without, recycling
        self.model, self.cost, self.budget, self.workspace = model, cost, budget, workspace
        self.kind: WeightKind = "hunk"
        self.starts: list[int] = []  # of each prediction in the expected text
        self.near: str | None = None
        self.expects = False
        self.cached = 0  # tokens in the cache
        self.last = BORDER  # the token before the draft

    def begin(self, context: DraftContext) -> None:
        """Take up the texts. Where nothing is expected to be repeated, the prompt may be."""
        self.expects = bool(context.predictions)
        self.kind = "file" if self.expects and context.whole else "hunk"
        if self.workspace is not None and context.path:
            self.near = self.workspace.disk.key(Path(context.path).absolute())
        texts = context.predictions or [context.prompt]
        expected, self.starts = join_with_borders(texts)
        before, _ = join_with_borders(
            [*context.history, context.prompt[-PROMPT_TAIL_TOKENS if self.expects else -1 :]]
        )
        start = min(context.start, len(texts[0])) if self.expects else len(expected) - 1
        self.native = Native(
            self.model.vocabulary, self.model.library.ngram, self.model.weights[self.kind]
        )
        if self.without not in ("", "learning"):
            self.native.leave_out(self.without)
        if self.recycling is not None:
            self.native.recycle(self.recycling)
        self.native.begin(expected, start, before[:-1])

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """What is worth its time, by what passes cost on this machine."""
        self.cached = len(context.prompt) + len(context.output)
        self.last = context.last
        room = min(self.budget, context.room)
        if room <= 0:
            return Draft()
        costs = self.cost.table(self.cached, room + 1)
        self._ask_files(context)
        tokens, parents, probs, sources, places = self.native.propose(room, costs)
        if not self.expects:
            named = zip(sources, places, tokens, strict=True)
            sources = [_named(context, *node) for node in named]
        draft = Draft(tokens, parents, probs, sources)
        draft.span = lambda node: self._span(context, draft, places, node)
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """Move on by what was committed, and learn from it."""
        self.native.commit(committed, 0.0 if self.without == "learning" else LEARNING_RATE)
        if self.recycling is not None and scores is not None:
            tokens = [self.last, *draft.tokens]
            update_table(self.recycling, tokens, scores.logits, scores.likely)
        self.cost.saw(1 + len(draft), self.cached, seconds)

    def _ask_files(self, context: DraftContext) -> None:
        """Hand over what follows the text's end in the workspace's files."""
        if self.workspace is None or self.native.run >= CONFIDENT_RUN_TOKENS:
            return
        nodes, width, limit, most, least = WORKSPACE_QUERY
        tail = context.tail(limit)
        tree = self.workspace.tree(tail, nodes, width, limit=limit, most=most, least=least)
        if tree.length:
            self.native.files(tree.tokens, tree.parents, tree.probs, tree.length)

    def _span(
        self, context: DraftContext, draft: Draft, places: list[int], node: int
    ) -> Span | None:
        """Where an accepted node's text stands."""
        source, place = draft.sources[node], places[node]
        if source == "documents" and context.documents:
            return context.documents(place)
        if source in ("prediction", "substitution") and place >= 0 and context.span:
            text = int(np.searchsorted(self.starts, place, "right")) - 1
            return context.span(text, place - self.starts[text])
        if source == "workspace" and self.workspace is not None:
            path = [node]
            while draft.parents[path[-1]] >= 0:
                path.append(draft.parents[path[-1]])
            tail = [*context.tail(WORKSPACE_QUERY[2]), *(draft.tokens[n] for n in path[:0:-1])]
            for match in self.workspace.match(tail, 1, near=self.near):
                if match.continuation(1).tolist() == [draft.tokens[node]]:
                    return match.span(0, 1)
        return None


def _named(context: DraftContext, source: str, place: int, token: int) -> str:
    """The source of a node where nothing but the prompt is expected to be repeated."""
    if source != "prediction":
        return source
    if context.documents and 0 <= place < len(context.prompt) and context.prompt[place] == token:
        return "documents" if context.documents(place) else "context"
    return "context"


def join_with_borders(texts: list[list[int]]) -> tuple[Ids, list[int]]:
    """Texts with a border after each, and where each starts."""
    out: list[int] = []
    starts = []
    for text in texts:
        starts.append(len(out))
        out += text
        out.append(BORDER)
    return np.array(out, np.int32), starts
