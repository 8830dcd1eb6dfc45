"""Cross-lingual word recovery against its equation as a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.word_recovery import WordRecovery
from plmctl.runs.contract.stand_in import TINY

SMALL = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
CLS, SEP, V = 2, 3, 60
SPECIAL = torch.arange(V) < 8
# two pairs in the first row, one in the second: (words, language, document)
ROWS = [
    [([20, 21, 22], 0, 0), ([30, 31], 1, 0), ([23], 0, 1), ([32, 33], 1, 1)],
    [([24, 25], 0, 0), ([34], 1, 0)],
]


@pytest.fixture
def model() -> Model:
    config = compose("pretrain", "unicoder", [*SMALL, "data.path=a", "data.target_path=b"])
    model = build_model(config, vocab_size=V, vocab=TINY, seed=0).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.double()


def batch_of() -> Batch:
    width = 18
    ids, language, document, position = (torch.zeros(2, width, dtype=torch.long) for _ in range(4))
    length = []
    for row, pieces in enumerate(ROWS):
        at = 0
        for words, kind, number in pieces:
            piece = [CLS, *words, SEP]
            part = slice(at, at + len(piece))
            ids[row, part] = torch.tensor(piece)
            language[row, part], document[row, part] = kind, number
            position[row, part] = torch.arange(len(piece))
            at += len(piece)
        document[row, at:] = -1
        length.append(at)
    tracks = {"language": language, "document": document, "position": position}
    return Batch(torch.arange(2), {"text": Seq(ids, torch.tensor(length), tracks)})


def objective_of(model: Model, **settings: int) -> WordRecovery:
    torch.manual_seed(1)
    vocab = replace(TINY, special=SPECIAL.numpy())
    part = WordRecovery(model=model, vocab=vocab, table_width=16, **settings).double()
    with torch.no_grad():
        part.weigh.weight.normal_()
    return part


@pytest.mark.parametrize("recovered", [0, 1])
def test_recovery_as_a_loop(model: Model, recovered: int) -> None:
    objective, batch = objective_of(model, recovered=recovered), batch_of()
    out = objective(model, batch)
    embedding, position = model.backbone.embedding, model.backbone.position
    table, w = embedding.token.weight, objective.weigh.weight[0]
    total, asked = 0.0, 0
    for pieces in ROWS:
        for a, b in zip(pieces[::2], pieces[1::2], strict=True):
            mine, other = ((a, b), (b, a))[recovered]
            shown = []
            for word in mine[0]:
                scores = [
                    w @ torch.cat([table[word], table[y], table[word] * table[y]]) for y in other[0]
                ]
                shares = torch.stack(scores).softmax(0)
                shown.append(sum(s * table[y] for s, y in zip(shares, other[0], strict=True)))
            x = torch.stack([table[CLS], *shown, table[SEP]])
            x = x + position.table.weight[: len(x)] + embedding.language.weight[recovered]
            length = torch.tensor([len(x)])
            alone = Batch(torch.arange(1), {"text": Seq(torch.zeros(1, len(x)).long(), length)})
            states = model.backbone.encode(embedding.norm(x)[None], alone).last[0, 1:-1]
            logits = model.heads["mlm"](states).log_softmax(-1)
            for place, word in enumerate(mine[0]):
                total, asked = total - logits[place, word], asked + 1
    assert objective.counts(batch) == {"word_recovery": asked}
    assert_close(out.terms["word_recovery"].total, total, atol=1e-8, rtol=1e-8)


def test_masks_of_mlm_are_put_back(model: Model) -> None:
    objective, batch = objective_of(model), batch_of()
    masked = batch.text.ids.clone()
    masked[0, 2], masked[0, 7] = 4, 4
    index, ids = torch.tensor([2, 7, 0]), torch.tensor([21, 31, IGNORE])
    noised = replace(
        batch,
        seqs={"text": replace(batch.text, ids=masked)},
        targets={"mlm": Targets(index, ids, 2)},
    )
    assert int(batch.text.ids[0, 7]) == 31
    wanted = objective(model, batch).terms["word_recovery"].total
    assert_close(objective(model, noised).terms["word_recovery"].total, wanted)
    assert objective.counts(noised) == objective.counts(batch)


def test_a_sentence_without_translation_is_not_asked_for(model: Model) -> None:
    objective, batch = objective_of(model), batch_of()
    tracks = {**batch.text.tracks, "language": torch.zeros_like(batch.text.ids)}
    alone = replace(batch, seqs={"text": replace(batch.text, tracks=tracks)})
    assert objective.counts(alone) == {"word_recovery": 0}
    assert objective(model, alone).terms["word_recovery"].total.item() == 0


def test_only_an_encoder(model: Model) -> None:
    other = Model(backbone=torch.nn.Identity(), heads={})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model=encoder"):
        WordRecovery(model=other, vocab=TINY, table_width=16)
