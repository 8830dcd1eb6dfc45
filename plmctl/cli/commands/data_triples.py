"""`plmctl data triples`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import PathWords
from plmctl.cli.start import start


@command(
    "data triples",
    place=37,
    bare="data.path",
    examples=(
        "plmctl data triples kind=descriptions out=entities",
        "plmctl data triples kind=kg_bert negatives=2 out=true-or-false",
    ),
    options="json print_config config_dir plugin",
)
def triples(words: PathWords = None, **options: Any) -> None:
    """Write a knowledge graph as text: for KEPLER, COMET or KG-BERT.

    kind=descriptions: a text of each entity. comet: head and relation, and the tail that is to be
    written. kg_bert: true and false triples. relations: which relation two entities have.
    """
    start("triples", words, **options)
