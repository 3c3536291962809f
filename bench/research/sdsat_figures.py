"""Figures by k, the published files and charts of `python -m bench sdsat`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev, variance
from typing import Any

from bench.common.charts import Estimate, interval_chart, save
from bench.common.stats import ratio_of_sums


@dataclass(frozen=True, slots=True)
class SdsatAnswer:
    """One answer."""

    id: str
    text: str
    prompt: int  # tokens
    tokens: int  # tokens of the answer
    time: float  # seconds
    loops: list[float]  # seconds of each round
    drafted: int  # adaptive tokens, without the model's own before them
    accepted: int  # adaptive tokens that were accepted
    gained: int  # tokens of all rounds, before the answer was cut

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.time

    @property
    def accept_rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def loop_time(self) -> float:
        return mean(self.loops)


AnswersByK = dict[int, list[SdsatAnswer]]  # in the order of the prompts
PLOTS: dict[str, tuple[str, Callable[[SdsatAnswer], float]]] = {  # file -> (title, value)
    "time": ("seconds a prompt by k", lambda one: one.time),
    "tokens_per_s": ("tokens a second by k", lambda one: one.tokens_per_s),
    "accept_rate": ("share of adaptive tokens accepted by k", lambda one: one.accept_rate),
    "loop_time": ("seconds a round by k", lambda one: one.loop_time),
}


def error(values: Sequence[float]) -> float:
    """1.96 standard errors of the mean."""
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def raw(found: AnswersByK, length: int) -> dict[str, dict[str, Any]]:
    """Return the published raw data by k."""
    return {
        str(k): {
            "sat": k,
            "accept_rates": [one.accept_rate for one in every],
            "iters": [len(one.loops) for one in every],
            "max_new_tokens": length,
            "tokens_per_s": [one.tokens_per_s for one in every],
            "loop_times": [one.loop_time for one in every],
            "tot_mean_iter": mean(len(one.loops) for one in every),
            "tot_mean_time": mean(one.time for one in every),
            "total_input": sum(one.prompt for one in every),
            "total_output": sum(one.tokens for one in every),
            "answers": [asdict(one) for one in every],
        }
        for k, every in found.items()
        if every
    }


def answers_of(folder: Path) -> AnswersByK:
    """Read the answers from raw_data.json."""
    known = json.loads((folder / "raw_data.json").read_text("utf-8"))
    return {int(k): [SdsatAnswer(**one) for one in each["answers"]] for k, each in known.items()}


def results(found: AnswersByK) -> list[dict[str, Any]]:
    """Return a line for each k, with speedups over plain decoding, prompt by prompt."""
    plain = {one.id: one for one in found[0]}
    lines: list[dict[str, Any]] = []
    for k, answers in found.items():
        every = [one for one in answers if one.id in plain]
        if not every:
            continue
        ratio = ratio_of_sums([(one.tokens_per_s, plain[one.id].tokens_per_s) for one in every])
        drafted = sum(one.drafted for one in every)
        lines.append(
            {
                "k": k,
                "tokens_per_s": round(mean(one.tokens_per_s for one in every), 3),
                "speedup": round(ratio.value, 4),
                "speedup_low": round(ratio.low, 4),
                "speedup_high": round(ratio.high, 4),
                "accept_rate": round(sum(one.accepted for one in every) / max(drafted, 1), 4),
                "mean_accepted": round(
                    sum(one.gained for one in every) / sum(len(one.loops) for one in every), 4
                ),
                "loop_ms": round(1000 * mean(one.loop_time for one in every), 3),
                "equal": all(one.text == plain[one.id].text for one in every),
                "questions": len(every),
            }
        )
    return lines


def write(folder: Path, found: AnswersByK, length: int) -> int:
    """Write the published files and charts; returns the k with the shortest mean time."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {k: every for k, every in found.items() if every}
    best = min(found, key=lambda k: mean(one.time for one in found[k]))
    rows = ["k\tmean_time\tvar_time\tmean_iters\tvar_iters\tbest_alg"]
    for k, every in found.items():
        lines = [f"{one.time:.6f}\t{len(one.loops)}\t{json.dumps(one.text)}" for one in every]
        file = folder / f"k{k}.tsv"
        file.write_text("\n".join(["time\titers\toutputs", *lines]) + "\n", "utf-8")
        both = ([one.time for one in every], [float(len(one.loops)) for one in every])
        spread = variance if len(every) > 1 else (lambda values: 0.0)
        figures = [f"{call(values):.6f}" for values in both for call in (mean, spread)]
        rows.append("\t".join([str(k), *figures, str(int(k == best))]))
    (folder / "meanvar.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    (folder / "raw_data.json").write_text(json.dumps(raw(found, length), indent=1), "utf-8")
    for name, (title, value) in PLOTS.items():
        save(interval_chart(title, by_k(found, value), "k"), folder / f"{name}.svg")
    return best


def by_k(found: AnswersByK, value: Callable[[SdsatAnswer], float]) -> dict[float, Estimate]:
    """Return the mean of a value for each k, with its 95 % confidence interval."""
    means = {}
    for k, every in found.items():
        values = [value(one) for one in every]
        middle, margin = mean(values), error(values)
        means[float(k)] = Estimate(middle, middle - margin, middle + margin)
    return means
