"""The default drafter: one calibrated next-token model over all text that can be copied.

Candidates for the next token come from the text being edited (at the current position, near it and
far from it), the answer so far, earlier answers of the session, the workspace's files, an n-gram of
the standard library, substitutions seen in this answer, and the model's own likely successors
(Token Recycling). A log-linear model turns the evidence into probabilities, a tree is expanded best
first by path probability, and expansion stops where the next node would not be worth its time. All
of that is native (engine/drafting/core); this module supplies texts and costs.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.drafting import DraftContext, NullDrafter
from engine.drafting._drafting import Drafter as Native
from engine.drafting._drafting import Recycling, Vocabulary, Weights
from engine.drafting.recycling import WIDTH, update_table
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.model.cost_model import CostModel
from engine.records import Draft
from index._core import Tree
from index.records import Span
from index.workspace.workspace import Workspace

Ids = NDArray[np.int32]
WeightKind = Literal["file", "hunk"]  # answers that repeat a whole file; all others
BORDER = -1  # a pseudo token between two texts
PROMPT_TAIL_TOKENS = 96  # tokens of the prompt that count as text before the answer
LEARNING_RATE = 0.2  # rate of online updates (research/train/drafter.py fits the shipped weights)
CONFIDENT_RUN_TOKENS = 12  # tokens that match inside a copy; after them other files are not queried


@dataclass(frozen=True, slots=True)
class WorkspaceQuery:
    """The query of the workspace's index in each step."""

    nodes: int = 48  # nodes of the tree
    width: int = 8  # children of a node
    limit: int = 64  # matching tokens at most
    most: int = 64  # occurrences looked at
    least: int = 2  # matching tokens at least

    def tree(self, workspace: Workspace, tail: list[int] | Ids) -> Tree:
        """Return the continuations of `tail` in the workspace's files."""
        return workspace.tree(
            tail, self.nodes, self.width, limit=self.limit, most=self.most, least=self.least
        )


WORKSPACE_QUERY = WorkspaceQuery()


class NextTokenModel:
    """The weights and tables that the drafters of all requests share; the weights learn online."""

    def __init__(
        self, vocabulary: Vocabulary, library: StdlibNgram, weights: dict[WeightKind, Weights]
    ) -> None:
        self.vocabulary, self.library, self.weights = vocabulary, library, weights


class NextTokenDrafter(NullDrafter):
    """Drafts one answer."""

    takes_forced = True

    def __init__(
        self,
        model: NextTokenModel,
        cost: CostModel,
        budget: int,
        workspace: Workspace | None = None,
        recycling: Recycling | None = None,
        without: str = "",
    ) -> None:
        """Start without an answer.

        `recycling`: the client's Token Recycling table, which is updated. `without`: a part to
        ablate (`leave_out` in _drafting.pyi, or "learning").
        """
        self.without, self.recycling = without, recycling
        self.model, self.cost, self.budget, self.workspace = model, cost, budget, workspace
        self.kind: WeightKind = "hunk"
        self.starts: list[int] = []  # offset of each prediction in the expected text
        self.near: str | None = None  # workspace key of the edited file
        self.expects = False  # there is a prediction
        self.cached = 0  # tokens in the KV cache
        self.last = BORDER  # the token before the draft
        # The last step, to be learnt from in `meanwhile`: rows, cached tokens and seconds of its
        # pass; its tokens, and the most likely ones after each.
        self._passed: tuple[int, int, float] | None = None
        self._likely: tuple[list[int], Ids, NDArray[np.float32]] | None = None

    def begin(self, context: DraftContext) -> None:
        """Load the texts to copy from. Without a prediction, the prompt takes its place."""
        self.expects = bool(context.predictions)
        self.kind = "file" if self.expects and context.whole else "hunk"
        if self.workspace is not None and context.path:
            self.near = self.workspace.key(Path(context.path).absolute())
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
        """Propose the tree that is worth its time by the cost model."""
        self.cached = len(context.prompt) + len(context.output)
        self.last = context.last
        capacity = min(self.budget, context.capacity)
        if capacity <= 0:
            return Draft()
        costs = self.cost.table(self.cached, capacity + 1)
        tail = [] if self.workspace is None else context.tail(WORKSPACE_QUERY.limit)
        self._query_workspace(tail)
        tokens, parents, probs, sources, places = self.native.propose(capacity, costs)
        if not self.expects:
            named = zip(sources, places, tokens, strict=True)
            sources = [_named(context, *node) for node in named]
        draft = Draft(tokens, parents, probs, sources)
        if self.workspace is not None or context.span or context.documents:
            draft.span = lambda node: self._span(context, tail, draft, places, node)
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """Advance by the committed tokens, and learn from them."""
        self.native.commit(committed, 0.0 if self.without == "learning" else LEARNING_RATE)
        if scores is None:
            return
        self.meanwhile()
        self._passed = (1 + len(draft), self.cached, seconds)
        if self.recycling is None:
            return
        tokens = [self.last, *draft.tokens]
        if scores.likely is None:
            update_table(self.recycling, tokens, scores.logits)
        else:
            self._likely = (tokens, *scores.likely(WIDTH))

    def meanwhile(self) -> None:
        """Learn from the last step what its pass cost, and likely successors of its tokens."""
        if self._passed is not None:
            self.cost.observe(*self._passed)
            self._passed = None
        if self._likely is not None and self.recycling is not None:
            tokens, ids, logits = self._likely
            self.recycling.put(np.array(tokens, np.int32), ids, logits)
            self._likely = None

    def _query_workspace(self, tail: list[int]) -> None:
        """Pass on what follows the last tokens, `tail`, in the workspace's files."""
        if self.workspace is None or self.native.run >= CONFIDENT_RUN_TOKENS:
            return
        tree = WORKSPACE_QUERY.tree(self.workspace, tail)
        if tree.length:
            self.native.files(tree.tokens, tree.parents, tree.probs, tree.length)

    def _span(
        self, context: DraftContext, tail: list[int], draft: Draft, places: list[int], node: int
    ) -> Span | None:
        """Return the place that the text of an accepted node of a draft behind `tail` is from."""
        source, place = draft.sources[node], places[node]
        if source == "documents" and context.documents:
            return context.documents(place)
        if source in ("prediction", "substitution") and place >= 0 and context.span:
            text = bisect_right(self.starts, place) - 1
            return context.span(text, place - self.starts[text])
        if source == "workspace" and self.workspace is not None:
            path = [node]
            while draft.parents[path[-1]] >= 0:
                path.append(draft.parents[path[-1]])
            before = [*tail, *(draft.tokens[n] for n in path[:0:-1])]
            for match in self.workspace.match(before, 1, near=self.near):
                if match.continuation(1).tolist() == [draft.tokens[node]]:
                    return match.span(0, 1)
        return None


def _named(context: DraftContext, source: str, place: int, token: int) -> str:
    """Name the source of a node in an answer without a prediction."""
    if source != "prediction":
        return source
    if context.documents and 0 <= place < len(context.prompt) and context.prompt[place] == token:
        return "documents" if context.documents(place) else "context"
    return "context"


def join_with_borders(texts: list[list[int]]) -> tuple[Ids, list[int]]:
    """Concatenate texts with a border after each. Also returns the offset of each."""
    out: list[int] = []
    starts = []
    for text in texts:
        starts.append(len(out))
        out += text
        out.append(BORDER)
    return np.array(out, np.int32), starts
