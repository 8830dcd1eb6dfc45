"""Mixtures: which corpus each row comes from, that each is read once in its epochs, shares,
resume, and wrong settings.
"""

import json
import math

import numpy as np
import pytest

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource
from plmctl.data.mixture import Mixture, check_mixture, compute_shares
from plmctl.data.reader import ReadPosition, RowReader
from plmctl.noise.token_mask import TokenMask

torch = pytest.importorskip("torch")

SHARES = {"large": 0.6, "middle": 0.3, "small": 0.1}


@pytest.fixture
def corpora(random_shards_of):
    return {
        "large": random_shards_of(60, 1),
        "middle": random_shards_of(40, 2),
        "small": random_shards_of(4, 3),
    }


def make_format(vocab, pairs):
    if pairs:  # other numbers of rows in each epoch
        return SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5)
    return Blocks(vocab=vocab, max_length=32, crossing=False, specials=True)


def make_mixture(corpora, vocab, *, pairs=False, seed=5, batch=12, stage=0, parts=SHARES, **ranks):
    fmt = make_format(vocab, pairs)
    readers = {
        name: RowReader(shards, fmt, seed=seed + place, batch_size=batch, stage=stage, **ranks)
        for place, (name, shards) in enumerate(corpora.items())
    }
    return Mixture(readers, parts, seed=seed, batch_size=batch, stage=stage, **ranks)


def triples(picks):
    return list(zip(picks.corpus.tolist(), picks.epoch.tolist(), picks.index.tolist(), strict=True))


def stream(mixture, batches):
    """(corpus, epoch, row) in the order of reading; the mixture's position moves on."""
    found = []
    for _ in range(batches):
        picks, mixture.position = mixture.take(mixture.position)
        found += triples(picks)
    return found


def by_hand(mixture, count, seed=5):
    """Row after row: draw a corpus, take its next row, begin its next epoch where it is used up."""
    names, places, found = list(mixture.readers), {name: (0, 0) for name in mixture.readers}, []
    for k in range(count):
        drawn = int(Draws(seed, 0, ("stage", 0)).words(np.array([k]), "corpus", 1)[0, 0]) / 2**64
        number = next(i for i in range(len(names)) if drawn < sum(list(SHARES.values())[: i + 1]))
        epoch, cursor = places[names[number]]
        order = mixture.readers[names[number]].order(epoch)
        found.append((number, epoch, int(order[cursor])))
        places[names[number]] = (epoch, cursor + 1) if cursor + 1 < len(order) else (epoch + 1, 0)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("batch", [1, 12, 700])
