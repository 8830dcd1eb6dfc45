"""Memory of the host in which a save keeps its blocks while training goes on."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plmctl.storage.parts.blocks import TensorBlock
from plmctl.storage.parts.reading import LINE, view


@dataclass(frozen=True)
class Staged:
    """Where a block lies in the memory of a save."""

    place: int  # the first byte
    dtype: torch.dtype
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    pieces: int

    def find(self, memory: mmap.mmap) -> TensorBlock:
        """The block itself."""
        values = view(memory, self.place, self.dtype, self.sizes)
        return TensorBlock(values, self.shape, self.offsets, self.pieces)


class Staging:
    """Copies blocks into memory that it keeps for the next save.

    Args:
        shared: In a file without a name, which another process can map.
    """

    def __init__(self, *, shared: bool) -> None:
        self.file = os.memfd_create("plmctl-checkpoint") if shared else -1
        self.memory: mmap.mmap | None = None

    def stage(self, blocks: Mapping[str, TensorBlock]) -> dict[str, Staged]:
        """Copy the blocks; when it returns, the tensors may change."""
        staged, size = {}, 0
        for name, block in blocks.items():
            found = block.values
            of_whole = block.shape, block.offsets, block.pieces
            staged[name] = Staged(size, found.dtype, tuple(found.shape), *of_whole)
            size += -(-found.nbytes // LINE) * LINE
        memory = self._find_room(size, pinned=any(p.values.is_cuda for p in blocks.values()))
        for name, block in blocks.items():
            staged[name].find(memory).values.copy_(block.values, non_blocking=True)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return staged

    def _find_room(self, size: int, *, pinned: bool) -> mmap.mmap:
        if self.memory is None or len(self.memory) < size:
            self._release()
            if self.file >= 0:
                os.ftruncate(self.file, max(size, LINE))
            self.memory = mmap.mmap(self.file, max(size, LINE))
            if pinned:  # else the device would copy through a buffer of its own
                place = torch.frombuffer(self.memory, dtype=torch.uint8).data_ptr()
                torch.cuda.cudart().cudaHostRegister(place, len(self.memory), 0)
                self._pinned = place
        return self.memory

    _pinned = 0

    def _release(self) -> None:
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._pinned)
        self.memory, self._pinned = None, 0

    def close(self) -> None:
        """Give the memory back."""
        self._release()
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
