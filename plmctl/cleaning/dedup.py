"""Deduplication of documents in restartable steps: sign, compare, group, write.

A document that is equal to a better one, or a near duplicate of it, is left out. The better one is
that of a preferred file, then that of the lower priority, then the earlier one. So neither the
order of files nor the number of processes matters. In a labelled table, one document of each label
stays.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.cleaning.clusters import Clusters, find_pairs, load_rows, order_documents
from plmctl.cleaning.minhash import MinHash, estimate, find_copy_keys
from plmctl.cleaning.output import OutputFormat, open_table, shorten
from plmctl.cleaning.parts import CleaningInput, InputPart
from plmctl.cleaning.raw_text import ID, RawText
from plmctl.cleaning.steps import Steps, map_array, save_array
from plmctl.cleaning.word_hashes import WordHashes
from plmctl.core.errors import ConfigError, DataError, list_some
from plmctl.core.folding import fold_name
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted

EMPTY, EXACT, NEAR = "empty", "exact", "near"
COLUMNS = ("id", "reason", "kept_id", "position", "kept_position", "text")
CONFLICTS_FILE = "conflicts.tsv"
CONFLICTS = ("group", "label", "id", "position", "text")
SIDES = 3  # dropped documents that an example of a cluster shows
_LARGE = np.inf  # the priority of a document that states none


@dataclass(frozen=True)
class Signing:
    """The first step of a part: the keys, names and ranks of its documents.

    Args:
        source: The text.
        minhash: The signatures of near duplicates; None: only equal documents count.
        hashes: The hashes of words.
        preferred: The numbers of files whose documents stay, each with its rank.
        priority: The field of a row with a number, of which the lowest stays.
        exact: Whether equal documents count.
        label: The field of a row with its label; documents with different ones are no duplicates.
    """

    source: CleaningInput
    minhash: MinHash | None
    hashes: WordHashes
    preferred: Mapping[int, int]
    priority: str | None = None
    exact: bool = True
    label: str | None = None

    def __call__(self, part: InputPart, folder: Path) -> dict[str, Any]:
        keys: list[np.ndarray] = []
        values: list[dict[str, int]] = []
        ranks: list[tuple[float, float]] = []
        names: list[bytes] = []
        for span, text in self.source.read(part):
            keys.append(find_copy_keys(text.text, self.minhash, self.hashes))
            values.append(_hash_fields(text))
            rank = self.preferred.get(span.number, len(self.preferred))
            ranks.append((rank, self._find_priority(text)))
            names.append(f"{text.id}\t{text.position}".encode("utf-8", "replace"))
        width = 2 + (self.minhash.buckets if self.minhash else 0)
        stacked = np.stack(keys, 1) if keys else np.zeros((width, 0), np.uint64)
        save_array(folder / f"{part.name}.keys.npy", np.ascontiguousarray(stacked))
        save_array(folder / f"{part.name}.ranks.npy", np.array(ranks, float).reshape(-1, 2).T)
        ends = np.array(list(accumulate(map(len, names))), np.int64)
        save_array(folder / f"{part.name}.ends.npy", ends)
        save_array(folder / f"{part.name}.names.npy", np.frombuffer(b"".join(names), np.uint8))
        fields = [*dict.fromkeys(name for row in values for name in row)]
        for number, name in enumerate(fields):
            column = np.array([row.get(name, 0) for row in values], np.uint32)
            save_array(folder / f"{part.name}.field{number}.npy", column)
        return {"documents": len(keys), "fields": fields}

    def sign(self, text: str) -> np.ndarray:
        """The MinHash signature of a text."""
        assert self.minhash is not None
        return self.minhash.sign(self.hashes(text))

    def _find_priority(self, text: RawText) -> float:
        if self.priority is None:
            return 0.0
        value = text.find(self.priority)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if known else _LARGE


def _hash_fields(text: RawText) -> dict[str, int]:
    """{field of the row: hash of its value}, without the text and the id; 0: an empty value."""
    found = {}
    for name, value in text.row.items():
        if name not in (text.key, ID):
            spelt = value if isinstance(value, str) else json.dumps(value, default=str)
            found[name] = 0 if value is None else zlib.crc32(fold_name(spelt).encode())
    return found


@dataclass(frozen=True)
class Comparing:
    """The second step, of one kind of keys: pairs of documents with equal ones."""

    files: tuple[Path, ...]

    def __call__(self, rows: tuple[int, int], folder: Path) -> dict[str, Any]:
        pairs = find_pairs(self.files, slice(*rows))
        save_array(folder / f"{rows[0]:03}.pairs.npy", pairs)
        return {"pairs": len(pairs)}


@dataclass(frozen=True)
class SignedDocuments:
    """The names of all documents, which lie on the disk."""

    folder: Path
    starts: tuple[int, ...]  # the number of the first document of each part, and of all documents

    def find(self, number: int) -> tuple[str, str]:
        """(id, position) of a document."""
        part = int(np.searchsorted(self.starts, number, side="right")) - 1
        ends, inner = map_array(self.folder / f"{part:05}.ends.npy"), number - self.starts[part]
        begin = int(ends[inner - 1]) if inner else 0
        names = map_array(self.folder / f"{part:05}.names.npy")
        identity, _, position = bytes(names[begin : int(ends[inner])]).decode().rpartition("\t")
        return identity, position


@dataclass(frozen=True)
class SavedFields:
    """The hashes of the other fields of rows, which lie on the disk.

    Args:
        files: The files of each part, by field.
        sizes: The number of documents of each part.
    """

    files: Sequence[Mapping[str, Path]]
    sizes: Sequence[int]

    @classmethod
    def find(
        cls, folder: Path, parts: Sequence[InputPart], signed: Sequence[Mapping[str, Any]]
    ) -> SavedFields:
        """The fields in the files of the signing of all parts."""
        files = [
            {name: folder / f"{part.name}.field{n}.npy" for n, name in enumerate(own["fields"])}
            for part, own in zip(parts, signed, strict=True)
        ]
        return cls(files, [own["documents"] for own in signed])

    @property
    def names(self) -> list[str]:
        """The fields of any part."""
        return [*dict.fromkeys(name for own in self.files for name in own)]

    def load(self, name: str) -> np.ndarray:
        """[N] uint32: the hash of the value of each document; 0 without one.

        Raises:
            ConfigError: No document has the field.
        """
        if name not in self.names:
            known = list_some(self.names) or "none: the documents have no other field"
            raise ConfigError("label", name, f"a field of the rows: {known}", fix="label=null")
        columns = [
            map_array(own[name]) if name in own else np.zeros(size, np.uint32)
            for own, size in zip(self.files, self.sizes, strict=True)
        ]
        return np.concatenate(columns)

    def count_differing(self, best: np.ndarray) -> dict[str, int]:
        """{field: the dropped documents whose value is another one than that of the kept
        document}, where some differ and most do not: labels, not numbers of rows.
        """
        dropped = np.flatnonzero(best != np.arange(len(best)))
        found = {}
        for name in self.names:
            values = self.load(name)
            count = int((values[dropped] != values[best[dropped]]).sum())
            if 0 < count < len(dropped) / 2:
                found[name] = count
        return found


@dataclass(frozen=True)
class Writing:
    """The last step of a part: documents that stay, and a record of the others.

    Args:
        signing: The first step, which reads and signs.
        documents: The names of all documents.
        best: A file of [N]: the number of the document that is kept for each document.
        group: A file of [N]: the number of the best document of its group, of any label.
        equal: A file of [N], whether a better document is equal to it.
        disputed: The groups with several labels.
        shown: The numbers of documents whose text the examples show.
        out: The folder that is written.
        form: The form of the documents.
    """

    signing: Signing
    documents: SignedDocuments
    best: Path
    group: Path
    equal: Path
    disputed: frozenset[int]
    shown: frozenset[int]
    out: Path
    form: OutputFormat

    def __call__(self, part: InputPart, folder: Path) -> dict[str, Any]:
        best, equal, group = map(map_array, (self.best, self.equal, self.group))
        conflicts: list[list[str]] = []
        counts = {reason: [0, 0] for reason in ("kept", EMPTY, EXACT, NEAR)}
        shown: dict[str, Any] = {}
        dropped = self.out / "dropped" / f"{part.name}.tsv"
        with self.form.file(self.out, part.name) as write, open_table(dropped, COLUMNS) as record:
            first = self.documents.starts[part.number]
            for number, (_, text) in enumerate(self.signing.source.read(part), first):
                if number in self.shown:
                    shown[str(number)] = self._show(text)
                twin = int(best[number])
                reason = "kept"
                if not text.text.strip():
                    reason = EMPTY
                    record([text.id, reason, "", text.position, "", ""])
                elif twin == number:
                    write(text)
                    if int(group[number]) in self.disputed:
                        conflicts.append(self._spell_conflict(text, int(group[number])))
                else:
                    reason = EXACT if equal[number] else NEAR
                    identity, position = self.documents.find(twin)
                    beginning = shorten(text.text)
                    record([text.id, reason, identity, text.position, position, beginning])
                counts[reason][0] += 1
                counts[reason][1] += len(text.text)
        return {"counts": counts, "shown": shown, "conflicts": conflicts}

    def _spell_conflict(self, text: RawText, group: int) -> list[str]:
        label = "" if (value := text.row.get(str(self.signing.label))) is None else str(value)
        return [self.documents.find(group)[0], label, text.id, text.position, shorten(text.text)]

    def _show(self, text: RawText) -> dict[str, Any]:
        signature = self.signing.sign(text.text).tolist() if self.signing.minhash else []
        about = {"id": text.id, "position": text.position, "text": shorten(text.text, 400)}
        return {"about": about, "signature": signature}


@dataclass
class Deduplicated:
    """The result: numbers for `made.json`, and examples.

    Args:
        counts: {reason: [documents, characters]}; "kept" is one of them.
        sizes: {size of a cluster: the number of such clusters}.
        examples: The largest clusters.
        conflicts: The number of groups with several labels.
        differing: {field: the dropped documents with another value than the kept one}, of fields
            that mostly agree.
        disputed: The documents of the first groups with several labels, as words.
    """

    counts: dict[str, list[int]]
    sizes: dict[str, int]
    examples: list[dict[str, Any]] = field(default_factory=list)
    conflicts: int = 0
    differing: dict[str, int] = field(default_factory=dict)
    disputed: list[list[str]] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """The number of documents that were read."""
        return sum(count for count, _ in self.counts.values())


def deduplicate(
    signing: Signing, parts: Sequence[InputPart], steps: Steps, form: OutputFormat, *, examples: int
) -> Deduplicated:
    """Write the documents that stay into the folder of the job, and records of the others.

    Raises:
        DataError: There are no documents.
        ConfigError: No document has the label.
    """
    sizes = [part.size for part in parts]
    signed = steps.run("signing", parts, signing, sizes=sizes)
    starts = (0, *accumulate(result["documents"] for result in signed))
    if not starts[-1]:
        fix = "input=<files with text>"
        raise DataError("there are no documents", file=", ".join(signing.source.paths), fix=fix)
    folder = steps.folder("signing")
    files = tuple(folder / f"{part.name}.keys.npy" for part in parts)
    fields = SavedFields.find(folder, parts, signed)
    labels = None if signing.label is None else fields.load(signing.label)
    kinds = [(0, 2)] * signing.exact
    kinds += [(n, n + 1) for n in range(2, 2 + _count_buckets(signing))]
    bulk = [starts[-1] * 8] * len(kinds)
    steps.run("comparing", kinds, Comparing(files), sizes=bulk)
    grouped = steps.folder("grouping")
    _group(parts, folder, steps.folder("comparing"), kinds, grouped, labels)
    best, group = map_array(grouped / "best.npy"), map_array(grouped / "group.npy")
    clusters = _choose_clusters(best, examples)
    disputed = np.unique(group[best != group])
    writing = Writing(
        signing,
        SignedDocuments(folder, starts),
        grouped / "best.npy",
        grouped / "group.npy",
        grouped / "equal.npy",
        frozenset(disputed.tolist()),
        frozenset(number for numbers in clusters for number in numbers),
        steps.journal.folder,
        form,
    )
    steps.prepare("dropped")
    results = steps.run("writing", parts, writing, sizes=sizes)
    rows = sorted((row for result in results for row in result["conflicts"]), key=lambda r: r[0])
    if rows:
        with open_table(steps.journal.folder / CONFLICTS_FILE, CONFLICTS) as write:
            for row in rows:
                write(row)
    found = _sum_up(results, clusters, best)
    found.conflicts, found.disputed = len(disputed), _list_disputed(rows)
    found.differing = {} if signing.label else fields.count_differing(best)
    return found


def _list_disputed(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """`cards: My card is lost. (0.jsonl/0)` of the first groups of sorted rows of conflicts."""
    groups = (list(own) for _, own in groupby(rows, key=lambda row: row[0]))
    return [
        [f"{label or 'no label'}: {text[:60]} ({name})" for _, label, name, _, text in own[:SIDES]]
        for own in islice(groups, SIDES)
    ]


def _count_buckets(signing: Signing) -> int:
    return signing.minhash.buckets if signing.minhash else 0


def _group(
    parts: Sequence[InputPart],
    signed: Path,
    compared: Path,
    kinds: Sequence[tuple[int, int]],
    folder: Path,
    labels: np.ndarray | None,
) -> None:
    """Write for each document the best one of its group, the best one with its label, and whether a
    better one is equal.
    """
    if (folder / "best.npy").exists():
        return
    ranks = [signed / f"{part.name}.ranks.npy" for part in parts]
    columns = [load_rows(ranks, lambda rows, n=n: rows[n]) for n in range(2)]  # type: ignore[misc]
    clusters = Clusters(order_documents(columns))
    for rows in kinds:
        if rows[0] == 2:
            _save_equal(clusters, folder, labels)
        clusters.join(map_array(compared / f"{rows[0]:03}.pairs.npy"))
    if kinds[-1][0] == 0:
        _save_equal(clusters, folder, labels)
    save_array(folder / "group.npy", clusters.find_best())
    save_array(folder / "best.npy", clusters.find_best(labels))


def _save_equal(clusters: Clusters, folder: Path, labels: np.ndarray | None) -> None:
    """Write whether a better document is equal, while only equal ones are joined."""
    best = clusters.find_best(labels)
    save_array(folder / "equal.npy", best != np.arange(len(best)))


def _choose_clusters(best: np.ndarray, count: int) -> list[list[int]]:
    """The `count` largest clusters: the document that stays, and some that do not."""
    dropped = np.flatnonzero(best != np.arange(len(best)))
    kept, sizes = np.unique(best[dropped], return_counts=True)
    largest = kept[np.lexsort((kept, -sizes))][:count]
    return [[int(one), *_members(best, dropped, int(one))] for one in largest]


def _members(best: np.ndarray, dropped: np.ndarray, kept: int) -> list[int]:
    return [int(number) for number in dropped[best[dropped] == kept][:SIDES]]


def _sum_up(
    results: Iterable[Mapping[str, Any]], clusters: Iterable[Sequence[int]], best: np.ndarray
) -> Deduplicated:
    counts: dict[str, list[int]] = {}
    shown: dict[str, Any] = {}
    for result in results:
        shown |= result["shown"]
        for reason, numbers in result["counts"].items():
            old = counts.get(reason, [0, 0])
            counts[reason] = [a + b for a, b in zip(old, numbers, strict=True)]
    kept, others = np.unique(best[best != np.arange(len(best))], return_counts=True)
    values, frequencies = np.unique(others + 1, return_counts=True)
    by_size = {str(size): int(n) for size, n in zip(values, frequencies, strict=True)}
    examples = [
        {
            "documents": 1 + int(others[np.searchsorted(kept, numbers[0])]),
            **_compare(numbers, shown),
        }
        for numbers in clusters
    ]
    return Deduplicated(counts, by_size, examples)


def _compare(numbers: Sequence[int], shown: Mapping[str, Any]) -> dict[str, Any]:
    """An example of a cluster; similarities are estimated by MinHash."""
    first, *others = (shown[str(number)] for number in numbers)
    signature = np.array(first["signature"])
    dropped = [
        {
            **other["about"],
            "similarity": round(estimate(signature, np.array(other["signature"])), 3),
        }
        for other in others
    ]
    return {"kept": first["about"], "dropped": dropped}


def describe(found: Deduplicated) -> Iterator[str]:
    """A table of kept and dropped documents, and an example."""
    total, characters = found.documents, sum(size for _, size in found.counts.values())
    yield f"{'':10}{'documents':>12}{'':8}{'M characters':>14}"
    for reason, (count, size) in found.counts.items():
        if count or reason == "kept":
            yield f"{reason:10}{count:12,}{count / total:8.1%}{size / 1e6:14,.3f}"
    yield f"{'all':10}{total:12,}{'':8}{characters / 1e6:14,.3f}"
    if found.sizes:
        largest = max(map(int, found.sizes))
        several = counted(sum(found.sizes.values()), "cluster")
        share = f"{largest:,} of {total:,} documents ({largest / total:.1%})"
        yield f"{several}, the largest has {share}, of which 1 stays"
    if found.conflicts:
        yield (
            f"{counted(found.conflicts, 'group')} with several labels: one document of each label"
            f" stays, see {CONFLICTS_FILE}"
        )
        yield from (f"  {' | '.join(lines)}" for lines in found.disputed)
    for name, count in found.differing.items():
        yield (
            f"{counted(count, 'dropped document')} had another {name} than the kept one; if it is"
            f" a label, {spell_setting('label', name)} keeps one of each and lists them"
        )
    for example in found.examples[:1]:
        yield f"  kept     {example['kept']['id']}: {example['kept']['text'][:60]}"
        for each in example["dropped"]:
            yield f"  dropped  {each['id']}: {each['text'][:60]}"


def settings_of(signing: Signing) -> dict[str, Any]:
    """The settings that decide which documents stay."""
    minhash = None if signing.minhash is None else asdict(signing.minhash)
    words = signing.hashes.settings()
    return {"minhash": minhash, **words, "priority": signing.priority, "label": signing.label}
