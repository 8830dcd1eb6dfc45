"""Runs of an earlier plmctl load, resume and evaluate with the same numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.saved import read_spec, refuse_former_settings
from plmctl.config.spec import thaw
from plmctl.core.errors import DataError


def test_a_setting_that_a_part_has_no_more_ends_with_a_way_on(tmp_path: Path) -> None:
    """As ERNIE's cells had an inner width of their own."""
    model = compose("pretrain", "ernie_thu", ["size=tiny"])["model"]
    node = thaw(model)
    refuse_former_settings({"model": node}, (), file=tmp_path)
    cell = node["stack"]["cells"]["x"]
    del cell["words"]
    cell |= {"inner_width": 48, "activation": "gelu"}
    with pytest.raises(DataError) as error:
        refuse_former_settings({"model": node}, (), file=tmp_path)
    said = str(error.value)
    assert "model.stack.cells.x.inner_width is a setting of an older plmctl" in said
    assert "does not have (nor 1 more)\n  fix: # train a new run" in said


@pytest.mark.parametrize("version", [1, 3])
def test_a_spec_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    (tmp_path / "config.yaml").write_text(f"version: {version}\nseed: 1\n")
    with pytest.raises(DataError, match=r"this plmctl reads version 2\n  fix: # use the plmctl"):
        read_spec(tmp_path)


SAVED = Path(__file__).parents[1] / "fixtures" / "saved"  # its README says how it was made
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
LONGER = {"pretrained": ("pretrain", "train.steps=6"), "finetuned": ("finetune", "train.epochs=2")}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the saved runs and their data, in the current folder."""
    shutil.copytree(SAVED, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def plmctl_says(*words: str) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


@pytest.mark.parametrize("run", LONGER)
def test_a_saved_run_loads(run: str) -> None:
    """Every weight of the file is in the model, whose token table has spare rows."""
    loaded = plmctl.load(SAVED / run)
    saved = load_file(loaded.source.folder / "model.safetensors")
    state = loaded.model.state_dict()
    assert saved.keys() <= state.keys()
    assert all(torch.equal(state[name][: len(tensor)], tensor) for name, tensor in saved.items())
    assert loaded.tokenizer.kind == "char"


@pytest.mark.parametrize("run", LONGER)
def test_a_saved_run_resumes(run: str, runs: Path) -> None:
    verb, longer = LONGER[run]
    plmctl_says(verb, "--resume", f"run.dir={run}", longer)
    lines = (runs / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [json.loads(line) for line in lines if '"valid/' in line][-1]
    wanted = EXPECTED["resumed"][run]
    assert {name: last[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


def test_a_saved_run_is_evaluated(runs: Path) -> None:
    words = ("eval", "task=lm", "data.path=data/text.txt", "checkpoint=pretrained", "device=cpu")
    found = json.loads(plmctl_says(*words, "--json").splitlines()[-1])["metrics"]["text"]
    wanted = EXPECTED["evaluated"]
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
    plmctl_says("eval", "checkpoint=finetuned", "device=cpu")
    scores = json.loads((SAVED / "finetuned" / "result.json").read_text(encoding="utf-8"))
    shown = json.loads(plmctl_says("eval", "checkpoint=finetuned", "overwrite=true", "--json"))
    assert shown["metrics"]["dev"] == pytest.approx(scores["metrics"]["dev"], rel=1e-5)


def test_a_saved_run_embeds_converts_and_reports(runs: Path) -> None:
    text = (runs / "data" / "text.txt").read_text(encoding="utf-8").splitlines()
    (runs / "lines.txt").write_text("\n".join(text[:3]) + "\n", encoding="utf-8")
    words = ("checkpoint=finetuned", "input=lines.txt", "out=e.npz", "pooling=mean", "layers=[-1]")
    plmctl_says("embed", *words, "device=cpu")
    first = np.load(runs / "e.npz")["hidden_0"].reshape(-1)[:6].tolist()
    assert first == pytest.approx(EXPECTED["embedded"], abs=1e-5)
    plmctl_says("convert", "pretrained", "there", "--to", "hf")
    plmctl_says("convert", "there", "back", "--to", "plmctl")
    ours, theirs = plmctl.load("pretrained").model, plmctl.load("back").model
    assert all(
        torch.equal(tensor, theirs.state_dict()[name])
        for name, tensor in ours.backbone.state_dict(prefix="backbone.").items()
        if name in theirs.state_dict()
    )
    plmctl_says("report", "finetuned", "--out", "page.html")
    assert "sst2" in (runs / "page.html").read_text(encoding="utf-8")
