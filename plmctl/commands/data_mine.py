"""`plmctl data mine`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.linked import Mine


class DataMineCommand(Mine, Command):
    """Find hard negatives for questions, by BM25 or by a bi-encoder.

    Encoders learn from them with task=bi_encoder, cross_encoder or sentence_triplets.
    """

    about = About(
        "data mine",
        place=29,
        examples=(
            (
                "plmctl data mine task=bi_encoder task.path=questions.jsonl"
                " task.columns.query=question task.columns.positive=answers"
                " task.columns.negatives=null out=mined"
            ),
            (
                "plmctl data mine task=bi_encoder task.path=questions.jsonl"
                " task.columns.query=question task.columns.positive=answers"
                " task.columns.negatives=null negatives=1 out=mined-one"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.mining import mine

        return mine(self)
