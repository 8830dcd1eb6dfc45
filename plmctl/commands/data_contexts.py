"""`plmctl data contexts`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from plmctl.config.build import MISSING, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data, list_unread
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count
from plmctl.storage.resumable import new_folder


@dataclass(frozen=True)
class Contexts(Command):
    """Find the words of a text with their contexts.

    BERTRAM learns from frequent words what the vector of a word is, and gives vectors to rare ones.
    """

    about = About(
        "data contexts",
        place=35,
        examples=(
            "plmctl data contexts least=50 out=words",
            "plmctl data contexts data.path=README.md words=rare.txt out=rare-words",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    data: Data = Data()
    # a list of words, one in each line; null: all that are frequent enough
    words: str | None = None
    least: Count = 100  # how often a word must stand in the text, without a list
    contexts: Count = 1000  # largest number of contexts of a word, spread evenly over the text
    window: Count = 25  # words on each side of the word, within its sentence
    out: str = MISSING  # a new folder

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """As in RunSpec: sentences are read one after the other, all of them."""
        return list_unread("path", "field", "lines", why="the whole text is read as it stands")

    def perform(self) -> Result:
        """Write the words of `data.path` with their contexts."""
        from plmctl.knowledge.contexts import ContextSettings, write_contexts
        from plmctl.knowledge.words import read_list
        from plmctl.text.reader import read_sentences

        out, data = new_folder(self.out), self.data
        words = None if self.words is None else read_list(self.words)
        settings = ContextSettings(self.least, self.contexts, self.window)
        sentences = partial(read_sentences, plain(data.path), field=data.field, lines=data.lines)
        counted = write_contexts(sentences, out, settings, words=words)
        return self.report({"out": self.out, **counted}, self._describe(counted))

    def _describe(self, counted: Mapping[str, int]) -> Iterator[str]:
        without = f"; {counted['without']:,} have none" if counted["without"] else ""
        counts = f"{counted['words']:,} words, {counted['contexts']:,} contexts{without}"
        yield f"{self.out}: {counts}"
        if self.words is None:
            path = spell_setting("data.path", self.out)
            yield f"next: plmctl pretrain bertram init=<run> {path}"
        else:
            line = "plmctl inject checkpoint=<run of bertram> into=<its init>"
            yield f"next: {line} {spell_setting('words', self.out)} out=<folder>"
