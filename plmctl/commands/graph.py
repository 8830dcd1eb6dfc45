"""`plmctl graph`."""

from __future__ import annotations

from plmctl.config.command import RECIPE, About, Command, Result
from plmctl.config.schema import Graph


class GraphCommand(Graph, Command):
    """Learn vectors of the entities and relations of a knowledge graph.

    The vectors of the best epoch are written to vectors/ in the run. plmctl eval checkpoint=<run>
    ranks another split.
    """

    about = About(
        "graph",
        place=105,
        examples=(
            "plmctl graph train.epochs=5 run.dir=runs/graph",
            (
                "plmctl graph graph_score=rotate graph_loss=self_adversarial optim=adamw"
                " optim.lr=1e-3 reciprocal=false train.epochs=2 run.dir=runs/rotate"
            ),
        ),
        bare=RECIPE,
        metavar="RECIPE",
        options="print_config dry_run resume multirun config_dir plugin json",
        slots="graph_score graph_loss graph_penalty optim schedule",
        lists="graph",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.runs.graph_training import train_graph

        return train_graph(self)
