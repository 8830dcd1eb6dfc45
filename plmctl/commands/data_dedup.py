"""`plmctl data dedup`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plmctl.config.build import plain
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TextCleaner
from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Whole

if TYPE_CHECKING:
    from plmctl.cleaning.dedup import Signing
    from plmctl.cleaning.parts import CleaningInput

FREQUENCIES = (
    "a test set without copies has other frequencies than the rows as they came; score these, too:"
    " plmctl eval <a run> task.path=<the table>"
)


@dataclass(frozen=True)
class Dedup(TextCleaner, Command):
    """Write a text without its duplicates: equal documents, and near duplicates by MinHash.

    In each group the document of a preferred file is kept, else that of the lowest priority, else
    the first one.
    """

    about = About(
        "data dedup",
        place=22,
        examples=(
            "plmctl data dedup README.md out=deduplicated",
            "plmctl data dedup README.md near=false write=text compression=none out=different",
        ),
        bare="input",
        several=True,
        metavar="IN",
        options="json print_config config_dir plugin",
    )

    exact: bool = True  # leave out documents equal to another but for case and white space
    near: bool = True  # leave out near duplicates
    # words of an n-gram, by whose sets documents are compared; of scripts without spaces characters
    ngram: Count = 5
    buckets: Count = 14  # one shared bucket makes two documents near duplicates
    # hashes of a bucket: with 8 in 14 buckets, documents that share 72% of their n-grams are near
    # duplicates with a probability of one half
    hashes: Count = 8
    fold_numbers: bool = True  # numbers count as equal in near duplicates
    # files or folders of input whose documents stay, the best first
    prefer: tuple[str, ...] = ()
    # field of a row or of its metadata, with a number of which the lowest stays
    priority: str | None = None
    # field of a row with a label: copies with other labels stay, and conflicts.tsv lists them
    label: str | None = None
    examples: Whole = 20  # largest clusters to show in clusters.json
    seed: Whole = 0  # another choice of hashes

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.cleaning.dedup import deduplicate, describe, settings_of
        from plmctl.datasets.cleaning import SETTINGS, CleaningJob
        from plmctl.inputs.tokenize import spell_command
        from plmctl.storage.atomic import write_json

        if not (self.exact or self.near):
            raise ConfigError("near", False, "true where exact=false", fix="near=true")
        job = CleaningJob.open({name: plain(self[name]) for name in SETTINGS})
        again = spell_command(self.provenance, "data", "dedup")
        signing = self._make_signing(job.source)
        settings = {**settings_of(signing), "prefer": list(self.prefer), "exact": self.exact}
        with job.run("data dedup", settings, again) as (steps, record):
            found = deduplicate(signing, job.parts, steps, job.form, examples=self.examples)
            write_json(steps.journal.folder / "clusters.json", found.examples)
            record |= {"documents": found.counts, "clusters": found.sizes}
            record |= {"conflicts": found.conflicts, "differing": found.differing}
        lines = [
            *describe(found),
            f"{self.out}: what stays; dropped/ says why each other document does not",
            *([FREQUENCIES] if self.label and found.sizes else ()),
            job.describe_next(self.label),
        ]
        return self.report({"out": self.out, **record}, lines)

    def _make_signing(self, source: CleaningInput) -> Signing:
        from plmctl.cleaning.dedup import Signing
        from plmctl.cleaning.minhash import MinHash
        from plmctl.cleaning.parts import match_files
        from plmctl.cleaning.word_hashes import WordHashes

        files, preferred = source.files(), dict[int, int]()
        for rank, path in enumerate(self.prefer):
            for number in match_files(files, [path], "prefer"):
                preferred.setdefault(number, rank)
        minhash = MinHash(self.ngram, self.buckets, self.hashes, self.seed) if self.near else None
        hashes = WordHashes(fold_numbers=self.fold_numbers, seed=self.seed)
        return Signing(
            source, minhash, hashes, preferred, self.priority, exact=self.exact, label=self.label
        )
