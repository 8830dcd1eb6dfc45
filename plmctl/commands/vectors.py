"""`plmctl vectors`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import Vectors


class VectorsCommand(Vectors, Command):
    """Make static vectors of words, from a text or out of a model.

    They are written as word2vec, GloVe or fastText write them, and read by every setting that names
    a file of word vectors.
    """

    about = About(
        "vectors",
        place=107,
        examples=(
            (
                "plmctl vectors method=cbow data.path=README.md width=50 least=2"
                " out=words.safetensors"
            ),
            (
                "plmctl vectors method=distilled checkpoint=runs/first data.path=README.md"
                " width=16 out=static.vec"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="method",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.runs.vectors import make_vectors

        return make_vectors(self)
