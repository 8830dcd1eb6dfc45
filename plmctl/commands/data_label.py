"""`plmctl data label`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.writing import Label


class DataLabelCommand(Label, Command):
    """Write a training set of texts with the labels that a fine-tuned run gives them.

    For self-training, and for a classifier that imitates several models (PET).
    """

    about = About(
        "data label",
        place=42,
        examples=(
            "plmctl data label checkpoint=runs/sst2 input=README.md threshold=0.5 out=labelled",
            (
                "plmctl data label checkpoint=runs/sst2 input=README.md share=0.5"
                " labelled=false temperature=2 out=labelled-half"
            ),
        ),
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.pseudo_labels import label

        return label(self)
