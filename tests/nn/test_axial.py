"""Axial positions: the definition by digits, `transformers`, dropout of columns, bad grids."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.nn.axial import Axial


def make(**settings: Any) -> Axial:
    torch.manual_seed(0)
    given = {"width": 6, "max_length": 12, "shape": [3, 4], "widths": [2, 4], **settings}
    return Axial(**given).eval()


@torch.no_grad()
@pytest.mark.parametrize(("shape", "widths"), [([3, 4], [2, 4]), ([2, 2, 3], [1, 2, 3])])
def test_a_position_is_a_cell_of_the_grid(shape: list[int], widths: list[int]) -> None:
    position = make(shape=shape, widths=widths)
    x, places = torch.randn(2, 5, 6), torch.tensor([[0, 3, 4, 7, 11], [2, 1, 0, 9, 10]])
    y = position.embed(x, places)
    for row in range(2):
        for t in range(5):
            left = int(places[row, t])
            digits: list[int] = []
            for size in reversed(shape):
                left, digit = divmod(left, size)
                digits.insert(0, digit)
            vectors = [
                table.weight[digit]  # type: ignore[union-attr, index]
                for table, digit in zip(position.tables, digits, strict=True)
            ]
            torch.testing.assert_close(y[row, t], x[row, t] + torch.cat(vectors))


@torch.no_grad()
def test_dropout_takes_whole_columns() -> None:
    position = make(width=4, max_length=64, shape=[8, 8], widths=[2, 2], dropout=0.5).train()
    places, x = torch.arange(64)[None], torch.zeros(50, 64, 4)
    whole = position.eval().embed(x[:1], places)[0]
    y = position.train().embed(x, places).view(50, 8, 8, 4)
    kept = (y != 0).all(-1)
    assert torch.equal(kept, kept[:, :1].expand_as(kept))  # all rows of a column have one fate
    assert torch.equal(kept, (y != 0).any(-1))
    torch.testing.assert_close(y[kept], (2 * whole.view(8, 8, 4)).expand_as(y)[kept])
    assert 0.4 < float(kept[:, 0].float().mean()) < 0.6
    assert not torch.equal(kept[0], kept[1])  # each row of the batch on its own


def test_sizes_by_rule() -> None:
    for length in (1, 2, 128, 130, 65536):
        position = Axial(width=7, max_length=length)
        rows, columns = position.shape
        assert length <= rows * columns < length + columns
        assert abs(rows - columns) <= 1 + columns // 4
        assert [table.embedding_dim for table in position.tables] == [3, 4]
        assert position.max_length == rows * columns


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": [3, 3]}, r"(?s)at least 12.*position\.shape=\[3,4\]"),
        ({"widths": [3, 4]}, r"(?s)2 numbers.*sum is 6.*position\.widths=\[3,3\]"),
        ({"widths": [6]}, "2 numbers"),
    ],
)
def test_a_grid_that_does_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_a_row_longer_than_the_grid() -> None:
    with pytest.raises(ConfigError, match="at most 12, the cells"):
        make().embed(torch.zeros(1, 13, 6), torch.arange(13)[None])


@pytest.mark.parity
@torch.no_grad()
def test_transformers_has_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.reformer.modeling_reformer import AxialPositionEmbeddings

    config = transformers.ReformerConfig(
        axial_pos_shape=(3, 4), axial_pos_embds_dim=(2, 4), hidden_size=6
    )
    theirs, position = AxialPositionEmbeddings(config).eval(), make()
    for number, table in enumerate(position.tables):
        own: Any = theirs.weights[number]
        own.copy_(table.weight.view_as(own))
    places = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 4, 5, 6, 7, 8, 9, 10, 11, 0]])
    found = position.embed(torch.zeros(2, 10, 6), places)
    torch.testing.assert_close(found, theirs(places))
