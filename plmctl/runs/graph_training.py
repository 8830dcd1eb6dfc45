"""`plmctl graph`: vectors of a knowledge graph, trained, ranked and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.assemble import without_weights
from plmctl.config.build import build
from plmctl.config.schema import Graph
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError, PlmctlError, collect, raise_all
from plmctl.core.progress import Took, clock
from plmctl.core.rounding import round_floats
from plmctl.core.terminal import tell
from plmctl.graph.batches import TripleBatches
from plmctl.graph.losses.base import GraphLoss, SampledLoss
from plmctl.graph.objective import LinkPrediction
from plmctl.graph.penalties.base import Penalty
from plmctl.graph.ranks import rank
from plmctl.graph.scores.base import Score
from plmctl.graph.tables import GraphTables
from plmctl.inputs.graphs import describe_graph, open_graph
from plmctl.knowledge.graph import HEAD, RELATION, TAIL, KnowledgeGraph
from plmctl.knowledge.vectors import VECTORS, GraphVectors
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.runs.check import check_machine
from plmctl.runs.fit import budget_of, fit
from plmctl.runs.resolve import decide_place
from plmctl.runs.session import Session, run_session
from plmctl.storage.atomic import write_json
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.processes.threads import count_threads
from plmctl.training.processes.world import device_of
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage
from plmctl.training.trainer import Evaluate, Result
from plmctl.use.graph_evaluation import describe_sides, tabulate_ranks

UNIT = "triples"


def train_graph(spec: Graph) -> int | Mapping[str, float]:
    """Train, or with --dry-run only say what that would be; returns the exit code, or the costs
    that a dry run foresees.
    """
    check_graph(spec)
    if not spec.provenance.resume:
        spec = decide_place(spec)
    if spec.provenance.dry_run:
        return _show_estimate(spec)
    return run_session(
        spec,
        prepare=lambda spec: (spec, open_graph(spec.data)),
        train=train,
        then=lambda session: {
            "plmctl eval checkpoint={run}": "scores of its best vectors, on valid"
        },
    )


def check_graph(spec: Graph) -> None:
    """Raise everything that is wrong with the settings, before the triples are read."""
    errors: list[PlmctlError] = []
    with collect(errors):
        score: Score = build(spec.graph_score, plugins=spec.plugins, path="graph_score")
        score.check_width(spec.width)
    for slot in ("graph_loss", "graph_penalty"):
        with collect(errors):
            if spec[slot]:
                build(spec[slot], plugins=spec.plugins, path=slot)
    if not spec.sides:
        errors.append(ConfigError("sides", [], "head, tail, or both", fix="sides=[head,tail]"))
    if spec.reciprocal and spec.sides == ("head",):
        allowed = "false where only heads are predicted: nothing would train the relations"
        errors.append(ConfigError("reciprocal", True, allowed, fix="reciprocal=false"))
    with collect(errors):
        check_machine(spec)
    for key, only in {"train.stream": "fp32", "train.checkpoint_activations": False}.items():
        if spec.select(key) != only:
            none = str(only).lower()
            allowed = f"{none}: a graph is trained without layers"
            errors.append(ConfigError(key, spec.select(key), allowed, fix=f"{key}={none}"))
    if spec.train.stages:
        allowed = "none: a graph is trained in one stage"
        errors.append(ConfigError("train.stages", ..., allowed, fix="train.stages=[]"))
    raise_all(errors)


def build_tables(spec: Graph, graph: KnowledgeGraph, *, drawn: bool = True) -> GraphTables:
    """The tables of a run, with first vectors of its seed."""
    return GraphTables(
        build(spec.graph_score, plugins=spec.plugins, path="graph_score"),
        entities=len(graph.entities),
        relations=len(graph.relations),
        width=spec.width,
        reciprocal=spec.reciprocal,
        generator=torch.Generator().manual_seed(spec.seed) if drawn else None,
    )


def build_objective(spec: Graph) -> LinkPrediction:
    """The loss of a run, with its penalty."""
    loss: GraphLoss = build(spec.graph_loss, plugins=spec.plugins, path="graph_loss")
    penalty: Penalty | None = None
    if spec.graph_penalty:
        penalty = build(spec.graph_penalty, plugins=spec.plugins, path="graph_penalty")
    return LinkPrediction(
        loss,
        sides=spec.sides,
        relation_weight=spec.relation_weight,
        penalty=penalty,
        dropout=spec.dropout,
    )


def open_batches(
    spec: Graph, graph: KnowledgeGraph, objective: LinkPrediction, world: int = 1, rank: int = 0
) -> TripleBatches:
    """The updates of a run: the part of each that this one of `world` processes makes."""
    return TripleBatches(
        graph,
        objective.loss,
        sides=spec.sides,
        batch_size=spec.train.batch_size,
        micro_batch_size=spec.train.micro_batch_size,
        seed=spec.seed,
        world=world,
        rank=rank,
    )


@dataclass(frozen=True)
class GraphPlan:
    """A training on a graph before its first update.

    Args:
        tables: The backbone of the model.
        valid: The validation triples; None: nothing is ranked.
    """

    graph: KnowledgeGraph
    tables: GraphTables
    model: Model
    objective: LinkPrediction
    batches: TripleBatches
    budget: Budget
    valid: np.ndarray | None


def plan(session: Session) -> GraphPlan:
    """Build everything that a spec names, and log the first lines of the run."""
    spec, world = session.spec, session.world
    graph: KnowledgeGraph = session.prepared
    tables, objective = build_tables(spec, graph), build_objective(spec)
    batches = open_batches(spec, graph, objective, world.size, world.rank)
    sides = map(str, describe_sides(spec.sides).values())
    for line in (*describe_graph(graph), *_remarks(graph), *sides):
        session.say(line)
    valid = graph.splits.get("valid")
    if valid is None or not len(valid):
        session.say("valid: no triples: nothing is ranked, the last vectors are kept")
        valid = None
    budget = budget_of(spec.train, updates_per_epoch=batches.updates_per_epoch)
    model = Model(backbone=tables, heads={})
    return GraphPlan(graph, tables, model, objective, batches, budget, valid)


def train(session: Session) -> Result:
    """Plan a training on a graph, and execute it."""
    return execute(plan(session), session)


def execute(plan: GraphPlan, session: Session) -> Result:
    """Fit the tables; then rank valid and test with the best ones, and write them."""
    spec, world, model = session.spec, session.world, plan.model
    result = fit(
        session,
        model=model,
        objective=plan.objective,
        stages=[
            Stage(
                batches=lambda: plan.batches,
                trainable=spec.train.trainable,
                frozen=spec.train.frozen,
                lengths=(1, 0),
            )
        ],
        budget=plan.budget,
        evaluate=_validation(plan, session),
        extras=lambda folder: None,
        keep_best="mrr",
        best_is_largest=True,
        unit=UNIT,
        used=True,
    )
    if world.main and not result.exit_code and result.checkpoint is not None:
        return replace(result, checkpoint=_conclude(session, model, result.progress, plan.graph))
    return result


def _validation(plan: GraphPlan, session: Session) -> Evaluate | None:
    """The ranks of valid; None without such triples."""
    spec, valid = session.spec, plan.valid
    if valid is None:
        return None

    def evaluate(model: Model, progress: Progress) -> dict[str, float]:
        if session.world.rank:  # a team computes together
            return {}
        some, size = valid[: spec.eval.rows], spec.eval.batch_size
        return rank(plan.tables, some, plan.graph, sides=spec.sides, batch_size=size).summarize()

    return evaluate


def _remarks(graph: KnowledgeGraph) -> list[str]:
    """The remarks of the reader, and a line on answers that ranks cannot leave out."""
    return [*graph.remarks, *filter(None, [graph.describe_unknown()])]


def _conclude(session: Session, model: Model, progress: Progress, graph: KnowledgeGraph) -> Any:
    """Rank with the checkpoint that did best on valid, write its vectors; that checkpoint."""
    spec, tables = session.spec, model.backbone
    assert isinstance(tables, GraphTables)
    step = progress.step if progress.best_step is None else progress.best_step
    best = session.folder / "checkpoints" / f"step-{step}"
    load_exactly(model, read(best).model, file=best)
    kinds, size = graph.kinds(), spec.eval.batch_size
    metrics = {
        name: rank(tables, triples, graph, sides=spec.sides, batch_size=size).tabulate(kinds)
        for name, triples in graph.splits.items()
        if name != "train" and len(triples)
    }
    folder = session.folder / VECTORS
    held_out = graph.spell("valid") if graph.held_out else ""
    vectors_of(tables, graph, spec, metrics, step).write(folder, held_out=held_out)
    record = {"checkpoint": str(best), "vectors": str(folder), "metrics": round_floats(metrics)}
    write_json(session.folder / "result.json", record)
    extra = {"vectors": str(folder), "checkpoint": str(best), **describe_sides(spec.sides)}
    tabulate_ranks("link prediction", metrics, extra).show(as_json=spec.provenance.json)
    return best


def vectors_of(
    tables: GraphTables,
    graph: KnowledgeGraph,
    spec: Graph,
    metrics: Mapping[str, Mapping[str, float]],
    step: int,
) -> GraphVectors:
    """The vectors of a model, with the settings to rank with them. Reciprocal relations, which
    predict heads, are left out if no head was predicted.
    """
    relation = tables.relation.detach().cpu().numpy()
    rows = len(graph.relations)
    record = {
        "version": 1,
        "score": thaw(spec.graph_score),
        "loss": thaw(spec.graph_loss),
        "penalty": thaw(spec.graph_penalty),
        "width": spec.width,
        "reciprocal": spec.reciprocal,
        "sides": list(spec.sides),
        "data": thaw(spec.data),
        "updates": step,
        "seed": spec.seed,
        "metrics": round_floats(dict(metrics)),
    }
    return GraphVectors(
        graph.entities,
        graph.relations,
        tables.entity.detach().cpu().numpy(),
        relation[:rows],
        relation[rows:] if spec.reciprocal and "head" in spec.sides else None,
        record,
    )


def _count_questions(spec: Graph, graph: KnowledgeGraph, loss: GraphLoss) -> int:
    """How many questions an epoch compares with entities."""
    triples = graph.splits["train"]
    if not loss.grouped:
        return len(triples) * len(spec.sides)
    given = (HEAD if side == "tail" else TAIL for side in spec.sides)
    return sum(len(np.unique(triples[:, [known, RELATION]], axis=0)) for known in given)


def _show_estimate(spec: Graph) -> dict[str, float]:
    """Print sizes, parameters, products of matrices, updates and time; returns the costs."""
    graph = open_graph(spec.data)
    with without_weights():
        tables = build_tables(spec, graph, drawn=False)
    loss = build_objective(spec).loss
    compared = loss.negatives + 1 if isinstance(loss, SampledLoss) else len(graph.entities)
    triples = len(graph.splits["train"])
    questions = _count_questions(spec, graph, loss)
    updates = -(-triples // spec.train.batch_size)
    report: dict[str, Any] = {
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        **{f"triples of {name}": len(rows) for name, rows in graph.splits.items()},
        "parameters": count(tables),
        "FLOPs of a triple": 6 * questions * compared * spec.width // max(1, triples),
        "FLOPs of an epoch": 6 * questions * compared * spec.width,
        "bytes with gradients and optimizer": 4 * 4 * count(tables),
        "updates of an epoch": updates,
    }
    budget = budget_of(spec.train, updates_per_epoch=updates)
    took = measure_update(spec, graph)
    steps = budget.steps or (budget.tokens or 0) / spec.train.batch_size
    time_of_all = clock(60 * budget.minutes) if budget.minutes else took.describe(steps)
    costs = {
        "seconds": 60 * budget.minutes if budget.minutes else steps * took.busy,
        "flops": report["FLOPs of an epoch"] * steps / updates,
        "bytes": report["bytes with gradients and optimizer"],
    }
    length = {"length": str(budget), "time, without ranking": time_of_all}
    if spec.provenance.json:
        seconds_of = {"seconds of an update": float(f"{took.busy:.3g}")}
        more = {"costs": costs, "remarks": _remarks(graph)}
        tell(json.dumps(report | seconds_of | length | more))
        return costs
    for name, value in report.items():
        tell(f"{name}: {value:,}" if value < 1e9 else f"{name}: {value:.3g}")
    for line in (*(f"{name}: {value}" for name, value in length.items()), *_remarks(graph)):
        tell(line)
    return costs


def measure_update(spec: Graph, graph: KnowledgeGraph, times: int = 4) -> Took:
    """How long one process takes for an update on this machine: the fastest of a few, which are
    made and forgotten.
    """
    device, objective = device_of(spec.train.device), build_objective(spec)
    torch.set_num_threads(count_threads(spec.train.threads, spec.train.processes))
    model = Model(backbone=build_tables(spec, graph), heads={}).to(device)
    factory = build(spec.optim, plugins=spec.plugins, path="optim")
    optimizer = factory(parameters=list(model.named_parameters()))

    def update(batches: Iterable[Any]) -> None:
        for batch in batches:
            terms = objective(model, batch.to(device)).terms.values()
            torch.stack([term.weight * term.total for term in terms]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        float(next(model.parameters()).detach().flatten()[0])  # a card has finished, too

    updates = islice(open_batches(spec, graph, objective), times)
    busy, passed = zip(*(Took.by(partial(update, batches)) for batches in updates), strict=True)
    return Took(min(busy), min(passed))
