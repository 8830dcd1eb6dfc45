"""Losses of scored pairs, and losses of the first columns, against loops over pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.tasks import batches
from plmctl.tasks.pair_losses.angle import AnglE, find_angles
from plmctl.tasks.pair_losses.base import PairLoss
from plmctl.tasks.pair_losses.cosent import CoSENT
from plmctl.tasks.pair_losses.squared import SquaredError
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.processes.world import World
from plmctl.training.together import join
from tests.objectives.contrastive import W, encoder
from tests.tasks.test_sentence_tasks import make_task, write_pairs, write_questions

GOLD = torch.tensor([0.9, 0.1, 0.5, 0.1, 0.5], dtype=torch.float64)


def cosine(u: Tensor, v: Tensor) -> float:
    return float(u @ v / u.norm() / v.norm())


def angle(u: Tensor, v: Tensor) -> float:
    half = len(u) // 2
    z, w = (torch.complex(x[:half], x[half:]) for x in (u, v))
    ratio = (z * w.conj()).sum() / (w.abs().square().sum())
    ratio = ratio * w.abs().square().sum().sqrt() / z.abs().square().sum().sqrt()
    return abs(float(ratio.real + ratio.imag))


def rank(likenesses: list[float], gold: Tensor, scale: float) -> float:
    wrong = [
        math.exp(scale * (a - b))
        for a, y in zip(likenesses, gold, strict=True)
        for b, z in zip(likenesses, gold, strict=True)
        if y < z
    ]
    return math.log(1 + sum(wrong))


def rank_by(like: Callable[[Tensor, Tensor], float], u: Tensor, v: Tensor, scale: float) -> float:
    return rank([like(*pair) for pair in zip(u, v, strict=True)], GOLD, scale)


def wanted_of(loss: PairLoss, u: Tensor, v: Tensor) -> float:
    """The mean over the pairs of an update."""
    wanted = {
        SquaredError: lambda: float(
            np.mean([(cosine(a, b) - y) ** 2 for a, b, y in zip(u, v, GOLD.tolist(), strict=True)])
        ),
        CoSENT: lambda: rank_by(cosine, u, v, 20.0),
        AnglE: lambda: rank_by(angle, u, v, 5.0) + 0.5 * rank_by(cosine, u, v, 5.0),
    }
    return wanted[type(loss)]()


@pytest.mark.parametrize("loss", [SquaredError(), CoSENT(), AnglE(scale=5.0, cosine=0.5)])
def test_losses_of_pairs(loss: PairLoss) -> None:
    torch.manual_seed(0)
    u, v = torch.randn(2, 5, 6, dtype=torch.float64)
    found = float(loss.sum_up(loss.rate(u, v), GOLD)) / len(GOLD)
    assert found == pytest.approx(wanted_of(loss, u, v), rel=1e-10)


def test_known_values_of_rankings() -> None:
    gold = torch.tensor([1.0, 0.0, 0.5])
    for cosines, wanted in (((0.9, 0.5, 0.7), 0.0363), ((0.5, 0.9, 0.7), 8.0363)):
        found = CoSENT().sum_up(torch.tensor(cosines)[:, None], gold) / 3
        assert float(found) == pytest.approx(wanted, abs=1e-4)
    assert float(CoSENT().sum_up(torch.ones(2, 1), torch.ones(2))) == 0  # no order
    right = torch.eye(2)
    assert float(find_angles(right[:1], right[1:])) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="an even width"):
        AnglE().rate(torch.ones(1, 3), torch.ones(1, 3))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["the cat sat on a mat, and one dog ran to it; where is here, not"] * 3
    return Tokenizer.train(texts, kind="wordpiece", vocab_size=40)


def test_pairs_of_several_micro_batches_are_compared(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "pairs.tsv", 2)
    task = make_task("sentence_scores", file, "pair_loss@task.loss=angle", "task.matryoshka=[4]")
    rows = task.encode(task.read("train"), tokenizer)
    model = Model(backbone=encoder(0.0).backbone, heads={}).eval()

    def compute(*numbers: int) -> Output:
        batch = batches.collate(rows, np.array(numbers))
        out: Output = task.loss(task.logits(model, batch), batch)
        return out

    whole, parts = compute(*range(8)), [compute(*range(4)), compute(*range(4, 8))]
    contrasts = [{("text", "pairs"): part.contrasts["sentence"]} for part in parts]
    (joined,) = join(contrasts, World(), nullcontext).values()
    term, found = whole.terms["sentence"], joined.output.terms["sentence"]
    torch.testing.assert_close(found.total, term.total.detach(), check_dtype=False)
    assert found.count == term.count == 4
    apart = sum(float(part.terms["sentence"].total.detach()) for part in parts)
    assert apart != pytest.approx(float(term.total.detach()))


WORDS = {
    "sentence_scores": ("pair_loss@task.loss=cosent",),
    "sentence_triplets": (),
    "bi_encoder": ("task.likeness=cosine", "task.temperature=0.1"),
}


@pytest.mark.parametrize("kind", WORDS)
def test_losses_of_first_columns(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The loss is the sum of the losses of models whose vectors are narrower."""
    if kind == "sentence_scores":
        path = write_pairs(tmp_path / "pairs.tsv", 2)
    else:
        path = write_questions(tmp_path / "data") / "train.jsonl"
    nested, plain = (
        make_task(kind, path, *WORDS[kind], f"task.matryoshka={widths}", "task.max_length=16")
        for widths in ([4, 2], [])
    )
    examples = plain.read("train")[:4]
    batch = batches.collate(plain.encode(examples, tokenizer), np.arange(4 * 2))
    model = Model(backbone=encoder(0.0).backbone, heads={}).eval()

    def measure(task: Any, width: int) -> float:
        cut = torch.nn.Module()
        cut.forward = lambda x: x[..., :width]  # type: ignore[method-assign]
        model.heads["sentence"] = cut
        with torch.no_grad():
            out = task.loss(task.logits(model, batch), batch)
        return float(out.terms["sentence"].total)

    wanted = sum(measure(plain, width) for width in (W, 4, 2))
    assert measure(nested, W) == pytest.approx(wanted, rel=1e-6)
    assert measure(plain, 2) != pytest.approx(measure(plain, W))