def test_rows_are_those_of_the_loop(corpora, vocab, pairs, batch):
    mixture = make_mixture(corpora, vocab, pairs=pairs, batch=batch)
    count = 1400
    assert stream(mixture, -(-count // batch))[:count] == by_hand(mixture, count)


def test_every_row_of_a_corpus_once_in_its_epoch(corpora, vocab):
    mixture = make_mixture(corpora, vocab)
    found = stream(mixture, 200)
    # the small one comes again and again
    assert max(epoch for number, epoch, _ in found if number == 2) > 5
    for number, reader in enumerate(mixture.readers.values()):
        wanted = [(number, epoch, int(row)) for epoch in range(60) for row in reader.order(epoch)]
        mine = [each for each in found if each[0] == number]
        assert mine == wanted[: len(mine)]


def test_shares_are_kept(corpora, vocab):
    mixture = make_mixture(corpora, vocab)
    n = 200_000
    counts = np.bincount(mixture.corpus(np.arange(n)), minlength=3)
    for count, share in zip(counts, SHARES.values(), strict=True):
        assert abs(count - n * share) < 4 * math.sqrt(n * share * (1 - share))


def test_seed_and_stage_change_which_corpus(corpora, vocab):
    rows = np.arange(100)
    mixture = make_mixture(corpora, vocab)
    assert not np.array_equal(
        make_mixture(corpora, vocab, seed=6).corpus(rows), mixture.corpus(rows)
    )
    assert not np.array_equal(
        make_mixture(corpora, vocab, stage=1).corpus(rows), mixture.corpus(rows)
    )


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_read_disjoint_rows_of_the_same_batches(corpora, vocab, world):
    whole = stream(make_mixture(corpora, vocab, batch=11), 60)
    ranks = [
        make_mixture(corpora, vocab, batch=11, world=world, rank=rank) for rank in range(world)
    ]
    shared = [row for _ in range(60) for rank in ranks for row in stream(rank, 1)]
    assert shared == whole
    assert len({rank.position for rank in ranks}) == 1


def test_resume_at_any_row_with_other_batches_and_ranks(corpora, vocab):
    whole = stream(make_mixture(corpora, vocab), 50)
    for done in (0, 1, 7, 31):
        first = make_mixture(corpora, vocab)
        stream(first, done)
        state = json.loads(json.dumps(first.state_dict()))  # as a checkpoint holds it
        assert len(json.dumps(state)) < 300
        again = make_mixture(corpora, vocab, batch=4)
        again.load_state_dict(state)
        assert stream(again, 30) == whole[12 * done : 12 * done + 120]


def test_an_epoch_is_as_many_rows_as_all_corpora_have(corpora, vocab):
    mixture = make_mixture(corpora, vocab)
    assert mixture.rows_per_epoch == sum(
        RowReader(s, make_format(vocab, False), seed=0, batch_size=1).plan(0).rows
        for s in corpora.values()
    )
    assert {name: share for name, (_, share) in mixture.corpora("text").items()} == SHARES


def test_other_mixtures_are_refused_and_a_new_stage_starts_afresh(corpora, vocab):
    mixture = make_mixture(corpora, vocab)
    stream(mixture, 3)
    state = mixture.state_dict()
    with pytest.raises(DataError, match="fingerprint differ"):
        make_mixture(
            corpora, vocab, parts={"large": 0.5, "middle": 0.4, "small": 0.1}
        ).load_state_dict(state)
    with pytest.raises(DataError, match="another mixture"):
        make_mixture(dict(reversed(corpora.items())), vocab).load_state_dict(state)
    with pytest.raises(DataError, match="other rows"):
        RowReader(
            corpora["large"], make_format(vocab, False), seed=5, batch_size=12
        ).load_state_dict(state)
    second = make_mixture(corpora, vocab, stage=1)
    second.load_state_dict(state)
    assert second.position == (0, (ReadPosition(), ReadPosition(), ReadPosition()))


def contents(batches):
    """Every row of some micro-batches, whatever their sizes: its key, ids, what is asked, its
    label.
    """
    found = []
    for batch in batches:
        asked = torch.full((batch.text.ids.numel(),), -100)
        target = batch.targets["mlm"]
        asked[target.index[: target.count]] = target.ids[: target.count]
        every = zip(
            batch.key,
            batch.text.ids,
            asked.view_as(batch.text.ids),
            batch.labels["pair"],
            strict=True,
        )
        found += [
            (int(key), *ids.tolist(), *labels.tolist(), int(pair))
            for key, ids, labels, pair in every
        ]
    return found


def make_loader(corpora, vocab, *, micro, **options):
    mixture = make_mixture(corpora, vocab, pairs=True, **options)
    return Loader(
        {"text": RowSource(mixture, TokenMask(vocab=vocab, rate=0.15))}, micro_batch_size=micro
    )


def test_batches_keep_the_order_of_rows_whatever_the_micro_batch(corpora, vocab):
    with make_loader(corpora, vocab, micro=12) as loader:
        wanted = [contents(next(loader)) for _ in range(20)]
    with make_loader(corpora, vocab, micro=5) as loader:
        assert [contents(next(loader)) for _ in range(20)] == wanted
    ranks = [make_loader(corpora, vocab, micro=3, world=2, rank=rank) for rank in range(2)]
    assert [
        [row for loader in ranks for row in contents(next(loader))] for _ in range(20)
    ] == wanted
    for loader in ranks:
        loader.close()
    mixture = make_mixture(corpora, vocab, pairs=True)
    assert [row[0] for update in wanted for row in update] == [
        index for _, _, index in stream(mixture, 20)
    ]


def test_noise_differs_between_corpora_with_the_same_rows(toy, vocab):
    with make_loader(
        {"one": toy, "two": toy}, vocab, micro=12, parts={"one": 0.5, "two": 0.5}
    ) as loader:
        rows = [row for _ in range(30) for row in contents(next(loader))]
    assert len(set(rows)) == len(rows)


class Ordered(Blocks):
    ordered = True


def test_ordered_formats_are_refused(corpora, vocab):
    fmt = Ordered(vocab=vocab, max_length=32, crossing=True, specials=False)
    readers = {
        name: RowReader(shards, fmt, seed=1, batch_size=4) for name, shards in corpora.items()
    }
    with pytest.raises(ConfigError, match="reads one corpus"):
        Mixture(readers, SHARES, seed=1, batch_size=4)


TOKENS = {"en": 1000, "is": 10, "zh": 490}


@pytest.mark.parametrize("alpha", [1.0, 0.7, 0.5, 0.3])
def test_temperature_is_the_inverse_of_the_exponent(alpha):
    """q_i = p_i^alpha / sum_j p_j^alpha with p the shares of the text (Lample and Conneau, 2019,
    sec. 3.1).
    """
    p = {name: count / sum(TOKENS.values()) for name, count in TOKENS.items()}
    wanted = {name: p[name] ** alpha / sum(x**alpha for x in p.values()) for name in p}
    found = compute_shares(dict.fromkeys(TOKENS), TOKENS, temperature=1 / alpha)
    assert found == pytest.approx(wanted)
    assert sum(found.values()) == pytest.approx(1)


def test_weights_and_defaults():
    none = dict.fromkeys(TOKENS)
    assert compute_shares(none, TOKENS, temperature=None) == pytest.approx(
        {name: n / 1500 for name, n in TOKENS.items()}
    )
    assert compute_shares(none, TOKENS, temperature=1e9) == pytest.approx(
        dict.fromkeys(TOKENS, 1 / 3)
    )
    assert compute_shares(none | {"en": 3}, TOKENS, temperature=None) == pytest.approx(
        {"en": 0.6, "is": 0.2, "zh": 0.2}
    )
    assert compute_shares(
        {"en": 0.5, "is": 0.2, "zh": 0.3}, TOKENS, temperature=None
    ) == pytest.approx({"en": 0.5, "is": 0.2, "zh": 0.3})


def test_sound_settings():
    plain = {"en": {"path": "a"}, "zh": {"path": "b"}}
    assert check_mixture(plain, None, "data.mixture") == []
    assert check_mixture(plain, 2.0, "data.mixture") == []
    for weights in ((3, None), (2.5, 1), (0.3, 0.7), (1, 1)):
        given = {
            "en": {"path": "a", "weight": weights[0]},
            "zh": {"path": "b", "weight": weights[1]},
        }
        assert check_mixture(given, None, "data.mixture") == []


@pytest.mark.parametrize(
    ("mixture", "temperature", "message"),
    [
        ({"en": {"weight": 0}, "zh": {}}, None, r"data.mixture.en.weight=0: a number above 0"),
        ({"en": {"weight": -1}, "zh": {}}, None, r"data.mixture.en.weight=-1: a number above 0"),
        (
            {"en": {"weight": "much"}, "zh": {}},
            None,
            r"data.mixture.en.weight='much': a number above 0",
        ),
        ({"en": {"weight": True}, "zh": {}}, None, r"a number above 0"),
        ({"en": {"weight": math.nan}, "zh": {}}, None, r"a number above 0"),
        ({"en": {"weight": math.inf}, "zh": {}}, None, r"a number above 0"),
        (
            {"en": {"wieght": 1}, "zh": {}},
            None,
            r"data.mixture.en.wieght=1: there is no such setting.*did you mean 'weight'",
        ),
        ({"en": "a.txt", "zh": {}}, None, r"data.mixture.en='a.txt': a corpus is a mapping"),
        ({"en": {"path": "a"}}, None, r"two corpora or more"),
        (
            {"en": {"weight": 2}, "zh": {}},
            2.0,
            r"data.temperature=2.0: has no effect on corpora with weights",
        ),
        (
            {"en": {"weight": 0.7}, "zh": {"weight": 0.2}},
            None,
            r"must add up to 1, these add up to 0.9\n.*\(en: 3.5, zh: 1\)",
        ),
        (
            {"en": {"weight": 0.7}, "zh": {}},
            None,
            r"these add up to 1.7 \(without a weight it is 1\)",
        ),
    ],
)
def test_wrong_settings(mixture, temperature, message):
    errors = check_mixture(mixture, temperature, "data.mixture")
    assert len(errors) == 1
    with pytest.raises(ConfigError, match=message):
        raise errors[0]
