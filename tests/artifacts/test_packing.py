"""Groups of weights and the rows of matrices."""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.packing import pack
from plmctl.core.errors import UsageError

TENSORS = {"a": torch.randn(32, 48), "b": torch.randn(64, 32), "bias": torch.randn(48)}


@pytest.mark.parametrize(
    ("group", "words"),
    [(16, ""), (4, ""), (48, "in the next row in 1 of 2 matrices"), (32, "in 1 of 2 matrices")],
)
def test_groups_that_go_on_in_the_next_row_are_counted(group: int, words: str) -> None:
    _, line = pack(4, group, TENSORS)
    assert words in line
    assert ("next row" in line) == bool(words)


@pytest.mark.parametrize("group", [7, 5, 100, 64])
def test_groups_that_end_with_no_row_are_refused(group: int) -> None:
    with pytest.raises(UsageError, match=f"--group {group} divides the rows of no matrix") as found:
        pack(4, group, TENSORS)
    assert "fix: --group 16" in str(found.value)
    assert "32, 48 weights" in str(found.value)


def test_a_codebook_has_no_groups() -> None:
    assert "next row" not in pack(4, 0, TENSORS)[1]
