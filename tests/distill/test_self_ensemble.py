"""Self-distillation: averages against loops over the students there have been, the loss, resume,
and the average as a model.
"""

import json

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError
from plmctl.distill.base import Measures
from plmctl.distill.distillation import Distillation
from plmctl.distill.logits import LogitMSE
from plmctl.distill.self_ensemble import SelfEnsemble, find_tensors
from plmctl.objectives.mlm import MLM
from plmctl.runs import finetuning
from plmctl.runs.resume import resume_spec
from tests.distill.lessons import batch, model
from tests.distill.test_theseus import SMALL, tuned


def moved(student):
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return {name: p.detach().clone() for name, p in student.named_parameters()}


def history(student, ensemble, updates):
    """The parameters of all students, the first one included."""
    found = [{name: p.detach().clone() for name, p in student.named_parameters()}]
    for step in range(1, updates + 1):
        found.append(moved(student))
        ensemble.after_step(student, step)
    return found


@pytest.mark.parametrize("window", [1, 3])
def test_the_window_is_the_mean_of_the_last_students(window):
    student = model()
    ensemble = SelfEnsemble(model=student, window=window)
    for updates in (0, 1, 2, 7):
        student = model()
        ensemble = SelfEnsemble(model=student, window=window)
        last = history(student, ensemble, updates)[-window:]
        for name, found in find_tensors(ensemble.average, ensemble.names).items():
            torch.testing.assert_close(
                found, sum(each[name] for each in last) / len(last), rtol=1e-12, atol=1e-12
            )


def test_a_decay_is_the_moving_average():
    student = model()
    ensemble = SelfEnsemble(model=student, decay=0.3)
    students = history(student, ensemble, 9)
    expected = students[0]
    for step, each in enumerate(students[1:], 1):
        d = min(0.3, (1 + step) / (10 + step))
        expected = {name: mean - (1 - d) * (mean - each[name]) for name, mean in expected.items()}
    for name, found in find_tensors(ensemble.average, ensemble.names).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("vote", [False, True])
def test_the_loss_is_the_mean_square_to_the_logits_of_the_average(vote):
    """Of a model with mean parameters, or the mean of the logits of the last models, in a loop
    over places and classes.
    """
    student, given = model(dropout=0.3), batch()
    ensemble = SelfEnsemble(model=student, window=3, vote=vote)
    signals = {"average": LogitMSE(weight=1.5)}
    objective = Distillation(
        objective=MLM(),
        model=student,
        student=Measures.of(student, "s"),
        teacher=ensemble,
        signals=signals,
        hard=1.0,
    )
    objective.train()
    assert not ensemble.average.training  # dropout off, whatever the student does
    student.eval()
    last = [{name: p.detach().clone() for name, p in student.named_parameters()}]
    for step in (1, 2, 3, 4):
        last.append(moved(student))
        objective.after_step(student, step)
    output, asked = objective(student, given), given.targets["mlm"]
    models = []
    for parameters in (
        last[-3:]
        if vote
        else [{name: sum(each[name] for each in last[-3:]) / 3 for name in last[0]}]
    ):
        made = model().eval()
        made.load_state_dict({**made.state_dict(), **parameters})
        models.append(made)
    total = 0.0
    for place, label in zip(asked.index.tolist(), asked.ids.tolist(), strict=True):
        if label >= 0:
            states = [made(given).gather(torch.tensor([place])) for made in [student, *models]]
            own, *others = [
                made.heads["mlm"](s)[0] for made, s in zip([student, *models], states, strict=True)
            ]
            mean = sum(others) / len(others)
            total += sum((own[c] - mean[c]) ** 2 for c in range(len(own))) / len(own)
    term = output.terms["average/mlm"]
    torch.testing.assert_close(term.total, total, rtol=1e-9, atol=1e-10)
    assert term.weight == 1.5
    assert output.terms["mlm"].weight == 1.0
    before = {name: p.clone() for name, p in find_tensors(ensemble.average, ensemble.names).items()}
    term.total.backward()
    assert not list(ensemble.parameters())  # nothing of it is trained
    assert all(
        torch.equal(before[name], p)
        for name, p in find_tensors(ensemble.average, ensemble.names).items()
    )
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters())