def test_widths_that_no_vector_has(tmp_path: Path) -> None:
    model = Model(backbone=encoder(0.0).backbone, heads={})
    task = make_task("bi_encoder", tmp_path, f"task.matryoshka=[{W}]")
    with pytest.raises(ConfigError, match=rf"task\.matryoshka={W}: less than {W}"):
        task.check_model(model)
    for widths in ("[2,2]", "[0]"):
        with pytest.raises(ConfigError, match=r"task\.matryoshka"):
            make_task("bi_encoder", tmp_path, f"task.matryoshka={widths}")


def test_a_search_by_first_columns(tmp_path: Path) -> None:
    torch.manual_seed(1)
    q, d = torch.randn(2, 6), torch.randn(9, 6)
    names = [str(number) for number in range(9)]
    settings = ("task.likeness=cosine", "task.dimensions=3")
    task = make_task("bi_encoder", tmp_path, *settings)
    for row, found in zip(q, task.search(q.numpy(), d.numpy(), names, top=9), strict=True):
        cosines = [cosine(row[:3], each[:3]) for each in d]
        assert found.numbers.tolist() == sorted(range(9), key=lambda n: -cosines[n])
        assert found.scores.tolist() == pytest.approx(sorted(cosines, reverse=True), abs=1e-6)
    task = make_task("bi_encoder", tmp_path, "task.dimensions=7")
    with pytest.raises(ConfigError, match=r"task\.dimensions=7: at most 6"):
        list(task.search(q.numpy(), d.numpy(), names, top=9))
