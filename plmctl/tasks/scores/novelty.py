"""How many written texts are new: no target of the training examples (COMET)."""

from __future__ import annotations

from collections.abc import Iterable

from plmctl.tasks.record import Predictions
from plmctl.text.letters import normalize_spaces

METRICS = ("novel_pairs", "novel", "novel_unique")


class TrainedTexts:
    """The targets of the training examples, and whether a text differs from all of them.

    Args:
        pairs: (source, target) of each training example, as the tokenizer writes them.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = {
            (normalize_spaces(source), normalize_spaces(target)) for source, target in pairs
        }
        self._targets = {target for _, target in self._pairs}

    def judge(self, source: str, text: str) -> dict[str, bool]:
        """{"new_pair": the text is no target of this source, "new": nor of any other}."""
        source, text = normalize_spaces(source), normalize_spaces(text)
        return {"new_pair": (source, text) not in self._pairs, "new": text not in self._targets}


def score(name: str, predictions: Predictions) -> float:
    """One of `METRICS` in percent (Bosselut et al., 2019, arXiv:1906.05317, sec. 4.1).

    `novel_pairs`: texts that are no training target of their source (N/T sro); `novel`: of no
    source (N/T o); `novel_unique`: the same share of the different texts (N/U o).

    Args:
        predictions: Predictions with the results of `TrainedTexts.judge` for each guess.
    """
    if name == "novel_unique":
        found = list({normalize_spaces(p["guess"]): p["new"] for p in predictions}.values())
    else:
        found = [p["new_pair" if name == "novel_pairs" else "new"] for p in predictions]
    return 100 * sum(found) / len(found) if found else 0.0
