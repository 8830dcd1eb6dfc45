"""The objective around an objective: what it adds up, what it counts, what it trains and keeps,
whom it asks.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.distill.attention import AttentionMSE
from plmctl.distill.base import LOGITS, Measures
from plmctl.distill.distillation import Distillation
from plmctl.distill.hidden import HiddenMSE
from plmctl.distill.logits import LogitMSE, SoftTargets
from plmctl.distill.questions import OfTask, OfTokens, make_question
from plmctl.distill.relations import MiniLM
from plmctl.distill.teachers import Frozen, Several
from plmctl.distill.theseus import Theseus
from plmctl.heads.lm import LMHead
from plmctl.heads.tag import Tag
from plmctl.models.base import Model
from plmctl.models.encoder_decoder import EncoderDecoder
from plmctl.objectives.base import Objective, Output, Term
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.mlm import MLM
from plmctl.objectives.seq2seq import ConditionalLM
from plmctl.tasks.choices import Choice
from plmctl.tasks.regression import Regression
from plmctl.tasks.squad import Squad
from plmctl.tasks.tagging import Tagging
from plmctl.training.checkpoint import tensors_of
from tests.distill.lessons import LENGTHS, V, batch, model, pair


def lesson(signals, *, hard=1.0, objective=None, places="predicted", width=8, **more):
    small, student, teacher = pair(width=width, **more)
    made = {
        name: part(student, teacher) if callable(part) and not isinstance(part, nn.Module) else part
        for name, part in signals.items()
    }
    objective = objective or Mix({"mlm": Entry(MLM(), 3.0)})
    taught = Distillation(
        objective=objective,
        model=small,
        student=student,
        teacher=teacher,
        signals=made,
        hard=hard,
        places=places,
    )
    return taught.double(), small, teacher.model


def hidden(student, teacher):
    return HiddenMSE(weight=2.0, student=student, teacher=teacher)


def soft(tau=2.0):
    return SoftTargets(weight=0.7, temperature=tau)


def test_terms_weights_and_counts_of_labels_and_signals():
    taught, small, _ = lesson({"soft": soft(), "layers": hidden}, hard=0.25)
    out, counts = taught(small, batch()), taught.counts(batch())
    assert {name: term.weight for name, term in out.terms.items()} == {
        "mlm": 0.75,
        "soft/mlm": 0.7,
        "layers": 2.0,
    }
    assert counts == {"mlm": 5, "soft/mlm": 5, "layers": sum(LENGTHS)}
    assert torch.equal(out.terms["mlm"].total, MLM()(small, batch()).terms["mlm"].total)
    everywhere, small, _ = lesson({"soft": soft()}, places="all")
    assert everywhere.counts(batch()) == {"mlm": 5, "soft/mlm": sum(LENGTHS)}


def test_without_labels_training_does_not_ask_them_and_validation_measures_them():
    taught, small, _ = lesson({"layers": hidden}, hard=0.0)
    assert set(taught(small, batch()).terms) == set(taught.counts(batch())) == {"layers"}
    assert not taught.facts.heads_learn
    assert lesson({"soft": soft()}, hard=0.0)[0].facts.heads_learn
    taught.eval()
    out = taught(small, batch())
    assert out.terms["mlm"].weight == 0
    assert set(taught.counts(batch())) == {"mlm", "layers"}


def test_the_student_runs_once_and_the_teacher_without_dropout_or_gradient():
    taught, small, large = lesson({"soft": soft(), "layers": hidden}, teacher={"dropout": 0.5})
    runs = {"student": 0, "teacher": 0}
    for name, made in (("student", small), ("teacher", large)):
        made.backbone.register_forward_hook(
            lambda *_, name=name: runs.update({name: runs[name] + 1})
        )
    taught.train()
    totals = [float(taught(small, batch()).terms["soft/mlm"].total.detach()) for _ in range(2)]
    assert runs == {"student": 2, "teacher": 2}
    assert totals[0] == totals[1]
    sum(term.total for term in taught(small, batch()).terms.values()).backward()
    assert all(p.grad is None and not p.requires_grad for p in large.parameters())
    assert all(p.grad is not None for p in small.parameters())


def test_the_teacher_is_nobodys_parameter_tensor_or_module():
    taught, small, large = lesson({"layers": hidden}, width=6)
    inside = {id(module) for module in taught.modules()}
    assert not inside & {id(module) for module in (*large.modules(), *small.modules())}
    assert sorted(tensors_of(taught)) == [
        "signals.layers.maps.0.bias",
        "signals.layers.maps.0.weight",
    ]
    assert {p.dtype for p in large.parameters()} == {torch.float64}
    taught.float()
    assert {p.dtype for p in large.parameters()} == {torch.float32}  # goes where its holder goes


def test_several_teachers_are_the_mean_of_their_probabilities():
    small, student, _ = pair()
    teachers = [Frozen(model=model(layers=4, seed=seed), name=f"t{seed}") for seed in (1, 2)]
    both = Several(teachers=teachers, weights=[3.0, 1.0])
    question = OfTokens({"mlm": V}, writes="text", positions="all")
    found = both.predict(batch(), question, frozenset({LOGITS})).logits["mlm"]
    alone = [t.predict(batch(), question, frozenset({LOGITS})).logits["mlm"] for t in teachers]
    some = slice(2, 9)
    expected = sum(
        w * (each.gather(some) / 2.5).softmax(-1)
        for w, each in zip((0.75, 0.25), alone, strict=True)
    )
    assert torch.allclose(found.probabilities(some, 2.5), expected)
    assert torch.allclose(
        found.gather(some), 0.75 * alone[0].gather(some) + 0.25 * alone[1].gather(some)
    )
    with pytest.raises(
        ConfigError, match=r"signals.a: needs hidden of the 2 teachers, whose Encoder gives logits"
    ):
        Distillation(
            objective=MLM(),
            model=small,
            student=student,
            teacher=both,
            signals={"a": hidden(student, both)},
            hard=1.0,
        )
    with pytest.raises(ConfigError, match=r"2 numbers, one for each teacher"):
        Several(teachers=teachers, weights=[1.0])


def test_rows_of_a_published_table_beyond_the_tokens_are_no_answer():
    _, _, teacher = pair()
    logits = OfTokens({"mlm": V - 3}, writes="text", positions="all").logits(
        teacher.model, batch()
    )["mlm"]
    assert logits.gather(slice(0, 4)).shape == (4, V - 3)


class Labelled(Objective):
    """Has an answer, but no head of tokens."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return Output({"x": Term(torch.zeros(()))})


