"""BERT-of-Theseus: every mixture of layers against a model composed of them by hand, draws,
resume, and what is refused.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import find
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.config.spec import Provenance
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError, UsageError
from plmctl.distill.teachers import Frozen, Several
from plmctl.distill.theseus import Theseus
from plmctl.objectives.mlm import MLM
from plmctl.objectives.seq2seq import ConditionalLM
from plmctl.runs import finetuning
from plmctl.runs.contract.stand_in import TINY
from plmctl.runs.resume import resume_spec
from tests.distill.lessons import V, batch, model, pair

LAYER = "backbone.stack.blocks."


def theseus(student=None, teacher=None, **how):
    own, _, frozen = pair()
    return (
        Theseus(
            objective=MLM(), model=student or own, teacher=teacher or frozen, **{"rate": 0.5, **how}
        ),
        student or own,
    )


def composed(sources):
    """A plain model of these layers: [(model, number of its layer)]."""
    made = model(layers=len(sources), seed=9)
    own, first = made.state_dict(), sources[0][0].state_dict()
    for name in own:
        letter, number, rest = (
            name.removeprefix(LAYER).split(".", 2) if name.startswith(LAYER) else ("", "", "")
        )
        source, layer = sources[int(number)] if letter else (None, 0)
        own[name] = (
            source.state_dict()[f"{LAYER}{letter}.{layer}.{rest}"] if letter else first[name]
        )
    made.load_state_dict(own)
    return made


@pytest.mark.parametrize("drawn", [(False, False), (True, False), (False, True), (True, True)])
def test_each_mixture_is_the_model_of_those_layers(drawn, monkeypatch):
    objective, student = theseus()
    large = objective.teacher.model
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(name.startswith(LAYER))
    monkeypatch.setattr(objective, "draw", lambda: [np.array(drawn)])
    layers = [
        p
        for module, own in enumerate(drawn)
        for p in ([(student, module)] if own else [(large, 2 * module), (large, 2 * module + 1)])
    ]
    reference = composed(layers)
    given = batch()
    found, wanted = objective(student, given), MLM()(reference, given)
    torch.testing.assert_close(
        found.terms["mlm"].total, wanted.terms["mlm"].total, rtol=1e-10, atol=1e-10
    )
    assert found.logs["replaced"] == (torch.tensor(float(sum(drawn))), 2)
    found.terms["mlm"].total.backward()
    wanted.terms["mlm"].total.backward()
    theirs = {(id(source), layer): place for place, (source, layer) in enumerate(layers)}
    of_reference = dict(reference.named_parameters())
    for name, parameter in student.named_parameters():
        if not name.startswith(LAYER):
            assert parameter.grad is None
            continue
        letter, number, rest = name.removeprefix(LAYER).split(".", 2)
        place = theirs.get((id(student), int(number)))
        expected = (
            torch.zeros_like(parameter)
            if place is None
            else of_reference[f"{LAYER}{letter}.{place}.{rest}"].grad
        )
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-10)
    assert all(parameter.grad is None for parameter in large.parameters())


def test_the_student_is_given_all_but_its_layers_and_stands_alone_in_evaluation():
    student, given = model(), batch()
    before = {name: p.clone() for name, p in student.named_parameters()}
    objective, _ = theseus(student)
    theirs = dict(objective.teacher.model.named_parameters())
    for name, parameter in student.named_parameters():
        assert torch.equal(parameter, before[name] if name.startswith(LAYER) else theirs[name])
    objective.eval()
    assert objective(student, given).terms["mlm"].total == MLM()(student, given).terms["mlm"].total
    assert objective.state_dict().keys() == {"step"}
    assert not list(objective.parameters())


def test_the_rate_rises_and_draws_follow_it():
    objective, _ = theseus(rate=0.3, slope=0.001)
    assert [objective.probability(t) for t in (0, 100, 700, 9000)] == pytest.approx(
        [0.3, 0.4, 1, 1]
    )
    constant, _ = theseus(rate=0.5, until=2500)
    assert [constant.probability(t) for t in (0, 2499, 2500)] == [0.5, 0.5, 1.0]
    found = []
    for step in range(2000):
        constant.after_step(None, step)
        found.append(constant.draw()[0])
    assert np.abs(np.mean(found, 0) - 0.5).max() < 4 * (0.25 / 2000) ** 0.5
    # each module by itself
    assert abs(np.mean([a == b for a, b in found]) - 0.5) < 4 * (0.25 / 2000) ** 0.5
    again, _ = theseus(rate=0.5, until=2500)
    again.after_step(None, 1234)
    assert (again.draw()[0] == found[1234]).all()
    other, _ = theseus(rate=0.5, seed=1)
    draws = []
    for step in range(64):
        other.after_step(None, step)
        draws.append(other.draw()[0])
    assert not all((a == b).all() for a, b in zip(draws, found, strict=False))


def test_what_does_not_meet_is_named():
    for words, how in {
        "size.num_layers=3: a divisor of the 4 layers of the teacher runs/large": {"layers": 3},
        "size.width=4: 8, the width of the teacher": {"width": 4},
    }.items():
        with pytest.raises(ConfigError, match=words):
            theseus(model(**how))
    for words, how in {
        "rate=0": {"rate": 0.0},
        "slope=-1": {"slope": -1.0},
        "until=0": {"until": 0},
    }.items():
        with pytest.raises(ConfigError, match=words):
            theseus(**how)
    reversible = model()
    reversible.backbone.stack.reversible = True
    with pytest.raises(ConfigError, match=r"stack\.reversible=True: false, of the teacher, too"):
        theseus(reversible)
    _, _, frozen = pair()
    with pytest.raises(ConfigError, match="teacher: one trained model"):
        theseus(teacher=Several(teachers=[frozen, frozen]))
    del frozen.model.heads["mlm"]
    with pytest.raises(ConfigError, match=r"it has no heads\.mlm"):
        theseus(teacher=frozen)


def test_both_stacks_of_an_encoder_decoder(monkeypatch):
    """All modules the teacher's: its loss; all the student's: the student's; each stack draws
    for itself.
    """
    words = [
        "size=tiny",
        "size.width=16",
        "size.inner_width=16",
        "size.num_heads=2",
        "format.max_length=16",
    ]
    made = []
    for layers in (2, 4):
        cfg = config.compose("pretrain", "bart", [*words, f"size.num_layers={layers}"])
        made.append(build_model(cfg, vocab_size=V, vocab=TINY, seed=layers).double().eval())
    ids, index = torch.arange(10, 22).view(2, 6), torch.arange(12)
    seq = Seq(ids, torch.tensor([6, 6]), full=True)
    given = Batch(
        torch.arange(2),
        {"source": seq, "target": seq},
        {"seq2seq": Targets(index, ids.flatten(), 12)},
        counts={"seq2seq": 12},
    )
    ask = ConditionalLM(smoothing=0.0)
    objective = Theseus(
        objective=ask, model=made[0], teacher=Frozen(model=made[1], name="the teacher"), rate=0.5
    )
    assert len(objective.draw()) == 2
    for drawn, expected in ((True, made[0]), (False, made[1])):
        monkeypatch.setattr(
            objective, "draw", lambda drawn=drawn: [np.full(n, drawn) for n in objective.modules_of]
        )
        found, wanted = (
            o.terms["seq2seq"].total for o in (objective(made[0], given), ask(expected, given))
        )
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=48",
    "tokenizer.vocab_size=23",
    "train.precision=fp32",
    "optim.lr=1e-3",
]
SMALL += ["train.batch_size=8", "task.max_length=16", "schedule=constant", "train.epochs=null"]


def tuned(path, run, *words, steps=4):
    words = [
        "task=classification",
        f"task.path={path}",
        f"run.dir={run}",
        f"train.steps={steps}",
        *words,
    ]
    cfg = config.compose("finetune", None, words)
    return finetuning.finetune(cfg)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theseus")
    for split in ("train", "dev"):
        rows = [
            f"this is a {word} film\t{n % 2}"
            for n in range(24)
            for word in [["good", "fine", "bad", "dull"][n % 4]]
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    assert tuned(folder, folder / "run", "checkpoint=null", "size.num_layers=4", *SMALL) == 0
    return folder


@pytest.mark.slow  # test_lesson_commands.py trains and resumes layers alone
def test_trains_layers_alone_and_resumes_bit_for_bit(teacher, tmp_path, capsys):
    run = teacher / "run"
    words = [
        f"checkpoint={run}",
        "kept_layers=[0,1]",
        f"teacher={run}",
        "distill=theseus",
        "distill.slope=0.1",
        *SMALL[4:],
    ]
    words += ["task.max_length=16"]
    assert tuned(teacher, tmp_path / "whole", *words, steps=8) == 0
    assert tuned(teacher, tmp_path / "parts", *words, steps=3) == 0
    changed = ("train.steps=8", f"run.dir={tmp_path / 'parts'}")
    cfg = resume_spec(Provenance("finetune", overrides=changed, resume=True))
    assert finetuning.finetune(cfg) == 0
    last = tmp_path / "whole/checkpoints/step-8"
    for file in ("model.safetensors", "optimizer.safetensors", "objective.safetensors"):
        assert (last / file).read_bytes() == (
            tmp_path / "parts/checkpoints/step-8" / file
        ).read_bytes()
    found = load_file(last / "model.safetensors")
    theirs = load_file(find(run) / "model.safetensors")
    moved = {name for name, tensor in found.items() if not torch.equal(tensor, theirs[name])}
    assert moved == {name for name in found if name.startswith(LAYER)}
    records = [
        json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()
    ]
    assert 0 <= records[0]["replaced"] <= 1
    assert load_file(last / "objective.safetensors")["step"] == 8
    with pytest.raises(UsageError, match="a divisor of the 4 layers"):
        tuned(teacher, tmp_path / "three", *words, "kept_layers=[0,1,2]")
    assert not (tmp_path / "three").exists()
    words = [f"checkpoint={tmp_path / 'whole'}"]
    cfg = config.compose("eval", None, words)
    # an ordinary model
    assert perform(cfg.asked(json=True)) == 0
