"""A study file: what it may say, and every mistake named at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.recipes import load
from plmctl.core.errors import DataError, UsageError
from plmctl.storage.settings_file import read_settings
from plmctl.study.arms import expand
from plmctl.study.study import Restarts, Study
from tests.study import toy_study

Parsed = Callable[..., Study]


def message(parsed: Parsed, *words: str, **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        parsed(*words, **changes)
    return str(error.value)


def test_rows_and_grid(parsed: Parsed) -> None:
    arms = {
        "plain": [],
        "other": {"recipe": "bert", "overrides": ["optim.lr=1"], "pretrain": False},
    }
    study = parsed(
        arms=arms,
        grid=["size=tiny,mini", "optim.lr=choice(1e-3,1e-4)"],
        baseline="plain",
        metrics=METRIC,
    )
    assert list(study.arms)[:2] == ["size=tiny optim.lr=0.001", "size=tiny optim.lr=0.0001"]
    assert len(study.arms) == 6
    assert study.arms["other"].recipe == "bert"
    assert not study.arms["other"].pretrain
    assert study.arms["size=mini optim.lr=0.001"].recipe == "roberta"


@pytest.mark.parametrize("name", [4, 1.5, -2])
def test_an_arm_may_be_called_by_a_number(name: float, parsed: Parsed) -> None:
    """YAML reads 4 as a number, and it is a name."""
    study = parsed(arms={"plain": [], name: ["optim.lr=1"]}, baseline="plain", metrics=METRIC)
    assert list(study.arms) == ["plain", str(name)]


@pytest.mark.parametrize("name", ["on", "yes", "null", "false", "~"])
def test_a_name_that_yaml_reads_as_no_name_is_refused(name: str, tmp_path: Path) -> None:
    """An arm, and any other name of a file."""
    for above in ("arms", "metrics", "tokenizers"):
        (tmp_path / "mine.yaml").write_text(f"title: x\n{above}:\n  {name}: []\n")
        with pytest.raises(UsageError, match=rf"{above}: the key (true|false|null) is no name"):
            load(tmp_path / "mine.yaml")
        (tmp_path / "mine.yaml").write_text(f'title: x\n{above}:\n  "{name}": []\n')
        assert load(tmp_path / "mine.yaml")[above] == {name: []}


def test_a_part_of_a_study(parsed: Parsed) -> None:
    """Arms that are named run, with the baseline and their teachers, and nothing is said of the
    others.
    """
    expect = {"big": "higher", "student": "higher", "third arm": "lower"}
    published = {"unit": "%", "values": {"plain": 1.0, "third arm": 2.0}}
    whole: dict[str, Any] = {
        "arms": {
            "plain": [],
            "big": ["optim.lr=1"],
            "student": {"overrides": ["optim.lr=2"], "teacher": "big"},
            "third arm": ["optim.lr=3"],
        },
        "baseline": "plain",
        "metrics": {"toy": {**METRIC["toy"], "expect": expect, "published": published}},
    }
    study = parsed("only=[student]", **whole)
    assert list(study.arms) == ["plain", "big", "student"]
    assert study.metrics["toy"].expect == {"big": "higher", "student": "higher"}
    assert study.metrics["toy"].published.values == {"plain": 1.0}
    assert list(parsed('only=["third arm"]', **whole).arms) == ["plain", "third arm"]
    text = message(parsed, 'only=[big,"thrid arm"]', **whole)
    assert "only='thrid arm': there is no arm of this name (did you mean 'third arm'?)" in text
    assert 'there are big, student, "third arm"\n  fix: ' in text
    assert 'only=[big,"third arm"]' in text
    assert "the baseline alone" in message(parsed, "only=[plain]", **whole)


def test_rounds_need_an_expectation_among_the_arms_that_run(parsed: Parsed) -> None:
    metrics = {"toy": {**METRIC["toy"], "expect": {"fast": "higher"}}}
    words = ("until=decided", "seeds=[0,1,2,3]", "only=[third]")
    arms: dict[str, Any] = {"slow": [], "fast": ["optim.lr=1"], "third": ["optim.lr=2"]}
    text = message(parsed, *words, arms=arms, baseline="slow", metrics=metrics)
    assert "an arm of which something is expected, and only leaves them out" in text
    assert "fix: 'only=[fast]'  # or leave until out" in text


METRIC = {"toy": {"of": "toy", "key": "accuracy"}}


def test_a_command_line_names_arms_and_settings_of_tasks(parsed: Parsed) -> None:
    """Names that the file lacks, and keys that it leaves out, overrides of lists as they are,
    quoted or not.
    """
    study = parsed(
        "arms={hot: [optim.lr=1, 'size.width=16'], tuned: {finetune: [features=mix,"
        " heads.features.layers=[0,1]]}}",
        "arms.cold=[optim.lr=1e-4]",
        "finetune.tasks.toy.overrides=[train.share=0.5, task.max_length=8]",
        "finetune.tasks.other={task: classification, path: task}",
        "metrics.other={of: other, key: f1, expect: {hot: lower}}",
    )
    assert list(study.arms) == ["slow", "fast", "hot", "tuned", "cold"]
    assert study.arms["hot"].overrides == ("optim.lr=1", "size.width=16")
    assert study.arms["tuned"].finetune == ("features=mix", "heads.features.layers=[0,1]")
    assert study.arms["cold"].overrides == ("optim.lr=1e-4",)
    assert study.tasks["toy"].overrides == ("train.share=0.5", "task.max_length=8")
    assert study.tasks["other"].path == "task"
    assert study.metrics["other"].expect == {"hot": "lower"}


def test_a_typo_on_the_command_line_is_still_one(parsed: Parsed) -> None:
    assert "did you mean 'overrides'?" in message(
        parsed, "finetune.tasks.toy.overides=[train.share=0.5]"
    )
    assert "finetune.task={}: there is no such setting (did you mean 'tasks'?)" in message(
        parsed, "finetune.task={}"
    )


def test_a_command_line_sets_what_the_file_of_a_study_leaves_out(parsed: Parsed) -> None:
    words = [
        "finetune.grid=['optim.lr=1e-3,1e-4']",
        "finetune.overrides=[train.epochs=2]",
        "pretrain.overrides=[size.width=32]",
        "stop={metric: loss, after: 0.5, bound: 3}",
    ]
    bare = {"finetune": {"tasks": {"toy": {"task": "classification", "path": "task"}}}}
    study = parsed(*words, **bare, pretrain=None)
    assert study.points == [("optim.lr=0.001",), ("optim.lr=0.0001",)]
    assert (study.finetune, study.pretrain) == (("train.epochs=2",), ("size.width=32",))
    assert study.stop is not None
    assert study.stop.bound == 3


def test_a_typo_in_a_group_hides_nothing_else_of_it(parsed: Parsed) -> None:
    found = message(parsed, "finetune.gird=[optim.lr=1]")
    assert "did you mean 'grid'?" in found
    assert "metrics" not in found


def test_the_recipe_is_a_dimension_too(parsed: Parsed) -> None:
    study = parsed(arms={}, grid=["recipe=bert,roberta"], baseline="bert", metrics=METRIC)
    assert [(arm.recipe, arm.overrides) for arm in study.arms.values()] == [
        ("bert", ()),
        ("roberta", ()),
    ]


def test_hydras_sweep_grammar() -> None:
    assert expand(["a=1,2", "b=range(3)"]) == [
        (f"a={a}", f"b={b}") for a in (1, 2) for b in (0, 1, 2)
    ]
    assert expand([]) == [()]
    assert expand(["noise=[token_mask,span_mask]"]) == [("noise=[token_mask,span_mask]",)]
    assert expand(["size=glob(ti*)"]) == [("size=tiny",)]
    with pytest.raises(UsageError, match="interval"):
        expand(["a=interval(0,1)"])


def test_restarts_never_share_a_seed() -> None:
    pairs = [pair for seed in range(3) for pair in Restarts(2, 3).pairs(seed)]
    assert len(set(pairs)) == 18
    assert len({order for order, _ in pairs}) == 6
    assert len({head for _, head in pairs}) == 9


def test_one_number_of_restarts(parsed: Parsed) -> None:
    finetune = {**toy_study.STUDY["finetune"], "restarts": 5}
    assert parsed(finetune=finetune).restarts == Restarts(5, 1)
    finetune["restarts"] = {"order": 2, "head": 2}
    assert parsed(finetune=finetune).restarts == Restarts(2, 2)


def test_the_command_line_changes_a_study(parsed: Parsed) -> None:
    study = parsed(
        "seeds=[4,5,6]", "budget.steps=null", "budget.tokens=1e5", "data.path=some file.txt"
    )
    assert (study.seeds, study.budget, study.data["path"], study.curves) == (
        [4, 5, 6],
        ("tokens", 100_000),
        "some file.txt",
        "tokens",
    )


def test_a_task_without_a_path_waits_with_its_metrics(parsed: Parsed) -> None:
    finetune = {"tasks": {"toy": {"task": "classification", "path": None}}}
    study = parsed(finetune=finetune)
    assert (list(study.tasks), list(study.metrics)) == ([], ["perplexity"])
    assert study.left_out == ["finetune.tasks.toy.path=..."]
    assert "toy" in parsed("finetune.tasks.toy.path=elsewhere", finetune=finetune).tasks


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"baseline": "slwo"}, ["baseline='slwo'", "did you mean 'slow'"]),
        ({"arms": {"slow": []}, "metrics": METRIC}, ["two arms or more"]),
        (
            {"arms": {"slow": "optim.lr=1", "fast": []}, "metrics": METRIC},
            ["arms.slow", "list of overrides"],
        ),
        (
            {"arms": {"slow": [], "fast": {"overide": []}}, "metrics": METRIC},
            ["arms.fast.overide", "did you mean 'overrides'"],
        ),
        ({"seeds": [1, 1]}, ["seeds", "none twice"]),
        ({"seeds": []}, ["one seed or more"]),
        ({"budget": {}}, ["budget", "exactly one", "none is set"]),
        (
            {"budget": {"steps": 5, "flops": 1e9}},
            ["exactly one", "there are steps, flops", "budget.steps=null"],
        ),
        (
            {"metrics": {"a": {"of": "tyo", "key": "f1"}}},
            ["metrics.a.of='tyo'", "did you mean 'toy'"],
        ),
        ({"metrics": {"a": {"of": "toy"}}}, ["metrics.a.key: must be given"]),
        ({"metrics": {}}, ["metrics", "at least one"]),
        (
            {"metrics": {"a": {"of": "toy", "key": "f1", "published": {"values": {"fast": 1.0}}}}},
            ["published.unit: must be"],
        ),
        (
            {
                "metrics": {
                    "a": {"of": "toy", "key": "f1", "published": {"unit": "%", "values": {"x": 1}}}
                }
            },
            ["values='x'"],
        ),
        (
            {"metrics": {"a": {"of": "toy", "key": "f1", "expect": {"slow": "higher"}}}},
            [
                "metrics.a.expect='slow': is the baseline, which has no direction\n"
                "  fix: '~metrics.a.expect.slow'"
            ],
        ),
        (
            {
                "arms": {"slow": []},
                "metrics": {"a": {"of": "toy", "key": "f1", "expect": {"fst": "higher"}}},
            },
            ["metrics.a.expect='fst': there is no arm except the baseline"],
        ),
        (
            {"pretrain": {"recipe": "robreta"}},
            [
                "pretrain.recipe='robreta': there is no such recipe (did you mean 'roberta'?);"
                " plmctl recipes ls says what each one is\n  fix: pretrain.recipe=roberta"
            ],
        ),
        ({"arms": {"slow": [], "fast": {"recipe": "albrt"}}}, ["fix: arms.fast.recipe=albert"]),
        (
            {"arms": {}, "grid": ["recipe=bert,albrt"], "baseline": "bert"},
            ["recipe='albrt': there is no such recipe", "fix: recipe=albert"],
        ),
        (
            {"metrics": {"a": {"of": "toy", "key": "f1", "expect": {"fast": "up"}}}},
            ["metrics.a.expect", "higher, lower"],
        ),
        ({"eval": {"toy": {"of": "pretrain"}}}, ["eval.toy", "taken already"]),
        ({"eval": {"text": {"of": "nothing"}}}, ["eval.text.of='nothing'", "pretrain, toy"]),
        (
            {"stop": {"metric": "valid/loss", "after": 1.5, "bound": 3}},
            ["stop.after=1.5", "below 1"],
        ),
        ({"finetune": {"task": {}}}, ["finetune.task", "did you mean 'tasks'"]),
        ({"grid": ["size=tiny", "]"]}, ["cannot be read"]),
    ],
)
def test_mistakes(parsed: Parsed, changes: dict[str, Any], words: list[str]) -> None:
    found = message(parsed, **changes)
    assert all(word in found for word in words), found


def test_all_mistakes_at_once(parsed: Parsed) -> None:
    found = message(
        parsed,
        baseline="x",
        seeds=[],
        budget={},
        metrics={"a": {"of": "toy", "key": "f1", "published": {}}},
    )
    assert all(
        word in found
        for word in ("baseline", "seeds", "budget", "published.unit", "published.values")
    )


def test_a_setting_that_no_study_has(parsed: Parsed) -> None:
    assert "did you mean 'baseline'" in message(parsed, basline="slow")


def test_brackets_without_quotes_and_a_word_for_a_mapping(here: Path, parsed: Parsed) -> None:
    told = message(parsed, "arms=x")
    assert told == "arms='x': must be a mapping of names to values\n  fix: arms.NAME=..."
    assert "\n  fix: 'arms.fast=[KEY=VALUE]'" in message(parsed, "arms.fast=x")
    assert "\n  fix: metrics.perplexity.of=..." in message(parsed, "metrics.perplexity=x")
    assert message(parsed, "budget=x").endswith("\n  fix: budget.steps=...")
    file = here / "brackets.yaml"
    file.write_text(
        "pretrain: {overrides: [size=tiny, objective=[mlm], seed=1]}\n", encoding="utf-8"
    )
    with pytest.raises(DataError, match=r'fix: "objective=\[mlm\]"  # in quotes$'):
        read_settings(file)
    file.write_text("pretrain: {overrides: [size=tiny, 'objective=[mlm]'\n", encoding="utf-8")
    with pytest.raises(DataError, match="fix: # correct it"):
        read_settings(file, fix="correct it")


def test_a_study_stopped_before_its_first_job_says_how_to_go_on(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("plmctl.study.run.parse", stop)
    toy_study.write_study(here)
    words = ["ablate", "./toy.yaml", "seeds=[0]"]
    stopped = CliRunner().invoke(make_app(), words)
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("To go on:\n  plmctl ablate ./toy.yaml 'seeds=[0]'\n")
    planned = CliRunner().invoke(make_app(), [*words, "--dry-run"])
    assert planned.exit_code == 130
    assert "To go on" not in planned.stderr
    monkeypatch.setattr("plmctl.runs.deciding.decide", stop)  # while settings are composed
    monkeypatch.setattr("sys.argv", ["plmctl", *words, "--json"])
    early = CliRunner().invoke(make_app(), [*words, "--json"])
    assert early.exit_code == 130
    assert early.stderr.endswith("To go on:\n  plmctl ablate ./toy.yaml 'seeds=[0]' --json\n")
