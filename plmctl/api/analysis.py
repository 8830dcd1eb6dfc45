"""`plmctl.analyse`: what is measured on a trained model, as results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.analysis.measure import Measure, measure_model
from plmctl.analysis.probing import Labels, ProbeResult, split_items
from plmctl.api.runs import RunFolder
from plmctl.api.settings import check_path
from plmctl.artifacts.loading import load
from plmctl.config.plugins import Unconfirmed
from plmctl.core.errors import UsageError
from plmctl.use.items import take_texts


def analyse(
    run: str | os.PathLike[str] | RunFolder,
    measures: Sequence[str] | None = None,
    *,
    sentences: Sequence[str] = (),
    probes: Mapping[str, str | os.PathLike[str]] | None = None,
    plugins: Sequence[str] = (),
) -> dict[str, Measure | ProbeResult]:
    """Measure a trained model.

    Args:
        run: A run, a checkpoint, or a Hugging Face folder.
        measures: The names of the measures; None for all that the model has something for.
        sentences: The text for `attention`, `heads` and `layers`; without any they read held-out
            rows of the run, or texts of dev.
        probes: {name: a file of labelled words} for linear probes of every layer.
        plugins: The packages outside plmctl that the model may be made of, and whose measures
            count, too.

    Returns:
        {name: result}, with a `ProbeResult` under each name of `probes`.
    """
    if isinstance(measures, str):
        raise UsageError(f'measures="{measures}": a list of names, here ["{measures}"]')
    listed = take_texts(sentences, "sentences=[text]") if sentences else ()
    if isinstance(run, RunFolder):
        plugins, run = tuple(dict.fromkeys([*run.plugins, *plugins])), run.folder
    check_path("run", run)
    for name, file in (probes or {}).items():
        check_path(f"probes['{name}']", file)
    questions = {name: split_items(Labels(Path(file))) for name, file in (probes or {}).items()}
    try:
        opened = load(run, plugins=plugins)
    except Unconfirmed as error:
        raise error.for_python() from None
    results: dict[str, Measure | ProbeResult] = {**measure_model(opened, measures, plugins, listed)}
    return results | {name: ProbeResult.of(opened, each) for name, each in questions.items()}
