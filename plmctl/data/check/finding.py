"""The result of a check: findings with a verdict each, and the histogram of lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from plmctl.text.backend import replace_surrogates

Verdict = Literal["ok", "look", "bad"]
_FINE = 16  # bins of an octave: lengths are exact to 4.4 %


@dataclass(frozen=True)
class Finding:
    """One result of a check and, unless it is `ok`, one sentence with advice."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


def judge(
    name: str,
    found: str,
    value: float,
    *,
    look: float,
    bad: float,
    advice: str,
    numbers: dict[str, Any] | None = None,
) -> Finding:
    """A finding whose verdict is `look` above one bound and `bad` above the other."""
    verdict: Verdict = "bad" if value > bad else "look" if value > look else "ok"
    return Finding(name, verdict, found, "" if verdict == "ok" else advice, numbers or {})


@dataclass(frozen=True)
class Report:
    """All findings on one path."""

    path: str
    kind: str  # "text", "tokens" or "labelled"
    findings: list[Finding]
    lengths: LengthHistogram
    unit: str  # unit of the lengths

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings."""
        verdicts = {finding.verdict for finding in self.findings}
        return "bad" if "bad" in verdicts else "look" if "look" in verdicts else "ok"

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        edges, counts = self.lengths.bins()
        return {
            "path": self.path,
            "kind": self.kind,
            "verdict": self.verdict,
            "findings": [asdict(finding) for finding in self.findings],
            "lengths": {"unit": self.unit, "edges": edges, "counts": counts},
        }


class LengthHistogram:
    """The number of lengths in each sixteenth of an octave, in a fixed amount of memory."""

    def __init__(self) -> None:
        self._counts = np.zeros(64 * _FINE, np.int64)
        self.count = self.total = self.largest = 0

    def add(self, lengths: Sequence[int] | np.ndarray) -> None:
        """Count these lengths; those of 0 are ignored."""
        values = np.asarray(lengths, np.int64)
        values = values[values > 0]
        if len(values):
            self._counts += np.bincount(
                (np.log2(values) * _FINE + 1e-9).astype(np.int64), minlength=len(self._counts)
            )
            self.count, self.total = self.count + len(values), self.total + int(values.sum())
            self.largest = max(self.largest, int(values.max()))

    @property
    def mean(self) -> float:
        """The mean of the lengths."""
        return self.total / max(1, self.count)

    def quantile(self, share: float) -> int:
        """The length that a `share` of all lengths do not exceed."""
        index = int(np.searchsorted(np.cumsum(self._counts), share * self.count))
        return min(self.largest, int(2 ** ((index + 1) / _FINE)))

    def above(self, length: int) -> float:
        """The share of lengths above `length`, to the width of a bin."""
        index = int(np.log2(max(1, length)) * _FINE + 1e-9)
        return float(self._counts[index + 1 :].sum() / max(1, self.count))

    def bins(self) -> tuple[list[int], list[int]]:
        """Edges 2^a, ..., 2^b and the counts between them, as a picture shows them."""
        octaves = self._counts.reshape(-1, _FINE).sum(1)
        used = np.flatnonzero(octaves)
        first, last = (int(used[0]), int(used[-1])) if len(used) else (0, 0)
        return [2**k for k in range(first, last + 2)], octaves[first : last + 1].tolist()


def format_percent(share: float) -> str:
    """A share as `0.03%` or `12%`, with two digits."""
    return "0%" if share == 0 else f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.0f}%"


def shorten(text: str, most: int = 60) -> str:
    """`text` on one line, cut to at most `most` characters."""
    text = " ".join(
        replace_surrogates(text).split()
    )  # a terminal takes no halves of surrogate pairs
    return text if len(text) <= most else text[: most - 1] + "…"
