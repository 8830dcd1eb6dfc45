"""`plmctl data link`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.linked import Linking


class DataLinkCommand(Linking, Command):
    """Write text with marked mentions of entities.

    PATH is the export of a wiki, or with dictionary=<names> plain text.
    """

    about = About(
        "data link",
        place=25,
        examples=(
            "plmctl data link enwiki-pages-articles.xml.bz2 out=linked",
            "plmctl data link README.md dictionary=linked out=linked-text",
        ),
        bare="path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.datasets.link import write_links

        return write_links(self)