def test_what_cannot_be_asked_is_said_before_work():
    with pytest.raises(
        ConfigError,
        match=r"signals.soft: compares logits, and this objective has no language-model head",
    ):
        lesson({"soft": soft()}, objective=Labelled())
    small, _, teacher = pair()
    bare = Frozen(
        model=Model(backbone=teacher.model.backbone, heads={"class": nn.Identity()}),
        name="the teacher runs/x",
    )
    for teachers in (bare, Several(teachers=[teacher, bare])):
        with pytest.raises(
            ConfigError, match=r"teacher: a model with the head mlm.*the teacher runs/x has class"
        ):
            teachers.meet(OfTokens({"mlm": V}, writes="text", positions="all"))
    blind = Measures("the student", 8, 2, None, None, frozenset({LOGITS, "hidden"}), "XLNet")
    for signal in (AttentionMSE, MiniLM):
        made = {"a": signal(weight=1.0, student=blind, teacher=teacher)}
        with pytest.raises(
            ConfigError,
            match=r"signals.a: needs scores.* of the student, whose XLNet gives hidden, logits",
        ):
            Distillation(
                objective=MLM(), model=small, student=blind, teacher=teacher, signals=made, hard=1.0
            )


COMMON = {
    "name": "x",
    "reader": SimpleNamespace(splits={}),
    "columns": {},
    "max_length": 16,
    "metrics": [],
}


def task_batch(**more):
    given = batch()
    return Batch(**{**vars(given), **more})


def asked(task, given, **heads):
    small = model(layers=1)
    made = Model(backbone=small.backbone, heads=heads).double()
    question = OfTask(task)
    return question.logits(made, given), question.counts(given)


def test_words_are_compared_where_a_tag_is_asked():
    labels = np.full((3, 7), IGNORE)
    labels[0, 2], labels[2, 1] = 1, 0
    rows = Rows(
        np.arange(3),
        {"text": Seq(np.ones((3, 7), np.int64), np.array(LENGTHS))},
        targets={"tag": labels},
    )
    given = collate(rows, {})
    task = Tagging(**COMMON, label_names=["O", "B"])
    logits, counts = asked(task, given, tag=Tag(width=8, num_classes=2, dropout=0.0))
    assert counts == {"tag": 2}
    assert int(logits["tag"].labelled.sum()) == 2
    assert logits["tag"].gather(slice(None)).shape[1] == 2


def test_both_ends_of_a_span_are_answers_over_the_tokens_of_a_row():
    task = Squad(**COMMON, stride=4, max_query=4, n_best=2, max_answer=3, version=1)
    span = torch.tensor([[1, 2], [IGNORE, IGNORE], [0, 0]])
    given = task_batch(labels={"span": span}, counts={"span": 2, "tokens": 15, "rows": 3})
    logits, counts = asked(task, given, span=nn.Linear(8, 2))
    assert counts == {"start": 2, "end": 2}
    assert logits["start"].labelled.tolist() == [True, False, True]
    assert logits["end"].gather(slice(None)).shape == (3, 7)
    assert logits["start"].probabilities(slice(None), 1.0)[2, 3:].abs().max() == 0  # padding


