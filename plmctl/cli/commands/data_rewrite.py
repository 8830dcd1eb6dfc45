"""`plmctl data rewrite`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "data rewrite",
    place=40,
    examples=(
        "plmctl data rewrite checkpoint=runs/en-de out=en-de-rewritten",
        (
            "plmctl data rewrite checkpoint=runs/en-de pick=nearest search.width=3"
            " search.count=3 out=en-de-nearest"
        ),
    ),
    slots="task search",
)
def rewrite(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Write a training set whose targets a trained model wrote.

    A student that learns from it imitates this model (sequence-level distillation).
    """
    given = Provenance("rewrite", json=as_json)
    start(given, words, config_dir, plugin, print_config=print_config)
