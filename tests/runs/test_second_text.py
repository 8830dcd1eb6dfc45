"""The vector of a second text, in models that were pretrained on rows of one text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from plmctl.artifacts.added_rows import with_second_text
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import open_source
from plmctl.cli.app import make_app

TABLE = "backbone.embedding.segment.weight"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", ["blocks", "sentence_pair"])
def test_a_vector_that_nothing_trained_is_that_of_the_first_text(
    format: str, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    pretrain(tokens_of("wordpiece"), tmp_path / "a", f"format={format}")
    before, after = tables_of(tmp_path / "a")
    assert not before[0].equal(before[1])
    trained = format == "sentence_pair"
    torch.testing.assert_close(after, before if trained else before[:1].expand(2, -1))


def test_a_vector_that_the_first_model_knew_stays(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    pretrain(tokens_of("wordpiece"), tmp_path / "a", "format=sentence_pair")
    pretrain(tokens_of("wordpiece"), tmp_path / "b", "format=blocks", f"init={tmp_path / 'a'}")
    before, after = tables_of(tmp_path / "b")
    torch.testing.assert_close(after, before)


def tables_of(run: Path) -> tuple[Tensor, Tensor]:
    source = open_source(run)
    model = build_model(source.config, vocab_size=source.vocab_size, vocab=source.vocab)
    return source.tensors[TABLE], with_second_text(model, source, source.tensors)[TABLE]


def pretrain(tokens: Path, run: Path, *words: str) -> None:
    small = ["train.steps=1", "train.batch_size=2", "eval.rows=2", "format.max_length=32"]
    small += [] if any("init" in word for word in words) else ["size.width=32", "size.num_heads=2"]
    command = ["pretrain", "bert", f"data.path={tokens}", "objective=[mlm]", *small, *words]
    done = CliRunner().invoke(make_app(), [*command, f"run.dir={run}"])
    assert done.exit_code == 0, done.output
