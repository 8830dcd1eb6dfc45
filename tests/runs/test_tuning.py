"""`tuning=stable`: few examples get as many updates as many, at a rate for the width of the model;
published tasks stay as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError
from plmctl.jobs.key import compute_key
from plmctl.report.card import make_card
from plmctl.report.panels import differences
from plmctl.report.subject import find_subject
from plmctl.runs.own_rate import scale_rate, settle_rate
from plmctl.runs.shortness import (
    describe_few,
    describe_outside,
    describe_scoring,
    describe_shortness,
)
from plmctl.runs.spacing import space_scorings
from plmctl.storage.settings_file import read_settings

SMALL = ("checkpoint=null", "tokenizer=char", "size=tiny", "task.max_length=24")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small task: does a text begin with an a?"""
    monkeypatch.chdir(tmp_path)
    Path("task").mkdir()
    for split, count in (("train", 12), ("dev", 6)):
        lines = [f"{'ab'[number % 2]} text {number}\t{number % 2}" for number in range(count)]
        table = "\n".join(["text\tlabel", *lines])
        Path(f"task/{split}.tsv").write_text(f"{table}\n", encoding="utf-8")
    return tmp_path


def finetune(*words: str) -> str:
    line = ("finetune", "task=classification", "task.path=task", *SMALL, *words)
    done = CliRunner().invoke(make_app(), line)
    assert done.exit_code == 0, done.output
    return done.output


def records(run: str) -> list[dict[str, Any]]:
    lines = Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("task", ["classification", "rte", "conll2003", "regression"])
def test_tasks_stay_as_they_are(task: str) -> None:
    spec = compose("finetune", None, [f"task={task}", "task.path=x", "checkpoint=null"])
    assert (spec.train.least_steps, spec.train.lr_width, spec.train.epochs) == (0, None, 3)
    stable = compose(
        "finetune", None, [f"task={task}", "tuning=stable", "task.path=x", "checkpoint=null"]
    )
    assert (stable.train.least_steps, stable.train.lr_width) == (500, 768)
    assert (stable.train.epochs, stable.train.batch_size, stable.optim.lr) == (3, 16, 5e-5)
    assert stable.optim.bias_correction
    given = ["train.least_steps=7", "optim.lr=1e-3"]
    own = compose(
        "finetune",
        None,
        [f"task={task}", "tuning=stable", "task.path=x", "checkpoint=null", *given],
    )
    assert (own.train.least_steps, own.optim.lr) == (7, 1e-3)


@pytest.mark.slow  # test_dry_run_counts_the_updates_that_there_will_be stays
def test_few_examples_get_more_epochs_and_are_measured_ten_times() -> None:
    said = finetune("tuning=stable", "train.least_steps=40", "run.dir=run", "train.log_every=1")
    assert "a model learns little" not in said
    assert "is low for" not in said
    assert "optim.lr=5e-05 becomes 0.0003, for a model of width 128; train.lr_width=768" in said
    log = records("run")
    assert log[-1]["step"] == 40
    assert [record["step"] for record in log if "valid/accuracy" in record] == [*range(4, 41, 4)]
    assert max(record["lr"] for record in log if "lr" in record) == pytest.approx(3e-4)


def test_config_card_and_page_state_what_was_used() -> None:
    words = ("train.epochs=null", "train.steps=2", "train.log_every=1", "schedule=constant")
    weights = "task.class_weights=balanced"
    finetune("tuning=stable", *words, "train.least_steps=0", weights, "run.dir=run")
    used = max(record["lr"] for record in records("run") if "lr" in record)
    assert used == pytest.approx(3e-4)
    config = read_settings(Path("run/config.yaml"), fix="")
    assert config["optim"]["lr"] == used
    assert config["train"]["lr_width"] == 128  # of the model itself: the rate stays as it is
    card = make_card(Path("run"), config)
    assert f"| learning rate | {used} |" in card
    assert "| length | 2 steps |" in card
    assert "tuning=stable" in card
    assert "AdamW, " in card
    assert "Constant, warmup" in card
    assert "| longest row | " in card
    for label, weight in config["task"]["class_weights"].items():
        assert f"{label} {weight:.4g}" in card.replace("1.000", "1")
    assert "task.path" not in card  # the author's folders
    page = dict(differences.choices(find_subject([Path("run")]))[1].rows)
    assert page["optim.lr"] == str(used)
    assert page["task.class_weights"]
    # a run of an older version has saved the rate of the reference, and the card works it out
    older = {**config, "optim": {**config["optim"], "lr": 5e-5}}
    older["train"] = {**config["train"], "lr_width": 768}
    assert f"| learning rate | {used} |" in make_card(Path("run"), older)


