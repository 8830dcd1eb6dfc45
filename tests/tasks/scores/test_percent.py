"""Metrics from 0 to 100, as each task states them: right answers have just these at 100."""

from __future__ import annotations

import re

import pytest

from plmctl.config.compose import compose
from plmctl.runs.parents import build_task
from plmctl.tasks.coqa import Coqa
from plmctl.tasks.extractive import Extractive
from plmctl.tasks.generation import Generation
from plmctl.tasks.hotpot import Hotpot
from plmctl.tasks.quac import Quac
from plmctl.tasks.scores import coqa, hotpot, quac, rouge, squad, written
from plmctl.tasks.squad import Squad
from plmctl.tasks.task import Task
from plmctl.tasks.tree_writing import TreeWriting
from plmctl.use.predict import ScoreTable

TEXT = "the cat sat on a mat in the sun"
ANSWER = {"golds": [TEXT, TEXT], "guess": TEXT, "null_odds": -1.0}
NO_ANSWER = {"golds": [quac.NONE], "guess": quac.NONE}
FACTS = {"gold_facts": [["t", 0]], "facts": [["t", 0]]}
WRITTEN = {"id": "0", "source": "a", "golds": [TEXT], "guess": TEXT, "nll": 1.0, "tokens": 2}
WORDS = ["bleu", "chrf", "rouge1", "exact", "f1", "perplexity"]
ACTS = {"yes_no": "y", "gold_yes_no": "y", "followup": "n", "gold_followup": "n", "dialogue": "d"}


@pytest.mark.parametrize(
    ("task", "scores"),
    [
        (Squad, squad.score_v1([ANSWER])),
        (Squad, squad.score_v2([ANSWER, {"golds": [], "guess": "", "null_odds": 1.0}])),
        (Coqa, coqa.score([ANSWER])),
        (Quac, quac.score([ANSWER | ACTS, NO_ANSWER | ACTS])),
        (Hotpot, hotpot.score([ANSWER | FACTS])),
        (Generation, written.score([WRITTEN], WORDS, tokenize="13a", lowercase=False)[0]),
        (Extractive, {name: rouge.mean(name, [[TEXT]], [TEXT]) for name in rouge.METRICS}),
    ],
)
def test_right_answers_have_100_in_each_metric_that_is_stated(
    task: type[Task], scores: dict[str, float]
) -> None:
    assert {name for name, value in scores.items() if value == pytest.approx(100)} == {
        *filter(task.percent.__contains__, scores)
    }


def test_slices_are_in_the_unit_of_their_metric_and_trees_have_shares() -> None:
    assert {"rouge1", "bleu"} <= Generation.percent
    assert not TreeWriting.percent
    task = build_task(
        compose(
            "finetune",
            overrides=["task=extractive_summarization", "task.path=x", "checkpoint=null"],
        )
    )
    assert task.is_percent("lead/rouge1")
    assert not task.is_percent("loss")


def test_a_table_of_scores_says_which_are_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    table = ScoreTable("t", {"dev": {"f1": 3.3, "loss": 1.0}}, {}, is_percent={"f1"}.__contains__)
    table.show(as_json=False)
    assert re.search(r"f1, % +. 3.3000", capsys.readouterr().out)
    assert table.to_json()["percent"] == ["f1"]
