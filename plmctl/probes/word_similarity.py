"""How alike words are, by vectors and by people: the published lists of word pairs (eval only;
Faruqui and Dyer, 2014, collect 13 of them).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import plain
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Count
from plmctl.heads.features import HIDDEN
from plmctl.knowledge.vector_files import read_static, refuse_uncovered
from plmctl.probes.base import Opened, Probe
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.places import find_tokens
from plmctl.tasks.readers import files
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.scores.metrics import spearman
from plmctl.text.inputs import need_lines
from plmctl.text.letters import JOINTS, compose, find_words
from plmctl.text.reader import read_documents
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.vectors import choose_layers, count_states, group_lines, make_batch

LEAST = 10  # pairs of a list, whose correlation says something


class WordPair(NamedTuple):
    """Two words, and how alike people find them, on the scale of their list."""

    first: str
    second: str
    score: float


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class WordSimilarity(Probe):
    """Spearman's correlation of the cosine of two vectors with the scores of a list, over the pairs
    whose words both have a vector. The number of these pairs is shown, too.

    Args:
        path: a folder with lists, or one: `word <tab> word <tab> score` on each line.
        vectors: The vector of a word in a model. "input": the mean of the input embeddings of its
            tokens; "alone": the mean of their states in a row of the word alone; "contexts": the
            mean of its states in up to `contexts` sentences of data.path (Bommasani et al., 2020,
            arXiv 2020.acl-main.431, sec. 3: "decontextualised", mean over tokens, then over
            sentences).
        layer: The layer of these states; 0 is the embedding output, -1 the last layer.
        contexts: sentences of a word at most.
        static: Files of word vectors, as GloVe's, which are scored next to the model.
    """

    path: str
    vectors: Literal["input", "alone", "contexts"] = "input"
    layer: int = -1
    contexts: Count = 20
    static: Sequence[str] = ()

    def read(self) -> dict[str, list[WordPair]]:
        """{name of a list: its pairs}; DataError naming the first line that is none."""
        place = files.existing(self.path)
        lists = sorted(place.glob("*.txt")) if place.is_dir() else [place]
        if not lists:
            raise DataError("no lists *.txt here", file=place, fix="task.path=<folder of lists>")
        return {file.stem: _read_list(file) for file in lists}

    @staticmethod
    def score(
        lists: Mapping[str, Sequence[WordPair]], vectors: Mapping[str, np.ndarray]
    ) -> dict[str, float | None]:
        """{list: correlation, "<list> pairs": covered}, then the mean of the lists; of fewer than
        `LEAST` covered pairs there is no correlation (None), and they are not in the mean.

        Args:
            lists: The lists that `read` returns.
            vectors: [W] of every word that is covered.
        """
        scores: dict[str, float | None] = {}
        found = []
        for name, pairs in lists.items():
            covered = [pair for pair in pairs if pair.first in vectors and pair.second in vectors]
            guess = [_cosine(vectors[pair.first], vectors[pair.second]) for pair in covered]
            scores[name] = None
            if len(covered) >= LEAST:
                found.append(spearman([pair.score for pair in covered], guess))
                scores[name] = found[-1]
            scores[f"{name} pairs"] = len(covered)
        return {**scores, **({"mean": float(np.mean(found))} if found else {})}

    @staticmethod
    def describe_few(scores: Mapping[str, float | None]) -> str:
        """A sentence on the lists that `score` leaves out, or ""."""
        few = [name for name, score in scores.items() if score is None]
        named = ", ".join(f"{name} {scores[f'{name} pairs']}" for name in few)
        why = f"fewer than {LEAST} known pairs ({named})"
        has = "has no correlation and is" if len(few) == 1 else "have no correlation and are"
        return f"{counted(len(few), 'list')} with {why} {has} not in the mean" if few else ""

    def measure(self, opened: Opened) -> ScoreTable:
        """The correlations of the model, and of every file of static vectors."""
        loaded, precision = opened.loaded, opened.precision
        lists = self.read()
        words = sorted({w for pairs in lists.values() for pair in pairs for w in pair[:2]})
        vectors = take_vectors(
            loaded,
            words,
            of=self.vectors,
            sentences=_read_sentences(opened.data),
            most=self.contexts,
            layer=self.layer,
            batch_size=opened.batch_size,
            precision=precision,
        )
        scores = {"model": self.score(lists, vectors)}
        for name in self.static:
            scores[Path(name).name] = self.score(lists, _read_static(Path(name), words))
        extra: dict[str, Any] = {
            "checkpoint": str(loaded.source.folder),
            "vectors": self.vectors,
            "pairs": sum(map(len, lists.values())),
            "words": Told(f"{len(vectors):,} of {len(words):,} have a vector", len(vectors)),
        }
        few = {column: self.describe_few(own) for column, own in scores.items()}
        extra |= {f"left out of {column}": Told(line) for column, line in few.items() if line}
        return ScoreTable("word similarity", scores, extra)

    def measure_vectors(self, file: Path) -> ScoreTable:
        """The correlations of static vectors."""
        lists = self.read()
        words = {word for pairs in lists.values() for pair in pairs for word in pair[:2]}
        found = read_static(file, among={*words, *map(str.lower, words)}).choose(words)
        fix = "vectors in the language of the lists"
        refuse_uncovered(len(found), len(words), "words of the lists", file=file, fix=fix)
        known = Told(f"{len(found):,} of {len(words):,} have a vector", len(found))
        scores = self.score(lists, found)
        extra: dict[str, Any] = {"vectors": str(file), "words": known}
        extra |= {"left out": Told(line)} if (line := self.describe_few(scores)) else {}
        return ScoreTable("word similarity", {file.name: scores}, extra)


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    norms = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(first @ second) / norms if norms else 0.0


def _read_list(file: Path) -> list[WordPair]:
    pairs = []
    for number, line in need_lines(file):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            continue
        try:
            first, second, score = (cell.strip() for cell in cells[:3])
            float(score)
        except ValueError:
            what = f"two words and a score are needed, found {line[:60]!r}"
            raise DataError(
                what, file=file, line=number, fix="car <tab> automobile <tab> 3.92"
            ) from None
        pairs.append(WordPair(first, second, read_score(score, file, line=number)))
    if not pairs:
        raise DataError("no pairs of words", file=file)
    return pairs


Vectors = dict[str, np.ndarray]
_AROUND = 300  # characters of a sentence that are read on each side of a word


class Occurrence(NamedTuple):
    """A word in a text, at the characters [start, end)."""

    word: str
    text: str
    start: int
    end: int


def take_vectors(
    loaded: Loaded,
    words: Sequence[str],
    *,
    of: str,
    sentences: Iterable[str],
    most: int,
    layer: int,
    batch_size: int,
    precision: Precision,
) -> Vectors:
    """The vectors of words that a model has.

    Args:
        of: "input", the table of tokens; "alone", the states of each word alone; "contexts", those
            in texts.
        sentences: The sentences that contexts are taken from.
        most: contexts of a word.
        layer: The layer of the states.
    """
    if of == "input":
        return read_table(loaded, words)
    if of == "alone":
        places = [Occurrence(word, word, 0, len(word)) for word in words]
    else:
        places = find_occurrences(words, sentences, most=most)
    return read_states(loaded, places, layer=layer, batch_size=batch_size, precision=precision)


def read_table(loaded: Loaded, words: Sequence[str]) -> Vectors:
    """The mean input embedding of the tokens of each word; none for words with an unknown token.

    Raises:
        ConfigError: the model has no table of tokens.
    """
    table = loaded.model.backbone.token_embedding
    weight: Tensor | None = getattr(table, "weight", None)
    if weight is None or loaded.source.spelling:
        has = "alone or contexts: this model has no one table of tokens"
        raise ConfigError("task.vectors", "input", has, fix="task.vectors=alone")
    found: Vectors = {}
    with torch.inference_mode():
        for word in words:
            ids = loaded.tokenizer.encode(word)
            if ids and loaded.vocab.unk not in ids:
                vectors = table(torch.tensor(ids, device=weight.device))  # [pieces, E]
                found[word] = vectors.mean(0).float().cpu().numpy()
    return found


def read_states(
    loaded: Loaded,
    places: Sequence[Occurrence],
    *,
    layer: int,
    batch_size: int,
    precision: Precision,
) -> Vectors:
    """The mean state of each word: over its tokens, then over its occurrences; those with an
    unknown token do not count.
    """
    (number,) = choose_layers(layer, count=count_states(loaded))
    lines, asked = list[EmbeddingLine](), list[tuple[str, int, int]]()
    for place in places:
        line = _lay_out(loaded, place)
        if line:
            lines.append(line[0])
            asked.append((place.word, *line[1]))
    sums: dict[str, list[Any]] = defaultdict(lambda: [0.0, 0])
    with torch.inference_mode():
        for index in group_lines([len(line.ids) for line in lines], batch_size=batch_size):
            some = [lines[i] for i in index]
            batch = make_batch(some, loaded.source.spelling).to(precision.device)
            with precision.autocast():
                states: Tensor = loaded.model(batch, record=HIDDEN).recorded["hidden"][number]
            for row, i in enumerate(index):
                word, first, end = asked[i]
                vector = states[row, first:end].float().mean(0).cpu().numpy()
                sums[word] = [sums[word][0] + vector, sums[word][1] + 1]
    return {word: total / count for word, (total, count) in sums.items()}


def find_occurrences(
    words: Iterable[str], sentences: Iterable[str], *, most: int
) -> list[Occurrence]:
    """The first `most` occurrences of each word, in any case of letters, each with the text
    around it.
    """
    spelled: dict[str, list[str]] = defaultdict(list)
    for word in words:
        spelled[compose(word.lower())].append(word)
    left = dict.fromkeys(spelled, most)
    found = []
    for text in sentences:
        for match in find_words(text, joints=JOINTS):
            key = compose(match[0].lower())
            if left.get(key, 0) > 0:
                left[key] -= 1
                begin = max(0, match.start() - _AROUND)
                part = text[begin : match.end() + _AROUND]
                ends = match.start() - begin, match.end() - begin
                found += [Occurrence(word, part, *ends) for word in spelled[key]]
    return found


def _lay_out(loaded: Loaded, place: Occurrence) -> tuple[EmbeddingLine, tuple[int, int]] | None:
    """A row of the text, and [first, end) of the word in it; None where it is cut off or
    unknown.
    """
    spelling = loaded.source.spelling
    ids, offsets = (spelling or loaded.tokenizer).encode_offsets(place.text)
    tokens = find_tokens(offsets, [(place.start, place.end)]) if ids else []
    length = loaded.model.backbone.max_length or 512
    row = encode.lay_out(ids, None, loaded.vocab, max_length=length, pooling="first")
    if not tokens or row.a_start + tokens[0][1] >= len(row.ids):
        return None
    first, end = tokens[0][0], tokens[0][1] + 1
    if loaded.vocab.unk is not None and loaded.vocab.unk in ids[first:end]:
        return None
    line = EmbeddingLine(row.ids, spelled=row.ids if spelling else ())
    return line, (row.a_start + first, row.a_start + end)


def _read_sentences(data: Data) -> Iterator[str]:
    path = plain(data.path)
    if path is None:
        what, fix = "a text in which words are looked up", "data.path=corpus.txt"
        raise ConfigError("data.path", None, what, fix=fix)
    for document in read_documents(path, field=data.field, lines=data.lines):
        yield from document.sentences


def _read_static(file: Path, words: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The vectors of words, as written, in lower case, or of their n-grams."""
    return read_static(file, among={*words, *map(str.lower, words)}).choose(words)
