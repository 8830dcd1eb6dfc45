"""`plmctl data contexts`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import Contexts


class DataContextsCommand(Contexts, Command):
    """Find the words of a text with their contexts.

    BERTRAM learns from frequent words what the vector of a word is, and gives vectors to rare ones.
    """

    about = About(
        "data contexts",
        place=35,
        examples=(
            "plmctl data contexts least=50 out=words",
            "plmctl data contexts data.path=README.md words=rare.txt out=rare-words",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.contexts import find_contexts

        return find_contexts(self)