def test_numbers_that_mean_nothing_are_refused():
    for words, how in {
        "a window or a decay": {},
        "one of the two": {"window": 3, "decay": 0.9},
        "window=0: 1 or more": {"window": 0},
        "decay=1.0: 0 < decay < 1": {"decay": 1.0},
        "vote=True: goes with a window": {"decay": 0.5, "vote": True},
    }.items():
        with pytest.raises(ConfigError, match=words):
            SelfEnsemble(model=model(), **how)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    for split in ("train", "dev"):
        rows = [
            f"this is a {['good', 'fine', 'bad', 'dull'][n % 4]} film\t{n % 2}" for n in range(24)
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return folder


@pytest.mark.slow  # test_distill_command.py resumes
def test_a_run_remembers_and_resumes_bit_for_bit(table, tmp_path):
    words = ["checkpoint=null", *SMALL, "distill=self_distillation", "distill.teacher.window=2"]
    assert tuned(table, tmp_path / "whole", *words, steps=5) == 0
    assert tuned(table, tmp_path / "parts", *words, steps=3) == 0
    changed = ("train.steps=5", f"run.dir={tmp_path / 'parts'}")
    cfg = resume_spec(Provenance("finetune", overrides=changed, resume=True))
    assert finetuning.finetune(cfg) == 0
    whole, parts = (tmp_path / name / "checkpoints/step-5" for name in ("whole", "parts"))
    for file in ("model.safetensors", "objective.safetensors"):
        assert (whole / file).read_bytes() == (parts / file).read_bytes()
    records = [
        json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()
    ]
    assert records[0]["loss/average/class"] >= 0
    with pytest.raises(ConfigError, match="no other teacher than the student itself"):
        tuned(table, tmp_path / "no", *words, f"teacher={tmp_path / 'whole'}")


@pytest.mark.slow  # test_the_window_is_the_mean_of_the_last_students stays
def test_the_average_of_a_run_is_a_model_of_its_own(table, tmp_path):
    """distill=self_ensemble changes nothing but what is kept: theta of the run is that without
    it.
    """
    words = ["checkpoint=null", *SMALL]
    assert tuned(table, tmp_path / "plain", *words, "train.save_every=1", "train.keep_last=4") == 0
    assert (
        tuned(
            table, tmp_path / "kept", *words, "distill=self_ensemble", "distill.teacher.decay=0.2"
        )
        == 0
    )
    steps = [
        load_file(tmp_path / f"plain/checkpoints/step-{n}/model.safetensors") for n in (1, 2, 3, 4)
    ]
    own = load_file(tmp_path / "kept/checkpoints/step-4/model.safetensors")
    assert all(torch.equal(own[name], tensor) for name, tensor in steps[-1].items())
    done = CliRunner().invoke(
        make_app(), ["average", str(tmp_path / "kept"), "--kept", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    found = load_file(tmp_path / "out/checkpoints/step-4/model.safetensors")
    assert found.keys() == own.keys()
    d = [min(0.2, (1 + t) / (10 + t)) for t in (1, 2, 3, 4)]
    for name, tensor in found.items():
        # d_1 = 2/11 leaves a share of theta_0 that two more updates make 0.8 percent
        expected = steps[1][name].double()
        shares = [(1 - d[n]) * torch.tensor(d[n + 1 :]).prod().item() for n in range(4)]
        expected = sum(
            share * step[name].double() for share, step in zip(shares, steps, strict=True)
        ) / sum(shares)
        torch.testing.assert_close(tensor.double(), expected, rtol=0, atol=2e-4)
    for verb in (["eval", f"checkpoint={tmp_path / 'out'}"],):
        assert CliRunner().invoke(make_app(), verb).exit_code == 0
    done = CliRunner().invoke(
        make_app(), ["average", str(tmp_path / "plain"), "--kept", "--out", str(tmp_path / "no")]
    )
    assert done.exit_code == 3
    assert "keeps no average" in done.output
