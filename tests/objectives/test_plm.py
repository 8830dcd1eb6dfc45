"""Permutation language modelling against the definition, one predicted token at a time, and
through the command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.models.base import Model
from plmctl.objectives.plm import PLM
from plmctl.runs.contract.stand_in import TINY

SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=48",
    "train.batch_size=4",
    "format.max_length=24",
]


@pytest.fixture
def model() -> Model:
    cfg = compose("pretrain", "xlnet", [*SMALL, "model.memory=0"])
    return build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()


def test_is_the_sum_over_predicted_tokens(model: Model) -> None:
    """Each is asked alone, with everything of its order or later cut out of the row by an order
    that nothing else shares.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, TINY.size, (2, 8), generator=generator)
    order = torch.stack([torch.randperm(8, generator=generator) for _ in range(2)])
    index = torch.tensor([1, 6, 7, 9, 12, 0])  # the last one is a spare slot
    labels = ids.flatten()[index].where(torch.arange(6) < 5, IGNORE)
    seq = Seq(ids, torch.full((2,), 8), {"order": order}, full=True)
    batch = Batch(
        torch.arange(2), {"text": seq}, {"plm": Targets(index, labels, 5)}, counts={"plm": 5}
    )
    out = PLM(model=model)(model, batch)
    wanted, right = 0.0, 0
    for place in index[:5].tolist():
        row, column = divmod(place, 8)
        other = ids.clone()
        other[row, order[row] >= order[row, column]] = TINY.unk  # hidden, the token itself, too
        alone = Batch(
            torch.arange(1),
            {
                "text": Seq(
                    other[row : row + 1],
                    torch.tensor([8]),
                    {"order": order[row : row + 1]},
                    full=True,
                )
            },
            {"plm": Targets(torch.tensor([column]), ids[row, column : column + 1], 1)},
        )
        logits = model.heads["plm"](model(alone).streams["query"])[0]
        wanted -= float(torch.log_softmax(logits, 0)[ids[row, column]].detach())
        right += int(logits.argmax() == ids[row, column])
    assert float(out.terms["plm"].total.detach()) == pytest.approx(wanted, rel=1e-6)
    assert int(out.logs["acc/plm"][0]) == right
    assert PLM(model=model).counts(batch) == {"plm": 5}


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(
        make_app(), ["pretrain", "xlnet", *SMALL, "train.precision=fp32", *words]
    )
    assert result.exit_code == code, result.output
    return result.output


def records(folder: Path) -> list[dict]:
    found = [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    timed = {"tokens_per_second", "seconds", "data_wait", "mfu"}
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in found
        if "loss" in record
    ]


@pytest.mark.slow  # test_pretrain_command.py resumes
def test_a_run_with_memory_resumes_bit_for_bit(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Memory is saved with the checkpoint; validation in between has a memory of its own."""
    data = f"data.path={tokens_of('unigram', 'tokenizer.specials=xlnet')}"
    words = [
        data,
        "train.steps=6",
        "train.log_every=1",
        "train.save_every=3",
        "train.eval_every=2",
        "eval.rows=8",
        "train.keep_last=9",
        "train.micro_batch_size=2",
    ]
    run(*words, f"run.dir={tmp_path / 'whole'}")
    whole = records(tmp_path / "whole")
    for file in sorted((tmp_path / "whole/checkpoints/step-6").iterdir()):
        if file.is_file():
            file.unlink()
    (tmp_path / "whole").rename(tmp_path / "part")
    result = CliRunner().invoke(
        make_app(), ["pretrain", "--resume", f"run.dir={tmp_path / 'part'}"]
    )
    assert result.exit_code == 0, result.output
    assert records(tmp_path / "part") == whole
    saved = load_file(tmp_path / "part/checkpoints/step-6/random.safetensors")
    # of the second micro-batch: three quarters of 24 tokens
    assert saved["0/memory/text/1/2"].tolist() == [18, 18]
    assert saved["0/memory/text/1/1"].shape == (2, 18, 32)
    assert (saved["0/memory/text/1/1"].abs().amax(-1) > 0).all()


def test_a_memory_that_no_stream_fills_is_refused(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    data = f"data.path={tokens_of('unigram', 'tokenizer.specials=xlnet')}"
    output = run(
        data, "train.steps=1", "model.memory=100000", f"run.dir={tmp_path / 'run'}", code=2
    )
    assert "model.memory=100000" in output
    assert "the tokens that a stream of this corpus hands on" in output
