"""`plmctl extend`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Extend


class ExtendCommand(Extend, Command):
    """Add tokens of the words of your field to a trained model.

    All old tokens keep their ids, and texts without a new token are read as before.
    """

    about = About(
        "extend",
        place=106,
        examples=(
            (
                "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3"
                " out=extended"
            ),
            (
                "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3"
                " rows=random out=extended-drawn"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.artifacts.extend import extend

        return extend(self)
