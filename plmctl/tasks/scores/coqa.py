"""CoQA's scores, by its evaluation script: exact match and F1 with several answers of people (Reddy
et al., 2019, arXiv:1808.07042, sec. 6.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import squad as squad_score

MEASURES: dict[str, Callable[[str, str], float]] = {
    "f1": partial(squad_score.f1, version=2),
    "em": squad_score.exact,
}


def score(predictions: Predictions) -> dict[str, float]:
    """The mean over questions, in percent, of the best measure with an answer of people."""
    return {
        name: 100
        * sum(leave_one_out(measure, p["guess"], p["golds"]) for p in predictions)
        / max(1, len(predictions))
        for name, measure in MEASURES.items()
    }


def score_domains(predictions: Predictions, measure: str) -> dict[str, float]:
    """`<measure>/<slice>`: the same of the stories of each source, where there are several."""
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for prediction in predictions:
        for name in prediction.get("slices", ()):
            found[name].append(prediction)
    several = found if len(found) > 1 else {}
    return {f"{measure}/{name}": score(own)[measure] for name, own in sorted(several.items())}


def leave_one_out(measure: Callable[[str, str], float], guess: str, golds: Sequence[str]) -> float:
    """The best measure, as mean over all golds but one where there are several."""
    own = [measure(gold, guess) for gold in golds]
    if len(own) < 2:
        return sum(own)
    return sum(max(own[:n] + own[n + 1 :]) for n in range(len(own))) / len(own)
