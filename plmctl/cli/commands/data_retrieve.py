"""`plmctl data retrieve`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data retrieve",
    place=28,
    examples=(
        (
            "plmctl data retrieve text=README.md train_questions=questions.jsonl"
            " dev_questions=questions.jsonl out=found"
        ),
        (
            "plmctl data retrieve text=README.md dev_questions=questions.jsonl top=3 words=20"
            " out=found-less"
        ),
    ),
    options="json print_config config_dir plugin",
)
def retrieve(words: Words = None, **options: Any) -> None:
    """Find passages of a text for open-domain questions, by BM25.

    A reader learns from them with task=triviaqa, a ranker with task=pair_classification.
    """
    start("retrieve", words, **options)
