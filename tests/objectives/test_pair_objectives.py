"""NSP, SOP and StructBERT's sentence objective against a loop and `transformers`, and with
formats that do not suit them.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from plmctl.cli import app as cli
from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.core.errors import DataError
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.reader import RowReader
from plmctl.heads.pair import PairHead
from plmctl.heads.pooler import Pooler
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.nsp import NSP
from plmctl.objectives.pair import PairObjective
from plmctl.objectives.paraphrase import Paraphrase
from plmctl.objectives.sentence_structure import SentenceStructure
from plmctl.objectives.sop import SOP
from plmctl.text.vocab import Vocab

B, T, W = 3, 5, 4
KINDS = [(NSP, "nsp", 2), (SOP, "sop", 2), (SentenceStructure, "sentence_structure", 3)]
KINDS += [(Paraphrase, "paraphrase", 2)]
ANCHORS = [(0, 0), (1, 0), (1, 3), (2, 0), (0, 0)]  # row 1 holds two pairs; the last slot is spare


class _States(Backbone):
    """States that are parameters: their gradient shows which places a loss reads."""

    def __init__(self) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(B, T, W, generator=torch.Generator().manual_seed(0)))
        self.calls = 0

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        self.calls += 1
        return Hidden(self.states)


def made(*names_and_classes: tuple[str, int]) -> Model:
    torch.manual_seed(1)
    heads = {name: PairHead(width=W, num_classes=classes) for name, classes in names_and_classes}
    return Model(backbone=_States(), heads={"pooler": Pooler(width=W), **heads}).double()


def batch(classes: int) -> Batch:
    labels = [0, 1, classes - 1, 1, IGNORE]
    return Batch(
        torch.arange(B),
        {"text": Seq(torch.zeros(B, T, dtype=torch.int64), torch.full((B,), T))},
        anchors=torch.tensor(ANCHORS),
        labels={"pair": torch.tensor(labels)},
        counts={"pair": 4},
    )


@pytest.mark.parametrize(("kind", "name", "classes"), KINDS)
def test_the_loss_is_the_sum_over_anchors(
    kind: type[PairObjective], name: str, classes: int
) -> None:
    model, objective, given = made((name, classes)), kind(), batch(classes)
    out = objective(model, given)
    dense, linear = model.heads["pooler"].dense, model.heads[name].linear
    expected, right = torch.zeros((), dtype=torch.float64), 0
    for (row, place), label in zip(ANCHORS, given.labels["pair"].tolist(), strict=True):
        if label == IGNORE:
            continue
        state = model.backbone.states[row, place]
        pooled = [
            torch.tanh(sum(dense.weight[i, j] * state[j] for j in range(W)) + dense.bias[i])
            for i in range(W)
        ]
        z = [
            sum(linear.weight[k, i] * pooled[i] for i in range(W)) + linear.bias[k]
            for k in range(classes)
        ]
        expected = expected + torch.log(sum(torch.exp(x) for x in z)) - z[label]
        right += int(max(range(classes), key=lambda k: float(z[k].detach())) == label)
    torch.testing.assert_close(out.terms[name].total, expected, atol=1e-10, rtol=1e-10)
    assert objective.counts(given) == {name: 4}
    correct, count = out.logs[f"acc/{name}"]
    assert (int(correct), count) == (right, 4)
    assert Mix({name: Entry(objective)})(model, given).answers[name] is given.labels["pair"]
    out.terms[name].total.backward()
    read = model.backbone.states.grad.abs().sum(-1) > 0
    assert {tuple(place) for place in read.nonzero().tolist()} == set(ANCHORS)
    assert objective.facts.heads == {"pooler", name}


def test_half_precision_states_give_an_fp32_loss() -> None:
    model = made(("sop", 2)).bfloat16()
    assert SOP()(model, batch(2)).terms["sop"].total.dtype == torch.float32


def test_two_of_them_share_a_pass_and_the_pooler_but_no_head() -> None:
    """NSP's accuracy of a model that learns SOP (Lan et al., 2020, table 5) needs both at once."""
    model = made(("nsp", 2), ("sop", 2))
    out = Mix({"nsp": Entry(NSP(), weight=0.0), "sop": Entry(SOP())})(model, batch(2))
    assert set(out.terms) == {"nsp", "sop"}
    assert model.backbone.calls == 1
    assert out.terms["nsp"].weight == 0
    assert not out.terms["nsp"].total.equal(out.terms["sop"].total)


