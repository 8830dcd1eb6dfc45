"""The span boundary objective against the formula as a loop over spans, and what SpanBERT's
paper says of its masks.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir, load
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, UsageError
from plmctl.heads.sbo import SBOHead
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.sbo import SBO
from plmctl.runs.contract.contract import check_contract
from tests.noise.plain_rows import make_vocab

V, W, MOST = 90, 4, 3
VOCAB = make_vocab(V, specials=5, eos=None, word_start=np.arange(V) % 3 != 0)


class _States(Backbone):
    """States that are parameters: their gradient shows which places a loss reads."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.states = nn.Parameter(torch.randn(*shape, W))
        self.token_embedding = nn.Embedding(V, W)

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        return Hidden(self.states)


def model_for(batch: Batch) -> Model:
    backbone = _States(tuple(batch.text.ids.shape))
    head = SBOHead(
        width=W,
        vocab_size=V,
        token_embedding=backbone.token_embedding,
        max_targets=MOST,
        place_width=2,
    )
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return Model(backbone=backbone, heads={"sbo": head}).double()


def cells_of(*, documents: bool = False, n: int = 12, width: int = 40) -> Rows:
    """cls ... sep in rows of several lengths; with `documents` two stretches a row, without
    specials between them.
    """
    rng = np.random.default_rng(0)
    ids, length = rng.integers(5, V, (n, width)).astype(np.int32), rng.integers(12, width + 1, n)
    document = np.zeros((n, width), np.int32)
    for row in range(n):
        ids[row, 0], ids[row, length[row] - 1], ids[row, length[row] :] = 2, 3, 0
        document[row, 9:], document[row, length[row] :] = 1, -1
    tracks = {"word_start": VOCAB.word_start[ids]} | ({"document": document} if documents else {})
    return Rows(np.arange(n), {"text": Seq(ids, length, tracks)})


def noise(**settings: object):
    node = plain(load(conf_dir() / "noise" / "span_mask.yaml")) | settings
    return build(node, {"vocab": VOCAB, "corpus_sample": np.arange(5, V)}, path="noise")


def noised(**settings: object) -> Rows:
    documents = bool(settings.pop("documents", False))
    return noise(**settings)(cells_of(documents=documents), Draws(0, 0))


def batch_of(rows: Rows, capacity: dict[str, int] | None = None) -> Batch:
    return collate(
        rows.with_targets(**SBO(vocab=VOCAB, max_targets=MOST).labels(rows)), capacity or {}
    )


def pairs_of(rows: Rows, clean: Rows) -> list[tuple[int, int, int, int, int]]:
    """(row, left, right, place in the span, token) of every target, literally."""
    found, seq = [], clean.seqs["text"]
    for row, start, length in rows.spans["chosen"].tolist():
        left, right = start - 1, start + length
        inside = left >= 1 and right <= seq.length[row] - 2
        document = seq.tracks.get("document")
        if not inside or (document is not None and document[row, left] != document[row, right]):
            continue
        found += [
            (row, left, right, k, int(seq.ids[row, start + k])) for k in range(min(length, MOST))
        ]
    return found


def literal(model: Model, pairs: list[tuple[int, int, int, int, int]]) -> torch.Tensor:
    head, states, total = (
        model.heads["sbo"],
        model.backbone.states,
        torch.zeros((), dtype=torch.float64),
    )

    def layer(linear: nn.Linear, norm: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
        x = linear.weight @ x + linear.bias
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return (
            norm.weight * (x - x.mean()) / (((x - x.mean()) ** 2).mean() + norm.eps).sqrt()
            + norm.bias
        )

    for row, left, right, k, token in pairs:
        h = torch.cat([states[row, left], states[row, right], head.place.weight[k]])
        y = layer(head.lm.dense, head.lm.norm, layer(head.inner, head.norm, h))
        z = model.backbone.token_embedding.weight @ y + head.lm.bias[:V]
        total = total - torch.log_softmax(z, 0)[token]
    return total


@pytest.mark.parametrize("documents", [False, True])
def test_loss_is_the_formula(documents: bool) -> None:
    rows = noised(documents=documents, rate=0.4)
    batch, pairs = batch_of(rows), pairs_of(rows, cells_of(documents=documents))
    model, objective = model_for(batch), SBO(vocab=VOCAB, max_targets=MOST)
    # some spans touch an end
    assert len({tuple(pair[:3]) for pair in pairs}) < len(rows.spans["chosen"])
    assert max(rows.spans["chosen"][:, 2]) > MOST  # some are longer than what is asked
    out = objective(model, batch)
    torch.testing.assert_close(
        out.terms["sbo"].total, literal(model, pairs), atol=1e-10, rtol=1e-10
    )
    assert objective.counts(batch) == {"sbo": len(pairs)}
    right, count = out.logs["acc/sbo"]
    assert 0 <= int(right) <= count == len(pairs)


def test_gradients_are_those_of_the_formula_and_only_neighbours_have_one() -> None:
    rows = noised(rate=0.4)
    batch, pairs = batch_of(rows), pairs_of(rows, cells_of())
    one, two = model_for(batch), model_for(batch)
    SBO(vocab=VOCAB, max_targets=MOST)(one, batch).terms["sbo"].total.backward()
    literal(two, pairs).backward()
    for (name, mine), (_, theirs) in zip(
        one.named_parameters(), two.named_parameters(), strict=True
    ):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-9, rtol=1e-9, msg=name)
    read = {tuple(place) for place in one.backbone.states.grad.abs().sum(-1).nonzero().tolist()}
    assert read == {(row, side) for row, left, right, *_ in pairs for side in (left, right)}
    chosen = {
        (row, start + k)
        for row, start, length in rows.spans["chosen"].tolist()
        for k in range(length)
    }
    assert not read & chosen


