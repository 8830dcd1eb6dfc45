"""`plmctl graph`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import RECIPE, command
from plmctl.cli.options import RecipeWords
from plmctl.cli.start import start


@command(
    "graph",
    place=105,
    bare=RECIPE,
    examples=(
        "plmctl graph train.epochs=5 run.dir=runs/graph",
        (
            "plmctl graph graph_score=rotate graph_loss=self_adversarial optim=adamw optim.lr=1e-3"
            " reciprocal=false train.epochs=2 run.dir=runs/rotate"
        ),
    ),
    slots="graph_score graph_loss graph_penalty optim schedule",
    lists="graph",
    options="print_config dry_run resume multirun config_dir plugin json",
)
def graph(words: RecipeWords = None, **options: Any) -> None:
    """Learn vectors of the entities and relations of a knowledge graph.

    The vectors of the best epoch are written to vectors/ in the run. plmctl eval checkpoint=<run>
    ranks another split.
    """
    start("graph", words, **options)
