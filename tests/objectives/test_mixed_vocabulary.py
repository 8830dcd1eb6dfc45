"""The masked loss of two vocabularies, as a loop over tokens; what the model gets without the
smaller one is the plain loss, bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.encoder import token_positions
from plmctl.objectives.base import Output
from plmctl.objectives.mixed_vocabulary import MixedMLM
from tests.noise.test_mixed_vocabulary import LARGE, SMALL, make, make_rows

SIZE = ["size=tiny", "size.width=16", "size.inner_width=16", "size.num_heads=2"]
LINE = [*SIZE, "size.num_layers=1", "format.max_length=24", "train.batch_size=4"]
OWN = "objective.mixed_vocabulary.small_width=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("small")
    SMALL.save(home)
    return home


def build(folder: Path) -> tuple[Model, MixedMLM]:
    given = f"noise.mixed_vocabulary.path={folder}"
    cfg = compose("pretrain", "mixed_vocabulary", [*LINE, given, OWN])
    model = build_model(cfg, vocab_size=LARGE.vocab.size, vocab=LARGE.vocab, seed=0).eval()
    mix = build_objective(cfg.objective, model, LARGE.vocab, seed=0)
    return model, mix.parts["mixed_vocabulary"]  # type: ignore[return-value]


def batch_of(folder: Path, share: float) -> Batch:
    noise = make(folder, share=share, rate=0.3)
    return collate(noise(make_rows(4, 5, 24), Draws(0, 0)), noise.capacity(24))


def run(objective: torch.nn.Module, model: Model, batch: Batch) -> tuple[Output, list[Tensor]]:
    """The output, and the gradients of the model."""
    model.zero_grad()
    out = objective(model, batch)
    out.terms["mlm"].total.backward()
    return out, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_the_loss_is_a_loop_over_the_tokens_of_both_vocabularies(folder: Path) -> None:
    (model, objective), batch = build(folder), batch_of(folder, 0.5)
    table, head = model.backbone.token_embedding.weight, model.heads["mlm"]
    narrow, project = objective.small.vectors.weight, objective.small.project
    mapped = torch.stack([project.weight @ e + project.bias for e in narrow])  # [V, 16]
    text = batch.text
    vectors = torch.stack([
        torch.stack([mapped[s] if s >= 0 else table[i] for i, s in zip(*pair, strict=True)])
        for pair in zip(text.ids.tolist(), text.tracks["small"].tolist(), strict=True)
    ])  # fmt: skip
    backbone = model.backbone
    x = backbone.embedding(text, backbone.position, token_positions(text, 0), vectors)
    states = head.transform_states(backbone.encode(x, batch).last).flatten(0, 1)
    total, counted = torch.zeros(()), {}
    outputs = {"mlm": (table, head.bias), "small_mlm": (mapped, objective.head.bias)}
    for name, (rows, bias) in outputs.items():
        size = (LARGE if name == "mlm" else SMALL).vocab.size
        targets, counted[name] = batch.targets[name], 0
        for index, token in zip(targets.index.tolist(), targets.ids.tolist(), strict=True):
            if token != IGNORE:
                logits = rows[:size] @ states[index] + bias[:size]
                total, counted[name] = total - logits.log_softmax(0)[token], counted[name] + 1
    out, _ = run(objective, model, batch)
    assert_close(out.terms["mlm"].total, total)
    assert min(counted.values()) > 0
    assert objective.counts(batch) == {"mlm": sum(counted.values())}
    assert project.weight.grad.abs().sum() > 0
    assert narrow.grad[batch.targets["small_mlm"].ids.clamp(min=0)].abs().sum() > 0


def test_rows_of_the_large_vocabulary_give_the_plain_loss(folder: Path) -> None:
    """Bit for bit, gradients as well: with share=0, and for rows of another noise."""
    (model, objective), batch = build(folder), batch_of(folder, 0)
    cfg = compose("pretrain", "bert", [*LINE, "objective=[mlm]"])
    plain = build_objective(cfg.objective, model, LARGE.vocab, seed=0)
    wanted, gradients = run(plain, model, batch)
    found, same = run(objective, model, batch)
    assert torch.equal(found.terms["mlm"].total, wanted.terms["mlm"].total)
    assert all(map(torch.equal, same, gradients))
    assert found.logs["acc/mlm"][0] == wanted.logs["acc/mlm"][0]
    tracks = {name: x for name, x in batch.text.tracks.items() if name != "small"}
    bare = Batch(
        batch.key,
        {"text": type(batch.text)(batch.text.ids, batch.text.length, tracks)},
        {"mlm": batch.targets["mlm"]},
        counts={"mlm": batch.counts["mlm"]},
    )
    objective.eval()
    assert torch.equal(objective(model, bare).terms["mlm"].total, wanted.terms["mlm"].total)
    assert objective.counts(bare) == {"mlm": batch.counts["mlm"]}
    with pytest.raises(ConfigError, match=r"fix: 'noise=\[mixed_vocabulary\]"):
        objective.train().counts(bare)


def test_rows_of_the_smaller_one_alone_leave_the_table_of_the_model(folder: Path) -> None:
    (model, objective), batch = build(folder), batch_of(folder, 1)
    run(objective, model, batch)
    assert (model.backbone.token_embedding.weight.grad == 0).all()
    assert model.heads["mlm"].dense.weight.grad.abs().sum() > 0


def test_the_teacher_is_an_encoder() -> None:
    model = Model(backbone=torch.nn.Identity(), heads={})
    with pytest.raises(ConfigError, match="an Encoder: BERT"):
        MixedMLM(model=model, table_width=4, path=None, small_width=2)
