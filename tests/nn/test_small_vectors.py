"""A student starts from the vectors of its vocabulary that a run has learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.nn.small_vectors import SmallTable, SmallVectors, find_checkpoint
from plmctl.nn.tables import TokenTable

PIECES = ["[PAD]", "[MASK]", "play", "##ing", "##s"]
SPECIAL, NONE = np.array([True, True, False, False, False]), np.zeros(0, np.int64)


@pytest.fixture
def learned(tmp_path: Path) -> SmallTable:
    """The table of the newest of two checkpoints in the folder."""
    for step in (9, 10):  # as text, 9 is behind 10
        folder = tmp_path / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
        torch.manual_seed(step)
        table = SmallTable(PIECES, narrow=3, width=8)
        own = {f"parts.mixed_vocabulary.small.{k}": v for k, v in table.state_dict().items()}
        save_file(own, folder / "objective.safetensors")
    return table


def start(run: Path, *, width: int = 3, pieces: list[str] = PIECES) -> torch.Tensor:
    table = TokenTable(vocab_size=len(pieces), width=width)
    SmallVectors(path=str(run)).start(table, NONE, SPECIAL, pieces)
    return table.weight.detach()


def test_a_token_is_read_by_a_map_of_its_narrow_vector() -> None:
    table = SmallTable(PIECES, narrow=3, width=8)
    ids = torch.tensor([[4, 0], [2, 2]])
    for row, column in np.ndindex(2, 2):
        vector = table.vectors.weight[ids[row, column]]
        wanted = table.project.weight @ vector + table.project.bias
        torch.testing.assert_close(table(ids)[row, column], wanted)
        torch.testing.assert_close(table.weight[ids[row, column]], wanted)


def test_all_rows_are_those_of_the_newest_checkpoint(learned: SmallTable, tmp_path: Path) -> None:
    rows = start(tmp_path)
    assert torch.equal(rows[:5], learned.vectors.weight)
    assert (rows[5:] == 0).all()  # spare rows
    assert torch.equal(start(tmp_path / "checkpoints" / "step-10"), rows)


def test_other_runs_vocabularies_and_widths_are_refused(
    learned: SmallTable, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"these have 3\n  fix: size.width=3"):
        start(tmp_path, width=4)
    with pytest.raises(ConfigError, match=r"fix: tokenizer\.path="):
        start(tmp_path, pieces=[*PIECES[:4], "##ed"])
    (find_checkpoint(str(tmp_path)) / "objective.safetensors").unlink()
    with pytest.raises(DataError, match="no vectors of a smaller vocabulary"):
        start(tmp_path)
    with pytest.raises(AbsentData, match="no run with a checkpoint"):
        find_checkpoint(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="first_vectors=none"):
        find_checkpoint(None)
