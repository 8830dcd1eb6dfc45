"""The word structural objective against a loop in float64, beside MLM, and in a run that
validates it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from plmctl.cli import app as cli
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq, Targets
from plmctl.core.draws import Draws
from plmctl.heads.lm import LMHead
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.noise.token_mask import TokenMask
from plmctl.noise.token_shuffle import TokenShuffle
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.mlm import MLM
from plmctl.objectives.word_structure import WordStructure
from plmctl.runs.contract.contract import check_contract
from plmctl.text.vocab import Vocab

B, T, W, V = 4, 40, 6, 30


class _States(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(B, T, W, generator=torch.Generator().manual_seed(0)))
        self.token_embedding = nn.Embedding(V, W)
        self.calls = 0

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        self.calls += 1
        return Hidden(self.states)


def model() -> Model:
    torch.manual_seed(1)
    backbone = _States()
    head = LMHead(
        width=W,
        vocab_size=V,
        token_embedding=backbone.token_embedding,
        tied=True,
        transform=True,
        bias=True,
    )
    return Model(backbone=backbone, heads={"mlm": head}).double()


def noised() -> tuple[np.ndarray, Rows]:
    """(the original ids, rows masked and then shuffled)."""
    special = np.arange(V) < 5
    vocab = Vocab(
        size=V,
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
    ids = np.random.default_rng(2).integers(5, V, (B, T))
    ids[:, 0], ids[:, -1] = 2, 3
    rows = Rows(np.arange(B), {"text": Seq(ids, np.full(B, T))})
    mask = TokenMask(vocab=vocab, rate=0.15, mask_share=0.8, random_share=0.1)
    for place, noise in enumerate((mask, TokenShuffle(vocab=vocab, rate=0.1))):
        rows = noise(rows, Draws(0, 0).child(place))
    return ids, rows


def as_batch(rows: Rows) -> Batch:
    targets, counts = {}, {}
    for name, labels in rows.targets.items():
        flat = np.asarray(labels, np.int64).ravel()
        index = np.flatnonzero(flat != IGNORE)
        spare = 3  # slots without a label, as the loader leaves some
        ids = np.concatenate([flat[index], np.full(spare, IGNORE)])
        place = np.concatenate([index, np.zeros(spare, np.int64)])
        targets[name] = Targets(torch.from_numpy(place), torch.from_numpy(ids), len(index))
        counts[name] = len(index)
    text = Seq(torch.from_numpy(rows.seqs["text"].ids), torch.full((B,), T))
    return Batch(torch.arange(B), {"text": text}, targets, counts=counts)


def by_loop(made: Model, places: list[tuple[int, int]], original: np.ndarray) -> torch.Tensor:
    """`- sum log p(the token that stood here)`."""
    total = torch.zeros((), dtype=torch.float64)
    for row, place in places:
        z = made.heads["mlm"](made.backbone.states[row, place])
        total = total - z[original[row, place]] + torch.log(torch.exp(z).sum())
    return total


def test_the_loss_is_the_sum_over_shuffled_places_of_their_original_tokens() -> None:
    made, (original, rows) = model(), noised()
    batch = as_batch(rows)
    places = [(b, t) for b in range(B) for t in range(T) if rows.targets["shuffle"][b, t] != IGNORE]
    assert len(places) >= 12
    assert len(places) % 3 == 0
    assert any(rows.seqs["text"].ids[place] != original[place] for place in places)
    out = WordStructure()(made, batch)
    torch.testing.assert_close(
        out.terms["shuffle"].total, by_loop(made, places, original), atol=1e-10, rtol=1e-10
    )
    assert WordStructure().counts(batch) == {"shuffle": len(places)}
    right, count = out.logs["acc/shuffle"]
    guesses = made.heads["mlm"](made.backbone.states).argmax(-1).numpy()
    assert (int(right), count) == (
        sum(guesses[place] == original[place] for place in places),
        len(places),
    )
    out.terms["shuffle"].total.backward()
    read = made.backbone.states.grad.abs().sum(-1) > 0
    assert {tuple(place) for place in read.nonzero().tolist()} == set(places)


def test_beside_mlm_it_has_its_own_mean_the_same_weight_and_the_same_head() -> None:
    made, (original, rows) = model(), noised()
    batch = as_batch(rows)
    mix = Mix({"mlm": Entry(MLM()), "word_structure": Entry(WordStructure())})
    out, counts = mix(made, batch), mix.counts(batch)
    assert made.backbone.calls == 1
    assert {name: term.weight for name, term in out.terms.items()} == {"mlm": 1.0, "shuffle": 1.0}
    loss = sum(term.total / counts[name] for name, term in out.terms.items())
    expected = torch.zeros((), dtype=torch.float64)
    for name in ("mlm", "shuffle"):
        places = [(int(b), int(t)) for b, t in np.argwhere(rows.targets[name] != IGNORE)]
        expected = expected + by_loop(made, places, original) / len(places)
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)
    assert mix.facts.heads == {"mlm"}
    assert not ((rows.targets["mlm"] != IGNORE) & (rows.targets["shuffle"] != IGNORE)).any()


def test_without_a_noise_that_shuffles_it_is_refused() -> None:
    made = CliRunner().invoke(
        cli.make_app(), ["pretrain", "bert", "objective=[mlm,word_structure]", "--dry-run"]
    )
    assert made.exit_code == 2
    said = " ".join(made.stderr.split())
    assert "objective.word_structure: needs 'targets.shuffle'" in said
    assert "fix: 'noise=[token_shuffle]'" in said


def test_validation_must_shuffle_too() -> None:
    """`eval.noise` is BERT's masking unless the recipe or the user says otherwise."""
    words = [
        "pretrain",
        "bert",
        "objective=[mlm,word_structure]",
        "noise=[token_mask,token_shuffle]",
        "size=tiny",
        "--dry-run",
    ]
    made = CliRunner().invoke(cli.make_app(), words)
    assert made.exit_code == 2
    said = " ".join(made.stderr.split())
    assert "objective.word_structure: needs 'targets.shuffle'" in said
    assert "in validation too, and eval.noise does not give it fix: eval.noise='${noise}'" in said
    assert CliRunner().invoke(cli.make_app(), [*words, "eval.noise=${noise}"]).exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["objective=[mlm,sentence_structure]", "noise=[token_mask]", "eval.noise=${noise}"],
        ["objective=[mlm,word_structure]"],
        ["objective=[mlm,word_structure,nsp]", "format=sentence_pair"],
        ["objective=[mlm,word_structure,sop]", "format=sentence_order"],
    ],
    ids=["sentences", "words", "nsp", "sop"],
)
def test_ablations_of_structbert_fit_together(words: list[str]) -> None:
    cfg = compose("pretrain", "structbert", ["size=tiny", *words])
    assert set(check_contract(cfg).heads) == set(cfg.heads)


def test_structbert_validates_all_its_terms(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    words = [
        "size=tiny",
        "size.width=32",
        "size.inner_width=64",
        "train.steps=2",
        "train.batch_size=8",
        "format.max_length=48",
        f"data.path={tokens_of('wordpiece')}",
        f"run.dir={tmp_path / 'run'}",
        "train.threads=1",
        "eval.rows=16",
    ]
    made = CliRunner().invoke(cli.make_app(), ["pretrain", "structbert", *words])
    assert made.exit_code == 0, made.output
    records = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    found = {name for record in records for name in record}
    for part in ("mlm", "shuffle", "sentence_structure"):
        assert {f"loss/{part}", f"acc/{part}", f"valid/loss/{part}", f"valid/acc/{part}"} <= found
    last = {name: value for record in records for name, value in record.items()}
    assert last["valid/loss/sentence_structure"] == pytest.approx(np.log(3), rel=0.2)
