"""Sums, norms and changes of tensors of which several processes have a share each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from plmctl.core.shares import cuts, is_shared, local_of
from plmctl.nn.tables import with_spare

Groups = tuple[Any, ...]  # the groups of processes over which a tensor is divided


def share_of(whole: Any, like: Any, placements: Sequence[Any] | None = None) -> Any:
    """The share of `whole`, which every process has, that lies as `like` does, or in these
    placements; `whole` itself where one of them is not divided, or both are.
    """
    if is_shared(whole) or not is_shared(like):
        return whole
    from torch.distributed.tensor import distribute_tensor

    own = whole.to(like.device_mesh.device_type)
    placements = placements or like.placements
    return distribute_tensor(own, like.device_mesh, placements, src_data_rank=None)


def lay_out(whole: Tensor, weight: Any) -> Any:
    """The share of a tensor of an optimizer's state, as its weight is divided: of the whole tensor
    or its rows; others are whole.
    """
    if whole.dim() < 1 or is_shared(whole) or not is_shared(weight):
        return whole
    if whole.dim() == weight.dim() and whole.shape[1:] == weight.shape[1:]:
        return share_of(with_spare(whole, rows=len(weight)), weight)
    if whole.shape == weight.shape[:-1]:
        return share_of(whole, weight)
    from torch.distributed.tensor import Replicate

    return share_of(whole, weight, [Replicate()] * weight.device_mesh.ndim)


def copy_rows(rows: Tensor, into: Any) -> None:
    """Copy [R, ...] to the first rows of `into` [R or more, ...]; others become 0 where the tensor
    is divided.
    """
    if not is_shared(into):
        into[: len(rows)].copy_(rows) if rows.dim() else into.copy_(rows)
        return
    if rows.dim() and len(rows) < len(into) and not is_shared(rows):
        rows = with_spare(rows, rows=len(into))
    into.to_local().copy_(local_of(share_of(rows, into)))


def settle(tensor: Any) -> Any:
    """A tensor that is a sum over processes, as that sum; others as they are."""
    placements = getattr(tensor, "placements", ())
    if not any(kind.is_partial() for kind in placements):
        return tensor
    from torch.distributed.tensor import Replicate

    settled = [Replicate() if kind.is_partial() else kind for kind in placements]
    return tensor.redistribute(placements=settled)


def groups_of(tensor: Any) -> Groups:
    """The groups of processes over which a tensor is divided; () for one that is not."""
    kinds = enumerate(getattr(tensor, "placements", ()))
    return tuple(tensor.device_mesh.get_group(n) for n, kind in kinds if cuts(kind))


def move_together(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """Those with a gradient in lists that make their steps together: all, where processes share one
    of them, so that they exchange once; else one by one, which needs the least memory.
    """
    live = [p for p in parameters if p.grad is not None]
    return [live] if any(map(is_shared, live)) else [[p] for p in live]


def sum_shares(values: Sequence[Tensor], of: Sequence[Tensor]) -> list[Tensor]:
    """The sums of `values`, [] each, over the processes that share the tensors `of`. One all-reduce
    serves all tensors that are divided in the same way.
    """
    places: dict[Groups, list[int]] = {}
    for place, tensor in enumerate(of):
        places.setdefault(groups_of(tensor), []).append(place)
    sums = list(values)
    for groups, own in places.items():
        if not groups:
            continue
        stacked = torch.stack([values[place] for place in own])
        for group in groups:
            dist.all_reduce(stacked, group=group)
        for place, total in zip(own, stacked.unbind(), strict=True):
            sums[place] = total
    return sums


def find_norms(tensors: Sequence[Tensor], of: Sequence[Tensor] | None = None) -> list[Tensor]:
    """The norm of each tensor, [] each; `of`: tensors that are divided as these are, where these
    are shares already.
    """
    norms = [local_of(tensor).norm() for tensor in tensors]
    of = tensors if of is None else of
    if not any(map(groups_of, of)):
        return norms
    squares = sum_shares([norm.square() for norm in norms], of)
    return [square.sqrt() for square in squares]


def find_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all tensors as one vector, the same number on every process."""
    squares = [local_of(tensor).norm().square() for tensor in tensors]
    if not squares:
        return torch.tensor(0.0)
    return torch.stack(sum_shares(squares, tensors)).sum().sqrt()


