"""BERTRAM against loops over its formulas, and against an encoder that is given the vectors of its
tokens by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.heads.mimic import AttentiveMimicking, FormVectors, MimicHead
from plmctl.knowledge.ngrams import spell_ngrams
from plmctl.knowledge.words import MODES, SLOTS, WordCounts
from plmctl.models.base import Model
from plmctl.objectives.mimic import Groups, Mimic, make_vectors
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.freezing import apply_freezing

WORDS = ["cat", "cats", "scatter", "concatenate", "dog", "dogs"]


def test_weights_of_contexts_by_the_formula():
    """With padding, negative weights and a bias that padding must not count."""
    torch.manual_seed(0)
    part = AttentiveMimicking(width=6, outputs=4).double()
    states = torch.randn(3, 5, 6, dtype=torch.double)
    real = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
    weights, found = part.weigh(states, real), part(states, real)
    for n in range(3):
        own = states[n, : int(real[n].sum())]
        u = [part.agree.weight @ h + part.agree.bias for h in own]
        s = [[(a @ b).item() / math.sqrt(6) for b in u] for a in u]
        total = sum(map(sum, s))
        rho = [sum(row) / (total + 1e-12) for row in s]
        assert weights[n, : len(own)].tolist() == pytest.approx(rho)
        assert (weights[n, len(own) :] == 0).all()
        mixed = sum(r * h for r, h in zip(rho, own, strict=True))
        assert_close(found[n], part.out.weight @ mixed + part.out.bias)
    assert (weights < 0).any()  # no softmax
    assert_close(weights.sum(1), torch.ones(3, dtype=torch.double))


def form_of(words: list[str], dropout: float = 0.0) -> FormVectors:
    torch.manual_seed(0)
    part = FormVectors(size=60, width=4, least=3, most=5, dropout=dropout)
    part.learn(words, often=2)
    return part


def test_form_is_the_mean_of_its_ngrams():
    part = form_of(WORDS)
    known = part.vocabulary.ids
    vectors = part(["cats", "bird", "a"])
    for word, vector in zip(["cats", "bird", "a"], vectors, strict=True):
        rows = [part.table.weight[known.get(ngram, 0)] for ngram in spell_ngrams(word, 3, 5)]
        assert_close(vector, torch.stack(rows).mean(0))
    assert_close(vectors[1], part.table.weight[0])  # nothing of it is known
    assert not (vectors[0] == part.table.weight[0]).all()


def test_ngram_dropout_leaves_out_its_share_and_never_all():
    part = form_of(WORDS, dropout=0.1)
    part.table.weight.data = torch.arange(60.0)[:, None].expand(60, 4).clone()
    ids = part.vocabulary.encode("concatenate")
    drawn = torch.stack([part(["concatenate"])[0, 0] for _ in range(400)])
    mean = np.mean(ids)
    # the mean of a random 90% of N numbers varies by about sigma sqrt(0.1 / 0.9 / N)
    spread = np.std(ids) * math.sqrt(0.1 / 0.9 / len(ids))
    assert abs(drawn.mean().item() - mean) < 4 * spread / 20
    assert drawn.std().item() == pytest.approx(spread, rel=0.25)
    part.eval()
    assert part(["concatenate"])[0, 0].item() == pytest.approx(mean)
    part.train().dropout = 0.999
    assert torch.isfinite(part(["a", "cat"])).all()


def test_ngrams_travel_with_the_weights():
    part, other = form_of(WORDS), form_of(["xyzzy", "xyzz"])
    assert other.vocabulary != part.vocabulary
    other.load_state_dict(part.state_dict())
    assert other.vocabulary == part.vocabulary
    assert_close(other(WORDS), part(WORDS))


@pytest.fixture
def words(tmp_path: Path) -> Path:
    WordCounts(tuple(WORDS), (9, 8, 7, 6, 5, 4)).write(tmp_path)
    return tmp_path


def model_of(words: Path, *settings: str) -> Model:
    """A small encoder with dropout, whose head has known n-grams."""
    small = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
    more = [f"data.path={words}", "heads.mimic.often=2", "heads.mimic.ngrams=60"]
    config = compose("pretrain", "bertram", [*small, *more, *settings])
    model = build_model(config, vocab_size=50, vocab=TINY, seed=0)
    with torch.no_grad():
        for parameter in model.backbone.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def batch_of(mode: str, groups: list[int], *, blank: int = 0) -> Batch:
    """Random rows, `groups` contexts of words 0, 1, ...; then rows that only fill the batch."""
    n, width = sum(groups) + blank, 12
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(8, 50, (n, width), generator=generator)
    length = torch.randint(8, width + 1, (n,), generator=generator)
    word = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(groups).long())
    pad = torch.full((blank,), IGNORE)
    length[n - blank :] = 0
    return Batch(
        key=torch.arange(n),
        seqs={"text": Seq(ids, length)},
        anchors=torch.stack([torch.arange(n), torch.arange(n) % 4 + 3], 1),
        labels={"word": torch.cat([word, pad]), "token": torch.cat([word + 20, pad])},
        values={
            "group": torch.cat([word + 5, torch.zeros(blank, dtype=torch.long)]),
            "mode": torch.full((n,), MODES.index(mode)),
        },
    )


def encode_by_hand(model: Model, batch: Batch, row: int, slot: int | None, form: Tensor) -> Tensor:
    """[H] the state at the mask of a row alone, whose token vectors are replaced by hand."""
    length = int(batch.text.length[row])
    embedding, place = model.backbone.embedding, int(batch.anchors[row, 1])
    vectors = [embedding.token.weight[i] for i in batch.text.ids[row, :length]]
    if slot is not None:
        vectors[slot] = form
    positions = model.backbone.position.table.weight[:length]
    x = torch.stack(vectors) + positions + embedding.segment.weight[0]
    alone = Batch(
        torch.arange(1),
        {"text": Seq(batch.text.ids[row : row + 1, :length], torch.tensor([length]))},
    )
    return model.backbone.encode(embedding.norm(x)[None], alone).last[0, place]


@pytest.mark.parametrize("mode", MODES)
def test_modes_by_hand(mode: str, words: Path):
    model = model_of(words).eval()
    head: MimicHead = model.heads["mimic"]
    batch, groups = batch_of(mode, [3, 1, 2]), [[0, 1, 2], [3], [4, 5]]
    found = make_vectors(model, batch, WORDS[:3], Groups.of(batch.values["group"]), mode=mode)
    for number, rows in enumerate(groups):
        form = head.form([WORDS[number]])[0]
        wanted = form
        if mode != "form":
            states = []
            for row in rows:
                slot = {"replace": int(batch.anchors[row, 1]), **SLOTS}.get(mode)
                states.append(encode_by_hand(model, batch, row, slot, form))
            h = torch.stack(states)
            u = h @ head.context.agree.weight.T + head.context.agree.bias
            s = u @ u.T / 16**0.5
            context = (s.sum(1) / s.sum()) @ h
            wanted = head.context.out.weight @ context + head.context.out.bias
        if mode == "shallow":
            alpha = torch.sigmoid(head.gate.weight[0] @ torch.cat([wanted, form]) + head.gate.bias)
            wanted = alpha * wanted + (1 - alpha) * form
        assert_close(found[number], wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", ["form", "add"])
def test_loss_is_the_mean_over_words_and_dimensions(mode: str, words: Path):
    model = model_of(words).eval()
    objective = Mimic(model=model, table_width=16, words=str(words))
    batch = batch_of(mode, [3, 1, 2], blank=3)
    real = replace(
        batch,
        seqs={"text": Seq(batch.text.ids[:6], batch.text.length[:6])},
        anchors=batch.anchors[:6],
    )
    groups = Groups.of(batch.values["group"][:6])
    found = make_vectors(model, real, WORDS[:3], groups, mode=mode)
    wanted = model.backbone.embedding.token.weight[20:23]
    out = objective(model, batch)
    assert objective.counts(batch) == {"mimic": 3 * 16}
    assert_close(out.terms["mimic"].total / (3 * 16), F.mse_loss(found, wanted))
    cosine, count = out.logs["cos/mimic"]
    assert_close(cosine / count, F.cosine_similarity(found, wanted).mean())
    empty = batch_of(mode, [], blank=2)
    assert objective.counts(empty) == {"mimic": 0}
    assert float(objective(model, empty).terms["mimic"].total) == 0


@pytest.mark.parametrize(
    ("trainable", "mode"),
    [
        (["heads.mimic.context"], "context"),
        (["heads.mimic.form"], "form"),
        (["heads.mimic.context", "heads.mimic.gate"], "add"),
        (["heads.mimic.context", "heads.mimic.gate"], "shallow"),
    ],
)
def test_frozen_parts_have_no_gradient_and_no_dropout(trainable, mode, words: Path):
    model = model_of(words, "model.embedding.dropout=0.5").train()
    apply_freezing(model, trainable=trainable)
    objective = Mimic(model=model, table_width=16, words=str(words))
    batch = batch_of(mode, [3, 2])
    losses = [objective(model, batch).terms["mimic"].total for _ in range(2)]
    if mode != "form":  # n-grams that are trained are left out at random
        assert_close(*losses)
    losses[0].backward()
    learned = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learned
    assert all(any(name.startswith(part) for part in trainable) for name in learned)
    assert ("heads.mimic.gate.weight" in learned) == (mode == "shallow")


def test_groups():
    groups = Groups.of(torch.tensor([4, 4, 7, 4]))
    assert groups.of_row.tolist() == [0, 0, 1, 2]
    assert groups.first.tolist() == [0, 2, 3]
    states, real = groups.gather(torch.arange(4.0)[:, None])
    assert states[..., 0].tolist() == [[0, 1], [2, 0], [3, 0]]
    assert real.tolist() == [[True, True], [True, False], [True, False]]


@pytest.mark.slow  # its loss falls in test_recipes.py, its modes are computed by hand
def test_stages_learn_and_leave_the_model_as_it_is(tmp_path: Path, tokens_of: Callable[..., Path]):
    """All three stages as a user starts them: the model's own weights stay, each part of the head
    changes.
    """
    from safetensors.torch import load_file
    from typer.testing import CliRunner

    from plmctl.cli.app import make_app

    def plmctl(*given: str) -> str:
        result = CliRunner().invoke(make_app(), list(given))
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    small = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
    few = ["train.batch_size=16", "train.eval_every=0", "eval.rows=16", "train.save_every=0"]
    folder = tmp_path / "bert"
    plmctl(
        *("pretrain", "bert", f"data.path={tokens_of('wordpiece')}", f"run.dir={folder}"),
        *(*small, *few, "train.steps=2"),
    )
    run = tmp_path / "bertram"
    output = plmctl(
        *("pretrain", "bertram", f"init={folder}", f"data.path={tokens_of.words()}"),
        *(f"run.dir={run}", *few, "train.steps=6", "train.keep_best=false", "train.keep_last=9"),
        "train.save_every=1",
    )
    assert "heads.mimic" in output
    before = load_file(folder / "checkpoints/step-2/model.safetensors")
    steps = [load_file(run / f"checkpoints/step-{n}/model.safetensors") for n in (3, 5, 6)]
    for name, tensor in before.items():
        if name.startswith("backbone."):
            assert all(tensor.equal(step[name]) for step in steps), name
    head = "heads.mimic."

    def changed(name: str, a: int, b: int) -> bool:
        return not steps[a][head + name].equal(steps[b][head + name])

    assert (steps[0][f"{head}form.letters"] != 0).sum() > 100
    assert not changed("form.letters", 0, 2)
    assert changed("form.table.weight", 0, 1)
    assert not changed("form.table.weight", 1, 2)
    assert not changed("context.agree.weight", 0, 1)
    assert changed("context.agree.weight", 1, 2)
