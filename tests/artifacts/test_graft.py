"""`init_into=encoder`: a new encoder-decoder around a trained BERT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl import load
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq

SMALL = ["format.max_length=24", "train.batch_size=4", "train.steps=1", "eval.rows=4"]
SIZE = ["size=tiny", "size.width=32", "size.num_heads=4", "size.inner_width=48"]
WRITES = [
    "model=encoder_decoder",
    "noise=[text_infill]",
    "eval.noise=${noise}",
    "objective=[seq2seq]",
    "model.start=cls",
]


def pretrain(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def bert(
    tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A run of another size than the default, and where its tokens are."""
    run, data = tmp_path_factory.mktemp("graft") / "bert", f"data.path={tokens_of('wordpiece')}"
    pretrain("bert", *SMALL, *SIZE, data, f"run.dir={run}")
    return run, data


@pytest.fixture(scope="module")
def grafted(bert: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that stands still at its first weights, and what it said."""
    run, source = tmp_path_factory.mktemp("graft") / "both", bert[0]
    words = [
        *SMALL,
        *WRITES,
        bert[1],
        f"init={source}",
        "init_into=encoder",
        "optim.lr=0",
        f"run.dir={run}",
    ]
    return run, pretrain(*words)


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "step-1" / "model.safetensors")


def test_the_encoder_is_the_trained_one_and_the_decoder_is_new(
    bert: tuple[Path, str], grafted: tuple[Path, str]
) -> None:
    theirs, ours = tensors(bert[0]), tensors(grafted[0])
    inside = {name.removeprefix("backbone.") for name in theirs if name.startswith("backbone.")}
    assert len(inside) > 20
    for name in inside:
        assert ours[f"backbone.encoder.{name}"].equal(theirs[f"backbone.{name}"]), name
    assert {name for name in ours if name.startswith("backbone.encoder.")} == {
        f"backbone.encoder.{name}" for name in inside
    }
    for name in ("stack.blocks.a.0.cell.qkv.weight", "position.table.weight"):
        assert not ours[f"backbone.decoder.{name}"].equal(theirs[f"backbone.{name}"])


@torch.no_grad()
def test_its_encoder_reads_as_the_trained_one(
    bert: tuple[Path, str], grafted: tuple[Path, str]
) -> None:
    ids = torch.randint(0, 600, (2, 9), generator=torch.Generator().manual_seed(0))
    rows = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([9, 9]), full=True)})
    found = load(grafted[0]).model(rows)
    torch.testing.assert_close(found.streams["encoder"], load(bert[0]).model(rows).last)
    assert found.last.shape == (2, 9, 32)


def test_the_log_says_what_was_taken_and_what_is_new(
    bert: tuple[Path, str], grafted: tuple[Path, str]
) -> None:
    said = " ".join(grafted[1].split())
    taken = sum(name.startswith("backbone.") for name in tensors(bert[0]))
    assert "backbone.encoder begins as the backbone of" in said
    # and not the table, which is one for both ends
    parts = ("embedding.segment", "embedding.norm", "position", "stack")
    new = ", ".join(f"backbone.decoder.{part}" for part in parts)
    assert f"{taken} tensors taken; new and random: {new} " in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["init_into=encodr"], "did you mean 'encoder'"),
        (["init_into=encoder", "size=mini"], "init decides this"),
        (["init_into=encoder", "model.encoder.stack.layout=af*3"], "init decides model.encoder"),
        (["init_into=encoder", "format.max_length=48"], "at most 24"),
        (["init=null", "init_into=encoder"], "which is not set"),
        (
            ["init_into=encoder", "model.start=600", "--dry-run"],
            "model.start=600: 0 up to 599, the ids of the vocabulary",
        ),
    ],
)
def test_what_is_refused(
    words: list[str], answer: str, bert: tuple[Path, str], tmp_path: Path
) -> None:
    said = pretrain(
        *SMALL, *WRITES, bert[1], f"init={bert[0]}", f"run.dir={tmp_path / 'x'}", *words, code=2
    )
    assert answer in " ".join(said.split())


def test_a_model_of_one_network_has_no_such_part(bert: tuple[Path, str], tmp_path: Path) -> None:
    words = [f"init={bert[0]}", "init_into=encoder", f"run.dir={tmp_path / 'x'}"]
    assert "fix: model=encoder_decoder" in pretrain("bert", *SMALL, bert[1], *words, code=2)


def test_an_encoder_decoder_is_no_encoder(
    bert: tuple[Path, str], grafted: tuple[Path, str], tmp_path: Path
) -> None:
    words = [f"init={grafted[0]}", "init_into=encoder", f"run.dir={tmp_path / 'x'}"]
    assert "a model of the kind of model.encoder" in " ".join(
        pretrain(*SMALL, *WRITES, bert[1], *words, code=2).split()
    )
