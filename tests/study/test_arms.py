"""Arms of other lengths, arms that are taught by another, and the gradients of the first update
as a metric.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import UsageError
from plmctl.jobs.journal import State
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results
from tests.study import toy_study

Planned = Callable[..., StudyPlan]
LOSS = {"a": {"of": "pretrain", "key": "loss"}}
LM = ["task=lm", "data.path=nothere"]
STUDENT = {"pretrain": False, "overrides": ["size.num_layers=1"], "teacher": "slow"}


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [({"steps": 24}, (24, 60)), ({"tokens": 1001}, (1001, 2502)), ({"minutes": 2}, (2, 5))],
)
def test_an_arm_may_have_several_times_the_budget(
    planned: Planned, budget: dict[str, float], wanted: tuple[int, int]
) -> None:
    plan = planned(
        arms={"slow": [], "fast": {"times": 2.5}}, budget=budget, finetune=None, metrics=LOSS
    )
    (kind,) = budget
    assert tuple(each.pretrain["train"][kind] for each in plan.arms.values()) == wanted


def test_times_of_flops_are_of_each_arms_own_cost(planned: Planned) -> None:
    arms = {"slow": [], "fast": {"overrides": ["size.width=64"], "times": 2}}
    plan = planned(arms=arms, budget={"flops": 1e10}, finetune=None, metrics=LOSS)
    spent = {
        name: each.pretrain["train"]["tokens"] * each.flops_per_token
        for name, each in plan.arms.items()
    }
    assert spent == {"slow": pytest.approx(1e10, rel=1e-3), "fast": pytest.approx(2e10, rel=1e-3)}


def test_a_teacher_is_what_its_arm_became_on_the_task_at_the_same_seed(planned: Planned) -> None:
    arms = {
        "slow": [],
        "labels": STUDENT | {"teacher": None},
        "taught": STUDENT | {"finetune": ["distill=kd"]},
        "kept": STUDENT | {"from_teacher": True, "finetune": ["kept_layers=first1"]},
        "kept, taught": (
            STUDENT | {"from_teacher": True, "finetune": ["kept_layers=first1", "distill=kd"]}
        ),
    }
    node = {**toy_study.STUDY["finetune"], "grid": ["train.clip=1,2"]}
    plan = planned(arms=arms, finetune=node, metrics=LOSS)
    jobs = {
        (cell.arm, cell.seed): [plan.jobs[point[0]] for point in cell.tuned["toy"]]
        for cell in plan.cells
    }
    needed = {need for job in plan.jobs.values() for need in job.needs}
    for seed in (0, 1):
        teacher = jobs["slow", seed][0].name  # at the first point of the grid
        assert teacher in needed  # so its checkpoint stays
        assert jobs["slow", seed][1].name not in needed
        for job in jobs["labels", seed]:
            assert (job.config["teacher"], job.config["checkpoint"]) == (None, None)
        for job in jobs["taught", seed]:
            assert (job.config["teacher"], job.config["checkpoint"]) == (f"job:{teacher}", None)
            assert teacher in job.needs
        for job in jobs["kept", seed]:
            assert (job.config["teacher"], job.config["checkpoint"], job.needs) == (
                None,
                f"job:{teacher}",
                (teacher,),
            )
        for job in jobs["kept, taught", seed]:
            assert job.config["teacher"] == job.config["checkpoint"] == f"job:{teacher}"
            assert job.needs == (teacher,)
    assert sum(job.verb == "pretrain" for job in plan.jobs.values()) == 2
    names = list(plan.jobs)
    assert all(
        names.index(need) < names.index(name)
        for name, job in plan.jobs.items()
        for need in job.needs
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"taught": STUDENT, "slow": []}, "arms.taught.teacher='slow'"),
        ({"slow": [], "taught": STUDENT | {"teacher": "slo"}}, "did you mean 'slow'"),
        ({"slow": [], "kept": {"from_teacher": True}}, "arms.kept.from_teacher"),
        ({"slow": [], "long": {"times": 0}}, "arms.long.times=0"),
        (
            {"slow": [], "long": {"times": 3, "pretrain": False}},
            "arms.long.times=3.0: is of a pretraining",
        ),
        ({"taught": STUDENT, "slow": []}, "has to stand before its student"),
        ({"slow": STUDENT, "fast": []}, "is the student itself"),
        (
            {"slow": [], "fast": {"finetune": ["distill=kd"]}},
            "arm 'fast': teacher=null: a run, a checkpoint",
        ),
    ],
)
def test_teachers_that_cannot_be(planned: Planned, arms: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        planned(arms=arms)
    assert words in str(error.value)


def test_gradients_of_the_first_update_are_a_metric(planned: Planned, here: Path) -> None:
    wanted = {"layer 2": {"of": "pretrain", "key": "start/grad_norm/layer.2"}}
    with pytest.raises(UsageError, match="does not produce it"):
        planned(finetune=None, metrics=wanted)
    logged = {"recipe": "roberta", "overrides": [*toy_study.SMALL, "train.grad_norms=true"]}
    plan = planned(finetune=None, metrics=wanted, pretrain=logged)
    for number, cell in enumerate(plan.cells):
        run = here / str(cell.pretrain) / "run"
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text(
            json.dumps({"step": 1, "start/grad_norm/layer.2": 1.0 + number}) + "\n"
        )
    found = Results(plan, {name: State("done") for name in plan.jobs}, lambda name: here / name)
    assert found.values(plan.study.metrics["layer 2"], "slow") == {0: 1.0, 1: 3.0}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "owner"),
    [
        ({"eval": {"x": {"of": "toy", "overrides": ["input=nothere"]}}}, r"eval\.x"),
        ({"eval": {"x": {"of": "pretrain", "overrides": LM}}}, r"eval\.x"),
        ({"arms": {"slow": [], "fast": {"finetune": ["task.path=nothere"]}}}, "arm 'fast'"),
        ({"arms": {"slow": [], "fast": {"checkpoint": "nothere"}}}, "arm 'fast'"),
    ],
)
def test_files_that_are_not_there_are_named_before_work(
    planned: Planned, changes: dict[str, Any], owner: str
) -> None:
    with pytest.raises(UsageError, match=f"{owner}: nothere: (no such file|there is no such run)"):
        planned(**changes)
