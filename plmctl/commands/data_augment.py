"""`plmctl data augment`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.writing import Augment


class DataAugmentCommand(Augment, Command):
    """Write a larger training set: a masked language model replaces words.

    Every text is copied, and words of the copies are replaced (TinyBERT's data augmentation).
    """

    about = About(
        "data augment",
        place=30,
        examples=(
            (
                "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
                " copies=2 out=augmented"
            ),
            (
                "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
                " rate=0.2 candidates=5 out=augmented-less"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.augment import augment

        return augment(self)
