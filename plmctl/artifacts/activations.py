"""The memory that a pass keeps for its backward pass, by a pass of tensors without values.

torch's fake tensors have a shape and a type, and no memory: so a pass of any size takes as long as
a tiny one. All that autograd saves in it is counted to the byte, copies in another number type and
masks of dropout included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from plmctl.attention.kernels.keep import without_values
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.heads.lm import LMHead
from plmctl.models.base import Backbone, Model
from plmctl.nn.stack import Stack
from plmctl.objectives.base import Objective

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def count_activations(
    model: Model,
    objective: Objective | None,
    *,
    rows: int,
    lengths: tuple[int, int],
    predicted: Mapping[str, float],
    precision: str,
) -> int | None:
    """Bytes that a pass of so many full rows keeps at most, of the backbones and of the heads over
    the vocabulary that learn; None where a part of it depends on values.

    Args:
        lengths: Tokens of a row that are read, and tokens that are written.
        predicted: The share of the positions that a head is given.
        precision: fp32, bf16 or fp16, as resolved.
    """
    beside = list(objective.modules()) if objective else []
    parts = [part for part in beside if isinstance(part, Backbone) and _learns(part)]
    bytes_of = 2 if precision in HALF else 4
    own = {id(part) for part in model.modules()}
    heads = {**model.heads, **{str(id(part)): part for part in beside if id(part) not in own}}
    total = 0
    for name, head in heads.items():
        share = predicted.get(name, max(predicted.values(), default=0.0))
        for part in head.modules() if name in model.heads else [head]:
            if isinstance(part, LMHead) and part.table.requires_grad:
                positions = round(rows * sum(lengths) * share)
                total += bytes_of * _count_head(part, positions)
    try:
        for backbone in dict.fromkeys([model.backbone, *parts]):
            total += _count_pass(backbone, rows, lengths, precision)
    # torch has no result for a tensor without values; a role without a tokenizer is no token
    except (RuntimeError, UsageError):
        return None
    return total


def _learns(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _count_head(head: LMHead, positions: int) -> int:
    """Numbers that the loss over a vocabulary keeps: gradients of the states and of the table, and
    the states of the transform; no logits (`heads/table_loss.py`).
    """
    rows, width = head.table.shape
    states = 0 if head.dense is None else head.dense.in_features + 3 * width
    return rows * width + positions * (states + width)


def _count_pass(backbone: Backbone, rows: int, lengths: tuple[int, int], precision: str) -> int:
    """Bytes that a backbone keeps. Where layers run again, one at a time has all of its own."""
    saved = _trace(backbone, rows, lengths, precision)
    stacks = [part for part in backbone.modules() if isinstance(part, Stack)]
    if again := [stack for stack in stacks if stack.checkpointed]:
        with _plain(again):
            all_kept = _trace(backbone, rows, lengths, precision)
        saved += max(0, all_kept - saved) // sum(stack.num_layers for stack in again)
    return saved


@contextmanager
def _plain(stacks: list[Stack]) -> Iterator[None]:
    for stack in stacks:
        stack.checkpointed = False
    try:
        yield
    finally:
        for stack in stacks:
            stack.checkpointed = True


def _trace(backbone: Backbone, rows: int, lengths: tuple[int, int], precision: str) -> int:
    """Bytes of all tensors that autograd saves in a forward pass, weights apart."""
    saved: dict[int, tuple[int, Tensor]] = {}  # by storage; the tensor keeps its number from others
    with FakeTensorMode(allow_non_fake_inputs=True), without_values():
        named = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
        state = {
            name: torch.empty(t.shape, dtype=t.dtype, device="cpu", requires_grad=t.requires_grad)
            for name, t in named.items()
        }
        own = {t.untyped_storage()._cdata for t in state.values()}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                saved[storage._cdata] = storage.nbytes(), tensor
            return tensor

        was, half = backbone.training, HALF.get(precision)
        backbone.train()
        try:
            with (
                torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
                torch.autocast("cpu", dtype=half, enabled=half is not None),
            ):
                batch = make_full_batch(backbone, rows, lengths)
                torch.func.functional_call(backbone, state, (batch,))
        finally:
            backbone.train(was)
    return sum(size for size, _ in saved.values())


def make_full_batch(backbone: Backbone, rows: int, lengths: tuple[int, int]) -> Batch:
    """Full rows: a source and its target where the backbone reads both, or one text of both."""
    apart = "text" not in backbone.needs
    names = ("source", "target") if apart else ("text",)
    lengths = lengths if apart else (sum(lengths), 0)
    seqs = {
        name: Seq(
            ids=torch.zeros(rows, length, dtype=torch.int64),
            length=torch.full((rows,), length),
            full=False,
        )
        for name, length in zip(names, lengths, strict=False)
    }
    return Batch(key=torch.zeros(rows, dtype=torch.int64), seqs=seqs)
