"""How alike sentences are, by vectors and by people: any files of scored pairs (eval only; STS of
SemEval, Agirre et al., 2012 to 2016; Cer et al., 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.sentences import take_columns
from plmctl.probes.base import Opened, Probe, tell_share
from plmctl.tasks.readers import files
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.scores.metrics import CORRELATIONS
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import OBJECTS, cells_of, kind_of, objects_of
from plmctl.use.embedding_lines import lay_out_text, measure_unknown, read
from plmctl.use.predict import ScoreTable
from plmctl.use.sentence_vectors import check_weights, choose_pooling, count_weights, embed_texts

# the columns of published files (GLUE's STS-B, SICK, tables of this toolkit), first text, second,
# score
LAYOUTS = (
    ("sentence1", "sentence2", "score"),
    ("sentence_A", "sentence_B", "relatedness_score"),
    ("text", "text2", "label"),
)
_FIX = "task.columns.label=<its column>"
# the files of a year of SemEval; each has an STS.gs.*.txt with its scores
PARTS = "STS.input.*.txt"
PATTERNS = {
    "train": ["train.*", "*train*"],
    "dev": ["dev.*", "valid.*", "*trial*", "*dev*", "*valid*"],
    "test": ["test.*", "*test*"],
}


class ScoredPair(NamedTuple):
    """Two texts, and how alike people find them, on the scale of their set."""

    first: str
    second: str
    score: float


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class SentenceSimilarity(Probe):
    """Correlation of the cosine of the vectors of two texts with the scores of people, over all
    pairs of a set; without any training on them (Gao et al., 2021, arXiv:2104.08821, app. B: the
    "all" setting, where the parts of a year are one set).

    Args:
        path: A file of pairs, a folder of the files of splits, a folder of SemEval's parts, a
            folder of such folders, or several of these. Each is one set.
        columns: {text, text2, label} by name or number; None: those of a published layout, by the
            names in the first line.
        pooling: The vector of a text (heads/sentences.py, heads/token_weights.py), or "trained";
            None: as the model was trained, else the mean of its tokens.
        weights_from: The text for the poolings "idf" and "sif", a file of lines in which rare
            tokens are rare; None: all texts of all sets.
        max_length: tokens of a text at most, special ones included.
        dimensions: The first columns of vectors whose cosine is measured; None: all.
    """

    path: str | Sequence[str]
    columns: Mapping[str, str | int] | None = None
    pooling: str | None = None
    weights_from: str | None = None
    max_length: int | None = None
    dimensions: Count | None = None

    def read(self, split: str) -> dict[str, list[ScoredPair]]:
        """{name of a set: its pairs}; DataError naming what cannot be read."""
        paths = [self.path] if isinstance(self.path, str) else list(self.path)
        sets: dict[str, list[ScoredPair]] = {}
        for path in paths:
            place = files.existing(path)
            for each in _list_sets(place, split):
                name = each.name if each.is_dir() else each.name.partition(".")[0]
                if name in sets:
                    fix = "name each folder or file otherwise"
                    raise DataError(f"two sets are called '{name}'", file=each, fix=fix)
                sets[name] = self._read_set(each, split)
        return sets

    def _read_set(self, place: Path, split: str) -> list[ScoredPair]:
        if parts := _list_parts(place):
            return [pair for part in parts for pair in read_part(part)]
        file = _find(place, split) or place
        columns = dict(self.columns or find_layout(file))
        examples = Table(splits={}).read_file(file, columns)
        return [
            ScoredPair(
                str(e.fields["text"]),
                str(e.fields["text2"]),
                read_score(e.label, e.place, fix=_FIX),
            )
            for e in examples
        ]

    @staticmethod
    def score(
        pairs: Sequence[ScoredPair], first: np.ndarray, second: np.ndarray
    ) -> dict[str, float]:
        """{spearman, pearson, pairs} of the cosines of the vectors `first` and `second [n, W]`."""
        gold, guess = [pair.score for pair in pairs], list(cosines(first, second))
        found = {name: CORRELATIONS[name](gold, guess) for name in ("spearman", "pearson")}
        return found | {"pairs": len(pairs)}

    def measure(self, opened: Opened) -> ScoreTable:
        """The correlations of every set of pairs, and their mean."""
        loaded, precision = opened.loaded, opened.precision
        check_weights(self.weights_from, self.pooling, beside="task.")
        pooling = choose_pooling(loaded, self.pooling, path="task.pooling")
        sets = self.read(opened.split)
        texts = [text for pairs in sets.values() for pair in pairs for text in pair[:2]]
        own = [lay_out_text(text, loaded, None) for text in texts]
        unknown = tell_share(measure_unknown(own, loaded), self.path)
        if self.weights_from is not None:
            lines, source = read(Path(self.weights_from), loaded), self.weights_from
        else:
            lines, source = own, str(self.path)
        pooling = count_weights(pooling, loaded, lines, source=source)

        def embed(pairs: list[ScoredPair]) -> tuple[np.ndarray, np.ndarray]:
            texts = list(dict.fromkeys(text for pair in pairs for text in pair[:2]))
            place = {text: number for number, text in enumerate(texts)}
            vectors = embed_texts(
                loaded,
                texts,
                pooling,
                batch_size=opened.batch_size,
                precision=precision,
                max_length=self.max_length,
            )
            vectors = take_columns(vectors, self.dimensions, path="task.dimensions")
            first = [place[pair.first] for pair in pairs]
            second = [place[pair.second] for pair in pairs]
            return vectors[first], vectors[second]

        scores = {name: self.score(pairs, *embed(pairs)) for name, pairs in sets.items()}
        if len(scores) > 1:
            scores["mean"] = average(scores)
        extra: dict[str, Any] = {"checkpoint": str(loaded.source.folder), "pooling": pooling.words}
        return ScoreTable("similarity of sentences", scores, extra | unknown)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[n] the cosine of each row of two matrices [n, W]; 0 where one has no length."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide((a * b).sum(1), norms, out=np.zeros(len(a)), where=norms > 0)


def average(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each correlation over sets."""
    return {
        name: float(np.mean([own[name] for own in scores.values()]))
        for name in ("spearman", "pearson")
    }


