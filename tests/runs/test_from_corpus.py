"""What a run starts from that its corpus decides, seen from the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.commands.test_pretrain_command import TINY, pretrain

SHORT = ["train.steps=1", "optim.lr=1e-9", "first_vectors=pairs"]


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "checkpoints/step-1/model.safetensors")


@pytest.mark.slow  # trains; the tables are compared in the next tests
def test_tables_start_from_neighbours_whatever_the_seed(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Rows of text have the same directions under every seed; a new run from old weights keeps
    them.
    """
    words = ["bert", *TINY, f"data.path={tokens_of('wordpiece')}", *SHORT]
    tables = []
    for seed in (0, 1):
        run = tmp_path / str(seed)
        said = pretrain(*words, f"seed={seed}", f"run.dir={run}")
        assert "token vectors start from the neighbours of" in said
        tables.append(weights(run)["backbone.embedding.token.weight"])
    alike = torch.cosine_similarity(*tables, dim=1) > 0.9999
    assert 0.5 < alike.float().mean() < 1.0  # special tokens and tokens without neighbours are not
    assert not alike[
        [0, 2, 3, 4]
    ].any()  # [PAD], [CLS], [SEP], [MASK]; [UNK] is a token of the text
    said = pretrain("--resume", "train.steps=2", f"run.dir={tmp_path / '1'}")
    assert "neighbours" not in said  # its weights are those of the checkpoint
    others = [word for word in words if not word.startswith("size")]
    said = pretrain(*others, f"init={tmp_path / '0'}", "seed=1", f"run.dir={tmp_path / 'again'}")
    assert "neighbours" not in said
    again = weights(tmp_path / "again")["backbone.embedding.token.weight"]
    assert torch.allclose(again, tables[0], atol=1e-6)


def test_a_model_of_characters_has_no_table(tmp_path: Path) -> None:
    said = pretrain(
        "elmo", "first_vectors=pairs", f"run.dir={tmp_path / 'run'}", "--dry-run", code=2
    )
    assert "first_vectors=none" in said
