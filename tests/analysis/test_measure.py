"""Measures from Python and from plug-ins, with their panels on the page of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.layers import LayerMoves
from plmctl.analysis.measure import find_measures
from plmctl.analysis.sample import batch_sentences, choose_sentences
from plmctl.cli.app import make_app
from tests.report import parsed

EXAMPLES = Path(__file__).parents[2] / "examples" / "parts"
NAMES = {"attention", "buckets", "density", "halting", "layers", "mixes", "noise", "patterns"}
NAMES |= {"heads", "positions", "replaced", "spans", "targets"}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield "own_parts"
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_parts"]:
        del sys.modules[name]


def test_all_measures_of_a_model(trained: Path) -> None:
    assert set(find_measures()) == NAMES
    found = plmctl.analyse(trained)
    assert list(found) == [
        "attention",
        "heads",
        "layers",
        "noise",
        "positions",
    ]  # an ALBERT has no others
    assert found["layers"] == LayerMoves.of(plmctl.load(trained))
    assert [len(tokens) for tokens in found["attention"].tokens] == [
        layers[0].shape[-1] for layers in found["attention"].layers
    ]
    assert plmctl.analyse(plmctl.read_run(trained), ["layers", "spans"]).keys() == {"layers"}


def test_probes_and_wrong_arguments(trained: Path, tmp_path: Path) -> None:
    words = "the DT x\ncat NN x\nruns VB x\n\na DT x\ndog NN x\nsees VB x\n\n" * 10
    (tmp_path / "pos.txt").write_text(words)
    found = plmctl.analyse(trained, [], probes={"pos": tmp_path / "pos.txt"})
    assert len(found["pos"].accuracy) == 5
    with pytest.raises(plmctl.UsageError, match=r"no 'layer'.*did you mean 'layers'"):
        plmctl.analyse(trained, ["layer"])
    with pytest.raises(
        plmctl.UsageError, match=r'measures="layers": a list of names, here \["layers"\]'
    ):
        plmctl.analyse(trained, "layers")
    with pytest.raises(plmctl.DataError, match="no such file"):
        plmctl.analyse(trained, probes={"pos": tmp_path / "absent"})


def test_a_measure_and_its_panel_from_a_plugin(trained: Path, tmp_path: Path, plugin: str) -> None:
    measured = plmctl.analyse(trained, ["entropy"], plugins=[plugin])["entropy"]
    loaded = plmctl.load(trained)
    batch, rows = batch_sentences(loaded, choose_sentences(loaded)[0][:2])
    maps = loaded.model(batch, record=frozenset({"attention"})).recorded["attention"]
    tokens = [
        -sum(p * torch.log(torch.tensor(p)).item() for p in maps[3][n, 1, q, : len(row)].tolist())
        for n, row in enumerate(rows)
        for q in range(len(row))
    ]
    assert measured.layers[3][1] == pytest.approx(sum(tokens) / len(tokens), rel=1e-4)
    out = tmp_path / "page.html"
    for words, shown in (((), False), (("--plugin", plugin), True)):
        done = CliRunner().invoke(make_app(), ["report", str(trained), "--out", str(out), *words])
        assert done.exit_code == 0, done.output
        page = parsed.parse(out.read_text())
        assert ("Entropy of attention" in page.headings) == shown
    assert page.table("layer", "head 0")[3][2] == f"{measured.layers[3][1]:.2f}"
