"""The mean of a run's last checkpoints: every weight, loadable as a run, and what cannot be
averaged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.saved import read_saved
from plmctl.report.card import make_card
from plmctl.training.averaging import mean


def plmctl(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), [*words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_the_mean_is_that_of_a_loop_and_keeps_types() -> None:
    torch.manual_seed(0)
    parts = [
        {"x": torch.randn(3, 4), "half": torch.randn(2).bfloat16(), "count": torch.tensor(n)}
        for n in range(3)
    ]
    found = mean(parts)
    for i in range(3):
        for j in range(4):
            assert found["x"][i, j].item() == pytest.approx(
                sum(part["x"][i, j].item() for part in parts) / 3, abs=1e-7
            )
    assert (found["x"].dtype, found["half"].dtype, found["count"].item()) == (
        torch.float32,
        torch.bfloat16,
        2,
    )


def test_a_run_is_averaged_and_used(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    words = [
        "gpt",
        "size=tiny",
        "size.width=32",
        "size.inner_width=64",
        "format.max_length=48",
        "train.batch_size=4",
    ]
    tokens = tokens_of("byte_bpe", "tokenizer.specials=gpt2")
    words += [
        f"data.path={tokens}",
        "eval.rows=8",
        "train.precision=fp32",
        "train.steps=4",
        "train.save_every=1",
    ]
    plmctl("pretrain", *words, "train.keep_last=4", f"run.dir={run}")
    assert plmctl("average", str(run), "--last", "3", "--out", str(out)).endswith(
        "checkpoints/step-4\n"
    )
    parts = [load_file(run / f"checkpoints/step-{n}/model.safetensors") for n in (2, 3, 4)]
    found = load_file(out / "checkpoints/step-4/model.safetensors")
    assert found.keys() == parts[0].keys()
    for name, tensor in found.items():
        torch.testing.assert_close(
            tensor, sum(part[name].double() for part in parts).float() / 3, rtol=1e-6, atol=1e-7
        )
    assert not (out / "checkpoints/step-4/optimizer.safetensors").exists()
    plmctl(
        "pretrain",
        *words[:1],
        *words[5:7],
        "format.max_length=48",
        "train.steps=1",
        f"init={out}",
        f"run.dir={tmp_path / 'next'}",
    )
    assert "is not empty" in plmctl("average", str(run), "--last", "2", "--out", str(out), code=2)
    assert "at least 2" in plmctl("average", str(run), "--last", "1", code=2)
    assert "nowhere: there is no such folder" in plmctl(
        "average", str(tmp_path / "nowhere"), code=3
    )
    output = plmctl("average", str(run), "--last", "9", code=3)
    assert "has 4 checkpoints, 9 are to be averaged" in output
    assert f"fix: plmctl average {run} --last 4  # train.keep_last=9" in output
    assert "has 1 checkpoint, 2" in plmctl("average", str(out), "--last", "2", code=3)
    # no training goes on from it, with its config or without; its card says what it is
    for _ in range(2):
        output = plmctl("pretrain", "--resume", f"run.dir={out}", code=2)
        assert "is the mean of step-2, step-3, step-4, without the state of an optimizer" in output
        assert f"fix: plmctl pretrain --resume run.dir={run}\n" in output
        shutil.copy(out / "checkpoints/step-4/config.yaml", out / "config.yaml")
    (out / "config.yaml").unlink()
    output = plmctl("report", str(out), code=3)
    assert f"fix: plmctl report {out / 'checkpoints/step-4'}\n" in output
    card = make_card(out, read_saved(out / "checkpoints/step-4/config.yaml"))
    assert "| averaged | the mean of step-2, step-3, step-4 |" in card
    assert "averaged" not in make_card(run, read_saved(run / "config.yaml"))
    (run / "checkpoints/step-3/model.safetensors").write_bytes(b"x")
    assert "is truncated" in plmctl("average", str(run), "--last", "2", code=3)
