"""Teams of processes that compute parts of the same cells make the training of one process."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.divided import find_divided
from plmctl.nn.entmax import Entmax
from plmctl.nn.peft.base import attach
from plmctl.runs.dividing import check_team, count_divided, describe_division, refuse_compiling
from plmctl.storage.parts.kinds import read_at_once
from plmctl.training import checkpoint
from plmctl.training.checkpoint import Checkpoints
from plmctl.training.log import read_metrics
from plmctl.training.processes.launch import launch
from plmctl.training.processes.parallel import check_parallel
from plmctl.training.processes.world import World
from tests.forked import fork_processes
from tests.training import toy
from tests.training.toy_team import CELLS, HEADS, make_run, state_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The findings of each process of a part of toy_team, and its folder."""

    def start(processes, *words):
        folder = tmp_path_factory.mktemp("team")
        with pytest.MonkeyPatch.context() as patch:
            fork_processes(patch)
            argv = [str(folder), *words]
            assert launch(processes, argv, module="tests.training.toy_team") == 0
        return folder, [torch.load(folder / f"{rank}.pt") for rank in range(processes)]

    return start


@pytest.fixture(scope="module")
def team(run):
    """A team of two."""
    return run(2, "cells", "replicated", "0")


@pytest.mark.parametrize("name", CELLS)
def test_a_team_computes_a_cell(team, name):
    """The result and every gradient, to the last digits; a process has half of the weights."""
    for process in team[1]:
        found = process[name]
        torch.testing.assert_close(found["divided"], found["whole"], rtol=1e-12, atol=1e-12)
        assert found["divided numbers"] < 0.61 * found["whole numbers"]
        assert torch.equal(found["again"], found["whole"]["result"])  # once its team has ended


def test_a_plan_without_a_sum_fails(team):
    for process in team[1]:
        found = process["broken"]
        apart = found["divided"]["result"] - found["whole"]["result"]
        assert apart.abs().max() > 0.1


def test_a_team_drops_other_inner_columns_and_goes_on_alike(team):
    first, second = team[1]
    assert not torch.equal(first["drawn"], second["drawn"])
    assert torch.equal(first["drawn after"], second["drawn after"])


