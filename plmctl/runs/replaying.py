"""A finished pretraining whose validation is repeated: with another text, other rows or noise."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from plmctl.config.build import plain
from plmctl.config.groups import Data
from plmctl.config.make_spec import spec_of
from plmctl.config.plugins import confirm, named
from plmctl.config.spec import Provenance
from plmctl.config.text_checks import refuse_decided
from plmctl.config.texts import Feed, Texts, sources
from plmctl.data.shards import is_tokens
from plmctl.runs.contract.contract import check_contract


@dataclass(frozen=True)
class ReplayPlan:
    """The rows of a validation.

    Args:
        texts: The texts, and how they become tokens.
        feed: The rows of these texts.
        objective: {name: node} of the objectives to measure.
        whole: Whether all documents count, instead of the held-out ones.
    """

    texts: Texts
    feed: Feed
    objective: Mapping[str, Any]
    seed: int
    whole: bool


def plan_replay(
    own: Mapping[str, Any],
    changes: Mapping[str, Any],
    data: Data,
    given: Provenance,
    *,
    tokenizer: str,
    checkpoint: str,
) -> ReplayPlan:
    """The validation of a run, planned.

    Args:
        own: The settings of the run.
        changes: Other values for some of these settings.
        data: The text to read; without a path, the text of the run.
        tokenizer: The folder of the tokenizer of the checkpoint.
        checkpoint: The run as the command line names it.

    Raises:
        UsageError: The settings do not fit the model, or each other.
    """
    confirm(named(own), given.plugins, of=checkpoint)
    begun = {"init": None, "tokenizer": {**own["tokenizer"], "path": tokenizer}}
    if data.path is not None:
        alone = {"mixture": {}, "sources": {}, "streaming": False}
        begun["data"] = {**own["data"], **plain(data), **alone}
    run = spec_of("pretrain", {**own, **begun, **changes}, given)
    whole = is_other_text(data.path, given.keys, own)
    if whole:
        run = run.replace({"data.valid_share": 0.0, "train.share": 1.0})
    if data.path is not None:
        refuse_decided(run, given.keys, given.plugins)
    check_contract(run.replace({"noise": run.eval.noise}), given.plugins, given.config_dirs)
    return ReplayPlan(Texts.of(run), Feed.of(run), run.objective, run.seed, whole)


def is_other_text(path: Any, given: Collection[str], own: Mapping[str, Any]) -> bool:
    """Whether a text is one that a run has not trained on, and all of it counts. No setting chooses
    a part of it, and no token directory holds documents out.

    Args:
        path: The text; None: that of the run.
        own: The settings of the run.
    """
    path = plain(path)
    if path is None or {"data.valid_share", "data.valid_path"} & {*given} or is_tokens(path):
        return False
    trained = [part["corpora"] for part in sources(spec_of("pretrain", own)).values()]
    known = [corpus.get("path") for corpora in trained for corpus in corpora.values()]
    return _find_places(path) not in map(_find_places, known)


def _find_places(path: Any) -> list[str]:
    """The identities of texts: absolute paths, and names such as strings:copy:20."""
    names = path if isinstance(path, list | tuple) else [path]
    return [str(name) if ":" in str(name) else os.path.realpath(str(name)) for name in names]
