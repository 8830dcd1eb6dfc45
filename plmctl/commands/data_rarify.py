"""`plmctl data rarify`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.writing import Rarify


class DataRarifyCommand(Rarify, Command):
    """Write a test set whose labels depend on rare words.

    The first call splits a labelled set, and the second one, with a baseline that was trained on
    its part, finds the examples in which a frequent word decides, and puts a rare one there.
    """

    about = About(
        "data rarify",
        place=45,
        examples=(
            "plmctl data rarify task=sst2 task.path=glue/SST-2 substitutes=rare.tsv out=rarified",
            "plmctl data rarify checkpoint=runs/sst2 out=rarified",
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.rarify import rarify_files

        return rarify_files(self)
