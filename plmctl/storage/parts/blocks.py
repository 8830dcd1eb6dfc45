"""Blocks of tensors, as torch.distributed.checkpoint saves and loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plmctl.core.shares import count_blocks, cuts, is_shared

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TensorBlock:
    """A block of a tensor.

    Args:
        shape: The shape of the whole tensor.
        offsets: The index of its first element in the tensor, one number a dimension.
        pieces: The number of equal pieces of its rows. The whole tensor has as many equal pieces,
            and each of them contains one of these.
    """

    values: Tensor
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    pieces: int = 1

    def find(self, index: Any) -> Tensor:
        """The piece with an index that the planner has from `__create_chunk_list__`."""
        if self.pieces == 1:
            return self.values
        rows = self.shape[0] // self.pieces
        return self.values.chunk(self.pieces)[(index.offset[0] - self.offsets[0]) // rows]

    def __create_write_items__(self, name: str, block: object) -> list[Any]:
        """The planner of torch.distributed.checkpoint asks what to write; nothing of an empty
        block.
        """
        import torch
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        found = TensorProperties(dtype=self.values.dtype)
        whole = torch.Size(self.shape)
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, found, whole),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[Any]:
        """The planner asks what to read."""
        import torch
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        if self.values.numel() == 0 and 0 not in self.shape:
            return []
        if self.pieces == 1:
            return [ChunkStorageMetadata(torch.Size(self.offsets), self.values.shape)]
        (first, *others), rows = self.offsets, self.shape[0] // self.pieces
        return [
            ChunkStorageMetadata(torch.Size([first + n * rows, *others]), piece.shape)
            for n, piece in enumerate(self.values.chunk(self.pieces))
        ]


def block_of(tensor: Any, rows: int | None = None) -> TensorBlock:
    """The own block of a DTensor; a plain tensor is one block.

    Args:
        rows: The rows of tokens of a padded table: spare ones are left out.
    """
    if not is_shared(tensor):
        return TensorBlock(tensor.detach(), tuple(tensor.shape), (0,) * tensor.dim())
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    local, pieces = tensor.detach().to_local(), 1
    for placement in tensor.placements:
        pieces *= count_blocks(placement)
    _, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    shape = tuple(tensor.shape)
    if rows is not None and rows < shape[0]:
        local = local[: max(0, rows - offsets[0])]
        shape = (rows, *shape[1:])
    # a block behind the last row of tokens, or of a process that has none
    empty = local.numel() == 0
    return TensorBlock(local, shape, (0,) * len(shape) if empty else tuple(offsets), pieces)


def own_blocks(
    tensors: Mapping[str, Tensor], *, main: bool, rows: Mapping[str, int]
) -> dict[str, TensorBlock]:
    """The blocks that this process saves: its blocks of DTensors; of plain tensors, which every
    process has, all on the `main` one and none on others.

    Args:
        rows: The rows of tokens of padded tables.
    """
    return {
        name: block_of(tensor, rows.get(name))
        for name, tensor in tensors.items()
        if (_is_first_copy(tensor) if is_shared(tensor) else main)
    }


def _is_first_copy(tensor: Any) -> bool:
    """Whether this process is the first one with its block of a DTensor. Several meshes may have
    the same tensor: that with the first process of the run counts.
    """
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or 0 not in tensor.device_mesh.mesh:
        return False
    return all(
        cuts(placement) or place == 0
        for placement, place in zip(tensor.placements, coordinate, strict=True)
    )


def target_like(tensor: Any, rows: int | None = None) -> tuple[Tensor, TensorBlock]:
    """A new tensor with the layout of a DTensor, spare rows zero, and its block to be read into."""
    import torch
    from torch.distributed.tensor import DTensor

    made = DTensor.from_local(
        torch.zeros_like(tensor.detach().to_local()),
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
    return made, block_of(made, rows)
