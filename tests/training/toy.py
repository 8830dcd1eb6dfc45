"""A toy model, objectives and loader: small enough to train in milliseconds, with dropout, a tie
and two terms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Checkpoints
from plmctl.training.device.precision import choose
from plmctl.training.log import Log, read_metrics
from plmctl.training.optim.adamw import AdamW
from plmctl.training.optim.schedule import Polynomial
from plmctl.training.processes.world import World
from plmctl.training.stages import Stage
from plmctl.training.strategy.choose import choose_strategy
from plmctl.training.trainer import Settings, Trainer

V, W, T = 17, 8, 6


class ToyBackbone(Backbone):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(V, W)
        self.block = nn.Sequential(nn.Linear(W, W), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(W))
        self.width, self.max_length = W, None

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        return self.token_embedding(batch.text.ids)

    def encode(
        self, x: Tensor, batch: Batch, state: Any = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        return Hidden(x + self.block(x.cumsum(1) / T))


class Recurrent(ToyBackbone):
    """Adds the mean of the last segment to every token."""

    def encode(
        self, x: Tensor, batch: Batch, state: Any = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        hidden = super().encode(x + state["mean"][:, None], batch)
        return Hidden(hidden.last, state={"mean": hidden.last.mean(1).float()})

    def fresh_state(self, rows: int, device: torch.device) -> Any:
        return {"mean": torch.zeros(rows, W, device=device)}


class TiedHead(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class ToyObjective(Objective):
    """Hidden tokens (ragged counts) and a row class, two terms with different denominators; owns
    a projection.
    """

    def __init__(self, pair: bool = True) -> None:
        super().__init__()
        self.pair = pair
        self.scale = nn.Parameter(torch.ones(W))

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.targets["mlm"].count, **({"row": len(batch.key)} if self.pair else {})}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        hidden = model(batch, state)
        targets = batch.targets["mlm"]
        logits = model.heads["mlm"](hidden.gather(targets.index) * self.scale).float()
        total = nn.functional.cross_entropy(
            logits, targets.ids, ignore_index=IGNORE, reduction="sum"
        )
        terms = {"mlm": Term(total)}
        if self.pair:
            row = model.heads["row"](hidden.last[:, 0]).float()
            terms["row"] = Term(
                nn.functional.cross_entropy(row, batch.labels["class"], reduction="sum"), 0.5
            )
        correct = (logits.argmax(-1) == targets.ids).sum()
        return Output(terms, {"acc/mlm": (correct, targets.count)}, hidden.state)


def make_batch(keys: list[int]) -> Batch:
    """Rows are a function of their key; row k hides 1 + k % 3 tokens."""
    ids = torch.stack(
        [torch.randint(V, (T,), generator=torch.Generator().manual_seed(k)) for k in keys]
    )
    places = [(row, column) for row, k in enumerate(keys) for column in range(1 + k % 3)]
    index = torch.tensor([row * T + column for row, column in places])
    spare = 3 * len(keys) - len(places)
    label = torch.cat([ids.flatten()[index], torch.full((spare,), IGNORE)])
    targets = Targets(torch.cat([index, torch.zeros(spare, dtype=torch.long)]), label, len(places))
    text = Seq(ids.masked_fill(torch.arange(T) < 1, 0), torch.full((len(keys),), T), full=True)
    return Batch(
        torch.tensor(keys),
        {"text": text},
        {"mlm": targets},
        labels={"class": torch.tensor(keys) % 2},
        counts={"tokens": T * len(keys), "rows": len(keys), "mlm": len(places)},
    )


class ToyBatches:
    """`rows` rows an update over all ranks, cut into micro-batches of `micro`; keys count up
    from the stored place.
    """

    def __init__(
        self,
        rows: int = 8,
        micro: int = 8,
        world: World | None = None,
        poison: tuple[int, ...] = (),
    ) -> None:
        self.rows, self.micro, self.world, self.place, self.poison = (
            rows,
            micro,
            world or World(),
            0,
            poison,
        )

    def __next__(self) -> list[Batch]:
        own = self.rows // self.world.size
        first = self.place * self.rows + self.world.rank * own
        keys = [(first + i) % 43 for i in range(own)]
        if self.place in self.poison:
            keys[0] = -1
        self.place += 1
        return [make_batch(keys[i : i + self.micro]) for i in range(0, own, self.micro)]

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def make_model(dropout: float = 0.1, backbone: type[ToyBackbone] = ToyBackbone) -> Model:
    torch.manual_seed(0)
    built = backbone(dropout)
    return Model(
        backbone=built, heads={"mlm": TiedHead(built.token_embedding), "row": nn.Linear(W, 2)}
    )


def make_trainer(
    folder: Path,
    *,
    steps: int = 10,
    dropout: float = 0.1,
    rows: int = 8,
    micro: int = 8,
    precision: str = "fp32",
    world: World | None = None,
    objective: Objective | None = None,
    backbone: type[ToyBackbone] = ToyBackbone,
    budget: Budget | None = None,
    stages: list[Stage] | None = None,
    poison: tuple[int, ...] = (),
    **kwargs: Any,
) -> Trainer:
    world = world or World()
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(**{"log_every": 3, **kwargs.pop("settings", {})})
    log = kwargs.pop("log", None) or Log(
        folder if world.main else None, tensorboard=False, quiet=True
    )
    return Trainer(
        model=make_model(dropout, backbone),
        objective=objective or ToyObjective(),
        optimizer=lambda parameters: AdamW(
            parameters=parameters, lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01
        ),
        schedule=kwargs.pop("schedule", Polynomial(warmup_steps=3)),
        budget=budget or Budget(steps=steps),
        stages=stages or [Stage(batches=lambda: ToyBatches(rows, micro, world, poison))],
        precision=choose(precision, world.device),
        strategy=choose_strategy(world),
        log=log,
        settings=settings,
        checkpoints=Checkpoints(folder / "checkpoints", say=log.say),
        **kwargs,
    )


def weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.parameters}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def curve(folder):
    timing = ("seconds", "tokens_per_second", "data_wait", "mfu", "slowest_rank", "slowest_over")
    return [
        {k: v for k, v in r.items() if k not in timing}
        for r in read_metrics(folder / "metrics.jsonl")
    ]
