"""The spaces and searches that plmctl ships: published grids, orders, cells."""

from __future__ import annotations

import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.search.goals import choose_goals, read_fitness
from plmctl.search.space import Space


def open_space(*words: str) -> Space:
    spec = compose("search", None, [*words])
    return build(spec["space"], path="space")


@pytest.mark.parametrize(
    ("grid", "published"),
    [  # {setting: values}, from the papers
        ("bert", {"train.batch_size": {16, 32}, "optim.lr": {5e-5, 3e-5, 2e-5},
                  "train.epochs": {2, 3, 4}}),
        ("bert_glue", {"train.batch_size": {32}, "optim.lr": {5e-5, 4e-5, 3e-5, 2e-5},
                       "train.epochs": {3}}),
        ("roberta", {"train.batch_size": {16, 32}, "optim.lr": {1e-5, 2e-5, 3e-5},
                     "train.epochs": {10}, "schedule.warmup_share": {0.06},
                     "optim.weight_decay": {0.1}}),
        ("electra", {"optim.lr": {3e-5, 5e-5, 1e-4, 1.5e-4}, "optim.layer_decay": {0.9, 0.8, 0.7},
                     "train.batch_size": {32}, "train.epochs": {3},
                     "schedule.warmup_share": {0.1}}),
    ],
)  # fmt: skip
def test_a_grid_is_the_published_one(grid: str, published: dict[str, set[float]]) -> None:
    """Every combination once, each of which composes as a fine-tuning."""
    space = open_space(f"space={grid}")
    points = list(space.points() or ())
    assert {key: {point[key] for point in points} for key in points[0]} == published
    sizes = 1
    for values in published.values():
        sizes *= len(values)
    assert len(points) == len({tuple(point.items()) for point in points}) == sizes
    compose(
        "finetune", None, ["task=rte", "task.path=x", "checkpoint=x", *space.overrides(points[-1])]
    )


def test_the_searches_of_orders_and_cells_compose() -> None:
    """Their spaces are the ones of their names, and the start of the evolution is a point."""
    orders = build(compose("search", "orders", [])["space"], path="space")
    assert len(orders.seeds()["interleaved"]["order"]) == 16
    sweep = compose("search", "sandwich_k", [])
    assert sweep["seeds"] == (0, 1, 2)
    points = list(build(sweep["space"], path="space").points())
    assert [point["model.stack.sandwich"] for point in points] == list(range(8))
    one, other = (compose("search", name, [])["individual"] for name in ("orders", "sandwich_k"))
    assert {*other.overrides} - {*one.overrides} == {"size.num_layers=8"}
    spec = compose("search", "evolved", [])
    space = build(spec["space"], path="space")
    assert set(spec["strategy"]["start"]) <= space.seeds().keys()
    for point in space.seeds().values():
        words = [*spec["individual"].overrides, *space.overrides(point)]
        composed = compose("pretrain", "evolved_transformer", words)
        assert composed["size"]["width"] == 64


def test_the_finder_of_batch_sizes_doubles_the_rows() -> None:
    """Powers of two up to the whole batch, the fastest first; a run that failed comes last."""
    spec = compose("search", "batch_size", [])
    points = build(spec["space"], path="space").points()
    assert [point["train.micro_batch_size"] for point in points] == [2**k for k in range(9)]
    (goal,) = choose_goals(spec["fitness"], [], {"loss": True}, "loss")
    measured = [{"tokens_per_second": 900.0, "loss": 2.0}, {"tokens_per_second": 1200.0}, {}]
    fitness = [read_fitness([goal], scores, {})[0] for scores in measured]
    assert fitness == [900.0, 1200.0, float("-inf")]
