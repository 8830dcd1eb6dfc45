"""Stabilisers of fine-tuning beside their definitions, as loops, and torch's own averages."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from plmctl.artifacts.loading import load
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Facts, Output, Term
from plmctl.storage.reading import read_tensors
from plmctl.tasks.facts import TaskFacts
from plmctl.training.stabilisers.averages import MovingAverage, StochasticAverage
from plmctl.training.stabilisers.base import Beginning, Stabilised
from plmctl.training.stabilisers.child_tuning import FreeChild, TaskChild
from plmctl.training.stabilisers.mixout import Mixout
from plmctl.training.stabilisers.near_start import StartDecay, StartPenalty
from plmctl.training.stabilisers.r_drop import TwoPasses
from plmctl.training.stabilisers.reinitialise import Reinitialised
from tests.command import plmctl

SMALL = [
    *("task=classification", "train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.epochs=null", "train.steps=6", "task.max_length=32", "optim.lr=1e-2"),
]
NEW = ["checkpoint=null", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(24)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def base(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "base"
    plmctl("finetune", *SMALL, *NEW, f"task.path={table}", f"run.dir={run}")
    return run


def tune(run: Path, table: Path, base: Path, *words: str, code: int = 0) -> str:
    given = (f"task.path={table}", f"checkpoint={base}", f"run.dir={run}")
    return plmctl("finetune", *SMALL, *given, *words, code=code)


def begun(base: Path, **more: Any) -> Beginning:
    model = load(base).model
    names = frozenset(name for name, _ in model.named_parameters() if name.startswith("backbone."))
    given = {"pretrained": names, "seed": 1, "resumed": False, "passes": lambda: iter(()), **more}
    return Beginning(model=model, **{"task": SimpleNamespace(), **given})


def move(model: Model) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["paper", "released"])
def test_mixout_drops_weights_to_the_pretrained_ones(form: Any, base: Path) -> None:
    given = begun(base)
    part, model = Mixout(rate=0.7, form=form), given.model
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    part.begin(given)
    move(model)
    owner: Any = model.backbone.get_submodule("stack.blocks.f.0.cell.up")
    name = "backbone.stack.blocks.f.0.cell.up.weight"
    start, weight = before[name], owner.weight
    order = [name for name, _ in model.named_parameters()]
    torch.manual_seed(0)
    with part.reading(model):
        mixed = owner.weight
    found = [mixed.detach(), *(part.mix(weight, start).detach() for _ in range(1500))]
    assert owner.weight is weight
    assert [name for name, _ in model.named_parameters()] == order
    # each number is W0 + (W - W0) / 0.3 or W0 - 0: of [M W + (1 - M) W0 - 0.7 W0] / 0.3
    for kept, value in ((1.0, (weight - 0.7 * start) / 0.3), (0.0, (start - 0.7 * start) / 0.3)):
        close = torch.isclose(found[0], value.detach(), atol=1e-5)
        assert close.float().mean() == pytest.approx(0.3 if kept else 0.7, abs=0.2)
        if form == "released":
            assert bool((close.all(0) | ~close.any(0)).all())
    mean = torch.stack(found).mean(0)
    torch.testing.assert_close(mean, weight.detach(), rtol=0, atol=0.08)
    (gradient,) = torch.autograd.grad(mixed.sum(), weight)
    kept_factor = 1 / 0.3 if form == "paper" else 1.0
    values = sorted(gradient.unique().tolist())
    assert values == pytest.approx([0.0, kept_factor])
    with Mixout(rate=0.0).reading(model):  # nothing is taken up: as it is
        assert owner.weight is weight
    assert all(getattr(module, "rate", 0) == 0 for module in model.modules())


def test_penalty_and_decay_go_back_to_the_start(base: Path) -> None:
    given = begun(base)
    model = given.model
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    penalty, decay = StartPenalty(alpha=0.3, beta=0.2), StartDecay(decay=0.5)
    penalty.begin(given)
    decay.begin(given)
    move(model)
    wanted = 0.0
    for name, weight in model.named_parameters():
        near = name in given.pretrained
        apart = weight.detach() - before[name] if near else weight.detach()
        wanted += (0.15 if near else 0.1) * float(apart.square().sum())
    assert float(penalty.penalty().detach()) == pytest.approx(wanted, rel=1e-4)
    batch: Any = SimpleNamespace(key=torch.arange(4))
    out = penalty.add(Output({}), lambda: Output({}), batch)
    assert float(out.terms["l2_sp"].total.detach()) == pytest.approx(4 * wanted, rel=1e-4)
    assert penalty.counts(given.task, batch) == {"l2_sp": 4}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    now = {name: w.detach().clone() for name, w in model.named_parameters()}
    decay.before_step(model, optimizer, 0.5)
    for name, weight in model.named_parameters():
        near = 0.1 * 0.5 * (now[name] - before[name]) if name in given.pretrained else 0
        torch.testing.assert_close(weight.detach(), now[name] - near)


def test_of_frozen_weights_nothing_is_kept(base: Path) -> None:
    for kept in (MovingAverage(decay=0.9, warmup=False), StartDecay(decay=0.1), Mixout(rate=0.7)):
        given = begun(base)
        frozen: Any = given.model.backbone.get_submodule("stack.blocks.f.0")
        frozen.requires_grad_(False)
        part: Any = kept
        part.begin(given)
        names = list(part.state_dict())
        assert names
        assert not any("stack/blocks/f/0/" in name for name in names)


@pytest.mark.parametrize("part", [StartPenalty(alpha=0.1, beta=0.1), StartDecay(decay=0.1)])
def test_nothing_stays_near_what_is_frozen(part: Any, base: Path) -> None:
    given = begun(base)
    given.model.backbone.requires_grad_(False)
    with pytest.raises(ConfigError, match="trains weights of the checkpoint"):
        part.begin(given)


def test_free_child_changes_a_random_part(base: Path) -> None:
    given = begun(base)
    part, again = FreeChild(share=0.3), FreeChild(share=0.3)
    part.begin(given)
    again.begin(given)
    optimizer = torch.optim.SGD(given.model.parameters(), lr=0.1)

    def masked(child: FreeChild) -> Tensor:
        weights: Any = [*given.model.parameters()]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        child.before_step(given.model, optimizer, 0.0)
        return torch.cat([weight.grad.flatten() for weight in weights])

    first, second = masked(part), masked(part)
    assert sorted(first.unique().tolist()) == pytest.approx([0.0, 1 / 0.3])
    assert float((first > 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(((first > 0) & (second > 0)).float().mean()) == pytest.approx(0.09, abs=0.01)
    again.load_state_dict({"updates": torch.tensor(1)})  # a resumed run draws what comes next
    assert bool((masked(again) == second).all())


class Squared(nn.Module):
    """A task whose loss is known: the sum of `x` times the square of a weight."""

    facts = Facts()

    def __init__(self, weights: list[nn.Parameter]) -> None:
        super().__init__()
        self.weights = weights

    def counts(self, batch: Any) -> dict[str, int]:
        return {"x": 2}

    def forward(self, model: Model, batch: Any) -> Output:
        total = torch.stack([(w.square() * batch).sum() for w in self.weights]).sum()
        return Output({"x": Term(total)})


@pytest.mark.parametrize("updates", [[[1.0], [3.0]], [[0.5, 1.5], [2.0, 4.0]]])
def test_task_child_keeps_the_weights_of_largest_fisher_information(
    base: Path, updates: list[list[float]]
) -> None:
    """Whatever micro-batches an update is cut into."""
    model = load(base).model
    layers = [
        w for own in model.backbone.list_layer_parts()[1:] for p in own for w in p.parameters()
    ]
    passes = lambda: iter([[torch.tensor(x) for x in own] for own in updates])  # noqa: E731
    given = begun(base, passes=passes)
    object.__setattr__(given, "model", model)
    object.__setattr__(given, "task", Squared(list(model.backbone.parameters())))
    part = TaskChild(share=0.25)
    part.begin(given)
    # the gradient of sum(x w^2) / 2 is x w: its mean square over both batches is 5 w^2
    fisher = torch.cat([5 * w.detach().square().flatten() for w in layers])
    kept = fisher >= fisher.sort(descending=True).values[round(0.25 * len(fisher)) - 1]
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    part.before_step(model, torch.optim.SGD(model.parameters(), lr=1.0), 0.0)
    found = torch.cat([w.grad.flatten() for w in layers])  # type: ignore[union-attr]
    assert float((found.bool() == kept).float().mean()) > 0.9999
    table: Any = model.backbone.token_embedding
    assert bool((table.weight.grad == 1).all())  # not in a layer: trained as ever


def test_top_layers_begin_anew(base: Path) -> None:
    given = begun(base)
    before = {name: w.detach().clone() for name, w in given.model.named_parameters()}
    Reinitialised(layers=1).begin(given)
    changed = {
        name
        for name, weight in given.model.named_parameters()
        if not bool((weight == before[name]).all())
    }
    assert changed
    assert all(".1." in name or name.startswith("heads.pooler") for name in changed)
    for name, weight in given.model.named_parameters():
        if name in changed and weight.ndim == 2:
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.3)
    resumed = begun(base, resumed=True)
    Reinitialised(layers=1).begin(resumed)
    assert all(bool((w == before[n]).all()) for n, w in resumed.model.named_parameters())


@pytest.mark.parametrize("kind", ["ema", "ema with warm-up", "swa"])
def test_averages_are_those_of_torch(kind: str, base: Path) -> None:
    given = begun(base)
    model = given.model
    part: Any = MovingAverage(decay=0.9, warmup="warm" in kind)
    function = get_ema_multi_avg_fn(0.9)
    if kind == "swa":
        part, function = StochasticAverage(begin_at=0.4, every=2), get_swa_multi_avg_fn()
    part.begin(given)
    theirs, loop = AveragedModel(copy.deepcopy(model), multi_avg_fn=function), None
    updates = 0
    for step in range(1, 11):
        move(model)
        part.before_step(model, None, step / 10)
        part.after_step(model, step)
        if kind != "swa" or (step > 4 and (step - 5) % 2 == 0):
            theirs.update_parameters(model)
        flat = torch.cat([w.detach().flatten() for w in model.parameters()])
        d = min(0.9, (1 + updates) / (10 + updates))
        loop, updates = flat if loop is None else d * loop + (1 - d) * flat, updates + 1
    trained = torch.cat([w.detach().flatten() for w in model.parameters()])
    part.exchange(model)
    found = torch.cat([w.detach().flatten() for w in model.parameters()])
    wanted = torch.cat([w.detach().flatten() for w in theirs.module.parameters()])
    torch.testing.assert_close(found, loop if "warm" in kind else wanted)
    part.exchange(model)
    assert bool((torch.cat([w.detach().flatten() for w in model.parameters()]) == trained).all())


@pytest.mark.parametrize("chooses", [True, False])
def test_r_drop_is_the_mean_of_two_losses_and_their_divergence(chooses: bool) -> None:
    drawn = iter(torch.randn(4, 4, 3 if chooses else 1))
    labels, known = torch.tensor([0, 2, 1, 0]) % (3 if chooses else 1), torch.tensor([1, 1, 0, 1])

    class Toy:
        facts = TaskFacts(head="class", chooses=chooses)

        def logits(self, model: Any, batch: Any) -> dict[str, Tensor]:
            return {"class": next(drawn)}

        def counts(self, batch: Any) -> dict[str, int]:
            return {"class": 3}

        def flatten_logits(self, logits: Any, batch: Any) -> Any:
            return {"class": (logits["class"], known.bool())}

    task: Any = Toy()
    part = TwoPasses(alpha=0.5)
    student, teacher = (SimpleNamespace(backbone=object()) for _ in range(2))
    part.begin(SimpleNamespace(task=task, model=student))  # type: ignore[arg-type]
    seen = []

    def read() -> Output:
        seen.append(task.logits(student, None)["class"])
        task.logits(teacher, None)  # the last one that is asked, as distillation does
        loss = F.cross_entropy(seen[-1], labels, reduction="none")
        own = {} if len(seen) > 1 else {"l2_sp": Term(torch.tensor(7.0))}  # in the first pass alone
        return Output({"class": Term((loss * known).sum()), **own})

    with part.reading(None):  # type: ignore[arg-type]
        out = part.add(read(), read, None)  # type: ignore[arg-type]
    assert "logits" not in vars(task)
    wanted, losses = 0.0, 0.0
    for row in (0, 1, 3):
        p, q = (logits[row].softmax(-1).tolist() for logits in seen)
        a, b = (logits[row].tolist() for logits in seen)
        losses -= sum(torch.tensor(x[int(labels[row])]).log().item() for x in (p, q)) / 2
        for i in range(len(p)):
            ratio = torch.tensor(p[i] / q[i]).log().item()
            wanted += (p[i] * ratio - q[i] * ratio) / 2 if chooses else (a[i] - b[i]) ** 2
    assert float(out.terms["r_drop"].total) == pytest.approx(wanted, rel=1e-4)
    assert out.terms["r_drop"].weight == 0.5
    assert float(out.terms["class"].total) == pytest.approx(losses, rel=1e-4)
    assert float(out.terms["l2_sp"].total) == 7
    distilled = pytest.raises(ConfigError, match="distill=none")
    with part.reading(student), distilled:  # type: ignore[arg-type]
        part.add(Output({}), read, None)  # type: ignore[arg-type]
    assert part.counts(task, None) == {"r_drop": 3}  # type: ignore[arg-type]


def test_what_is_read_again_is_not_taken_from_the_first_pass(base: Path) -> None:
    model, read = load(base).model, []

    class Reading(Squared):
        facts = Facts(needs=frozenset())

        def forward(self, model: Model, batch: Any, state: Any = None) -> Output:
            read.append(model)
            return Output({})

    class Twice(FreeChild):
        def add(self, out: Output, again: Any, batch: Any) -> Output:
            return again()  # type: ignore[no-any-return]

    once: Any = Once(model)
    task: Any = Reading([])
    both = Stabilised(objective=task, parts={"twice": Twice(share=0.5)})
    both(once, None)
    assert read == [
        once,
        model,
    ]  # as a regulariser gives it, which knows what it has read; then anew


def test_the_penalty_is_of_the_weights_themselves_beside_mixout(base: Path) -> None:
    given = begun(base)
    penalty, mixout = StartPenalty(alpha=0.3, beta=0.2), Mixout(rate=0.7)
    penalty.begin(given)
    mixout.begin(given)
    move(given.model)
    wanted = penalty.penalty().detach()
    with mixout.reading(given.model):
        found = penalty.penalty()
    assert float(found.detach()) == float(wanted)
    found.backward()
    owner: Any = given.model.backbone.get_submodule("stack.blocks.f.0.cell.up")
    start = penalty.start.of("backbone.stack.blocks.f.0.cell.up.weight")
    torch.testing.assert_close(owner.weight.grad, 0.3 * (owner.weight.detach() - start))


WAYS = {
    "the start": "stabiliser=[start_penalty,start_decay,mixout,proximal,ema]",
    "a part": "stabiliser=[reinitialise,child_free,child_task,r_drop,swa]",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_bit_for_bit(way: str, table: Path, base: Path, tmp_path: Path) -> None:
    every = ("train.save_every=3", "train.eval_every=3", "train.keep_best=false", "seed=3")
    more = ("stabiliser.swa.begin_at=0.3",) if "swa" in WAYS[way] else ()
    whole, half = tmp_path / "whole", tmp_path / "half"
    tune(whole, table, base, WAYS[way], *every, *more)
    shutil.copytree(whole, half)
    shutil.rmtree(half / "checkpoints/step-6")
    plmctl("finetune", "--resume", f"run.dir={half}")
    for name in ("model", "objective", "optimizer"):
        one, other = (
            read_tensors(run / f"checkpoints/step-6/{name}.safetensors") for run in (whole, half)
        )
        assert set(one) == set(other)
        assert all(bool((one[n] == other[n]).all()) for n in one), name
    saved = read_tensors(whole / "checkpoints/step-6/objective.safetensors")
    averages = [name for name in saved if ".average." in name]
    model = read_tensors(whole / "checkpoints/step-6/model.safetensors")
    assert averages  # the weights that are trained lie there, the averages are the model
    assert any(
        not bool((saved[n][: len(model[m])] == model[m]).all())
        for n in averages
        if (m := n.partition(".average.")[2].replace("/", ".")) in model
    )


def test_a_resumed_run_without_a_checkpoint_begins_as_a_new_one(
    table: Path, base: Path, tmp_path: Path
) -> None:
    every, whole = ("train.steps=2", "train.keep_best=false", "seed=3"), tmp_path / "whole"
    tune(whole, table, base, "stabiliser=[reinitialise,child_task]", *every)
    again = tmp_path / "again"
    shutil.copytree(whole, again)
    shutil.rmtree(again / "checkpoints")  # as the processes of a new run find it
    plmctl("finetune", "--resume", f"run.dir={again}")
    for name in ("model", "objective"):
        one, other = (
            read_tensors(run / f"checkpoints/step-2/{name}.safetensors") for run in (whole, again)
        )
        assert all(bool((one[n] == other[n]).all()) for n in one), name


def test_mistakes_are_named_before_any_work(table: Path, base: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        return tune(tmp_path / "x", table, base, *words, code=2)

    said = refused("stabiliser=[ema,swa]")
    assert "one of ema, swa" in said
    assert "fix: 'stabiliser=[ema]'" in said
    assert "stabiliser=[mixout]" in refused("stabiliser=[mixot]")
    said = refused("stabiliser=[reinitialise]", "stabiliser.reinitialise.layers=5")
    assert "stabiliser.reinitialise.layers=5: at most 2" in said
    said = refused("stabiliser=[mixout]", "train.checkpoint_activations=true")
    assert "train.checkpoint_activations=false" in said
    assert "0 or more" in refused("stabiliser=[r_drop]", "stabiliser.r_drop.alpha=-1")
    assert "stabiliser.mixout.dropout=true" in refused("stabiliser=[r_drop,mixout]")
    for name in ("mixout", "child_task", "reinitialise"):
        said = refused(f"stabiliser=[{name}]", "train.frozen=[backbone]")
        assert f"stabiliser='{name}': a model " in said, name
        assert "train.frozen" in said
    lora = ("stabiliser=[reinitialise]", "peft=[lora]")
    assert "none with peft" in refused(*lora)
    new = [*SMALL, *NEW, f"task.path={table}", f"run.dir={tmp_path}/x", "stabiliser=[start_decay]"]
    assert "needs the weights of a pretrained model" in plmctl("finetune", *new, code=2)
    assert not (tmp_path / "x").exists()
