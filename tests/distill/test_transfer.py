"""Layers before predictions: the losses and rates of each phase against the definition, what each
phase changes, resume within a phase, and what is refused.
"""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from plmctl.artifacts.loading import find
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, UsageError
from plmctl.distill.attention import AttentionKL
from plmctl.distill.distillation import Distillation
from plmctl.distill.hidden import HiddenMSE
from plmctl.distill.logits import SoftTargets
from plmctl.distill.transfer import LayerTransfer
from plmctl.objectives.mlm import MLM
from plmctl.runs import finetuning
from plmctl.runs.resume import resume_spec
from plmctl.training.freezing import matches
from plmctl.training.optim.schedule import Constant, Polynomial
from plmctl.training.stages import Stage
from tests.distill.lessons import batch, pair
from tests.distill.test_lesson_commands import logged, table, tuned

LAYERS = 4


def lesson(by_layer=True, **how):
    student, measures, teacher = pair(layers=LAYERS)
    both = {"student": measures, "teacher": teacher, "by_layer": by_layer}
    signals = {
        "hidden": HiddenMSE(weight=100.0, embeddings=True, **both),
        "attention": AttentionKL(weight=1.0, **both),
        "soft": SoftTargets(weight=0.5, temperature=1.0),
    }
    transfer = LayerTransfer(**{"share": 0.4, "schedule": Constant(), **how})
    given = {"objective": MLM(), "model": student, "student": measures, "teacher": teacher}
    return Distillation(**given, signals=signals, hard=0.5, transfer=transfer), student, teacher


def factors(objective, student):
    """{parameter: its factor} of each phase, and its trained losses."""
    whole = Stage(batches=list, share=1.0)
    stages = whole.divide(objective.facts.phases, Constant(), objective.facts.terms)
    return [
        (
            {
                name: 0.0 if matches(name, stage.frozen) else stage.rate_of(name)
                for name, _ in student.named_parameters()
            },
            set(stage.losses),
            stage.share,
        )
        for stage in stages
    ]


@pytest.mark.parametrize("below", [0.1, 0.0])
def test_each_layer_has_a_phase_with_its_losses_and_rates(below):
    objective, student, _ = lesson(rate=3.0, below=below)
    found = factors(objective, student)
    assert len(found) == LAYERS + 1
    for number, (rates, losses, share) in enumerate(found[:-1], 1):
        assert share == pytest.approx(0.4 / LAYERS)
        own = {f"hidden/{number}", f"attention/{number}"}
        assert losses == (own | {"hidden/0"} if number == 1 else own)
        for name, rate in rates.items():
            # 0 before the phase of a layer, 3 in it, 0.3 after it; all else is fixed
            before = "backbone.stack.blocks."
            layer = int(name.split(".")[4]) + 1 if name.startswith(before) else LAYERS + 1
            wanted = 0.0 if layer > number else 3.0 if layer == number else 3.0 * below
            assert rate == pytest.approx(wanted), (number, name)
    rates, losses, share = found[-1]
    assert (losses, share) == ({"mlm", "soft/mlm"}, pytest.approx(0.6))
    assert set(rates.values()) == {1.0}


def test_joint_transfer_has_one_phase_and_two_layers_may_share_one():
    (rates, losses, _), last = factors(*lesson(phases=1)[:2])
    assert losses == {f"{s}/{m}" for s in ("hidden", "attention") for m in range(1, 5)} | {
        "hidden/0"
    }
    layers = {name for name in rates if name.startswith("backbone.stack.blocks.")}
    assert {name for name, rate in rates.items() if rate} == layers
    assert last[1] == {"mlm", "soft/mlm"}
    objective, _, _ = lesson(phases=2, share=1.0)
    assert [phase.name for phase in objective.facts.phases] == ["layers 1 to 2", "layers 3 to 4"]
    alone, student, _ = lesson(inherit=False)
    first, second = factors(alone, student)[:2]
    embedding = next(name for name in first[0] if "embedding" in name)
    assert (first[0][embedding], second[0][embedding]) == (1.0, pytest.approx(0.1))


