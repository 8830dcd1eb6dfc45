"""The penalties that parts of a model put on their own weights or states, in addition to the loss
of any objective (nn/restrained.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.models.base import Once
from plmctl.nn.restrained import Restrained, find_restrained
from plmctl.objectives.base import ModelCost, Output, Term


@dataclass(frozen=True)
class Penalties(ModelCost):
    """The sum of the penalties of parts, by the name of their term, once an update, whatever
    micro-batches and processes it is split into.

    Terms count rows: each micro-batch adds its share. A penalty is in the gradient, before it is
    clipped; decay that an optimizer keeps apart from the gradient, as AdamW does, is another rule.
    """

    parts: Mapping[str, Sequence[Restrained]]  # by term

    @classmethod
    def of(cls, model: nn.Module) -> Penalties | None:
        """The penalties of a model; None if no part of it asks for one."""
        parts: dict[str, list[Restrained]] = {}
        for part in find_restrained(model):
            parts.setdefault(part.term, []).append(part)
        return cls(parts) if parts else None

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(self.parts)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset(name for parts in self.parts.values() for name in parts[0].measures)

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term: rows}."""
        return dict.fromkeys(self.parts, len(batch.key))

    def add(self, out: Output, once: Once, batch: Batch) -> Output:
        """`out`, with the penalties and the measures of the parts."""
        rows, terms, logs = len(batch.key), dict(out.terms), dict(out.logs)
        noted = _collect_notes(once)
        for name, parts in self.parts.items():
            penalties = [part.penalty(noted.get(part, ())) for part in parts]
            terms[name] = Term(rows * torch.stack(penalties).sum())
            measured = parts[0].measure(parts, noted)
            logs |= {key: (rows * value, rows) for key, value in measured.items()}
        return replace(out, terms=terms, logs=logs)

    def states(self) -> list[nn.Module]:
        return [state for part in self._each() for state in part.states()]

    def before_step(self, share: float) -> None:
        for part in self._each():
            part.before_step(share)

    def after_step(self, step: int) -> None:
        for part in self._each():
            part.after_step(step)

    def _each(self) -> list[Restrained]:
        return [part for parts in self.parts.values() for part in parts]


def _collect_notes(once: Once) -> dict[nn.Module, list[Tensor]]:
    """The notes of each part in all passes."""
    noted: dict[nn.Module, list[Tensor]] = {}
    for hidden in once.passes:
        for part, notes in hidden.noted.items():
            noted.setdefault(part, []).extend(notes)
    return noted