def test_choices_are_answers_of_an_example_however_many_rows_it_has():
    right, group = torch.tensor([1, IGNORE, 0]), torch.tensor([0, 0, 1])
    given = task_batch(
        labels={"choice": right}, values={"group": group}, counts={"choice": 2, "tokens": 15}
    )
    logits, counts = asked(Choice(**COMMON), given, choice=nn.Linear(8, 1))
    found = logits["choice"].probabilities(slice(None), 1.0)
    assert counts == {"choice": 2}
    assert found.shape == (2, 2)
    assert found[1].tolist() == [1.0, 0.0]


def test_a_score_has_no_probabilities_but_a_distance():
    small, student, teacher = pair()
    for made in (small, teacher.model):
        made.heads["score"] = nn.Linear(8, 1).double()
    given = {
        "objective": Regression(**COMMON),
        "model": small,
        "student": student,
        "teacher": teacher,
        "hard": 0.0,
    }
    with pytest.raises(ConfigError, match=r"(?s)this task does not choose one of.*distill=mse"):
        Distillation(**given, signals={"soft": soft()})
    rows = task_batch(
        labels={"score": torch.tensor([1.0, 2.0, 3.0])},
        counts={"score": 3, "tokens": 15, "rows": 3},
    )
    term = Distillation(**given, signals={"near": LogitMSE(weight=1.0)})(small, rows).terms[
        "near/score"
    ]
    own, other = (given["objective"].logits(made, rows)["score"] for made in (small, teacher.model))
    assert torch.allclose(term.total, (own - other).square().sum())


def test_questions_of_objectives():
    small = model()
    assert make_question(
        Mix({"mlm": Entry(MLM()), "other": Entry(Labelled())}), small, "predicted"
    ).heads == {"mlm"}
    assert make_question(Labelled(), small, "all").heads == frozenset()


def test_an_encoder_decoder_is_compared_where_it_writes():
    def made(seed):
        stacks = {
            "encoder": model(seed=seed).backbone,
            "decoder": model(seed=seed + 1, pattern=Causal()).backbone,
        }
        backbone = EncoderDecoder(**stacks, start=1, tied=False)
        head = LMHead(
            width=8,
            vocab_size=V,
            token_embedding=backbone.token_embedding,
            tied=True,
            transform=False,
            bias=True,
        )
        return Model(backbone=backbone, heads={"seq2seq": head}).double()

    small, teacher = made(0), Frozen(model=made(5), name="the teacher")
    source, target = (
        Seq(np.ones((2, 6), np.int64), np.array([6, 2])),
        Seq(np.full((2, 4), 7), np.array([4, 3])),
    )
    rows = Rows(np.arange(2), {"source": source, "target": target})
    given = collate(rows.with_targets(**ConditionalLM().labels(rows)), {})
    student = Measures.of(small, "the student")
    signals = {
        "soft": soft(),
        "layers": hidden(student, teacher),
        "who": AttentionMSE(weight=1.0, student=student, teacher=teacher),
    }
    taught = Distillation(
        objective=ConditionalLM(),
        model=small,
        student=student,
        teacher=teacher,
        signals=signals,
        hard=1.0,
        places="all",
    )
    out = taught(small, given)
    assert taught.counts(given) == dict.fromkeys(["seq2seq", "soft/seq2seq", "layers", "who"], 7)
    own, other = (
        m(given, record=frozenset({"hidden"})).recorded["hidden"] for m in (small, teacher.model)
    )
    apart = sum(
        (a - b).square().mean(-1)[given.seqs["target"].real].sum()
        for a, b in zip(own, other, strict=True)
    )
    assert torch.allclose(out.terms["layers"].total, apart)


class Timed(MLM):
    """An objective that depends on the share of the run."""

    done = 0.0

    def before_step(self, model, optimizer, share):
        self.done = share

    def figures(self):
        return {"done": self.done}


def test_an_objective_that_follows_the_run_does_so_with_a_teacher():
    student, measures, teacher = pair()
    given = {"model": student, "teacher": teacher}
    soft = {"soft": SoftTargets(weight=0.5, temperature=1.0)}
    for wrapped in (
        Distillation(objective=Timed(), student=measures, signals=soft, hard=0.5, **given),
        Theseus(objective=Timed(), rate=0.5, **given),
    ):
        wrapped.before_step(student, None, 0.25)
        assert wrapped.figures() == {"done": 0.25}
