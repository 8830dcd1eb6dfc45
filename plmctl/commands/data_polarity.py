"""`plmctl data polarity`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from plmctl.config.build import MISSING, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data, list_unread
from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.core.values import Batch
from plmctl.storage.atomic import is_stream, open_atomic, refuse_existing
from plmctl.storage.paths import refuse_ending

if TYPE_CHECKING:
    from plmctl.knowledge.glosses import GlossedSense, GlossSimilarity


@dataclass(frozen=True)
class Polarity(Command):
    """Mark the polarity that words have in their sentence, by the glosses of their senses.

    SentiLARE learns from it which words are positive or negative where they stand.
    """

    about = About(
        "data polarity",
        place=36,
        examples=(
            (
                "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt"
                " out=marked.jsonl"
            ),
            (
                "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt"
                " checkpoint=runs/first out=by-vectors.jsonl"
            ),
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
    )

    data: Data = Data()
    lexicon: str = MISSING  # SentiWordNet's file, with glosses
    # an encoder whose vectors say how near a gloss is to a sentence; null: the words that both have
    checkpoint: str | None = None
    out: str = MISSING  # a new file, .jsonl
    overwrite: bool = False  # replace an existing file
    batch_size: Batch = 64  # texts that the encoder reads at once
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """As in RunSpec: sentences are read one after the other, all of them."""
        return list_unread(
            "path", "field", "lines", "tags", why="the whole text is read as it stands"
        )

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.datasets.polarity import mark_documents
        from plmctl.knowledge.glosses import read_senses
        from plmctl.text.reader import read_documents

        out, lexicon = Path(self.out).expanduser(), Path(self.lexicon).expanduser()
        if not is_stream(out):
            refuse_ending(self.out, [".jsonl"], "a text a line")
        refuse_existing(out, self.overwrite)
        senses = read_senses(lexicon)
        similarity = self._make_similarity(senses)
        tags = tuple(tag for tag in self.data.tags if tag != "polarity")
        path, data = plain(self.data.path), self.data
        documents = read_documents(path, field=data.field, lines=data.lines, tags=tags)
        counts: Counter[str] = Counter()
        with open_atomic(out) as stream:
            for row in mark_documents(documents, senses, similarity, counts):
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            if not counts["known"]:
                fix = "a text in the language of the lexicon"
                raise DataError("none of the words of the text is in it", file=lexicon, fix=fix)
        return self.report({"out": self.out, **counts}, self._describe(counts, tags))

    def _make_similarity(self, senses: Mapping[str, Sequence[GlossedSense]]) -> GlossSimilarity:
        """Compares sentences and glosses: by their words, or by vectors of the checkpoint."""
        from plmctl.artifacts.loading import load
        from plmctl.datasets.polarity import VectorCosines, WordCosines

        if self.checkpoint is None:
            glosses = dict.fromkeys(sense.gloss for own in senses.values() for sense in own)
            return WordCosines(list(glosses))
        loaded = load(self.checkpoint, plugins=self.plugins)
        part = VectorCosines(loaded, batch_size=self.batch_size, device=self.device)
        words = part.pooling.words
        remark(f"plmctl: glosses are compared by vectors of {self.checkpoint}: {words}")
        return part

    def _describe(self, counts: Mapping[str, int], tags: Sequence[str]) -> Iterator[str]:
        from plmctl.knowledge.sentiment import POLARITIES

        share = counts["known"] / counts["words"]
        kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in POLARITIES)
        yield f"{self.out}: {counts['words']:,} words, {share:.1%} with senses: {kinds}"
        path = spell_setting("data.path", self.out)
        names = spell_setting("data.tags", list(dict.fromkeys([*tags, "polarity", "pos"])))
        yield f"next: plmctl tokenize {path} {names} out=<dir>"