def change_whole(
    shares: Sequence[Tensor], of: Sequence[Tensor], change: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """`change` of whole matrices, of which `shares` [r, C] are this process's rows.

    Each process makes some of the matrices whole: rows go to it, and come back changed (Liu et al.,
    2025, arXiv:2502.16982, sec. 2.3; Differs: no process does the work of another). A matrix that
    is divided by columns or in blocks, too, is made whole by all of its processes.

    Args:
        shares: Rows, other shares, or whole matrices where `of` is not divided.
        of: Tensors that are divided as the matrices are; those by rows alone over one group.
        change: A function of a matrix [R, C] with a result of that size.
    """
    rows = [n for n, tensor in enumerate(of) if _is_by_rows(tensor)]
    changed = dict(
        zip(
            rows,
            _change_rows([shares[n] for n in rows], [of[n] for n in rows], change),
            strict=True,
        )
    )
    for n, tensor in enumerate(of):
        if n not in changed:
            changed[n] = _change_gathered(shares[n], tensor, change)
    return [changed[n] for n in range(len(of))]


def _change_rows(
    shares: Sequence[Tensor], of: Sequence[Tensor], change: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    if not of:
        return []
    groups = groups_of(of[0])
    size, me = groups[0].size(), dist.get_rank(groups[0])
    changed: dict[int, Tensor] = {}
    # matrices of similar cost together, so that no process waits for another
    order = sorted(range(len(of)), key=lambda n: -of[n].numel() * min(of[n].shape))
    for start in range(0, len(order), size):
        some = order[start : start + size]
        sent = [shares[n].numel() for n in some] + [0] * (size - len(some))
        flat = torch.cat([shares[n].flatten() for n in some])
        shape = of[some[me]].shape if me < len(some) else (0, 0)
        got = [rows * shape[1] for rows in list_rows(shape[0], size)]
        whole = _exchange(flat, sent, got, groups[0]).view(shape)
        whole = change(whole) if me < len(some) else whole
        back = _exchange(whole.flatten(), got, sent, groups[0]).split(sent)
        changed |= {n: part.view_as(shares[n]) for n, part in zip(some, back, strict=False)}
    return [changed[n] for n in range(len(of))]


def _is_by_rows(tensor: Any) -> bool:
    """Whether a tensor is divided, by its rows alone and over one group of processes."""
    kinds = [kind for kind in getattr(tensor, "placements", ()) if cuts(kind)]
    return len(kinds) == 1 and kinds[0].is_shard(0)


def _change_gathered(share: Tensor, of: Any, change: Callable[[Tensor], Tensor]) -> Tensor:
    """This process's share of `change` of the whole matrix, which every process makes."""
    if not groups_of(of):
        return change(share)
    from torch.distributed.tensor import DTensor

    layout = {"run_check": False, "shape": of.shape, "stride": of.stride()}
    mine = DTensor.from_local(share, of.device_mesh, of.placements, **layout)
    return local_of(share_of(change(mine.full_tensor()), of))


def _exchange(
    flat: Tensor, sent: Sequence[int], got: Sequence[int], group: dist.ProcessGroup
) -> Tensor:
    """The parts that other processes send of theirs; each sends parts of these sizes."""
    received = flat.new_empty(sum(got))
    dist.all_to_all_single(received, flat, list(got), list(sent), group=group)
    return received


def list_rows(rows: int, processes: int) -> list[int]:
    """How many rows each process has of a tensor: equal numbers, the last ones fewer or none."""
    most = -(-rows // processes)
    return [min(most, max(0, rows - most * n)) for n in range(processes)]
