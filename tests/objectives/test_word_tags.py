"""SentiLARE's input and its losses of tags, as loops; and a run with ratings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.loading import load
from plmctl.cli.app import make_app
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.heads.word_tag import WordTag
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.nn.init import normal
from plmctl.nn.track_vectors import TrackVectors
from plmctl.objectives.word_tags import WordTags
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.vectors import make_batch
from tests.noise.test_sentiment_mask import ENTRIES, NAMES, VOCAB, V, Words

LEXICON = Path(__file__).parents[1] / "fixtures" / "sentiment.tsv"


class _States(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.states = torch.randn(2, 4, 3, generator=torch.manual_seed(0)).double()

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        return Hidden(self.states)


def test_the_loss_as_a_loop() -> None:
    head = WordTag(width=3, num_classes=5).double()
    model = Model(backbone=_States(), heads={"pos": head})
    targets = Targets(torch.tensor([1, 6, 0]), torch.tensor([4, 2, IGNORE]), 2)
    text = {"text": Seq(torch.ones(2, 4, dtype=torch.int64), torch.tensor([4, 4]))}
    batch = Batch(torch.arange(2), text, targets={"pos": targets}, counts={"pos": 2})
    out = WordTags(target="pos")(model, batch)
    wanted = 0.0
    for (row, column), tag in (((0, 1), 4), ((1, 2), 2)):
        wanted -= head(model.backbone.states[row, column]).log_softmax(-1)[tag].item()
    assert out.terms["pos"].total.item() == pytest.approx(wanted, abs=1e-10)
    empty = Targets(torch.zeros(1, dtype=torch.int64), torch.tensor([IGNORE]), 0)
    none = Batch(torch.arange(2), text, targets={"pos": empty}, counts={"pos": 0})
    assert not WordTags(target="pos")(model, none).terms


def test_vectors_by_track_or_by_lexicon() -> None:
    part = TrackVectors(
        width=3, vocab_size=V, name="polarity", count=3, lexicon=Words(), vocab=VOCAB
    )
    normal(part, std=1.0, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[2, 15, 50, 90, 130, 160]])
    track = torch.tensor([[0, 2, 1, 0, 1, 2]])
    shown = part(Seq(ids, torch.tensor([6]), {"polarity": track}))
    assert torch.equal(shown, part.vectors.weight[track])
    known = part(Seq(ids, torch.tensor([6])))
    wanted = [ENTRIES.get(NAMES[i], (0, 0))[0] if 10 <= i < 150 else 0 for i in ids[0].tolist()]
    assert wanted == [0, 1, 2, 0, 0, 0]
    assert torch.equal(known[0], part.vectors.weight[wanted])
    rating = TrackVectors(width=3, vocab_size=V, name="rating", count=6)
    assert torch.equal(rating(Seq(ids, None))[0, 3], rating.vectors.weight[0])
    assert "tags.table" in part.state_dict()


def test_a_run_with_ratings(tmp_path: Path) -> None:
    """Marks in the text become the track of ratings, all four losses are there, and the
    saved model knows the polarity of words without any track.
    """
    rng = np.random.default_rng(0)
    words = ["good", "value", "error", "fail", "table", "house", "walks", "again"]
    lines = []
    for _ in range(120):
        text = " ".join(rng.choice(words, 12))
        stars = int(rng.integers(1, 6))
        lines.append(
            json.dumps({"text": text, "rating": [{"start": 0, "end": len(text), "id": stars}]})
        )
    (tmp_path / "reviews.jsonl").write_text("\n".join(lines))
    given = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=32"]
    given += ["tokenizer.vocab_size=64", "train.steps=3", "train.log_every=1"]
    given += [f"data.path={tmp_path / 'reviews.jsonl'}", "data.tags=[rating]"]
    given += [f"noise.sentiment_mask.lexicon.path={LEXICON}", f"run.dir={tmp_path / 'run'}"]
    done = CliRunner().invoke(make_app(), ["pretrain", "sentilare", *given])
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    found = {key for step in steps for key in step if key.startswith("loss/")}
    assert {"loss/mlm", "loss/polarity", "loss/pos", "loss/rating"} <= found
    loaded = load(tmp_path / "run")
    seq = make_batch([EmbeddingLine(loaded.tokenizer.encode("good error table"))]).text
    tags = loaded.model.backbone.embedding.tracks[0].tags(seq.ids)
    assert tags.tolist() == [[2, 1, 0]]  # by the table that is saved
