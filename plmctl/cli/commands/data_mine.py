"""`plmctl data mine`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data mine",
    place=29,
    examples=(
        (
            "plmctl data mine task=bi_encoder task.path=questions.jsonl task.columns.query=question"
            " task.columns.positive=answers task.columns.negatives=null out=mined"
        ),
        (
            "plmctl data mine task=bi_encoder task.path=questions.jsonl task.columns.query=question"
            " task.columns.positive=answers task.columns.negatives=null negatives=1 out=mined-one"
        ),
    ),
    slots="task",
    options="json print_config config_dir plugin",
)
def mine(words: Words = None, **options: Any) -> None:
    """Find hard negatives for questions, by BM25 or by a bi-encoder.

    Encoders learn from them with task=bi_encoder, cross_encoder or sentence_triplets.
    """
    start("mine", words, **options)
