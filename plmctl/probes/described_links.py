"""`plmctl eval task=link_prediction`: links from descriptions, by the vectors of an encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError
from plmctl.data.shards import Shards, is_tokens
from plmctl.probes.graph_evaluation import SPLITS, remark_on_few
from plmctl.tasks.described_links import DescribedLinks
from plmctl.training.checkpoint import read
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable

TABLE = "parts.kepler.relation.weight"  # in what only training needs


def rank_described(
    spec: Evaluate, loaded: Loaded, task: DescribedLinks, precision: Precision
) -> ScoreTable:
    """The ranks of one split of a token directory of descriptions."""
    path, split = plain(spec.data.path), SPLITS.get(spec.split, spec.split)
    if not isinstance(path, str) or not is_tokens(path):
        allowed = "the token directory of descriptions (plmctl data triples, plmctl tokenize)"
        raise ConfigError("data.path", path, allowed, fix="data.path=<tokens of descriptions>")
    if split not in ("train", "valid"):
        allowed = "valid (held-out descriptions) or train"
        raise ConfigError("split", spec.split, allowed, fix="split=valid")

    def describe(name: str) -> Any:
        shards = Shards.open(path, name, tokenizer=loaded.tokenizer)
        with torch.no_grad(), precision.autocast():
            return task.describe(
                loaded.model,
                shards,
                loaded.vocab,
                batch_size=spec.batch_size,
                device=precision.device,
            )

    found = describe(split)
    trained = None if loaded.source.published else read(loaded.source.folder).objective.get(TABLE)
    if task.relations == "trained" and trained is None:
        allowed = "fitted: this checkpoint has no objective kepler"
        raise ConfigError("task.relations", "trained", allowed, fix="task.relations=fitted")
    fitted = trained is None or task.relations == "fitted"
    relations = torch.from_numpy(task.fit_relations(describe("train"))) if fitted else trained
    assert relations is not None
    scores = task.score(found, relations, batch_size=spec.batch_size)
    triples = len(np.unique(found.triples, axis=0))
    extra = {
        "checkpoint": str(loaded.source.folder),
        "entities": len(found.vectors),
        "triples": triples,
        "relations": "fitted" if fitted else "trained",
        "ties": "averaged",
        **remark_on_few(triples),
    }
    return ScoreTable("link prediction", {split: scores}, extra)
