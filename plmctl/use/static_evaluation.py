"""Evaluation of files of word vectors, in place of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.config.build import build
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.knowledge.vector_files import SUFFIXES, read_static
from plmctl.tasks.word_analogies import WordAnalogies
from plmctl.tasks.word_similarity import WordSimilarity
from plmctl.use.predict import ScoreTable, Told

_PACKED = (".gz", ".zst")


def find_static(checkpoint: str) -> Path | None:
    """The file of word vectors that stands in the place of a checkpoint; None for another path."""
    place = Path(checkpoint).expanduser()
    stem = place.with_suffix("") if place.suffix in _PACKED else place
    return place if stem.suffix in SUFFIXES and place.is_file() else None


def evaluate_static(spec: Evaluate, file: Path) -> ScoreTable:
    """How well static vectors agree with people, or how many analogies they know."""
    task = None if spec.task is None else build(spec.task, {}, spec.plugins, path="task")
    extra: dict[str, Any] = {"vectors": str(file)}
    if isinstance(task, WordSimilarity):
        lists = task.read()
        words = {word for pairs in lists.values() for pair in pairs for word in pair[:2]}
        found = read_static(file, among={*words, *map(str.lower, words)}).choose(words)
        extra["words"] = Told(f"{len(found):,} of {len(words):,} have a vector", len(found))
        scores: Mapping[str, float | None] = task.score(lists, found)
        title = "word similarity"
        extra |= {"left out": Told(line)} if (line := task.describe_few(scores)) else {}
    elif isinstance(task, WordAnalogies):
        sections = task.read()
        read = read_static(file, limit=task.words)
        extra["questions"] = sum(map(len, sections.values()))
        scores, title = task.score(sections, read), "word analogies"
    else:
        given = ... if spec.task is None else spec.task.get("name", "...")
        allowed = "word_similarity or word_analogies: these are vectors of words, and no model"
        raise ConfigError("task", given, allowed, fix="task=word_similarity task.path=<lists>")
    return ScoreTable(title, {file.name: scores}, extra)


def refuse_analogies(spec: Evaluate, *_: object) -> ScoreTable:
    """Raise ConfigError: analogies are asked of static vectors alone."""
    model = spell_setting("checkpoint", spec.checkpoint)
    fix = f"plmctl vectors method=distilled {model} out=words.vec"
    allowed = "task=word_analogies is for files of word vectors, and this is a model"
    raise ConfigError("checkpoint", str(spec.checkpoint), allowed, fix=fix)