@pytest.mark.parity
def test_with_next_sentence_the_loss_is_that_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    numbers = {
        "vocab_size": 9,
        "hidden_size": W,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    config = transformers.BertConfig(**numbers)
    published = transformers.BertForNextSentencePrediction(config).eval().double()
    ids = torch.randint(1, 9, (B, T), generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 1, 1])
    with torch.no_grad():
        out = published(ids, labels=labels, output_hidden_states=True)
    model = made(("nsp", 2))
    model.backbone.states.data = out.hidden_states[-1]
    model.heads["pooler"].dense.load_state_dict(published.bert.pooler.dense.state_dict())
    model.heads["nsp"].linear.load_state_dict(published.cls.seq_relationship.state_dict())
    anchors = torch.tensor([[0, 0], [1, 0], [2, 0]])
    text = Seq(ids, torch.full((B,), T))
    given = Batch(
        torch.arange(B),
        {"text": text},
        anchors=anchors,
        labels={"pair": labels},
        counts={"pair": 3},
    )
    torch.testing.assert_close(
        NSP()(model, given).terms["nsp"].total / 3, out.loss, atol=1e-12, rtol=1e-12
    )


def refused(*words: str) -> str:
    made = CliRunner().invoke(cli.make_app(), ["pretrain", *words, "size=tiny", "--dry-run"])
    assert made.exit_code == 2, made.output
    return " ".join(made.stderr.split())


def test_three_relations_and_a_head_of_two_outputs() -> None:
    said = refused("bert", "format=sentence_structure")
    assert "heads.nsp.num_classes=2: 3, as many as the format tells apart" in said
    assert "2 = B is from another document" in said
    assert "fix: 'objective=[mlm,sentence_structure]' # or format=sentence_" in said


def test_two_relations_and_a_head_of_three_outputs() -> None:
    said = refused("structbert", "format=sentence_order")
    assert "heads.sentence_structure.num_classes=3: 2, as many as" in said
    assert "format=sentence_structure" in said
    assert "fix: 'objective=[mlm,word_structure,nsp]'" in said


def test_a_head_of_the_wrong_size_is_named() -> None:
    said = refused("structbert", "heads.sentence_structure.num_classes=2")
    assert "fix: heads.sentence_structure.num_classes=3" in said


@pytest.mark.parametrize(
    "words",
    [["bert", "format=sentence_order"], ["albert", "format=sentence_pair"]],
    ids=["nsp", "sop"],
)
def test_another_question_with_as_many_answers_is_an_ablation(words: list[str]) -> None:
    made = CliRunner().invoke(cli.make_app(), ["pretrain", *words, "size=tiny", "--dry-run"])
    assert made.exit_code == 0, made.output


@pytest.mark.parametrize("recipe", ["albert", "structbert"])
def test_documents_of_one_sentence_have_nothing_to_swap(recipe: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "and",
        "then",
        "one",
        "dog",
        "ran",
        "over",
        "the",
        "hill",
    ]
    lines = [" ".join(rng.choice(words, 12)).capitalize() + "." for _ in range(300)]
    (tmp_path / "one.txt").write_text("\n\n".join(lines), encoding="utf-8")
    given = [
        f"data.path={tmp_path / 'one.txt'}",
        "tokenizer.vocab_size=48",
        "size=tiny",
        "format.max_length=32",
        "train.steps=2",
        f"run.dir={tmp_path / 'run'}",
        "train.threads=1",
    ]
    made = CliRunner().invoke(cli.make_app(), ["pretrain", recipe, *given])
    said = " ".join(made.stderr.split())
    assert made.exit_code == 3, made.output
    assert (
        "every chunk of at most 32 tokens is a single sentence, so that no segments can be swapped"
        in said
    )
    assert "a blank line ends a document" in said
    assert "format=full_sentences 'objective=[mlm]'" in said
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_what_is_held_out_may_be_single_sentences() -> None:
    """A validation split is read as it is: it may be one document."""
    special = np.arange(20) < 5
    vocab = Vocab(
        size=20,
        pad=0,
        unk=1,
        cls=2,
        sep=3,
        mask=4,
        bos=None,
        eos=None,
        special=special,
        word_start=~special,
    )
    edges = np.arange(0, 121, 6)
    shards = SimpleNamespace(
        ids=np.arange(120) % 15 + 5,
        sentences=edges,
        documents=np.arange(len(edges)),
        tracks={},
        spans={},
        fingerprint="x",
        vocab=vocab,
    )
    format = SentencePair(
        vocab=vocab, max_length=24, short_rate=0.0, random_rate=0.0, swap_rate=0.5
    )
    reader = RowReader(shards, format, seed=0, batch_size=4, allow_short=True)
    assert reader.plan(0).report["lone_pairs"] == 20
    with pytest.raises(DataError, match="no segments can be swapped"):
        RowReader(shards, format, seed=0, batch_size=4)  # type: ignore[arg-type]
