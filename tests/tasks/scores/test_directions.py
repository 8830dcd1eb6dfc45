"""Metrics of which a lower value is better: stated by scores, guessed from names, and used where a
best value is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from plmctl.chain.page import list_lower
from plmctl.chain.self_training import find_best
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.runs.parents import build_task
from plmctl.runs.side_tasks import choose_metric
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.below import list_unbeaten
from plmctl.tasks.scores.label_sets import SetScores
from plmctl.tasks.scores.metrics import sounds_like_error
from plmctl.tasks.task import Task
from tests.command import plmctl

PLUGIN = '''
from plmctl.core.parts import part_of
from plmctl.tasks.scores.base import Scores


@part_of("scores")
class Apart(Scores):
    """The mean distance of a number, and the same under names that state nothing."""

    known = ("apart", "mean_abs_error", "near")
    lower = frozenset({"apart"})

    def __call__(self, predictions, names):
        apart = [abs(each["gold"] - each["guess"]) for each in predictions]
        mean = sum(apart) / len(apart)
        return {name: -mean if name == "near" else mean for name in names}


@part_of("scores")
class Silent(Apart):
    known = ("mean_abs_error", "near")
'''
YAML = """# @package _global_
# amounts: a number for each text
defaults: [parts/bert, parts/four_values, parts/table, _self_]
task:
  name: amounts
  layout: {_target_: plmctl.tasks.layouts.texts.TextRows}
  answer: {_target_: plmctl.tasks.answers.number.NumberAnswer}
  scores: {_target_: own_apart.Apart}
  metrics: [apart, near]
heads:
  score: {_target_: plmctl.heads.classify.Classify, dropout: 0.0, dense: false}
"""
SMALL = ["size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "task.max_length=16"]
SHORT = ["checkpoint=null", "train.epochs=null", "train.steps=8", "train.eval_every=1"]
OWN = ["--plugin", "own_apart", "--config-dir", "conf"]
WORDS = ["task.path=train.csv", "task.dev_share=0.4", "optim.lr=0.1", "train.batch_size=8"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf/task").mkdir(parents=True)
    (tmp_path / "own_apart.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "conf/task/amounts.yaml").write_text(YAML, encoding="utf-8")
    silent = YAML.replace("amounts", "silent").replace("Apart", "Silent")
    silent = silent.replace("[apart, near]", "[mean_abs_error, near]")
    (tmp_path / "conf/task/silent.yaml").write_text(silent, encoding="utf-8")
    # 2, 3, -3 and 7 stand once, as numbers may
    numbers = [0, 1, -1] * 8 + [2, 3, -3, 7]
    rows = [f"{'good ' * (n % 7)}text {n},{label}\n" for n, label in enumerate(numbers)]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(run: str) -> tuple[dict[str, Any], dict[int, float]]:
    """result.json, and {update: the first metric of a validation}."""
    result = json.loads(Path(run, "result.json").read_text(encoding="utf-8"))
    first = f"valid/{next(iter(result['metrics']['dev']))}"
    lines = map(json.loads, Path(run, "metrics.jsonl").read_text("utf-8").splitlines())
    return result, {line["step"]: line[first] for line in lines if first in line}


@pytest.mark.parametrize("task", ["amounts", "silent"])
def test_the_checkpoint_with_the_smallest_error_is_kept(
    task: str, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where only its name says that it is an error, which a line tells."""
    plmctl("finetune", f"task={task}", *WORDS, *SMALL, *SHORT, "run.dir=run", *OWN)
    told = caplog.text
    result, values = read("run")
    assert len(values) == 8
    assert max(values.values()) > 1.01 * min(values.values())
    assert Path(result["checkpoint"]).name == f"step-{min(values, key=values.__getitem__)}"
    first = {"amounts": "apart", "silent": "mean_abs_error"}[task]
    assert result["lower"] == [first]
    line = "mean_abs_error: a lower value counts as better, as the name says"
    assert (line in told) == (task == "silent")
    assert ('lower = frozenset({"mean_abs_error"}) in Silent' in told) == (task == "silent")
    assert "single example" not in told  # of numbers
    assert "differ in case" not in told  # -3 and 3 are two numbers
    assert ("lower is better: apart" in plmctl("compare", "run", "run", *OWN[:2])) == (
        task == "amounts"
    )


def test_other_choices_know_the_direction(place: Path) -> None:
    """Sweeps and `train.best_metric` choose by `choose_metric`; rounds and reports read a run."""
    asked = ["task=amounts", *WORDS, *SMALL, *SHORT]
    for more, best in (
        ([], ("apart", False)),
        (["train.best_metric=near"], ("near", True)),
        (["train.best_metric=loss"], ("loss", False)),
    ):
        words = [*asked, *more]
        own: dict[str, Any] = {"plugins": ["own_apart"], "config_dirs": ["conf"]}
        spec = compose("finetune", None, words, **own)
        assert choose_metric(spec, build_task(spec)) == best


def test_runs_tell_their_direction(tmp_path: Path) -> None:
    result = {"metrics": {"dev": {"apart": 0.5}}, "lower": ["apart"]}
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    assert list_lower(tmp_path) == ["apart"]
    rounds = [{"round": n, "score": value, "lower": True} for n, value in enumerate((3, 1, 1, 2))]
    assert find_best(rounds)["round"] == 1
    assert find_best([{**row, "lower": False} for row in rounds])["round"] == 0
    scores, simple = {"dev": {"apart": 0.5}}, {"dev": {"words": {"apart": 0.4}}}
    assert len(list_unbeaten(scores, simple, "apart", lower=["apart"])) == 1
    assert list_unbeaten(scores, simple, "apart") == []


class Own(Scores):
    known = ("share", "token_error_rate", "wrong")
    lower = frozenset({"wrong"})

    def __call__(self, predictions: Any, names: Any) -> dict[str, float]:
        return dict.fromkeys(names, 0.0)


class Child(Own):
    known = ("dev_rmse", "wrong", "share")


class Stated(Own):
    known, lower = ("dev_rmse", "share"), frozenset[str]()


@pytest.mark.parametrize(
    ("scores", "lower", "guessed"),
    [
        (Own(), {"wrong"}, []),
        (Child(), {"wrong", "dev_rmse"}, ["dev_rmse"]),  # its own class states nothing
        (Stated(), set(), []),
        (SetScores(), {"hamming_loss"}, []),
    ],
)
def test_a_class_states_directions(
    scores: Scores, lower: Collection[str], guessed: list[str]
) -> None:
    node = compose("finetune", None, ["task=regression", "task.path=x", "checkpoint=null"]).task
    task: Task = build(node, path="task")
    task.scores, task.metrics = scores, list(scores.known)
    assert set(task.directions.lower) == lower
    assert not task.directions.larger("loss")
    lines = task.directions.describe()
    assert [line.partition(":")[0] for line in lines] == guessed


def test_names_of_errors() -> None:
    errors = ["mae", "RMSE", "abs_error", "errors", "hinge_loss", "perplexity_per_token", "mse/dev"]
    assert all(map(sounds_like_error, errors))
    assert not any(map(sounds_like_error, ["accuracy", "gloss_f1", "maestro", "lossless", "mrr"]))
