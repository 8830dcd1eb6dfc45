"""The table of weights that are not 0 on the page of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plmctl.analysis.attention import SparseHeads
from plmctl.analysis.sample import batch_sentences, choose_sentences
from plmctl.nn.entmax import Entmax
from plmctl.report.page import Heading, TableBlock
from plmctl.report.panels.attention import density as panel
from plmctl.report.subject import find_subject
from tests.analysis.tiny_run import pretrain

WORDS = ["size.width=16", "size.inner_width=32", "format.max_length=64", "train.steps=1"]
WORDS += ["train.batch_size=2", "tokenizer.vocab_size=280"]
WORDS += ["model.stack.cells.a.weights={_target_:plmctl.nn.entmax.Entmax,learned:true}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("density"), "gpt2", *WORDS)


@pytest.mark.slow  # a panel; test_layers.py has the page of a run
@torch.inference_mode()
def test_density_and_alphas_by_layer_and_head(run: Path) -> None:
    subject = find_subject([run])
    loaded = subject.runs[0].loaded
    for part in loaded.model.modules():
        if isinstance(part, Entmax):
            assert part.logit is not None
            part.logit.data = torch.tensor([-9.0, 9.0])  # as softmax, and as sparsemax
    for block in loaded.model.backbone.stack.blocks["a"]:
        block.cell.qkv.weight.data *= 40
    measured = SparseHeads.of(loaded)
    assert measured is not None
    layers = measured.density
    batch, rows = batch_sentences(loaded, choose_sentences(loaded)[0][:8])
    maps = loaded.model(batch, record=frozenset({"attention"})).recorded["attention"]
    for layer, weights in zip(layers, maps, strict=True):
        for head in range(2):
            shares = [
                sum(float(weights[row, head, q, k]) > 0 for k in range(q + 1)) / (q + 1)
                for row, ids in enumerate(rows)
                for q in range(len(ids))
            ]
            assert layer[head] == pytest.approx(sum(shares) / len(shares), abs=1e-5)
        assert layer[1] < 0.8 * layer[0]
    assert measured.alphas == [[pytest.approx(1.001, abs=1e-3), pytest.approx(2, abs=1e-3)]] * 2
    heading, _, density, _, alphas = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(density, TableBlock)
    assert isinstance(alphas, TableBlock)
    assert density.rows[0] == ["layer 1", *(f"{100 * share:.0f}" for share in layers[0])]
    assert alphas.rows[1] == ["cell 2", "1.00", "2.00"]
