"""GISTEmbed against a loop over pairs and candidates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.distill.guided import Guided
from plmctl.distill.teachers import Frozen
from plmctl.models.base import Model
from plmctl.tasks import batches
from plmctl.text.tokenizer import Tokenizer
from tests.objectives.contrastive import encoder
from tests.tasks.test_sentence_tasks import make_task, write_pairs

TEXTS = ["a cat sat", "the dog ran to it", "one mat", "it sat on the mat", "a dog and a cat"]


def cosine(u: Tensor, v: Tensor) -> float:
    return float(u @ v / u.norm() / v.norm())


def loop(
    own: list[list[Tensor]], guide: list[list[Tensor]], t: float, margin: float, share: bool
) -> float:
    """The mean over questions [question, positive, negative]."""
    losses = []
    for i, (row, theirs) in enumerate(zip(own, guide, strict=True)):
        right = cosine(theirs[0], theirs[1])
        limit = right - margin * (abs(right) if share else 1)
        total = first = math.exp(cosine(row[0], row[1]) / t)
        for j, (other, known) in enumerate(zip(own, guide, strict=True)):
            pairs = [((row[0], other[2]), (theirs[0], known[2]))]
            if i != j:
                pairs += [((row[0], other[k]), (theirs[0], known[k])) for k in (0, 1)]
                pairs += [((row[1], other[1]), (theirs[1], known[1]))]
            total += sum(math.exp(cosine(*a) / t) for a, b in pairs if cosine(*b) <= limit)
        losses.append(-math.log(first / total))
    return float(np.mean(losses))


@pytest.mark.parametrize(("margin", "share"), [(0.0, False), (0.02, False), (0.1, True)])
def test_a_guide_leaves_out_candidates(margin: float, share: bool, tmp_path: Path) -> None:
    lines = [
        {"query": text, "positive": f"{text} on a mat", "negatives": [f"no {text} to it"]}
        for text in TEXTS
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = make_task("bi_encoder", file, "task.max_length=16", "task.matryoshka=[4]")
    words = [" ".join(map(str, line.values())) for line in lines]
    tokenizer = Tokenizer.train(words, kind="wordpiece", vocab_size=40)
    batch = batches.collate(task.encode(task.read("train"), tokenizer), np.arange(15))
    student, other = (Model(backbone=encoder(0.0).backbone, heads={}).eval() for _ in "ab")
    torch.manual_seed(5)
    for weights in other.backbone.parameters():
        weights.data += 0.3 * torch.randn_like(weights)
    guided = Guided(
        objective=task,
        teacher=Frozen(model=other, name="the guide"),
        temperature=0.05,
        margin=margin,
        relative=share,
        pooling="mean",
    )
    output = guided(student, batch)
    with torch.no_grad():
        own = task.logits(student, batch)["sentence"]
        guide = other(batch).last
        real = batch.text.real[..., None]
        guide = (guide * real).sum(1) / real.sum(1)
    own, guide = (list(x.view(5, 3, -1)) for x in (own, guide))
    wanted = sum(
        loop([list(row[:, :width]) for row in own], [*map(list, guide)], 0.05, margin, share)
        for width in (8, 4)
    )
    assert float(output.terms["sentence"].total.detach()) / 5 == pytest.approx(wanted, rel=1e-8)
    plain = loop([*map(list, own)], [*map(list, guide)], 0.05, -10.0, False)
    masked = loop([*map(list, own)], [*map(list, guide)], 0.05, margin, share)
    assert plain > masked + 1e-3  # the guide leaves out some
    assert output.contrasts["sentence"].beside["guide"].shape == (15, 8)
    assert not any(weights.requires_grad for weights in other.parameters())


def test_a_guide_needs_a_bi_encoder(tmp_path: Path) -> None:
    task = make_task("sentence_scores", write_pairs(tmp_path / "a.tsv", 2))
    teacher = Frozen(model=encoder(0.0), name="the guide")
    with pytest.raises(ConfigError, match="a task that compares questions with texts"):
        Guided(objective=task, teacher=teacher)
