"""MLM and CLM against literal loops in float64; nothing outside the labels receives a gradient."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from plmctl.core.batch import IGNORE, Batch, Rows, Seq, Targets
from plmctl.heads.lm import LMHead
from plmctl.heads.pair import PairHead
from plmctl.heads.pooler import Pooler
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.clm import CLM
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.mlm import MLM
from plmctl.objectives.nsp import NSP

B, T, W, V = 3, 5, 4, 11


class _Table(Backbone):
    """States that are parameters: their gradient shows which places a loss reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.states = nn.Parameter(torch.randn(B, T, W))
        self.token_embedding = nn.Embedding(V, W)
        self.calls = 0

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        self.calls += 1
        return Hidden(self.states)


def _model() -> Model:
    backbone = _Table()
    lm = {
        name: LMHead(
            width=W,
            vocab_size=V,
            token_embedding=backbone.token_embedding,
            tied=True,
            transform=True,
            bias=True,
        )
        for name in ("mlm", "clm")
    }
    return Model(
        backbone=backbone, heads={**lm, "pooler": Pooler(width=W), "nsp": PairHead(width=W)}
    ).double()


def _targets(labels: np.ndarray, capacity: int) -> Targets:
    flat = labels.reshape(-1)
    places = np.flatnonzero(flat != IGNORE)
    index, ids = np.zeros(capacity, dtype=np.int64), np.full(capacity, IGNORE, dtype=np.int64)
    index[: len(places)], ids[: len(places)] = places, flat[places]
    return Targets(torch.from_numpy(index), torch.from_numpy(ids), len(places))


def _batch(**labels: np.ndarray) -> Batch:
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(2))
    targets = {name: _targets(label, 12) for name, label in labels.items()}
    counts = {name: target.count for name, target in targets.items()}
    return Batch(
        torch.arange(B),
        {"text": Seq(ids, torch.full((B,), T))},
        targets,
        anchors=torch.tensor([[0, 0], [1, 0], [2, 0], [0, 0]]),
        labels={"pair": torch.tensor([0, 1, 1, IGNORE])},
        counts={**counts, "pair": 3},
    )


MASKED = np.full((B, T), IGNORE)
MASKED[0, 2], MASKED[0, 4], MASKED[2, 1] = 3, 7, 10


def _literal(model: Model, head: str, labels: np.ndarray) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            if labels[b, t] != IGNORE:
                z = model.heads[head](model.backbone.states[b, t])
                total = total + torch.log(torch.exp(z).sum()) - z[labels[b, t]]
    return total


def test_mlm_is_the_sum_over_hidden_places() -> None:
    model, batch = _model(), _batch(mlm=MASKED)
    out = MLM()(model, batch)
    torch.testing.assert_close(
        out.terms["mlm"].total, _literal(model, "mlm", MASKED), atol=1e-10, rtol=1e-10
    )
    assert MLM().counts(batch) == {"mlm": 3}
    right, count = out.logs["acc/mlm"]
    guesses = model.heads["mlm"](model.backbone.states).argmax(-1).numpy()
    assert (int(right), count) == (int((guesses == MASKED).sum()), 3)
    out.terms["mlm"].total.backward()
    read = model.backbone.states.grad.abs().sum(-1).numpy() > 0
    assert np.array_equal(read, MASKED != IGNORE)


def test_clm_labels_stop_at_documents_and_padding() -> None:
    ids = np.arange(10, 22).reshape(2, 6)
    document = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2]])
    rows = Rows(np.arange(2), {"text": Seq(ids, np.array([6, 4]), {"document": document})})
    x = IGNORE
    assert CLM().labels(rows)["clm"].tolist() == [[11, 12, x, 14, 15, x], [x, 18, 19, x, x, x]]
    plain = Rows(np.arange(2), {"text": Seq(ids, np.array([6, 4]))})
    assert CLM().labels(plain)["clm"].tolist() == [[11, 12, 13, 14, 15, x], [17, 18, 19, x, x, x]]


def test_clm_is_the_sum_over_next_tokens() -> None:
    labels = np.array(
        [[4, 5, 6, 7, IGNORE], [1, IGNORE, IGNORE, IGNORE, IGNORE], [IGNORE, 2, 3, IGNORE, IGNORE]]
    )
    model, batch = _model(), _batch(clm=labels)
    out = CLM()(model, batch)
    torch.testing.assert_close(
        out.terms["clm"].total, _literal(model, "clm", labels), atol=1e-10, rtol=1e-10
    )
    assert CLM().counts(batch) == {"clm": 7}


def test_a_mix_runs_the_backbone_once() -> None:
    model, batch = _model(), _batch(mlm=MASKED)
    mix = Mix({"mlm": Entry(MLM()), "nsp": Entry(NSP(), weight=0.5)})
    out = mix(model, batch)
    assert set(out.terms) == set(mix.counts(batch)) == {"mlm", "nsp"}
    assert out.terms["nsp"].weight == 0.5
    assert model.backbone.calls == 1
