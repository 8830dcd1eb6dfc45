"""How a loaded model reads prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.artifacts.label_rows import facts_of
from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.core.errors import UsageError
from plmctl.generation.decode import find_writing_head
from plmctl.generation.prompts import PromptReader
from plmctl.heads.base import heads_about
from plmctl.tasks.generation import Generation


def make_prompt_reader(loaded: Loaded, source: str) -> PromptReader:
    """A reader that makes prompts of the texts of `source`, as the model's training or its task
    laid them out; UsageError for a model that can neither write nor fill masks.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    kind = "source" if model.backbone.writes == "target" else "text"
    try:
        find_writing_head(model)
    except UsageError:
        if not heads_about(model, "text") or kind != "text" or tokenizer.vocab.mask is None:
            raise
        return PromptReader(model, tokenizer, "fill", source, _choose_template(loaded, "fill"))
    task = build_writing_task(loaded, loaded.own_task())
    template, head = _choose_template(loaded, kind), task.facts.head if task else None
    return PromptReader(model, tokenizer, kind, source, template, task, head)


def build_writing_task(loaded: Loaded, node: Mapping[str, Any]) -> Generation | None:
    """The task of a config for this model, if it is one whose answers are texts.

    It has no metrics, whose libraries may be missing here.
    """
    plugins = loaded.source.plugins
    facts = facts_of(node, plugins) if node else None
    if facts is None or not facts.writes:
        return None
    given = reading(loaded.config, plugins)
    task: Generation = build({**node, "metrics": []}, given, plugins, path="task")
    return task


def _choose_template(loaded: Loaded, kind: str) -> Sequence[str]:
    """The special tokens of the rows that the model was trained on, around "A", the text; a text
    that goes on is not closed.
    """
    vocab, rows = loaded.vocab, loaded.config.get("format") or {}
    if kind != "text":
        return tuple(rows.get("source_template") or vocab.single)
    if "tracks.segment" in loaded.model.backbone.needs:
        return vocab.pair[: vocab.pair.index("B")]
    return vocab.single[: vocab.single.index("A") + 1] if rows.get("specials") else ("A",)
