"""How a loaded model reads prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from plmctl.artifacts.label_rows import facts_of
from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.core.errors import UsageError
from plmctl.generation.decode import find_writing_head
from plmctl.generation.languages import choose_opening, find_language, name_language
from plmctl.generation.prompts import PromptReader
from plmctl.heads.base import heads_about
from plmctl.tasks.generation import Generation

LANGUAGES = ("source_language", "target_language")


def make_prompt_reader(
    loaded: Loaded,
    source: str,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> PromptReader:
    """A reader that makes prompts of the texts of `source`, as the model's training or its task
    laid them out.

    Args:
        source: The source of the texts, for messages.
        source_language: The token of the language of the prompts; None: as in training.
        target_language: The token of the language that is written; None: as in training.

    Raises:
        UsageError: The model can neither write nor fill masks.
        ConfigError: The tokenizer has no such language, or the model writes none.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    kind = "source" if model.backbone.writes == "target" else "text"
    try:
        find_writing_head(model)
    except UsageError:
        if not heads_about(model, "text") or kind != "text" or tokenizer.vocab.mask is None:
            raise
        return PromptReader(model, tokenizer, "fill", source, _choose_template(loaded, "fill"))
    vocab, template = tokenizer.vocab, _choose_template(loaded, kind)
    languages = dict(zip(LANGUAGES, (source_language, target_language), strict=True))
    chosen = {name: language for name, language in languages.items() if language is not None}
    if task := build_writing_task(loaded, loaded.own_task(), chosen):
        opening = task.choose_opening(model, vocab) if kind == "source" else ()
        return PromptReader(
            model, tokenizer, kind, source, template, task, task.facts.head, opening
        )
    how: Any = {"start": getattr(model.backbone, "start", None), "path": LANGUAGES[0]}
    template = name_language(template, source_language, vocab, **how)
    written = target_language or find_language(vocab.target)
    opening = choose_opening(model.backbone, written, vocab, path=LANGUAGES[1])
    return PromptReader(model, tokenizer, kind, source, template, opening=opening)


def build_writing_task(
    loaded: Loaded, node: Mapping[str, Any], chosen: Mapping[str, Any] = MappingProxyType({})
) -> Generation | None:
    """The task of a config for this model, if it is one whose answers are texts, with some settings
    `chosen` anew.

    It has no metrics, whose libraries may be missing here.
    """
    plugins = loaded.source.plugins
    facts = facts_of(node, plugins) if node else None
    if facts is None or not facts.writes:
        return None
    given = reading(loaded.config, plugins)
    task: Generation = build({**node, **chosen, "metrics": []}, given, plugins, path="task")
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
