"""MiniLM's and TinyBERT's pretraining: text as it stands, nothing asked, and losses of the
teacher's layers alone.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from plmctl.artifacts import loading
from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.artifacts.cost import cost
from plmctl.config.command import perform
from plmctl.config.compose import compose, composed
from plmctl.config.headers import header
from plmctl.config.recipes import find_recipe
from plmctl.config.saved import read_spec
from plmctl.config.spec import Provenance
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.distill.cache import Cached
from plmctl.distill.distillation import Distillation
from plmctl.distill.logits import LogitMSE
from plmctl.distill.self_ensemble import SelfEnsemble
from plmctl.distill.teachers import Frozen, Several
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out, open_training_loader
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.objectives.mlm import MLM
from plmctl.runs import pretraining
from plmctl.runs.distill_words import as_training
from plmctl.runs.estimate import estimate
from plmctl.runs.resume import resume_spec
from plmctl.runs.teachers import distillation
from plmctl.training.processes.world import World
from tests.marks import mark_slow

SMALL = [
    "format.max_length=24",
    "train.batch_size=4",
    "train.precision=fp32",
    "train.threads=1",
    "train.log_every=1",
    "eval.rows=8",
    "eval.batch_size=4",
    "model.embedding.dropout=0",
    "model.initializer.std=0.3",
]
STUDENT = [
    "size.width=16",
    "size.inner_width=24",
    "train.steps=4",
    "train.save_every=2",
    "train.eval_every=2",
]
LOSSES = {
    "minilm": {"relations/attention", "relations/values"},
    "tinybert": {"hidden", "attention"},
}
RECIPES = sorted(LOSSES)


@pytest.fixture(scope="module")
def place(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a BERT of four layers in bert/, and a run of each recipe beside it."""
    folder = tmp_path_factory.mktemp("alone")
    data = f"data.path={tokens_of('wordpiece')}"
    words = [
        *SMALL,
        data,
        "size.width=32",
        "size.inner_width=48",
        "size.num_layers=4",
        "train.steps=1",
        "train.eval_every=0",
    ]
    ran("pretrain", "bert", *words, f"run.dir={folder / 'bert'}")
    for recipe in RECIPES:
        words = [*SMALL, *STUDENT, data, f"teacher={folder / 'bert'}", f"run.dir={folder / recipe}"]
        ran("distill" if recipe == "minilm" else "pretrain", recipe, *words)
    return folder


def ran(verb: str, recipe: str | None, *words: str, **flags: Any) -> None:
    given = Provenance(verb, recipe, words, **flags)
    given = as_training(given) if verb == "distill" else given
    assert perform(composed(given).spec) == 0


