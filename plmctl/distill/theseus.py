"""BERT-of-Theseus (Xu et al., 2020): layers of a student replace layers of its teacher, more and
more of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Teacher
from plmctl.distill.teachers import Frozen
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.models.encoder_decoder import EncoderDecoder
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import norm_tokens
from plmctl.nn.stack import Stack
from plmctl.objectives.base import Objective, Output
from plmctl.objectives.wrapper import Wrapper

FIX = "plmctl finetune checkpoint=<the teacher> task=..., and teacher=<that run>"


@part_of("distill")
class Theseus(Wrapper):
    """The objective on a model whose i-th module is the student's layer i, or the teacher's N / M
    layers that it replaces.

    Each of M modules is drawn once an update: `r_i ~ Bernoulli(p)`, 1 takes the student's (sec.
    3.1). After t updates `p = min(1, slope t + rate)` (sec. 3.3, curriculum), and 1 from update
    `until` on (sec. 3.2, successor fine-tuning). There is no other loss. In evaluation there is
    only the student. Its other parts (embeddings, heads, a last norm) come from the teacher, and
    `train.trainable` keeps them fixed; the gradient flows through the teacher's layers, which are
    fixed, too. A layer that was not drawn has gradient 0, so that its moments are updated. Draws
    are a function of (seed, t). (arXiv:2002.02925; JetRunner/BERT-of-Theseus,
    modeling_bert_of_theseus.py.) Differs: the micro-batches of an update share its draw; parts that
    are not trained have no dropout.
    """

    whole_weights = True

    def __init__(
        self,
        *,
        objective: Objective,
        model: Model,
        teacher: Teacher,
        rate: float,
        slope: float = 0.0,
        until: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(objective)
        if not 0 < rate <= 1:
            raise ConfigError(
                "rate", rate, "0 < rate <= 1: the probability, at first, that a module is replaced"
            )
        if slope < 0:
            allowed = "0 (the same rate) or more: what is added to the rate in each update"
            raise ConfigError("slope", slope, allowed)
        if until is not None and until < 1:
            raise ConfigError("until", until, "1 or more updates, or null: the rate alone decides")
        if not isinstance(teacher, Frozen):
            allowed = "one trained model: its layers are used, and layers of several have no mean"
            raise ConfigError("teacher", ..., allowed)
        if not objective.facts.needs:
            allowed = "learns from an objective alone, and none is set"
            raise ConfigError("_target_", type(self).__name__, allowed, fix="objective=[mlm]")
        self.teacher = teacher
        self.rate, self.slope, self.until, self.seed = rate, slope, until, seed
        self.facts = objective.facts
        self.step: Tensor
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.drawn: list[np.ndarray] = []  # for each stack, which of its modules are replaced now
        pairs = pair_stacks(model, teacher.model, teacher.measures.name)
        teacher.bequeath(model, fix=FIX)
        mixed: Any = model
        for number, (path, predecessor, successor) in enumerate(pairs):
            mixed = swap_part(
                mixed, path.split("."), Mixed(predecessor, successor, self.drawn, number)
            )
        self.modules_of = [successor.num_layers for _, _, successor in pairs]
        # no submodule: what it has is the student's or the teacher's
        self._mixed: tuple[Any] = (mixed,)

    def probability(self, step: int) -> float:
        """p after `step` updates."""
        return (
            1.0
            if self.until is not None and step >= self.until
            else min(1.0, self.slope * step + self.rate)
        )

    def draw(self) -> list[np.ndarray]:
        """For each stack `[M]` bool, which of its modules are the student's in this update."""
        step = int(self.step)
        p = self.probability(step)
        return [
            np.random.default_rng([self.seed, step, n]).random(count) < p
            for n, count in enumerate(self.modules_of)
        ]

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        if not self.training:
            output: Output = self.objective(model, batch, state)
            return output
        self.drawn[:] = self.draw()
        output = self.objective(self._mixed[0], batch, state)
        replaced = torch.tensor(float(sum(map(np.sum, self.drawn))), device=self.step.device)
        return replace(output, logs={**output.logs, "replaced": (replaced, sum(self.modules_of))})

    def after_step(self, model: Model, step: int) -> None:
        self.step.fill_(step)
        super().after_step(model, step)


