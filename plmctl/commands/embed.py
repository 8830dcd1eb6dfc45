"""`plmctl embed`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Embed


class EmbedCommand(Embed, Command):
    """Write contextual embeddings of the lines of a file."""

    about = About(
        "embed",
        place=110,
        examples=(
            "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
            (
                "plmctl embed checkpoint=exported input=glue/SST-2/dev.tsv field=sentence"
                " out=means.npz layers=-1 pooling=mean"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.use.embed import write_embeddings

        return write_embeddings(self)
