"""Searches on a model that is a table: against loops written from the definitions, and what they
refuse.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.generation.beam import Beam, keep_order, take_best
from plmctl.generation.constrained import Constrained
from plmctl.generation.contrastive import Contrastive
from plmctl.generation.diverse import Diverse
from plmctl.generation.greedy import Greedy, find_best
from plmctl.generation.sample import Sample
from plmctl.generation.search import Start, find_repeats

SIZE, END = 7, 0


class Table:
    """A Step: `log p(v | u, w)` by the last two tokens u, w; the row's own number stands for
    them at the beginning.
    """

    def __init__(self, rows: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logp = torch.log_softmax(
            2 * torch.randn(SIZE, SIZE, SIZE, generator=generator, dtype=torch.float64), -1
        )
        self.last = torch.stack([torch.arange(rows) % SIZE] * 2, 1)
        self.vectors = torch.randn(SIZE, SIZE, 3, generator=generator, dtype=torch.float64)

    def begin(self) -> Tensor:
        return self.logp[self.last[:, 0], self.last[:, 1]].clone()

    @property
    def states(self) -> Tensor:
        return self.vectors[self.last[:, 0], self.last[:, 1]][:, None]

    @property
    def real(self) -> Tensor:
        return torch.ones(len(self.last), 1, dtype=torch.bool)

    def show(self, row: int, text: tuple[int, ...]) -> Tensor:
        before = [row % SIZE, row % SIZE, *text]
        return self.vectors[before[-2], before[-1]]

    def advance(self, tokens: Tensor) -> Tensor:
        self.last = torch.stack([self.last[:, 1], tokens], 1)
        return self.begin()

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        assert not same_prompt or len(rows) == len(self.last)
        self.last = self.last[rows]

    def next(self, row: int, text: tuple[int, ...]) -> list[float]:
        before = [row % SIZE, row % SIZE, *text]
        found: list[float] = self.logp[before[-2], before[-1]].tolist()
        return found


def start(step: Table, limits: list[int], **more: Any) -> Start:
    return Start(step.begin(), limits=np.array(limits), end=END, **more)


Text = tuple[tuple[int, ...], float]  # its tokens and its score


def slow_beam(
    table: Table, row: int, search: Beam, limit: int, choose: Any = None, met: Any = None
) -> list[Text]:
    """One row, one text at a time, as the docstrings say it.

    Args:
        choose: The texts that are considered, of all longer ones; None: the best.
        met: The tokens of phrases that a text has; None: there are none.
    """
    groups = getattr(search, "groups", 1)
    width, met = search.width // groups, met or (lambda text: 0)
    texts: list[list[Text]] = [[((), 0.0)] for _ in range(groups)]
    done: list[list[Text]] = [[] for _ in range(groups)]
    for length in range(1, limit + 1):
        taken: Counter[int] = Counter()
        for group in range(groups):
            longer = []
            for text, total in texts[group]:
                n = search.no_repeat_ngram
                grams = {text[i : i + n] for i in range(len(text) - n + 1)} if n else set()
                banned = {gram[-1] for gram in grams if gram[:-1] == text[len(text) - n + 1 :]}
                if length <= search.min_length or met(text) < met(None):
                    banned.add(END)
                for token, gain in enumerate(table.next(row, text)):
                    lowered = getattr(search, "diversity", 0.0) * taken[token]
                    if token not in banned:
                        longer.append(((*text, token), total + gain - lowered))
            longer = sorted(longer, key=lambda it: -it[1])
            longer = (longer if choose is None else choose(longer, width, length == limit))[
                : 2 * width
            ]
            taken.update([text[-1] for text, _ in longer if text[-1] != END][:width])
            closes = [text[-1] == END or length == limit for text, _ in longer]
            penalty = divisor(search, length)
            done[group] += [
                (t, s / penalty)
                for (t, s), c in list(zip(longer, closes, strict=True))[:width]
                if c
            ]
            done[group] = sorted(done[group], key=lambda it: (-met(it[0]), -it[1]))[:width]
            open_ = [it for it, c in zip(longer, closes, strict=True) if not c][:width]
            if open_ and len(done[group]) == width:
                far = limit if search.early == "never" and search.alpha > 0 else length
                best = max(total for _, total in open_) / divisor(search, far)
                if search.early is True or best <= done[group][-1][1]:
                    open_ = []
            texts[group] = open_
    every = sorted(sum(done, []), key=lambda it: (-met(it[0]), -it[1]))  # noqa: RUF017
    return [
        (tuple(token for token in text if token != END), score)
        for text, score in every[: search.count]
    ]


def divisor(search: Beam, length: int) -> float:
    base = length if search.penalty == "length" else (5 + length) / 6
    return float(base**search.alpha)


def same_texts(search: Beam, limits: list[int], seed: int, **more: Any) -> list[list[Text]]:
    """The texts of all rows, which are those of the slow search."""
    table, every = Table(len(limits), seed), []
    for row, found in enumerate(search(table, start(table, limits))):
        wanted = slow_beam(Table(len(limits), seed), row, search, limits[row], **more)
        assert [tuple(text.ids) for text in found] == [text for text, _ in wanted]
        np.testing.assert_allclose(
            [text.score for text in found], [score for _, score in wanted], rtol=1e-12
        )
        every.append([(tuple(text.ids), text.score) for text in found])
    return every


@pytest.mark.sampled(3)
@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("penalty", ["length", "gnmt"])
@pytest.mark.parametrize(
    "more", [{}, {"width": 1}, {"width": 7}, {"min_length": 3}, {"no_repeat_ngram": 2}], ids=str
)
def test_beam_is_the_slow_one(early: Any, penalty: Any, more: dict[str, Any]) -> None:
    limits = [6, 1, 9, 4, 6]
    for seed, alpha in enumerate((0.0, 0.6, 1.5)):
        search = Beam(
            **{"width": 3, "count": min(3, more.get("width", 3))} | more,
            alpha=alpha,
            penalty=penalty,
            early=early,
        )
        found = same_texts(search, limits, seed)
        assert [len(texts) for texts in found] == [search.count] * len(limits)


@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_diverse_beams_are_the_slow_ones(groups: int, early: Any) -> None:
    how: Any = {"width": 6, "groups": groups, "alpha": 0.6, "penalty": "length", "early": early}
    found = {}
    for diversity in (0.0, 0.7):
        search = Diverse(**how, diversity=diversity, count=5, no_repeat_ngram=3)
        found[diversity] = same_texts(search, [6, 1, 9, 4, 6], seed=groups)
    first = [{text for text, _ in texts} for texts in found[0.0]]
    if groups > 1:  # equal groups write equal texts, others do not
        assert all(len(texts) <= 6 // groups for texts in first)
        assert sum(len({text for text, _ in texts}) for texts in found[0.7]) > sum(map(len, first))


def count_met(phrases: list[tuple[int, ...]], text: tuple[int, ...] | None) -> int:
    """The tokens of phrases in a text; None: all."""
    total = 0
    for phrase in phrases:
        size = len(phrase)
        if text is None or any(text[i : i + size] == phrase for i in range(len(text) - size + 1)):
            total += size
        else:
            total += max(k for k in range(size) if text[len(text) - k :] == phrase[:k])
    return total


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    "phrases", [[(3,)], [(4, 2), (5,)], [(1, 1, 2)], [(2, 6), (6, 3)], [(3, 3), (1, 4, 1, 5)]]
)
def test_constrained_beams_are_the_slow_ones(phrases: list[tuple[int, ...]], early: bool) -> None:
    met = partial(count_met, phrases)

    def take_turns(longer: list[Text], width: int, last: bool) -> list[Text]:
        best = [
            next(it for it in longer if it[0][:-1] == own) for own in {t[:-1] for t, _ in longer}
        ]
        ahead = [it for it in longer if met(it[0]) > met(it[0][:-1])]
        considered = {*longer[: 2 * width], *best, *ahead}
        banks: dict[int, list[Text]] = {}
        for it in sorted(considered, key=lambda it: -it[1]):
            banks.setdefault(met(it[0]), []).append(it)
        if last:
            return [it for bank in sorted(banks, reverse=True) for it in banks[bank]]
        turns = []
        while banks:
            for bank in sorted(banks, reverse=True):
                turns.append(banks[bank].pop(0))
                banks = {key: rest for key, rest in banks.items() if rest}
        return turns

    how: Any = {"alpha": 0.6, "penalty": "length", "early": early, "phrases": phrases}
    limits = [6, 2, 9, 4]
    for width, count in ((3, 3), (1, 1)):
        search = Constrained(width=width, count=count, **how)
        found = same_texts(search, limits, 1, choose=take_turns, met=met)
        for limit, texts in zip(limits, found, strict=True):
            assert met(texts[0][0]) == met(None) or limit < met(None)


def test_contrastive_search_is_the_slow_one() -> None:
    limits = [8, 1, 8, 8, 3]
    for alpha, top_k in ((0.6, 4), (0.0, 4), (1.0, 3), (0.5, 1)):
        table, same = Table(5), 0
        search = Contrastive(top_k=top_k, alpha=alpha)
        for row, (text,) in enumerate(search(table, start(table, limits))):
            ids: tuple[int, ...] = ()
            score, before = 0.0, [table.show(row, ids)]
            while len(ids) < limits[row] and END not in ids:
                gains = table.next(row, ids)
                best = sorted(range(SIZE), key=lambda token: -gains[token])[:top_k]
                values = []
                for token in best:
                    own = table.show(row, (*ids, token))
                    near = max(float(torch.cosine_similarity(own, each, 0)) for each in before)
                    values.append((1 - alpha) * math.exp(gains[token]) - alpha * near)
                token = best[values.index(max(values))]
                same += token == best[0]
                score, ids = score + gains[token], (*ids, token)
                before.append(table.show(row, ids))
            assert text.ids == [token for token in ids if token != END]
            assert (text.finished, text.score) == (END in ids, pytest.approx(score, rel=1e-12))
        assert alpha == 0 or top_k == 1 or same < sum(limits)


def test_greedy_follows_the_largest_and_says_its_score() -> None:
    table, limits = Table(5), [8, 1, 8, 8, 3]
    for row, (text,) in enumerate(Greedy()(table, start(table, limits))):
        ids: tuple[int, ...] = ()
        score = 0.0
        while len(ids) < limits[row] and END not in ids:
            gains = table.next(row, ids)
            score += max(gains)
            ids = (*ids, gains.index(max(gains)))
        assert (text.finished, text.ids) == (END in ids, [token for token in ids if token != END])
        assert text.score == pytest.approx(score, rel=1e-12)


def test_beam_1_is_greedy() -> None:
    table, other = Table(4, 3), Table(4, 3)
    beam = Beam(width=1, alpha=0.0, penalty="length", early=True)
    assert [t[0].ids for t in beam(table, start(table, [9] * 4))] == [
        t[0].ids for t in Greedy()(other, start(other, [9] * 4))
    ]


FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"top_k": 3},
    {"temperature": 2.0, "top_p": 0.7},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.8},
    {"top_p": 1e-6},
    {"min_p": 0.3},
    {"min_p": 1.0, "typical_p": 0.9},
    {"typical_p": 0.2},
    {"typical_p": 0.8, "temperature": 1.5},
    {"temperature": 1.6, "top_k": 9, "top_p": 0.95, "min_p": 0.1, "typical_p": 0.7},
]


@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_draws_have_the_shares_of_the_published_filters(given: dict[str, Any]) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    logp = torch.log_softmax(
        torch.randn(1, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64), -1
    )
    wanted = logp
    for name, warper in (  # in the order of `transformers`
        ("temperature", process.TemperatureLogitsWarper),
        ("top_k", process.TopKLogitsWarper),
        ("top_p", process.TopPLogitsWarper),
        ("min_p", process.MinPLogitsWarper),
        ("typical_p", process.TypicalLogitsWarper),
    ):
        wanted = warper(given[name])(None, wanted) if name in given else wanted
    wanted = torch.softmax(wanted, -1)[0]
    every = 20_000
    search = Sample(**{"temperature": 1.0, "top_k": None, "top_p": 1.0, "seed": 0} | given)
    drawn = search.draw(logp.expand(every, -1).clone(), torch.arange(every) / every)
    shares = torch.bincount(drawn, minlength=11) / every
    torch.testing.assert_close(shares.double(), wanted, atol=2 / every, rtol=0)


def test_a_prompts_texts_depend_on_seed_and_number_alone() -> None:
    search = Sample(temperature=1.0, top_k=None, top_p=1.0, seed=5, count=3)
    table = Table(4)
    together = search(table, start(table, [6] * 4, keys=[10, 11, 12, 13]))
    for row in range(4):
        alone = Table(4)
        alone.last = alone.last[[row]]
        assert search(alone, start(alone, [6], keys=[10 + row])) == [together[row]]
    other = Sample(temperature=1.0, top_k=None, top_p=1.0, seed=6, count=3)
    table = Table(4)
    assert other(table, start(table, [6] * 4, keys=[10, 11, 12, 13])) != together
    assert len({tuple(text.ids) for texts in together for text in texts}) > 6
    assert all(
        [t.score for t in texts] == sorted((t.score for t in texts), reverse=True)
        for texts in together
    )


def test_sampled_texts_have_the_models_distribution() -> None:
    table, count = Table(1), 4000
    search = Sample(temperature=1.0, top_k=None, top_p=1.0, seed=1, count=count)
    (texts,) = search(table, start(table, [2]))
    shares = Counter((tuple(text.ids), text.finished) for text in texts)
    fresh = Table(1)
    for text in texts[:50]:
        ids = (*text.ids, END) if text.finished else tuple(text.ids)
        total = sum(fresh.next(0, ids[:place])[token] for place, token in enumerate(ids))
        assert text.score == pytest.approx(total, rel=1e-12)
        p = math.exp(total)
        assert abs(shares[tuple(text.ids), text.finished] / count - p) < 5 * math.sqrt(
            p * (1 - p) / count
        )


def test_repeats_are_those_of_a_loop() -> None:
    ids = np.random.default_rng(0).integers(0, 3, (20, 9))
    ids[:5, :4] = -1  # rows that are shorter
    for n in (1, 2, 3):
        found = {(int(row), int(token)) for row, token in zip(*find_repeats(ids, n), strict=True)}
        wanted = set()
        for row, text in enumerate(
            [token for token in line if token >= 0] for line in ids.tolist()
        ):
            grams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
            wanted |= {
                (row, token)
                for token in range(3)
                if (*text[len(text) - n + 1 :], token) in grams and len(text) >= n - 1
            }
        assert found == wanted


def test_seen_tokens_are_penalised_once() -> None:
    scores = torch.tensor([[2.0, -1.0, 0.5, 0.0]]).repeat(2, 1)
    found = Greedy(repetition_penalty=2.0).penalise(scores, np.array([[0, 1, 0], [-1, -1, 2]]))
    assert found.tolist() == [[1.0, -2.0, 0.5, 0.0], [2.0, -1.0, 0.25, 0.0]]


def test_the_score_is_that_of_the_model_without_a_penalty() -> None:
    table = Table(2)
    for row, (text,) in enumerate(Greedy(repetition_penalty=3.0)(table, start(table, [5, 5]))):
        ids = (*text.ids, END) if text.finished else tuple(text.ids)
        gains = [table.next(row, ids[:place])[token] for place, token in enumerate(ids)]
        assert text.score == pytest.approx(sum(gains), rel=1e-12)


def test_best_is_topk() -> None:
    values = torch.randn(5, 3000, generator=torch.Generator().manual_seed(0))
    values[2, :2990] = -torch.inf
    for count in (1, 8, 10):
        found, places = take_best(values, count)
        torch.testing.assert_close(found, values.topk(count).values)
        torch.testing.assert_close(values.gather(1, places), found)


@pytest.mark.parametrize("size", [7, 64 * 64, 64 * 64 + 1, 8000])
@pytest.mark.parametrize("rows", [1, 5])
def test_among_equals_the_lowest_is_best(rows: int, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    values = torch.randint(0, 50, (rows, size), generator=generator).float()
    values[0] = -torch.inf
    assert torch.equal(find_best(values), values.argmax(-1))
    values[:, -1] = 51  # behind the last chunk, or in it
    assert find_best(values).tolist() == [size - 1] * rows


def test_in_place_moves_as_few_as_can_be() -> None:
    parents = np.random.default_rng(0).integers(0, 4, (50, 4))
    order = keep_order(parents)
    assert (np.sort(order, 1) == np.arange(4)).all()
    stay = (np.take_along_axis(parents, order, 1) == np.arange(4)).sum(1)
    assert stay.tolist() == [len(set(row)) for row in parents.tolist()]


def test_the_first_token_can_be_given() -> None:
    for search in (
        Greedy(first=4),
        Beam(width=2, alpha=1.0, penalty="length", early=False, first=4, count=1),
    ):
        table = Table(3)
        assert all(
            text.ids[0] == 4 for texts in search(table, start(table, [4] * 3)) for text in texts
        )


def test_a_text_that_may_not_go_on_stays() -> None:
    """Every token has been used, and none may stand twice."""
    search = Beam(
        width=2, alpha=1.0, penalty="length", early=False, no_repeat_ngram=1, min_length=99
    )
    table = Table(1)
    ((text,),) = search(table, start(table, [20]))
    assert sorted(text.ids) == list(range(1, SIZE))
    assert not text.finished


FOUR: Any = {"width": 4, "alpha": 1.0, "penalty": "length", "early": False}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(width=0, alpha=1.0, penalty="length", early=False), "search.width=0"),
        (
            lambda: Beam(width=2, count=3, alpha=1.0, penalty="length", early=False),
            "search.count=3: 1 to 2",
        ),
        (lambda: Sample(temperature=0.0, top_k=None, top_p=1.0, seed=0), "search=greedy"),
        (lambda: Sample(temperature=1e-39, top_k=None, top_p=1.0, seed=0), "1e-06 or more"),
        (lambda: Sample(temperature=1.0, top_k=0, top_p=1.0, seed=0), "search.top_k=0"),
        (lambda: Sample(temperature=1.0, top_k=None, top_p=1.5, seed=0), "search.top_p=1.5"),
        (lambda: Greedy(min_length=-1), "search.min_length=-1"),
        (lambda: Diverse(**FOUR, groups=3, diversity=1.0), "search.groups=3: a divisor of 4"),
        (lambda: Diverse(**FOUR, groups=2, diversity=-1.0), "search.diversity=-1.0: 0 or more"),
        (lambda: Constrained(**FOUR, phrases=[]), "search.phrases"),
        (lambda: Constrained(**FOUR, phrases=["a"]).fits(9), "search.phrases=.*: lists of ids"),
        (lambda: Constrained(**FOUR, phrases=[[9]]).fits(9), "search.phrases=9: an id below 9"),
        (lambda: Contrastive(top_k=0, alpha=0.5), "search.top_k=0: 1 or more"),
        (lambda: Contrastive(top_k=8, alpha=0.5).fits(7), "search.top_k=8: at most 7"),
        (lambda: Contrastive(top_k=2, alpha=1.5), "search.alpha=1.5: 0 to 1"),
        (lambda: Greedy(repetition_penalty=0.0), "search.repetition_penalty=0.0: more than 0"),
        (lambda: Greedy(excluded=[[]]), "search.excluded"),
        (lambda: Greedy(excluded=[[3, -1]]), "search.excluded=-1: an id of the vocabulary"),
    ],
)
def test_wrong_numbers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_beam_wider_than_the_vocabulary_is_refused() -> None:
    table = Table(1)
    with pytest.raises(ConfigError, match=f"search.width=8: at most {SIZE}"):
        Beam(width=8, alpha=1.0, penalty="length", early=False)(table, start(table, [3]))
    for name, value in {"first": SIZE, "last": SIZE, "excluded": [[1, SIZE]]}.items():
        with pytest.raises(ConfigError, match=f"search.{name}={SIZE}: an id below {SIZE}"):
            Greedy(**{name: value})(table, start(table, [3]))  # type: ignore[arg-type]
