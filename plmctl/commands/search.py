"""`plmctl search`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import typer

from plmctl.config.build import MISSING
from plmctl.config.command import RECIPE, About, Command, Result
from plmctl.config.launcher import set_launcher_apart
from plmctl.config.spec import Provenance, Record
from plmctl.core.values import Amount, Count, Processes, Whole

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print jobs and cost. Run nothing.")]


@dataclass(frozen=True)
class SearchedRun(Record):
    command: Literal["pretrain", "finetune"] = "pretrain"  # command of each individual
    recipe: str | None = None  # recipe of a pretraining
    # settings of each individual; those of its point come behind them: [train.steps=300,size=tiny]
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchBudget(Record):
    individuals: Count | None = None  # individuals that are trained
    updates: Count | None = None  # updates of all individuals together
    hours: Amount | None = None  # wall-clock time over all starts; running individuals end


@dataclass(frozen=True)
class SearchLimits(Record):
    parameters: Count | None = None  # most parameters
    macs: Count | None = None  # most forward multiply-adds of a token
    # most milliseconds of a row on this machine's CPU, measured before the training
    latency: Amount | None = None


@dataclass(frozen=True)
class SearchReruns(Record):
    best: Whole = 3  # individuals that are trained again in full; 0: none
    seeds: Count = 3  # fresh seeds of each


@dataclass(frozen=True)
class SearchCommand(Command):
    """Find settings or an architecture by a strategy, and train the best ones again.

    Individuals are ordinary runs with points of a space. Start the same command again to continue:
    a search that was stopped comes to the same end.
    """

    about = About(
        "search",
        place=102,
        examples=(
            "plmctl search rates --dry-run",
            "plmctl search rates budget.individuals=2 again.best=0 out=searches/first",
        ),
        bare=RECIPE,
        metavar="SEARCH",
        options="print_config config_dir plugin json",
        own_options=(("dry_run", DryRun, False),),
        slots="space strategy",
        lists="searches",
    )
    starts_jobs = True

    recipe: str | None = None  # the search's file
    title: str | None = None  # null: the name of the folder
    # folder of the search, its individuals and its page; null: searches/<name>
    out: str | None = None
    individual: SearchedRun = SearchedRun()
    space: Any = MISSING  # points that an individual may have
    strategy: Any = MISSING  # choice of the next individual
    # metrics of held-out data, or parameters, macs, latency; several: a front; []: the usual one
    fitness: tuple[str, ...] = ()
    better: tuple[Literal["auto", "lower", "higher"], ...] = ()  # for each of them; []: auto
    constraints: SearchLimits = SearchLimits()
    budget: SearchBudget = SearchBudget()
    # individuals at the same time; the next ones know fewer results, so that it belongs to a search
    parallel: Processes = 1
    seed: Whole = 0  # seed of the choices
    seeds: tuple[Whole, ...] = (0,)  # seeds of each individual, whose fitness is the mean
    again: SearchReruns = SearchReruns()
    keep: bool = False  # checkpoints of individuals

    @classmethod
    def read(cls, given: Provenance, **options: Any) -> Provenance:
        """Set the words of a launcher apart; `grid=bert` is short for a space and its strategy."""
        words: list[str] = []
        for word in given.overrides:
            name, _, value = word.partition("=")
            words += [f"space={value}", "strategy=grid"] if name == "grid" else [word]
        return set_launcher_apart(replace(given, overrides=tuple(words), **options))

    def perform(self) -> Result:
        """Search."""
        from plmctl.search.run import search

        return search(self)