class Mixed(nn.Module):
    """A stack of modules, each of them one layer of `successor` or the matching layers of
    `predecessor`.
    """

    def __init__(
        self, predecessor: Stack, successor: Stack, drawn: Sequence[np.ndarray], number: int
    ) -> None:
        super().__init__()
        self.predecessor = predecessor
        self.successor = successor
        self.drawn = drawn
        self.number = number

    def forward(
        self, streams: Streams, env: Env, *, record: bool = False
    ) -> tuple[Streams, list[Tensor]]:
        """As `Stack`: `record` has the state after every module."""
        layers_per_module = self.predecessor.num_layers // self.successor.num_layers
        unused = sum(
            p.flatten()[0] * 0.0 for p in self.successor.blocks.parameters() if p.requires_grad
        )
        streams = streams.replace("text", streams["text"] + unused)
        recorded = [streams["text"]]
        for module, replaced in enumerate(self.drawn[self.number]):
            if replaced:
                streams = self.successor.layer(module, streams, env)
            else:
                for layer in range(module * layers_per_module, (module + 1) * layers_per_module):
                    streams = self.predecessor.layer(layer, streams, env)
            recorded.append(streams["text"])
        last = norm_tokens(self.successor.final_norm, streams["text"], env.real)
        streams = streams.replace("text", last)
        return streams, [*recorded[:-1], streams["text"]] if record else []


def pair_stacks(model: Model, teacher: Model, name: str) -> list[tuple[str, Stack, Stack]]:
    """(path, the teacher's stack, the student's) of every stack; ConfigError if layers cannot
    replace each other.
    """
    kind, other = type(model.backbone), type(teacher.backbone)
    if not isinstance(model.backbone, Encoder | EncoderDecoder) or kind is not other:
        allowed = (
            "an encoder, a decoder or an encoder-decoder, as its teacher is: layers of the one"
            " stand among the other's"
        )
        allowed = f"{allowed}; {name} is of the kind {other.__name__}"
        raise ConfigError("model", kind.__name__, allowed, fix="distill=kd")
    if model.backbone.width != teacher.backbone.width:
        allowed_width = (
            f"{teacher.backbone.width}, the width of {name}: layers of both stand in one stack"
        )
        fix = f"size.width={teacher.backbone.width}, or distill=kd"
        raise ConfigError("size.width", model.backbone.width, allowed_width, fix=fix)
    theirs = {path: stack for path, stack in teacher.named_modules() if isinstance(stack, Stack)}
    pairs = [
        (path, theirs[path], stack)
        for path, stack in model.named_modules()
        if isinstance(stack, Stack) and path in theirs
    ]
    for path, predecessor, successor in pairs:
        if predecessor.reversible or successor.reversible:
            allowed = "false, of the teacher, too: one layer cannot stand for another's two streams"
            raise ConfigError(f"model.{path}.reversible", True, allowed, fix="distill=kd")
        layers, count = predecessor.num_layers, successor.num_layers
        if layers % count:
            divisors = [n for n in range(1, layers + 1) if layers % n == 0]
            allowed = (
                f"a divisor of the {layers} layers of {name} ({path}):"
                f" {', '.join(map(str, divisors))}"
            )
            near = min(divisors, key=lambda n: abs(n - count))
            raise ConfigError("size.num_layers", count, allowed, fix=f"size.num_layers={near}")
    return pairs


def swap_part(module: Any, path: Sequence[str], part: nn.Module) -> Any:
    """`module` with `part` at `path`; it shares everything else with the original, which stays
    unchanged.
    """
    copied = copy.copy(module)
    copied.__dict__["_modules"] = dict(module._modules)
    inner = part if len(path) == 1 else swap_part(module.get_submodule(path[0]), path[1:], part)
    copied._modules[path[0]] = inner
    return copied
