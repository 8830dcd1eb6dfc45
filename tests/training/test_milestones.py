"""Weights that are kept at numbers of words, tokens or updates, on the toy of training."""

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.training import checkpoint
from plmctl.training.budget import Budget
from plmctl.training.milestones import Milestones, space
from plmctl.training.progress import Progress
from tests.training.toy import make_trainer, same, weights

MILLION = 10**6


def test_the_curve_of_a_hundred_million_words_is_that_of_the_shared_task():
    published = [*range(1, 10), *range(10, 101, 10)]
    assert space(100 * MILLION) == [each * MILLION for each in published]
    whole = [*published, *range(200, 1001, 100)]
    assert space(1000 * MILLION) == [each * MILLION for each in whole]
    assert space(1000) == [*range(10, 100, 10), *range(100, 1001, 100)]
    assert space(250) == [*range(1, 10), *range(10, 100, 10), 100, 200, 250]
    assert space(7) == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_of_another_unit_has_the_numbers_of_public_curves():
    found = Milestones.read("words:log", Budget(steps=7)).numbers
    assert found[:12] == tuple(each * MILLION for each in (*range(1, 11), 20, 30))
    assert Milestones.read("updates:log", Budget(words=7)).numbers[:3] == (1000, 2000, 3000)


@pytest.mark.parametrize(
    ("stated", "unit", "numbers"),
    [
        ("words:1e6", "words", (MILLION,)),
        (("tokens:30", "tokens:20"), "tokens", (20, 30)),
        (("updates:3", "updates:log"), "updates", (1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_settings(stated, unit, numbers):
    assert Milestones.read(stated, Budget(steps=7)) == Milestones(unit, numbers)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("word:log", r"did you mean 'words'"),
        ("words:0", r"a whole number of words"),
        ("words:1.5", r"a whole number of words"),
        ("words:", r"a whole number of words"),
        ("tokens:101", r"at most the length of the run, 100 tokens"),
        (("words:1", "tokens:2"), r"one unit, these are words and tokens"),
    ],
)
def test_mistakes(stated, message):
    with pytest.raises(ConfigError, match=message):
        Milestones.read(stated, Budget(tokens=100))


def test_reached():
    milestones = Milestones("words", (10, 20))
    numbers = [milestones.reached(Progress(words=words, tokens=99)) for words in (0, 9, 10, 25)]
    assert numbers == [0, 0, 10, 20]


def names(folder):
    return sorted(path.name for path in folder.glob("checkpoints/*-*"))


def test_weights_are_kept_and_the_run_is_the_same(tmp_path):
    plain = make_trainer(tmp_path / "plain", steps=6)
    plain.fit()
    kept = make_trainer(
        tmp_path / "kept", steps=6, settings={"milestones": Milestones("tokens", (50, 100, 280))}
    )
    seen = {}
    step = kept._step

    def watch():
        made = step()
        seen[kept.progress.step] = {name: t.clone() for name, t in weights(kept).items()}
        return made

    kept._step = watch
    kept.fit()
    assert same(weights(plain), weights(kept))
    # 48 tokens an update: update 2 reaches 50, update 3 reaches 100, update 6 reaches 280
    assert names(tmp_path / "kept") == ["step-6", "tokens-100", "tokens-280", "tokens-50"]
    for number, update in ((50, 2), (100, 3), (280, 6)):
        saved = checkpoint.read(tmp_path / "kept" / "checkpoints" / f"tokens-{number}")
        assert not saved.optimizer
        assert not saved.random
        assert saved.trainer["progress"]["step"] == update
        for name, tensor in saved.model.items():
            assert torch.equal(tensor, seen[update][name]), name


def test_a_resumed_run_keeps_what_it_had_not_reached(tmp_path):
    at = Milestones("updates", (2, 4, 5))
    half = make_trainer(tmp_path, steps=6, settings={"milestones": at, "pause_at": 3})
    half.fit()
    again = make_trainer(tmp_path, steps=6, settings={"milestones": at})
    again.resume(tmp_path / "checkpoints" / "step-3")
    again.fit()
    assert names(tmp_path) == ["step-3", "step-6", "updates-2", "updates-4", "updates-5"]
    whole = make_trainer(tmp_path / "whole", steps=6, settings={"milestones": at})
    whole.fit()
    for number in (2, 4, 5):
        one, other = (
            checkpoint.read(folder / "checkpoints" / f"updates-{number}")
            for folder in (tmp_path, tmp_path / "whole")
        )
        assert all(torch.equal(one.model[name], other.model[name]) for name in other.model)


def test_an_update_may_reach_several(tmp_path):
    at = Milestones("tokens", (1, 2, 3, 200))
    make_trainer(tmp_path, steps=3, settings={"milestones": at}).fit()
    assert names(tmp_path) == ["step-3", "tokens-3"]
