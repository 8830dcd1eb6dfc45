"""Minimal pairs at the validations of a pretraining."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.config.groups import Eval
from plmctl.runs.pair_sample import PairSample
from plmctl.use.pairs import Pair, PairScorer, ScoredPairs
from tests.commands.test_pretrain_command import TINY, pretrain


def write(folder: Path, count: int) -> Path:
    file = folder / "pairs.tsv"
    rows = [f"she reads {n}\treads she {n}" for n in range(count)]
    file.write_text("\n".join(["good\tbad", *rows]) + "\n", encoding="utf-8")
    return file


def test_a_sample_is_drawn_by_its_own_seed(tmp_path) -> None:
    file = write(tmp_path, 40)
    drawn = [PairSample.of(Eval(minimal_pairs=str(file), pairs=9, seed=n), None) for n in (0, 0, 1)]
    assert drawn[0].pairs == drawn[1].pairs != drawn[2].pairs
    assert [len(set(each.pairs)) for each in drawn] == [9, 9, 9]
    assert drawn[0].known == 40
    assert len(PairSample.of(Eval(minimal_pairs=str(file), pairs=99), None).pairs) == 40
    assert PairSample.of(Eval(), None) is None


def test_paradigms_have_equal_shares_of_a_sample(tmp_path) -> None:
    rows = [f"good {n}\tbad {n}\t{'ab'[n > 5] if n else 'c'}" for n in range(40)]
    (tmp_path / "x.tsv").write_text("\n".join(["good\tbad\tUID", *rows]) + "\n", encoding="utf-8")
    for most, shares in ((9, [1, 4, 4]), (2, [1, 1]), (20, [1, 5, 14]), (99, [1, 5, 34])):
        sample = PairSample.of(Eval(minimal_pairs=str(tmp_path), pairs=most), None)
        found = Counter(pair.paradigm for pair in sample.pairs)
        assert sorted(found.values()) == shares


class Fixed(PairScorer):
    """Scores that are known, in the numbers of `plmctl eval`."""

    def score_pairs(self, *_) -> ScoredPairs:
        assert not torch.is_autocast_enabled("cpu")
        return ScoredPairs("next", np.array([-1.0, -1, -1]), np.array([-2.0, -2, -0.5]), 0.0)


def test_a_validation_scores_in_fp32_with_an_interval() -> None:
    pairs = [Pair("a", "b", name, "t") for name in "uuv"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = PairSample(Fixed(), pairs, 3, None).score(None, torch.device("cpu"))
    _, intervals = PairScorer().summarize(pairs, np.array([1.0, 1, 0]))
    low, high = intervals["accuracy"]
    expected = {"acc/minimal_pairs": 0.5, "low/minimal_pairs": low, "high/minimal_pairs": high}
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["bert", "gpt"])
def test_each_validation_has_their_accuracy(tmp_path, recipe) -> None:
    file, run = write(tmp_path, 40), tmp_path / "run"
    words = [*TINY, "train.steps=4", "train.eval_every=2", f"run.dir={run}"]
    found = pretrain(recipe, *words, f"eval.minimal_pairs={file}", "eval.pairs=9")
    assert "minimal pairs: 9 of 40 at each validation" in found
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line).get("valid/acc/minimal_pairs") for line in lines]
    known = [value for value in values if value is not None]
    assert len(known) == 2
    assert all(value * 9 == pytest.approx(round(value * 9), abs=1e-2) for value in known)
