"""The report's view of a model that was built and not trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import Loaded, Source
from plmctl.config.compose import compose
from plmctl.report.subject import ReportedRun, Subject

SMALL = ["size.width=16", "size.inner_width=32", "size.num_heads=2", "format.max_length=32"]


def build(recipe: str, *words: str) -> tuple[Loaded, Subject]:
    """(the model of a recipe with these settings, a subject with a run of it)."""
    config: Any = compose("pretrain", recipe, [*SMALL, *words])
    model = build_model(config, vocab_size=50, seed=0).eval()
    loaded = Loaded(model, Source(Path("nowhere"), config, {}))
    none: Any = None
    run = ReportedRun("run", none)
    vars(run)["loaded"] = loaded  # what would be read of its folder
    return loaded, Subject([run])
