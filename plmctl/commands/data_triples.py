"""`plmctl data triples`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import WriteTriples


class DataTriplesCommand(WriteTriples, Command):
    """Write a knowledge graph as text: for KEPLER, COMET or KG-BERT.

    kind=descriptions: a text of each entity. comet: head and relation, and the tail that is to be
    written. kg_bert: true and false triples. relations: which relation two entities have.
    """

    about = About(
        "data triples",
        place=37,
        examples=(
            "plmctl data triples kind=descriptions out=entities",
            "plmctl data triples kind=kg_bert negatives=2 out=true-or-false",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.triple_texts import write_triples

        return write_triples(self)
