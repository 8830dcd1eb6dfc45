"""`plmctl data polarity`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import MarkPolarity


class DataPolarityCommand(MarkPolarity, Command):
    """Mark the polarity that words have in their sentence, by the glosses of their senses.

    SentiLARE learns from it which words are positive or negative where they stand.
    """

    about = About(
        "data polarity",
        place=36,
        examples=(
            (
                "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt"
                " out=marked.jsonl"
            ),
            (
                "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt"
                " checkpoint=runs/first out=by-vectors.jsonl"
            ),
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.polarity import mark_polarity

        return mark_polarity(self)