def logged(run: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def begun(place: Path, recipe: str) -> SimpleNamespace:
    """What the run of `recipe` is before its first update, in float64: config, model, lesson,
    teacher, its first batch.
    """
    cfg: Any = read_spec(place / recipe)
    corpus, teacher = open_corpus(Texts.of(cfg)), loading.load(place / "bert").model
    model = build_model(cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=cfg.seed)
    own = build_objective(cfg.objective, model, corpus.vocab, seed=cfg.seed)
    made = distillation(cfg, model, own, Frozen(model=teacher, name="the teacher"))
    fields = BatchFields.by(model, made)
    with open_training_loader(Feed.of(cfg, 0), corpus, World(), fields) as loader:
        batch = next(loader)[0]
    found = open_held_out(Feed.of(cfg), corpus, World(), fields)
    valid = [each for part in found.values() for each in part]
    return SimpleNamespace(
        model=model.double().eval(),
        teacher=teacher.double().eval(),
        lesson=made.double().eval(),
        batch=batch,
        valid=valid,
        vocab=corpus.vocab,
    )


def softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    exps = [math.exp(score - top) for score in scores]
    return [e / sum(exps) for e in exps]


def kl(teacher: list[float], student: list[float]) -> float:
    return sum(
        p * math.log(p / q)
        for p, q in zip(softmax(teacher), softmax(student), strict=True)
        if p > 0
    )


def recorded(model: Model, batch: Batch, *names: str) -> Any:
    with torch.no_grad():
        return {
            name: [layer.tolist() for layer in layers]
            for name, layers in model(batch, record=frozenset(names)).recorded.items()
        }


def minilm(run: SimpleNamespace) -> dict[str, float]:
    """Means over tokens and heads of the divergences of the last layers."""
    sides = [recorded(each, run.batch, "scores", "values") for each in (run.teacher, run.model)]
    found: dict[str, list[float]] = {"relations/attention": [], "relations/values": []}
    for b, length in enumerate(run.batch.text.length.tolist()):
        for h in range(2):
            related = []
            for side in sides:
                v = side["values"][-1][b][h][:length]
                related.append(
                    [
                        [sum(x * y for x, y in zip(i, j, strict=True)) / len(i) ** 0.5 for j in v]
                        for i in v
                    ]
                )
            for i in range(length):
                found["relations/values"].append(kl(related[0][i], related[1][i]))
                found["relations/attention"].append(
                    kl(*(side["scores"][-1][b][h][i][:length] for side in sides))
                )
    return {name: sum(each) / len(each) for name, each in found.items()}


def tinybert(run: SimpleNamespace) -> dict[str, float]:
    """Layers 0, 1, 2 of the student beside 0, 2, 4 of the teacher: states through one map, raw
    scores as they are.
    """
    other, own = (
        recorded(each, run.batch, "hidden", "scores") for each in (run.teacher, run.model)
    )
    ((weight, bias),) = [
        (each.weight.tolist(), each.bias.tolist()) for each in run.lesson.signals["hidden"].maps
    ]
    lengths, hidden, attention = run.batch.text.length.tolist(), 0.0, 0.0
    for b, length in enumerate(lengths):
        for m, g in ((0, 0), (1, 2), (2, 4)):
            for i in range(length):
                state, wanted = own["hidden"][m][b][i], other["hidden"][g][b][i]
                mapped = [
                    sum(w * x for w, x in zip(row, state, strict=True)) + c
                    for row, c in zip(weight, bias, strict=True)
                ]
                hidden += sum((x - y) ** 2 for x, y in zip(mapped, wanted, strict=True)) / len(
                    wanted
                )
                for h in range(2) if m else ():
                    pair = (
                        side["scores"][layer - 1][b][h][i][:length]
                        for side, layer in ((own, m), (other, g))
                    )
                    attention += sum((x - y) ** 2 for x, y in zip(*pair, strict=True)) / length / 2
    return {"hidden": hidden / sum(lengths), "attention": attention / sum(lengths)}


@pytest.mark.parametrize("recipe", mark_slow(RECIPES, ("minilm",)))
def test_the_loss_of_a_step_is_that_of_loops(recipe: str, place: Path) -> None:
    run = begun(place, recipe)
    expected = {"minilm": minilm, "tinybert": tinybert}[recipe](run)
    with torch.no_grad():
        terms, counts = run.lesson(run.model, run.batch).terms, run.lesson.counts(run.batch)
    assert {
        name: float(term.total) / counts[name] for name, term in terms.items()
    } == pytest.approx(expected, rel=1e-10)
    assert all(term.weight == 1 for term in terms.values())
    # what the run itself measured before its first update, in single precision
    first = logged(place / recipe)[0]
    assert {name: first[f"loss/{name}"] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_is_hidden_and_nothing_asked(recipe: str, place: Path) -> None:
    run = begun(place, recipe)
    for batch in (run.batch, *run.valid):
        assert not batch.targets
        assert (batch.text.ids != run.vocab.mask).all()
    assert run.valid
    records = logged(place / recipe)
    asked = {
        key for record in records for key in record if key.startswith(("loss/", "valid/loss/"))
    }
    assert asked == {f"{split}loss/{name}" for split in ("", "valid/") for name in LOSSES[recipe]}
    valid = [record for record in records if "valid/loss" in record]
    assert [record["step"] for record in valid] == [2, 4]
    assert valid[-1]["valid/loss"] == pytest.approx(
        sum(valid[-1][f"valid/loss/{name}"] for name in LOSSES[recipe]), rel=1e-5
    )


def test_the_student_is_a_checkpoint_with_a_table_beside_it(place: Path) -> None:
    loaded = loading.load(place / "minilm")
    assert loaded.model.backbone.num_layers == 2
    assert not loaded.model.heads
    words = [f"checkpoint={place / 'minilm'}", "task=held_out"]
    with pytest.raises(
        UsageError, match=r"it learnt of its teacher's layers, so it has no objective"
    ):
        perform(compose("eval", None, words))
    found = json.loads((place / "minilm/result.json").read_text(encoding="utf-8"))["distillation"]
    assert found["student"]["parameters"] < found["teacher"]["parameters"]
    assert found["student"]["latency of 1 row, ms"] > 0


def test_a_resumed_run_is_the_one_that_was_never_stopped(place: Path, tmp_path: Path) -> None:
    whole, cut = place / "tinybert", tmp_path / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints/step-4")
    cfg = resume_spec(
        as_training(Provenance("distill", overrides=(f"run.dir={cut}",), resume=True))
    )
    assert pretraining.pretrain(cfg) == 0
    for name in ("model", "objective"):
        one, two = (
            (run / f"checkpoints/step-4/{name}.safetensors").read_bytes() for run in (whole, cut)
        )
        assert one == two


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["distill=none"], r"(?s)objective=\[\]: something to learn.*distill=minilm teacher="),
        (["distill=kd"], r"(?s)distill.signals.soft: compares logits.*distill=tinybert"),
        (
            ["distill=self_ensemble", "teacher=null"],
            r"(?s)distill.signals=\{\}: something to learn.*distill=minilm",
        ),
        (
            ["distill=theseus"],
            r"(?s)learns from an objective alone, and none is set.*objective=\[mlm\]",
        ),
    ],
)
def test_nothing_to_learn_is_said_before_any_work(
    words: list[str], said: str, place: Path, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    data = f"data.path={tokens_of('wordpiece')}"
    teacher = [] if "distill=none" in words else [f"teacher={place / 'bert'}"]
    given = [*SMALL, *STUDENT, data, *teacher, *words, f"run.dir={run}"]
    with pytest.raises(UsageError, match=said):
        pretraining.pretrain(compose("pretrain", "minilm", given))
    assert not run.exists()


def forward_flops(model: Model, batch: Batch) -> int:
    """Counted by torch, of every matrix product."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted, torch.no_grad():
        model(batch)
    return int(counted.get_total_flops())


def test_a_teacher_costs_its_forward_pass(place: Path, tokens_of: Callable[..., Path]) -> None:
    """In the report of --dry-run as in the run's own share of the peak: what torch counts, of
    full rows.
    """
    run, size = begun(place, "minilm"), (4, 24)
    text = Seq(
        torch.full(size, 7),
        torch.full(size[:1], 24),
        {"segment": torch.zeros(size).long()},
        full=True,
    )
    rows = Batch(torch.arange(4), {"text": text})
    expected = forward_flops(run.teacher, rows) / rows.text.ids.numel()
    alone = cost(run.model, length=24, predicted={})
    found = cost(run.model, length=24, predicted={}, objective=run.lesson)
    assert 2 * found.macs_per_token["teacher"] == pytest.approx(expected, rel=1e-12)
    assert found.flops_per_token == pytest.approx(alone.flops_per_token + expected, rel=1e-12)
    assert found.memory(rows=1)["teachers"] == 4 * count(run.teacher)
    words = [*SMALL, *STUDENT, f"data.path={tokens_of('wordpiece')}", f"teacher={place / 'bert'}"]
    report = estimate(compose("pretrain", "minilm", words))
    assert report["run"]["training FLOPs per token"] == round(found.flops_per_token)
    assert report["macs_per_token"]["teacher"] == round(expected / 2)
    both = compose(
        "pretrain",
        "distilbert",
        [*words, "init=null", "kept_layers=null", "size.width=32", "size.inner_width=48"],
    )
    report = estimate(both)  # the answers of every token are compared
    head = 32 * 32 + 32 * run.vocab.size
    assert report["macs_per_token"]["teacher"] == round(expected / 2) + head
    assert report["macs_per_token"]["heads"] == head


def test_who_is_not_asked_costs_nothing(place: Path, tmp_path: Path) -> None:
    """Answers that are read, and a mean of students that nothing is learnt of; of voters, each
    runs.
    """
    run = begun(place, "minilm")
    frozen = Frozen(model=run.teacher, name="the teacher")
    assert Several(teachers=[frozen, frozen]).models() == [run.teacher] * 2
    assert Cached(teacher=frozen, folder=tmp_path, identity="", rows=1).models() == []
    mean, votes = (SelfEnsemble(model=run.teacher, window=3, vote=vote) for vote in (False, True))
    assert (mean.models(), len(votes.models())) == ([mean.average], 3)
    known: Any = {
        "model": run.teacher,
        "student": frozen.measures,
        "teacher": mean,
        "hard": 1.0,
        "places": "all",
    }
    asked = MLM()
    kept = Distillation(objective=asked, signals={}, **known)
    learnt = Distillation(objective=asked, signals={"average": LogitMSE(weight=1.0)}, **known)
    assert (kept.facts.helpers, kept.facts.at_every_token) == ((), frozenset())
    assert learnt.facts.helpers == ((mean.average, frozenset({"mlm"})),)
    alone, found = (
        cost(run.teacher, length=24, predicted={"mlm": 1.0}, objective=each)
        for each in (kept, learnt)
    )
    assert "objective" not in alone.macs_per_token
    assert found.flops_per_token > 1.2 * alone.flops_per_token


def test_the_stages_behind_general_distillation_are_commands_that_compose() -> None:
    lines = [
        header(find_recipe("tinybert")).words(line)[1:]
        for line in header(find_recipe("tinybert")).texts("Then")
    ]
    assert [line[0] for line in lines] == ["finetune", "data", "distill", "distill"]
    assert compose("augment", None, lines[1][2:]).copies == 20
    methods = []
    for _, *words in lines[2:]:
        given = as_training(Provenance("distill", overrides=tuple(words)))
        cfg = compose(given.verb, None, list(given.overrides))
        assert (given.verb, cfg.teacher, cfg.task.path) == ("finetune", "runs/sst2", "SST-2-more")
        methods.append(
            (cfg.distill.hard, sorted(cfg.distill.signals), cfg.checkpoint, cfg.optim.lr)
        )
    assert methods == [
        (0.0, ["attention", "hidden"], "runs/tinybert", 5e-5),
        (0.0, ["soft"], "runs/layers", 3e-5),
    ]