def test_the_slots_of_the_hidden_tokens_suffice() -> None:
    """Fixed capacity, spare slots included, changes nothing; neither do rows that count for
    nothing.
    """
    rows = noised()
    spare, exact = batch_of(rows, noise().capacity(40)), batch_of(rows)
    assert len(spare.targets["mlm"].index) < len(exact.targets["mlm"].index)
    model, objective = model_for(spare), SBO(vocab=VOCAB, max_targets=MOST)
    shapes = []
    original = model.heads["sbo"].loss
    model.heads["sbo"].loss = lambda *given: shapes.append(len(given[-1])) or original(*given)
    totals = [objective(model, batch).terms["sbo"].total for batch in (spare, exact)]
    torch.testing.assert_close(*totals)
    assert shapes == [len(batch.targets["mlm"].index) for batch in (spare, exact)]


def test_a_span_at_the_very_end_of_the_last_row_reads_nothing_outside() -> None:
    """Without special tokens a span may touch both ends; the first row asks, the last one must
    not read beyond the batch.
    """
    ids = np.arange(5, 17).reshape(2, 6)
    spans = np.array([[0, 1, 2], [1, 0, 2], [1, 3, 3]])
    labels = np.full((2, 6), IGNORE)
    for row, start, length in spans:
        labels[row, start : start + length] = ids[row, start : start + length]
    rows = Rows(
        np.arange(2), {"text": Seq(ids, np.array([6, 6]))}, {"mlm": labels}, spans={"chosen": spans}
    )
    batch = batch_of(rows)
    assert batch.counts["sbo"] == 2
    model = model_for(batch)
    total = SBO(vocab=VOCAB, max_targets=MOST)(model, batch).terms["sbo"].total
    torch.testing.assert_close(
        total, literal(model, [(0, 0, 3, 0, 6), (0, 0, 3, 1, 7)]), atol=1e-10, rtol=1e-10
    )
    only_last = Rows(
        np.arange(1),
        {"text": Seq(ids[1:], np.array([6]))},
        {"mlm": labels[1:]},
        spans={"chosen": spans[1:] - [1, 0, 0]},
    )
    batch = batch_of(only_last)
    assert (
        SBO(vocab=VOCAB, max_targets=MOST)(model_for(batch), batch).terms["sbo"].total.item() == 0
    )


def test_rows_without_spans_ask_nothing() -> None:
    rows = cells_of().with_targets(mlm=np.full((12, 40), IGNORE))
    batch = batch_of(rows)
    model, objective = model_for(batch), SBO(vocab=VOCAB, max_targets=MOST)
    assert objective.counts(batch) == {"sbo": 0}
    total = objective(model, batch).terms["sbo"].total
    total.backward()
    assert total.item() == 0
    none = Rows(rows.key, rows.seqs, rows.targets, spans={"chosen": np.zeros((0, 3), int)})
    assert objective.counts(batch_of(none)) == {"sbo": 0}


def test_neighbours_are_in_the_text_and_in_no_span() -> None:
    """Spans that touch are one, so no neighbour is itself hidden
    (pretraining/fairseq/data/masking.py).
    """
    rows = noised(rate=0.5)
    hidden = rows.targets["mlm"] != IGNORE
    for row, start, length in rows.spans["chosen"].tolist():
        assert hidden[row, start : start + length].all()
        assert not hidden[row, start - 1]
        assert not hidden[row, start + length]


def test_a_noise_without_spans_is_refused_by_name() -> None:
    words = ["objective=[mlm,sbo]", "size=tiny"]
    with pytest.raises(UsageError, match=r"(?s)spans\.chosen.*noise=\[span_mask\]"):
        check_contract(compose("pretrain", "bert", words))
    check_contract(
        compose("pretrain", "bert", [*words, "noise=[span_mask]", "eval.noise=${noise}"])
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "heads"),
    [
        (["objective=[mlm]"], {"mlm"}),
        (["noise=[token_mask]", "objective=[mlm]"], {"mlm"}),
        (["noise=[whole_word_mask]", "objective=[mlm]"], {"mlm"}),
        (["format=sentence_pair", "objective=[mlm,nsp,sbo]"], {"mlm", "nsp", "pooler", "sbo"}),
        (["noise.span_mask.words=false"], {"mlm", "sbo"}),
        (["format.packed=false"], {"mlm", "sbo"}),
    ],
)
def test_ablations_are_settings_of_the_recipe(words: list[str], heads: set[str]) -> None:
    assert set(check_contract(compose("pretrain", "spanbert", words)).heads) == heads


def test_the_objective_asks_as_many_as_the_head_has_places() -> None:
    cfg = compose(
        "pretrain", "bert", ["objective=[mlm,sbo]", "noise=[span_mask]", "heads.sbo.max_targets=20"]
    )
    assert cfg.objective.sbo.max_targets == 20
    with pytest.raises(ConfigError, match="at least 1"):
        SBOHead(width=W, vocab_size=V, token_embedding=nn.Embedding(V, W), max_targets=0)


def test_sizes_of_the_published_head() -> None:
    """(2H + 200) H + H H weights, two norms, a table [max_targets, 200], a bias [V] (released
    code).
    """
    table = nn.Embedding(100, 16)
    head = SBOHead(width=16, vocab_size=100, token_embedding=table, max_targets=15)
    numbers = (2 * 16 + 200) * 16 + 16 * 16 + 2 * 16 + 4 * 16 + 15 * 200
    assert sum(p.numel() for name, p in head.named_parameters() if name != "lm.bias") == numbers
