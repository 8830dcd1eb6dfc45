"""Targets that are hidden and asked at their own places, as UniLM fine-tunes (Dong et al., 2019,
sec. 2.5).
"""

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.tasks import batches, inference
from tests.tasks.test_generation_task import (
    EXAMPLES,
    KINDS,
    PAIRS,
    SEGMENTS,
    _model,
    _predicted,
    _task,
)

PREFIXES = ("prefix", "unilm")


def _made(kind, toy, *words):
    given = {"writes": "text", "segments": SEGMENTS.get(kind, (0, 1))}
    task = _task("task.masked=0.7", "task.metrics=[exact,perplexity]", *words, **given)
    toy.decode = lambda ids, skip_special=True: " ".join(
        str(i) for i in ids if not (skip_special and toy.vocab.special[i])
    )
    return task, _model(task, toy.vocab, *KINDS[kind][0])


def _target(toy, number):
    return [*toy.encode(PAIRS[number][1])[:7], toy.vocab.eos]


@pytest.mark.parametrize("kind", PREFIXES)
def test_only_the_target_is_hidden_and_its_end_may_be(kind, toy):
    task, _ = _made(kind, toy)
    rows = task.encode(EXAMPLES * 40, toy)
    seen = task.noise(toy.vocab)(rows, Draws(0, 0))
    written = (rows.seqs["text"].tracks["segment"] == task.segments[1]) & rows.seqs["text"].real
    asked = seen.targets["mlm"] != IGNORE
    changed = seen.seqs["text"].ids != rows.seqs["text"].ids
    assert not (asked & ~written).any()
    assert not (changed & ~asked).any()
    assert (seen.targets["mlm"][asked] == rows.seqs["text"].ids[asked]).all()
    for row in range(len(rows.key)):
        assert asked[row].sum() == max(1, round(0.7 * (len(_target(toy, row % 3)) - 1)))
    ends = rows.seqs["text"].length - 1
    share = np.mean([asked[row, end] for row, end in enumerate(ends)])
    assert 0.2 < share < 0.9  # a candidate like the others
    assert 0.6 < (seen.seqs["text"].ids[asked] == toy.vocab.mask).mean() < 0.95


def test_every_epoch_hides_others_and_the_same_again(toy):
    task, _ = _made("unilm", toy)
    rows = task.encode(EXAMPLES * 4, toy)

    def epochs():
        made = batches.Batches(
            rows, batch_size=12, micro_batch_size=None, seed=5, noise=task.noise(toy.vocab)
        )
        found = []
        for _ in range(2):
            batch = next(made)[0]
            found.append(batch.text.ids[batch.key.argsort()])
            assert batch.counts["mlm"] == batch.targets["mlm"].count
        return found

    first, second = epochs()
    assert not torch.equal(first, second)
    assert all(
        torch.equal(one, other) for one, other in zip((first, second), epochs(), strict=True)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spread", ["all", "others", None])
@pytest.mark.parametrize("kind", PREFIXES)
def test_the_loss_is_that_of_the_hidden_places(kind, spread, toy):
    """Unless told otherwise, smoothed as UniLM's code does it: over the others than the right
    token and the padding.
    """
    task, model = _made(kind, toy, "task.smoothing=0.1", f"task.spread={spread or 'null'}")
    rows = task.noise(toy.vocab)(task.encode(EXAMPLES, toy), Draws(1, 0))
    batch = batches.collate(rows, np.arange(3))
    expected, count = 0.0, 0
    for number in range(3):
        alone = batches.collate(rows, np.array([number]))
        logp = model.heads["mlm"](model(alone).last[0]).log_softmax(-1).detach()
        for place, token in enumerate(rows.targets["mlm"][number]):
            if token != IGNORE:
                others = [
                    v
                    for v in range(toy.vocab.size)
                    if spread == "all" or v not in (token, toy.vocab.pad)
                ]
                expected -= float(0.9 * logp[place, token] + 0.1 * logp[place, others].mean())
                count += 1
    assert task(model, batch).terms["mlm"].total.item() == pytest.approx(expected, abs=1e-9)
    assert task.counts(batch) == {"mlm": count}


@torch.no_grad()
def _at_mask(task, model, toy, number, before):
    """log p of what stands behind `before` in the target: the row up to there, and a mask behind
    it, nothing remembered.
    """
    source = toy.encode(PAIRS[number][0])
    prompt = [toy.vocab.id("cls"), *source, toy.vocab.id("sep")]
    ids = torch.tensor([[*prompt, *before, toy.vocab.mask]])
    segment = torch.full_like(ids, task.segments[1])
    segment[:, : len(prompt)] = task.segments[0]
    batch = Batch(
        torch.arange(1), {"text": Seq(ids, torch.tensor([ids.shape[1]]), {"segment": segment})}
    )
    return model.heads["mlm"](model(batch).last[0, -1]).log_softmax(-1)


@pytest.mark.parametrize("kind", PREFIXES)
def test_texts_and_their_likelihood_are_asked_at_masks(kind, toy):
    """With the cache, in a batch of rows of different lengths, as without one row by row."""
    task, model = _made(kind, toy)
    found, loss = _predicted(model, task, inference.encode_split(task, "dev", EXAMPLES, toy))
    total = 0.0
    for number, prediction in enumerate(found):
        text = []
        while len(text) < task.max_target:
            token = int(_at_mask(task, model, toy, number, text).argmax())
            if token == toy.vocab.eos:
                break
            text.append(token)
        assert prediction["guess"] == toy.decode(text)
        gold = _target(toy, number)
        nll = -sum(
            float(_at_mask(task, model, toy, number, gold[:t])[token])
            for t, token in enumerate(gold)
        )
        assert prediction["nll"] == pytest.approx(nll, rel=1e-6)
        assert prediction["tokens"] == len(gold)
        total += nll
    assert loss == pytest.approx(total / sum(len(_target(toy, n)) for n in range(3)), rel=1e-6)


def test_what_cannot_be_masked_is_refused(toy, gpt_toy):
    with pytest.raises(
        ConfigError,
        match=r"(?s)task.masked=0.7: for a model that reads source and target in one row.*unilm",
    ):
        _task("task.masked=0.7", writes="target")
    with pytest.raises(ConfigError, match=r"task.masked=1.0: 0 < masked < 1"):
        _task("task.masked=1.0", writes="text")
    with pytest.raises(ConfigError, match=r"(?s)needs a mask token.*fix: task.masked=null"):
        _task("task.masked=0.5", writes="text").noise(gpt_toy.vocab)