def find_layout(file: Path) -> dict[str, Any]:
    """The columns of a file whose first line names those of a published layout; DataError that
    shows them otherwise.
    """
    reader = objects_of if kind_of(file) in OBJECTS else cells_of
    first = next(iter(reader(file)), (1, []))
    names = list(first[1])
    for layout in LAYOUTS:
        if set(layout) <= set(names):
            return dict(zip(("text", "text2", "label"), layout, strict=True))
    shown = ", ".join(str(name)[:40] for name in names[:12])
    known = "; ".join(", ".join(layout) for layout in LAYOUTS)
    raise DataError(
        f"which columns are the two texts and the score? Known names are {known}; found {shown}",
        file=file,
        line=first[0],
        fix="task.columns={text: <name or number>, text2: ..., label: ...}",
    )


def read_part(file: Path) -> list[ScoredPair]:
    """The pairs of a part of a year of SemEval: `text <tab> text` on each line, the score on the
    same line of STS.gs.*.txt; pairs whose line there is empty have none and are left out.
    """
    scores_file = file.with_name(file.name.replace("STS.input.", "STS.gs.", 1))
    if not scores_file.is_file():
        raise DataError(f"no scores: {scores_file.name} is not here", file=file)
    texts, scores = list(need_lines(file)), list(need_lines(scores_file))
    if len(texts) != len(scores):
        problem = f"{len(scores)} lines, where {file.name} has {len(texts)}"
        raise DataError(problem, file=scores_file, fix="both files of one release")
    pairs = []
    for (number, text), (_, score) in zip(texts, scores, strict=True):
        cells = text.split("\t")
        if len(cells) < 2:
            problem = f"two texts with a tab between are needed, found {text[:60]!r}"
            raise DataError(problem, file=file, line=number)
        if score.strip():
            value = read_score(score.strip(), scores_file, line=number, fix=_FIX)
            pairs.append(ScoredPair(cells[0], cells[1], value))
    return pairs


def _list_parts(place: Path) -> list[Path]:
    return sorted(place.glob(PARTS)) if place.is_dir() else []


def _is_set(place: Path, split: str) -> bool:
    return place.is_file() or bool(_list_parts(place)) or _find(place, split) is not None


def _find(place: Path, split: str) -> Path | None:
    return files.locate(place, split, PATTERNS.get(split, [f"{split}.*"]))


def _list_sets(place: Path, split: str) -> list[Path]:
    """The set at `place`, or the sets in its folders; DataError without any."""
    if _is_set(place, split):
        return [place]
    inside = sorted(child for child in place.iterdir() if child.is_dir())
    found = [child for child in inside if _is_set(child, split)]
    if not found:
        fix = "task.path=<a file of pairs, a folder of splits, or a folder of such folders>"
        there = ", ".join(child.name for child in sorted(place.iterdir())[:12]) or "nothing"
        raise DataError(f"no pairs of the split '{split}'; there is {there}", file=place, fix=fix)
    return found
