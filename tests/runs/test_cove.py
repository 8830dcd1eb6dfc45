"""CoVe (McCann et al., 2017): the encoder of a translator as a model of its own, and the features
`[GloVe(w); CoVe(w)]` of a task, as a loop in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.heads.features import HIDDEN
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.vector_files import write_static

W = 12
WORDS = ("the", "of", "a", "is", "value")
SENTENCE = "the value of a list is the list"
QUICK = ["train.precision=fp32", "train.threads=1", "train.device=cpu"]


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(WORDS), W)).astype(np.float32)


@pytest.fixture(scope="module")
def translator(
    vectors: np.ndarray, translation: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    home = tmp_path_factory.mktemp("cove")
    write_static(StaticVectors(list(WORDS), vectors), home / "glove.bin")
    run(
        *("pretrain", "cove", f"data.path={translation[0]}", f"data.target_path={translation[1]}"),
        *("tokenizer.vocab_size=500", "size.num_layers=2", f"size.width={W}", "size.num_heads=1"),
        *("first_vectors=words", f"first_vectors.path={home / 'glove.bin'}"),
        *("train.frozen=[backbone.encoder.embedding*]", "train.steps=2", "train.batch_size=8"),
        *("format.max_length=16", "format.target_length=16", "eval.rows=8", *QUICK),
        f"run.dir={home / 'translator'}",
    )
    return home / "translator"


@pytest.fixture(scope="module")
def cove(translator: Path) -> Path:
    out = translator.with_name("encoder")
    run("convert", str(translator), "--to", "plmctl", "--part", "encoder", "--out", str(out))
    return out


@pytest.fixture(scope="module")
def classifier(cove: Path) -> Path:
    data = cove.with_name("task")
    data.mkdir()
    lines = [f"the {'value' if n % 2 else 'list'} is a list\t{n % 2}" for n in range(16)]
    for split in ("train", "dev"):
        (data / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    run(
        *("finetune", "task=classification", f"task.path={data}", f"checkpoint={cove}"),
        *("train.frozen=[backbone]", "features=concat", "heads.features.layers=[0,-1]"),
        *("head_encoder=bilstm", "heads.encoder.hidden_width=6", "heads.encoder.num_layers=1"),
        *("row_pooling=concat", "train.epochs=null", "train.steps=30", "optim.lr=2e-2"),
        *("schedule=constant", "train.batch_size=8", *QUICK, f"run.dir={cove.with_name('tuned')}"),
    )
    return cove.with_name("tuned")


def read_one_way(net: nn.LSTM, x: Tensor, end: str) -> Tensor:
    """h_1 .. h_T of one direction, torch's order of gates: i, f, g, o."""
    weights = {name: getattr(net, f"{name}_l0{end}") for name in
               ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}  # fmt: skip
    h = c = x.new_zeros(net.hidden_size)
    states = []
    for vector in x:
        gates = weights["weight_ih"] @ vector + weights["bias_ih"]
        gates = gates + weights["weight_hh"] @ h + weights["bias_hh"]
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states)


@pytest.mark.slow
@torch.no_grad()
def test_features_are_word_vectors_beside_the_states_of_the_encoder(
    classifier: Path, vectors: np.ndarray
) -> None:
    loaded = plmctl.load(classifier)
    model = loaded.model.double()
    ids = loaded.tokenizer.encode(SENTENCE)
    batch = Batch(torch.arange(1), {"text": Seq(torch.tensor([ids]), torch.tensor([len(ids)]))})
    recorded = model(batch, record=HIDDEN).recorded["hidden"]
    found = model.heads["features"](recorded)[0]  # [T, 2 W]
    encoder: Any = model.backbone
    glove = encoder.embedding.token.weight[ids]
    known = dict(zip(WORDS, vectors, strict=True))
    for t, word in enumerate(SENTENCE.split()):
        if word in known:
            assert glove[t].tolist() == known[word].tolist()  # fixed while it learned to translate
    x = glove
    for block in encoder.stack.blocks["l"]:
        net = block.cell.read.net
        forward, backward = read_one_way(net, x, ""), read_one_way(net, x.flip(0), "_reverse")
        both = torch.cat([forward, backward.flip(0)], -1)
        x = both @ block.cell.out.weight.T + block.cell.out.bias
    torch.testing.assert_close(found, torch.cat([glove, x], -1), rtol=1e-10, atol=1e-10)


def test_the_encoder_alone_is_that_of_the_translator(translator: Path, cove: Path) -> None:
    inside: Any = plmctl.load(translator).model.backbone.encoder
    alone = plmctl.load(cove).model.backbone
    assert {name: x.tolist() for name, x in inside.state_dict().items()} == {
        name: x.tolist() for name, x in alone.state_dict().items()
    }


@pytest.mark.slow
def test_a_task_learns_from_frozen_features(cove: Path, classifier: Path) -> None:
    before, after = (plmctl.load(path).model.backbone.state_dict() for path in (cove, classifier))
    assert all(torch.equal(after[name], x) for name, x in before.items())
    said = run("eval", f"checkpoint={classifier}", "--json")
    assert '"accuracy": 1.0' in said


@pytest.mark.slow
def test_what_has_no_encoder_is_refused(classifier: Path, tmp_path: Path) -> None:
    words = ["--to", "plmctl", "--part", "encoder", "--out", str(tmp_path / "x")]
    said = run("convert", str(classifier), *words, code=2)
    assert "--part='encoder': a network inside of the model: this one is Encoder" in said