def test_losses_of_layers_are_the_parts_of_the_sum_and_all_names_are_known():
    given = batch()
    objective, student, teacher = lesson()
    whole, _, _ = lesson(by_layer=True, phases=1)
    assert set(objective.counts(given)) == objective.facts.terms == whole.facts.terms
    output = objective(student, given)
    both = [
        [state.detach() for state in m(given, record=frozenset({"hidden"})).recorded["hidden"]]
        for m in (student, teacher.model)
    ]
    for layer in range(LAYERS + 1):
        own, other = (states[layer] for states in both)
        wanted = sum(
            float((own[b, i] - other[b, i]).square().mean())
            for b, length in enumerate(given.text.length.tolist())
            for i in range(length)
        )
        term = output.terms[f"hidden/{layer}"]
        assert (term.total.item(), term.weight) == (pytest.approx(wanted), 100.0)


def test_the_schedule_of_a_phase_is_that_of_the_released_script():
    schedule = Polynomial(power=0.5, end=0.9, decay_from_zero=True, warmup_share=0.1)
    for s in range(1000):
        released = min(0.9 + 0.1 * (1 - s / 1000) ** 0.5, 10 * s / 1000)
        assert schedule(s + 1, 1000) == pytest.approx(released, abs=0.011)


def test_the_student_gets_all_but_its_layers():
    for inherit in (True, False):
        _, student, teacher = lesson(inherit=inherit)
        theirs = dict(teacher.model.named_parameters())
        outside = [n for n in theirs if not n.startswith("backbone.stack.blocks.")]
        same = {n: torch.equal(student.get_parameter(n), theirs[n]) for n in outside}
        assert set(same.values()) == {inherit}


def test_what_does_not_fit_is_named():
    for words, how in {
        "share=0": {"share": 0.0},
        "rate=0": {"rate": 0.0},
        "below=-1": {"below": -1.0},
        "phases=5: 1 .* to 4": {"phases": 5},
        "by_layer": {"by_layer": False},
    }.items():
        with pytest.raises(ConfigError, match=words):
            lesson(**how)


STEPS = ["train.steps=8", "train.save_every=2", "train.keep_last=9", "train.eval_every=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a task, a teacher and a student of two layers that learned two phases of two
    updates each, then four of predictions.
    """
    folder = tmp_path_factory.mktemp("transfer")
    table(folder / "data")
    tuned(folder, "teacher")
    tuned(folder, "whole", *taught(folder), *STEPS)
    return folder


def taught(folder):
    return [
        "distill=mobilebert_progressive",
        f"teacher={folder / 'teacher'}",
        "distill.transfer.share=0.5",
        "size.inner_width=16",
    ]


def weights(run, step):
    return load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")


def test_each_phase_changes_its_layers_alone(place):
    run = place / "whole"
    layers = [f"backbone.stack.blocks.{letter}." for letter in "af"]

    def changed(first, last):
        one, two = (weights(run, step) for step in (first, last))
        return {name for name in one if not torch.equal(one[name], two[name])}

    def of(number):
        return tuple(f"{prefix}{number}." for prefix in layers)

    theirs = load_file(find(place / "teacher") / "model.safetensors")
    own = weights(run, 2)
    outside = [name for name in own if not name.startswith((*of(0), *of(1)))]
    assert outside
    assert all(torch.equal(own[name], theirs[name]) for name in outside)
    second = changed(2, 4)
    assert {name.startswith(of(0)) for name in second} == {True, False}
    assert all(name.startswith((*of(0), *of(1))) for name in second)
    assert any(name.startswith("heads.") for name in changed(4, 8))
    line = next(each for each in reversed(logged(run)) if "stage" in each)
    assert {"loss/hidden/1", "loss/hidden/2", "loss/attention/2", "loss/soft/class"} <= set(line)
    assert line["stage"] == 2


def test_a_run_that_stopped_within_a_phase_ends_as_one_that_did_not(place, capsys):
    # pauses after the first of two updates of layer 2
    tuned(place, "parts", *taught(place), *STEPS, "train.pause_at=3")
    provenance = Provenance(
        "finetune", overrides=("train.pause_at=null", f"run.dir={place / 'parts'}"), resume=True
    )
    assert finetuning.finetune(resume_spec(provenance)) == 0
    assert "stage 3 of 3 (predictions) begins after update 4" in capsys.readouterr().err
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (place / run / "checkpoints/step-8" / file for run in ("whole", "parts"))
        assert one.read_bytes() == two.read_bytes()


def test_a_run_is_divided_once(place):
    with pytest.raises(UsageError, match=r"(?s)train\.unfreeze.*distill\.transfer=null"):
        tuned(place, "x", *taught(place), "train.unfreeze=true")
    assert not (place / "x").exists()
