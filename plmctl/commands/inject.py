"""`plmctl inject`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Inject


class InjectCommand(Inject, Command):
    """Give a model tokens of whole words, with vectors from elsewhere.

    The new model puts them beside or in place of these words in every text that it reads.
    """

    about = About(
        "inject",
        place=105,
        examples=(
            (
                "plmctl inject checkpoint=runs/first word_vectors=pieces words=rare-words"
                " out=with-words"
            ),
            (
                "plmctl inject checkpoint=runs/first word_vectors=one_token words=rare-words"
                " word_vectors.steps=10 form=replace out=one-token"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="word_vectors",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.artifacts.inject import inject

        return inject(self)
