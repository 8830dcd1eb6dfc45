"""Texts that join a running batch and leave it are those that `generate` writes for each prompt
alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.packed import Packed
from plmctl.generation.sample import Sample
from plmctl.generation.search import Hypothesis, Walking
from plmctl.generation.together import TextOrder, Together
from plmctl.models.base import Model
from tests.generation.test_reading import DECODER, SIZE, TWO, VOCAB, made

MODELS: dict[str, tuple[list[str], Any]] = {
    "learned positions": ([*DECODER, "position=learned"], None),
    "rotary positions": ([*DECODER, "position=rotary"], None),
    "relative positions": ([*DECODER, "position=relative_buckets"], None),
    "sinusoids, a window": ([*DECODER, "position=sinusoidal"], Causal() & Window(reach=3)),
    "encoder and decoder": ([*TWO, "position=learned"], None),
    "encoder and decoder, relative": ([*TWO, "position=alibi"], None),
}


def sample(**more: Any) -> Sample:
    return Sample(**{"temperature": 1.3, "top_k": None, "top_p": 1.0, "seed": 5} | more)


SEARCHES: list[Walking] = [
    Greedy(),
    sample(),
    sample(top_k=5, count=3),
    Greedy(min_length=4, no_repeat_ngram=2),
    sample(top_p=0.8, no_repeat_ngram=1),
    Greedy(first=9),
]


def batch_of(model: Model, some: list[list[int]]) -> Batch:
    length = torch.tensor([len(ids) for ids in some])
    ids = torch.tensor([[*ids, *[0] * (int(length.max()) - len(ids))] for ids in some])
    name = "source" if model.backbone.writes == "target" else "text"
    return Batch(torch.arange(len(ids)), {name: Seq(ids, length)})


def alone(model: Model, ids: list[int], order: TextOrder) -> list[Hypothesis]:
    search: Any = order.search
    batch = batch_of(model, [ids])
    how: Any = {"vocab": VOCAB, "max_new": order.max_new, "keys": [order.key]}
    return generate(model, batch, search=search, **how)[0]


def draw_orders(count: int) -> list[tuple[int, list[int], TextOrder]]:
    """(the step at which it comes, its prompt, the order), sorted by step."""
    draw = np.random.default_rng(7)
    searches = [SEARCHES[n % len(SEARCHES)] for n in range(count)]
    found = [
        (
            int(draw.integers(0, 7)),
            draw.integers(7, SIZE, draw.integers(1, 9)).tolist(),
            TextOrder(f"order {n}", search, key=n, max_new=int(draw.integers(1, 12))),
        )
        for n, search in enumerate(searches)
    ]
    return sorted(found, key=lambda each: each[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", list(MODELS))
def test_each_text_is_that_of_its_prompt_alone(name: str) -> None:
    model = made(*MODELS[name])
    orders = draw_orders(12)
    together, found, most, steps = Together(model, vocab=VOCAB), {}, 0, 0
    while len(found) < len(orders):
        some = [(ids, order) for at, ids, order in orders if at == steps]
        if some:
            together.join(batch_of(model, [ids for ids, _ in some]), [order for _, order in some])
        most = max(most, len(together))
        found |= dict(together.step())
        steps += 1
    assert most > 5  # many were written at the same time
    assert len(together) == 0
    for _, ids, order in orders:
        wanted, got = alone(model, ids, order), found[order.ticket]
        assert [text.ids for text in got] == [text.ids for text in wanted]
        assert [text.finished for text in got] == [text.finished for text in wanted]
        scores = [text.score for text in wanted]
        assert [text.score for text in got] == pytest.approx(scores, abs=1e-9)


def test_dropped_orders_leave_the_others_as_they_are() -> None:
    model = made([*DECODER, "position=learned"])
    given = [
        ([8, 9, 10, 11, 12], TextOrder("long", Greedy(), max_new=9)),
        ([7], TextOrder("short", sample(count=2), key=3, max_new=9)),
    ]
    together = Together(model, vocab=VOCAB)
    together.join(batch_of(model, [ids for ids, _ in given]), [order for _, order in given])
    assert len(together) == 3
    together.step()
    together.drop(lambda ticket: ticket == "long")
    assert len(together) == 2
    found: dict[Any, list[Hypothesis]] = {}
    while len(together):
        found |= dict(together.step())
    assert list(found) == ["short"]
    wanted = alone(model, *given[1])
    assert [text.ids for text in found["short"]] == [text.ids for text in wanted]
    together.join(batch_of(model, [given[0][0]]), [given[0][1]])
    together.drop(lambda ticket: True)
    assert len(together) == 0
    assert together.step() == []


def test_padding_that_nobody_needs_is_forgotten() -> None:
    model = made([*DECODER, "position=learned"])
    together = Together(model, vocab=VOCAB)
    together.join(batch_of(model, [[*range(7, 15)]]), [TextOrder("long", Greedy(), max_new=2)])
    together.join(batch_of(model, [[7, 8]]), [TextOrder("short", Greedy(first=9), max_new=9)])
    assert together.running is not None
    assert together.running.reading.cache.length == 8
    together.step()
    together.step()
    assert together.running.reading.cache.length == 4  # 2 of the prompt, 2 that are written


def test_weights_are_packed_while_texts_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made([*DECODER, "position=learned"]).float()
    maps = [part for part in model.modules() if type(part) is nn.Linear]
    together = Together(model, vocab=VOCAB)
    with pytest.raises(DataError, match="empty"):
        together.join(
            batch_of(model, [[7], []]), [TextOrder(n, Greedy(), max_new=3) for n in range(2)]
        )
    assert not any("forward" in vars(part) for part in maps)
    together.join(batch_of(model, [[7, 8]]), [TextOrder("a", Greedy(), max_new=3)])
    assert all(isinstance(part.forward, Packed) for part in maps)
    while len(together):
        together.step()
    assert not any("forward" in vars(part) for part in maps)


def test_a_model_that_keeps_more_than_keys_takes_one_batch_at_a_time() -> None:
    model = made(["model=memory_decoder", *DECODER[1:]])
    together = Together(model, vocab=VOCAB)
    assert together.joins
    together.join(
        batch_of(model, [[7, 8], [9]]), [TextOrder(n, Greedy(), max_new=3) for n in range(2)]
    )
    assert not together.joins
    found: dict[Any, list[Hypothesis]] = {}
    while len(together):
        found |= dict(together.step())
    assert together.joins
    for ticket, ids in enumerate([[7, 8], [9]]):
        wanted = alone(model, ids, TextOrder(ticket, Greedy(), max_new=3))
        assert [text.ids for text in found[ticket]] == [text.ids for text in wanted]