def test_a_resumed_run_learns_at_the_rate_that_it_had() -> None:
    words = ("train.epochs=null", "train.steps=2", "schedule=constant", "train.log_every=1")
    finetune("tuning=stable", *words, "train.least_steps=0", "run.dir=run")
    done = CliRunner().invoke(make_app(), ["finetune", "--resume", "run.dir=run", "train.steps=3"])
    assert done.exit_code == 0, done.output
    assert "not bit-exact" not in done.stderr
    assert {
        record["lr"] for record in records("run") if record["step"] == 3 and "lr" in record
    } == {3e-4}


@pytest.mark.parametrize("epoch", [3, 50, 250, 600])
def test_ten_scorings_of_a_stable_run_whatever_an_epoch_is(epoch: int) -> None:
    every = space_scorings(epoch, 500, stable=True)
    assert every is not None
    assert len({*range(every, 501, every), 500}) == 10
    assert space_scorings(epoch, 500, stable=False) == epoch
    assert space_scorings(epoch, None, stable=True) is None  # of minutes: at each tenth


def test_more_epochs_than_asked_are_told() -> None:
    words = ["task=classification", "tuning=stable", "task.path=x", "checkpoint=null"]
    spec = compose("finetune", None, [*words, "train.epochs=2"])
    assert "2 epochs are 46 updates: 500 by train.least_steps" in list(
        describe_shortness(spec, 500, 768, 23)
    )
    assert "epochs" not in "".join(describe_shortness(spec, 600, 768, 300))


def test_a_fine_tuning_by_minutes_says_what_they_have() -> None:
    words = ["task=classification", "task.path=x", "checkpoint=null", "train.epochs=null"]
    spec = compose("finetune", None, [*words, "train.minutes=0.8"])
    short = "only 4 updates fitted into train.minutes=0.8: a model learns little by so few"
    assert describe_few(spec, 4) == short
    assert describe_few(spec, 100) == ""
    line = describe_outside(spec, ["dev", "test"])
    assert "not in them are a last validation, scores of dev, test in fp32, and models" in line
    steps = compose("finetune", None, [*words, "train.steps=4"])
    assert describe_few(steps, 4) == describe_outside(steps, ["dev"]) == ""
    assert describe_scoring(54).endswith(
        "takes 0:54: behind train.minutes dev is scored in about 1:48"
    )


def test_a_fine_tuning_of_few_updates_says_so() -> None:
    said = finetune("run.dir=run")
    assert "only 3 updates: a model learns little by so few; tuning=stable makes more" in said
    assert "optim.lr=2e-05 is low for width 128; tuning=stable takes one that suits it" in said
    assert max(record["lr"] for record in records("run") if "lr" in record) <= 2e-5
    chosen = ("train.epochs=null", "train.steps=2", "optim.lr=1e-3")
    again = finetune("run.dir=again", *chosen)
    assert "a model learns little" not in again
    assert "is low for" not in again


def test_a_dry_run_refuses_two_columns_of_a_text() -> None:
    words = ["task=classification", "task.path=task", "task.columns.text=[text,label]", *SMALL]
    done = CliRunner().invoke(make_app(), ["finetune", *words, "--dry-run"])
    assert done.exit_code == 2
    assert "task=pair_classification task.columns.text=text task.columns.text2=label" in done.stderr


def test_dry_run_counts_the_updates_that_there_will_be() -> None:
    said = finetune("tuning=stable", "--dry-run", "--json")
    assert json.loads(said)["run"]["updates"] == 500


def test_half_the_width_is_twice_the_rate() -> None:
    assert scale_rate(1e-4, None, 128) == 1e-4
    assert scale_rate(1e-4, 768, 768) == 1e-4
    assert scale_rate(1e-4, 768, 384) == pytest.approx(2e-4)
    spec = compose("pretrain", "bert", ["size=tiny", "train.lr_width=768"])
    for width in (384, 768):
        settled, line = settle_rate(spec, width)
        assert settled.optim.lr == pytest.approx(spec.optim.lr * 768 / width)
        assert bool(line) == (width == 384)
    without = spec.replace({"optim": {"_target_": "somebodys.Optimizer"}})
    with pytest.raises(ConfigError, match=r"train\.lr_width=768: null: the optimizer has no lr"):
        settle_rate(without, 384)


def test_another_tuning_is_another_job() -> None:
    words = ["task=rte", "task.path=x", "checkpoint=null"]
    plain, stable = (
        compute_key("finetune", thaw(compose("finetune", None, [*words, *more])))
        for more in ([], ["tuning=stable"])
    )
    assert plain != stable
