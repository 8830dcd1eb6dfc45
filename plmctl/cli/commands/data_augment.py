"""`plmctl data augment`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
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
    slots="task",
)
def augment(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Write a larger training set: a masked language model replaces words.

    Every text is copied, and words of the copies are replaced (TinyBERT's data augmentation).
    """
    given = Provenance("augment", json=as_json)
    start(given, words, config_dir, plugin, print_config=print_config)
