"""The scores of a fine-tuned run, next to those of models without pretraining on the same split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.paired import find_ps
from plmctl.analysis.runs import read_baselines, read_rows
from plmctl.artifacts.loading import Loaded
from plmctl.storage.reading import read_json
from plmctl.tasks.predictions import predictions_file
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import UNBEATEN, folder_of, list_unbeaten
from plmctl.tasks.task import Task
from plmctl.use.answering import AnsweredSplit
from plmctl.use.predict import Told


def compare_simple(loaded: Loaded, task: Task, answered: AnsweredSplit) -> dict[str, Told]:
    """The scores of the run's own split that are no better than those without pretraining."""
    folders = [loaded.source.folder, *loaded.source.folder.parents[:2]]
    file = next((own / BASELINES for own in folders if (own / BASELINES).is_file()), None)
    if file is None or not task.metrics:
        return {}
    simple = {
        split: own
        for split, own in read_json(file).items()
        if split == answered.name and _has_examples(file.parent, split, len(answered.predictions))
    }
    first, lower = task.metrics[0], task.directions.lower
    tests = find_simple_ps(file.parent, {split: answered.predictions for split in simple}, task)
    scores = {answered.name: answered.metrics}
    lines = list_unbeaten(scores, simple, first, lower=lower, tests=tests)
    return {UNBEATEN: Told("; ".join(lines), len(lines))} if lines else {}


def find_simple_ps(
    run: Path, predictions: Mapping[str, Sequence[dict[str, Any]]], task: Task
) -> dict[str, dict[str, float]]:
    """{split: {model without pretraining: p of the difference between it and these predictions}};
    older runs have no predictions of such models.
    """
    known, found = read_baselines(run), {}
    for split in (name for name in predictions if name in known):
        files = {name: predictions_file(folder_of(run, name), split) for name in known[split]}
        others = {name: read_rows(file) for name, file in files.items() if file.is_file()}
        found[split] = find_ps(predictions[split], others, task.score, task.metrics[0])
    return found


def _has_examples(run: Path, split: str, count: int) -> bool:
    """Whether the scores of the run are of as many examples."""
    result = run / "result.json"
    known = read_json(result).get("examples") or {} if result.is_file() else {}
    return bool(known.get(split) == count)
