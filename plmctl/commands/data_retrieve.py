"""`plmctl data retrieve`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.linked import Retrieve


class DataRetrieveCommand(Retrieve, Command):
    """Find passages of a text for open-domain questions, by BM25.

    A reader learns from them with task=triviaqa, a ranker with task=pair_classification.
    """

    about = About(
        "data retrieve",
        place=28,
        examples=(
            (
                "plmctl data retrieve text=README.md train_questions=questions.jsonl"
                " dev_questions=questions.jsonl out=found"
            ),
            (
                "plmctl data retrieve text=README.md dev_questions=questions.jsonl top=3"
                " words=20 out=found-less"
            ),
        ),
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.retrieval import retrieve

        return retrieve(self)