def test_a_run_of_a_team_is_that_of_one_process(team):
    folder, (first, second) = team
    curves = [read_metrics(folder / name / "metrics.jsonl") for name in ("alone", "plain")]
    for alone, plain in zip(*curves, strict=True):
        assert plain["loss"] == pytest.approx(alone["loss"], rel=1e-6)
        assert plain["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-5)
        assert plain["tokens"] == alone["tokens"]
        assert plain["acc/mlm"] == alone["acc/mlm"]
    assert first["run"]["local"] < 0.7 * sum(
        value.numel() for name, value in first["run"]["alone"].items() if "/" not in name
    )
    for name in ("plain", "dropping"):
        torch.testing.assert_close(first["run"][name], second["run"][name], rtol=0, atol=0)


def test_a_stopped_run_of_a_team_goes_on_bit_for_bit(team):
    """With dropout; from a checkpoint after the first update."""
    for process in team[1]:
        found = process["run"]
        assert found["stopped at"] == 1
        torch.testing.assert_close(found["stopped"], found["dropping"], rtol=0, atol=0)
        assert not torch.equal(
            *(found[n]["backbone.block.1.up.weight"] for n in ("plain", "dropping"))
        )


def test_one_process_reads_the_checkpoint_of_a_team(team):
    """Each tensor is saved once and whole, fused maps in the order of one process; a run alone goes
    on from it.
    """
    folder, (first, _) = team
    newest = Checkpoints(folder / "plain/checkpoints").newest()
    found = checkpoint.read(newest)
    saved = {**found.model, **found.objective, **found.optimizer}
    assert saved.keys() == first["run"]["plain"].keys()
    torch.testing.assert_close(saved, first["run"]["plain"], rtol=0, atol=0)
    torch.testing.assert_close(read_at_once(newest), dict(found.model), rtol=0, atol=0)
    alone = make_run(folder / "plain", World(), "replicated", steps=5)
    assert alone.resume(newest).step == 4
    torch.testing.assert_close(state_of(alone), saved, rtol=0, atol=0)
    alone.fit()


def test_the_model_of_the_main_process_is_whole_in_the_end(team):
    _, (first, _) = team
    found = first["run"]
    alone = toy.make_model(
        0.0, type(make_run(team[0] / "other", World(), "replicated").model.backbone)
    )
    alone.load_state_dict(found["released"], strict=False)
    assert torch.equal(alone.eval()(toy.make_batch([1, 2])).last, found["after"])


def check_optimizers(seen, share):
    for process in seen:
        for found in process.values():
            torch.testing.assert_close(found["shares"], found["whole"], rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(*map(torch.tensor, found["norms"]), rtol=1e-9, atol=0)
            assert found["bytes"][1] < share * found["bytes"][0]


@pytest.mark.slow  # test_a_run_of_a_team_is_that_of_one_process has AdamW
@pytest.mark.parametrize(
    ("processes", "parallel", "shard_size", "share"),
    [
        (2, "replicated", 0, 0.6),
        (4, "replicated", 0, 0.6),
        (4, "sharded", 0, 0.33),
        (8, "hybrid", 2, 0.33),
    ],
)
def test_an_optimizer_makes_the_step_of_whole_weights(run, processes, parallel, shard_size, share):
    """Teams of two have rows of their own, also where a rule needs norms or whole matrices."""
    names = ["adamw", "muon"] if processes == 8 else []
    check_optimizers(run(processes, "optimizers", parallel, str(shard_size), *names)[1], share)


@pytest.mark.slow
def test_teams_share_weights_and_rows(run):
    _, seen = run(4, "cells", "sharded", "0")
    for process in seen:
        found = process["run"]
        torch.testing.assert_close(found["stopped"], found["dropping"], rtol=0, atol=0)


def make_model(**settings):
    cells = [
        Attention(**HEADS, **settings),
        FeedForward(width=8, inner_width=12, activation="gelu"),
    ]
    return nn.Sequential(*cells)


NOTHING = nn.Module()


def test_what_a_team_cannot_divide_is_refused_with_the_largest_that_can():
    with pytest.raises(ConfigError, match=r"size.num_heads=4") as error:
        find_divided(make_model(), NOTHING, 8)
    assert error.value.fix == "train.tensor_parallel=4"
    with pytest.raises(ConfigError, match=r"size.num_heads=4") as error:
        find_divided(make_model(), NOTHING, 3)
    assert error.value.fix == "train.tensor_parallel=1"
    with pytest.raises(ConfigError, match="no cell that can be divided") as error:
        find_divided(nn.Linear(2, 2), NOTHING, 2)
    assert error.value.fix == "train.tensor_parallel=1"
    with pytest.raises(ConfigError, match=r"size.num_heads=4"):
        check_team(make_model(), NOTHING, 8)
    for team in (1, 4):
        check_team(make_model(), NOTHING, team)
    with pytest.raises(ConfigError) as error:
        refuse_compiling(True, 2)
    assert error.value.path == "train.compile"
    refuse_compiling("auto", 2)


def test_cells_that_do_not_state_how_stay_whole():
    def whole(model, objective=NOTHING, size=2):
        plans = find_divided(model, objective, size)
        return [name for name, part in model.named_children() if part not in plans]

    assert whole(make_model()) == []
    assert whole(make_model(scores="general")) == ["0"]  # a matrix for each head
    assert whole(make_model(weights=Entmax)) == ["0"]
    assert whole(make_model(projections="none")) == ["0"]
    added = make_model()
    attach(added[1].up, "lora", nn.Identity())
    assert whole(added) == ["1"]
    tied = make_model().append(FeedForward(width=8, inner_width=12, activation="gelu"))
    tied[2].up.weight = tied[1].up.weight
    assert whole(tied) == ["1", "2"]
    small = nn.Sequential(Attention(width=8, num_heads=1, dropout=0.0))
    assert whole(small, size=1) == []
    plans = find_divided(make_model(), small, 2)  # a generator of an objective
    assert small[0] not in plans
    line = describe_division(make_model(), small, 2)
    assert "2 cells of 3" in line
    assert line.endswith("whole in every process: Attention")


def test_divided_weights_are_counted():
    """All but the biases of the last maps."""
    model = make_model()
    every = sum(weight.numel() for weight in model.parameters())
    assert count_divided(find_divided(model, NOTHING, 2)) == every - 8 - 8


@pytest.mark.parametrize(
    ("parallel", "processes", "team", "path", "fix"),
    [
        ("replicated", 1, 2, "train.tensor_parallel", "train.processes=2"),
        ("replicated", 6, 4, "train.tensor_parallel", "train.processes=8"),
        ("sharded", 2, 2, "train.parallel", "train.processes=4"),
        ("hybrid", 4, 2, "train.parallel", "train.parallel=sharded train.shard_size=null"),
    ],
)
def test_teams_that_processes_cannot_form_are_refused(parallel, processes, team, path, fix):
    with pytest.raises(ConfigError) as error:
        check_parallel(
            parallel, processes, shard_size=2 if parallel == "hybrid" else None, team=team
        )
    assert (error.value.path, error.value.fix) == (path, fix)
    check_parallel("sharded", 4, shard_size=None, team=2)
    check_parallel("hybrid", 8, shard_size=2, team=2)
