"""A head whose bias says how frequent each token is before anything is learned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.heads.lm import LMHead
from tests.commands.test_pretrain_command import TINY, pretrain

PRIOR = "heads.mlm.prior=true"


def head(**settings: bool) -> LMHead:
    table = nn.Embedding(6, 4)
    tied = {"tied": True, "transform": False, "bias": True, **settings}
    return LMHead(width=4, vocab_size=6, token_embedding=table, **tied)


def test_a_state_that_says_nothing_gets_the_frequencies() -> None:
    shares = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05, 0.05], dtype=torch.float64)
    new = head(prior=True)
    new.start_from(shares)
    loss, _ = new.loss(torch.zeros(3, 4), torch.tensor([0, 1, 5]))
    assert loss.item() == pytest.approx(-math.log(0.5 * 0.2 * 0.05), rel=1e-6)
    other = head(prior=False)
    other.start_from(shares)
    assert other.bias is not None
    assert not other.bias.any()


def test_it_needs_a_bias() -> None:
    with pytest.raises(ConfigError, match="bias=true"):
        head(prior=True, bias=False)


@pytest.mark.slow  # the bias of the head is compared in the next tests
def test_a_run_starts_at_the_unigram_floor(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    """Almost: random states move the logits a little. A run from other weights keeps their bias."""
    words = ["bert", *TINY, f"data.path={tokens_of('wordpiece')}", "train.steps=1", "optim.lr=1e-9"]
    losses = {}
    for name, more in (("flat", []), ("prior", [PRIOR])):
        pretrain(*words, *more, f"run.dir={tmp_path / name}")
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").open()]
        losses[name] = records[-1]
    unigram = losses["prior"]["valid/unigram/mlm"]
    assert abs(losses["prior"]["valid/loss/mlm"] - unigram) < 0.2
    assert losses["flat"]["valid/loss/mlm"] > unigram + 0.4
    words = [word for word in words if not word.startswith("size")]
    pretrain(*words, f"init={tmp_path / 'prior'}", f"run.dir={tmp_path / 'again'}")
    before, after = (
        load_file(tmp_path / name / "checkpoints/step-1/model.safetensors")["heads.mlm.bias"]
        for name in ("prior", "again")
    )
    assert torch.allclose(before, after, atol=1e-6)
    assert before.std() > 0.3
