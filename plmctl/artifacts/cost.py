"""The cost of a model before it runs: parameters, multiply-adds, training FLOPs and memory; read by
--dry-run and by MFU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from plmctl.heads.base import WORDS, Head, about_of
from plmctl.heads.lm import LMHead
from plmctl.models.base import Backbone, Model
from plmctl.nn.stack import Stack
from plmctl.nn.tables import real
from plmctl.objectives.base import Facts, Objective


@dataclass(frozen=True)
class Cost:
    """Counts of one model at one row length; `flops_per_token` follows the rule below.

        F = 6 N + 12 L T d + 6 p (head weights)

    N: the matrices that every token meets; L: the attention cells; T: the row length (or the keys
    that a kernel computes); d: their width; p: the share of positions that reach the
    language-model head. Lookups and recomputation are not counted.

    A row of two stacks is S tokens of the source and T of the target. A token costs the (S + T)-th
    part of their sum:

        F = 6 (S N_e + T N_d + S N_kv + 2 L_e S S d + 2 L_d T (T + S) d) / (S + T)
            + 6 p (head weights)

    A teacher runs forward only and costs a third of that; the
    comparison of the two is not counted.
    """

    parameters: dict[str, int]  # by part, each tensor once, without spare rows of tables
    # forward multiply-adds by kind of module, the head at its share p
    macs_per_token: dict[str, float]
    flops_per_token: float  # forward and backward, of a teacher only forward, of one real token
    saved_per_row: float  # numbers that one row keeps for the backward pass
    # of one real token, by stacks that keep less than their backward pass needs; no useful work
    recomputed_flops_per_token: float = 0.0
    held: int = 0  # parameters of the teachers

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    def memory(self, *, rows: int, activation_bytes: int = 2) -> dict[str, float]:
        """Estimated peak bytes of training `rows` rows at once: fp32 weights, gradients and two
        AdamW moments, activations.
        """
        weights = 4.0 * self.total_parameters
        return {
            "weights": weights,
            "gradients": weights,
            "optimizer": 2 * weights,
            "activations": rows * self.saved_per_row * activation_bytes,
            **({"teachers": 4.0 * self.held} if self.held else {}),
        }


def cost(
    model: Model,
    *,
    length: int,
    predicted: Mapping[str, float],
    objective: Objective | None = None,
    target_length: int = 0,
) -> Cost:
    """The cost of a model, and of the networks and parameters that an objective owns, as
    "objective". Its networks are a generator or classifiers of lower layers; each head reads as
    many positions as the head with the most. Its `helpers` count as "teacher", forward. Drawing
    samples is not counted.

    Args:
        length: tokens of a row.
        predicted: the share of positions that a language-model head is given; a head
            `at_every_token` is given all.
        target_length: tokens of a row more, which a model writes and does not read.
    """
    student = _learning(model, objective, length, target_length, predicted)
    facts = objective.facts if objective else Facts()
    for teacher, names in facts.helpers:
        heads = {name: head for name, head in teacher.heads.items() if name in names}
        shares = dict(predicted) | dict.fromkeys(facts.at_every_token, 1.0)
        answering = _learning(
            Model(backbone=teacher.backbone, heads=heads), None, length, target_length, shares
        )
        macs = dict(student.macs_per_token)
        macs["teacher"] = macs.get("teacher", 0.0) + sum(answering.macs_per_token.values())
        student = replace(
            student,
            macs_per_token=macs,
            flops_per_token=student.flops_per_token + answering.flops_per_token / 3,
            held=student.held + sum(_parameters(teacher).values()),
        )
    return student


def _learning(
    model: Model,
    objective: Objective | None,
    length: int,
    target_length: int,
    predicted: Mapping[str, float],
) -> Cost:
    """The FLOPs of everything that runs forward and backward."""
    tokens = length + target_length
    shares = [predicted.get(name, 0.0) for name, head in model.heads.items() if _tables(head)]
    asked = max(shares, default=0.0) * model.backbone.asked_rows
    macs, saved, recomputed = _backbone(model.backbone, length, target_length, asked)
    everywhere = objective.facts.at_every_token if objective else frozenset()
    for name, head in model.heads.items():
        language = _tables(head) or about_of(head) in WORDS
        seldom = predicted.get(name, 0.0) if language else 1 / tokens
        work, kept = _head(head, 1.0 if name in everywhere else seldom, tokens)
        macs["heads"] += work
        saved += kept
    for part in objective.modules() if objective else ():
        if not any(parameter.requires_grad for parameter in part.parameters()):
            continue  # a copy that learns nothing
        if isinstance(part, Backbone):
            inner, kept, again = _backbone(part, length, target_length)
            recomputed += again
            work = sum(inner.values())
        elif isinstance(part, LMHead):
            work, kept = _head(part, max(predicted.values(), default=0.0), tokens)
        else:
            continue
        macs["objective"], saved = macs.get("objective", 0.0) + work, saved + kept
    beside = own_parameters(objective, model) if objective else 0
    parameters = _parameters(model) | ({"objective": beside} if beside else {})
    return Cost(parameters, macs, 6 * sum(macs.values()), saved, 2 * recomputed)


def own_parameters(objective: Objective, model: Model) -> int:
    """How many numbers the objective trains that are none of the model's, without spare rows of
    tables.
    """
    shared = {id(parameter) for parameter in model.parameters()}
    own = {name: p for name, p in objective.named_parameters() if id(p) not in shared}
    return sum(p.numel() for p in real(objective, own).values())


def _backbone(
    backbone: Backbone, length: int, target_length: int, asked: float = 0.0
) -> tuple[dict[str, float], float, float]:
    """(multiply-adds of a token by kind, numbers that a row keeps for the backward pass, those
    multiply-adds that run again there); `asked`: rows of a query stream.
    """
    macs = {"attention": 0.0, "attention scores": 0.0, "feed-forward": 0.0, "heads": 0.0}
    saved = recomputed = 0.0
    total = length + target_length
    macs |= _embedding(backbone)
    memory = getattr(backbone, "memory", 0) + getattr(backbone, "compressed", 0)
    for stack, plain in backbone.stacks(length, target_length):
        row = replace(plain, memory=memory, queries=asked)
        states = (1 + asked) * row.tokens * backbone.width / stack.widening
        kept: list[float] = []  # by each round of cells in parallel
        for layer in stack.rounds:  # a shared block counts every time it runs
            for steps in layer:
                cells = [stack.block(step).cell for _, step in steps]
                works = [cell.work(row) for cell in cells]
                for cell, work in zip(cells, works, strict=True):
                    kind = cell.facts.computes or type(cell).__name__
                    macs[kind] = macs.get(kind, 0.0) + work.macs / total
                    macs["attention scores"] += work.scores / total
                    again = stack.recomputes + cell.facts.recomputes
                    recomputed += (work.macs + work.scores) / total * again
                # the norm's input and output are kept once, what dropout needs for each cell
                kept.append((2 + len(cells)) * states + sum(work.kept for work in works))
        saved += _saved(stack, kept, states)
    return macs, saved, recomputed


def _saved(stack: Stack, kept: Sequence[float], states: float) -> float:
    """Numbers of a row that a stack keeps at most; `kept` by each of its rounds, where all are
    stored.
    """
    if stack.reversible:  # two streams, and the round that is gone back through
        return 2 * states + max(kept)
    if not stack.checkpointed:
        return sum(kept)
    rounds = iter(kept)  # the input of each layer, and the layer that runs again
    return stack.num_layers * states + max(
        sum(next(rounds) for _ in layer) for layer in stack.rounds
    )


def _head(head: nn.Module, share: float, length: int) -> tuple[float, float]:
    """The same of a head that is given `share` of the positions."""
    work = head.work() if isinstance(head, Head) else None
    if work is not None:
        return share * work[0], share * length * work[1]
    tables = _tables(head)
    weights = _matrices(head) + sum(part.table[: part.vocab_size].numel() for part in tables)
    return share * weights, share * length * sum(part.table.shape[0] for part in tables)


def _tables(head: nn.Module) -> list[LMHead]:
    """The language-model heads in a head, itself mostly (SpanBERT's has one inside)."""
    return [part for part in head.modules() if isinstance(part, LMHead)]


def _embedding(backbone: Backbone) -> dict[str, float]:
    """The linear map behind factorised tables, where there is one."""
    stacks = [part for part in backbone.modules() if isinstance(part, Stack)]
    inside = {part for stack in stacks for part in _linears(stack)}
    weights = sum(part.weight.numel() for part in set(_linears(backbone)) - inside)
    return {"embedding": float(weights)} if weights else {}


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [part for part in module.modules() if isinstance(part, nn.Linear)]


def _matrices(module: nn.Module) -> int:
    recurrent = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    inside = [p.numel() for part in recurrent for p in part.parameters() if p.dim() > 1]
    return sum(part.weight.numel() for part in _linears(module)) + sum(inside)


def _parameters(model: Model) -> dict[str, int]:
    """{part: numbers}: the embedding, position and stack of the backbone, then every head; a
    shared tensor counts once.
    """
    counts: dict[str, int] = {}
    seen: set[int] = set()
    parts = {
        **dict(model.backbone.named_children()),
        **{f"heads.{name}": head for name, head in model.heads.items()},
    }
    for name, part in parts.items():
        new = {key: p for key, p in part.named_parameters() if id(p) not in seen}
        seen |= {id(p) for p in new.values()}
        counts[name] = sum(p.numel() for p in real(part, new).values())
    return counts
