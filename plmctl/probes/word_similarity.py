"""`plmctl eval task=word_similarity`: vectors of words out of a model, and how well they agree with
people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError
from plmctl.heads.features import HIDDEN
from plmctl.knowledge.vector_files import read_static
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.places import find_tokens
from plmctl.tasks.word_similarity import WordSimilarity
from plmctl.text.letters import JOINTS, compose, find_words
from plmctl.text.reader import read_documents
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.vectors import choose_layers, count_states, group_lines, make_batch

Vectors = dict[str, np.ndarray]
_AROUND = 300  # characters of a sentence that are read on each side of a word


class Occurrence(NamedTuple):
    """A word in a text, at the characters [start, end)."""

    word: str
    text: str
    start: int
    end: int


def compare_words(
    spec: Evaluate, loaded: Loaded, task: WordSimilarity, precision: Precision
) -> ScoreTable:
    """The correlations of the model, and of every file of static vectors."""
    lists = task.read()
    words = sorted({w for pairs in lists.values() for pair in pairs for w in pair[:2]})
    vectors = take_vectors(
        loaded,
        words,
        of=task.vectors,
        sentences=_read_sentences(spec),
        most=task.contexts,
        layer=task.layer,
        batch_size=spec.batch_size,
        precision=precision,
    )
    scores = {"model": task.score(lists, vectors)}
    for name in task.static:
        scores[Path(name).name] = task.score(lists, _read_static(Path(name), words))
    extra: dict[str, Any] = {
        "checkpoint": str(loaded.source.folder),
        "vectors": task.vectors,
        "pairs": sum(map(len, lists.values())),
        "words": Told(f"{len(vectors):,} of {len(words):,} have a vector", len(vectors)),
    }
    few = {column: task.describe_few(own) for column, own in scores.items()}
    extra |= {f"left out of {column}": Told(line) for column, line in few.items() if line}
    return ScoreTable("word similarity", scores, extra)


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
        sentences: where contexts are looked for, read for these alone.
        most: contexts of a word.
        layer: whose states.
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


def _read_sentences(spec: Evaluate) -> Iterator[str]:
    path = plain(spec.data.path)
    if path is None:
        what, fix = "a text in which words are looked up", "data.path=corpus.txt"
        raise ConfigError("data.path", None, what, fix=fix)
    for document in read_documents(path, field=spec.data.field, lines=spec.data.lines):
        yield from document.sentences


def _read_static(file: Path, words: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The vectors of words, as written, in lower case, or of their n-grams."""
    return read_static(file, among={*words, *map(str.lower, words)}).choose(words)
