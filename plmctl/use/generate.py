"""Text that a model writes, or the masks of a text that it fills (plmctl/generation/answers.py says
how answers look).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.generation.answers import MaskAnswers, TextAnswers
from plmctl.generation.decode import Draft
from plmctl.generation.prompts import PromptReader
from plmctl.generation.search import Search
from plmctl.models.base import Backbone

Encode = Callable[[str], list[int]]


def make_answerer(
    reader: PromptReader,
    search: Search,
    *,
    max_new: int | None,
    min_length: int,
    top: int,
    device: torch.device,
    weights: str = "fp32",
    draft: Draft | None = None,
) -> TextAnswers | MaskAnswers:
    """The part that answers prompts: it writes, or fills masks, as the model does.

    Args:
        search: The search for the tokens of a text.
        max_new: Tokens of a text at most; None: as many as a task's targets have, else as many as
            the model has room for.
        min_length: Tokens of a text at least, by the search.
        top: Candidates for each mask.
        weights: The numbers of the weights of a model that writes: fp32, int8, int4 or w8a8.
        draft: A smaller model that drafts tokens; None: none.
    """
    if reader.kind == "fill":
        if top > (size := reader.tokenizer.vocab.size):
            raise ConfigError("top", top, f"at most {size}, the size of the vocabulary")
        return MaskAnswers(reader, top, device)
    if max_new is None and reader.task:
        max_new = reader.task.max_target
    if max_new is not None and min_length > max_new:
        allowed = f"at most {max_new}, the tokens that are written (max_new)"
        raise ConfigError("search.min_length", min_length, allowed)
    if draft is not None and search.count > 1:
        allowed = "null: a draft is for one text a prompt"
        raise ConfigError("draft", "...", allowed, fix="search.count=1")
    return TextAnswers(reader, search, max_new, device, weights, draft)


def build_search(settings: Mapping[str, Any], encode: Encode, plugins: Sequence[str]) -> Search:
    """The search of a command.

    Args:
        settings: Its settings, with texts or ids for phrases.
        encode: The ids of a text.
    """
    own = dict(settings)
    if phrases := own.get("phrases"):
        own["phrases"] = [encode(each) if isinstance(each, str) else each for each in phrases]
    search: Search = build(own, {}, plugins, path="search")
    return search


def open_draft(checkpoint: str, loaded: Loaded, *, tokens: int, device: str) -> Draft:
    """The model that drafts tokens for another; ConfigError where their tokenizers differ."""
    other, _ = load_for(checkpoint, device, "fp32", loaded.source.plugins)
    if other.tokenizer.fingerprint != loaded.tokenizer.fingerprint:
        allowed = f"a smaller model with the tokenizer of {loaded.source.folder}"
        raise ConfigError("draft", checkpoint, allowed, fix="leave draft out")
    return Draft(other.model.eval(), tokens)


def limit_memory(backbone: Backbone, memory: int | None) -> None:
    """Let each token see so many; ConfigError for a model that cannot."""
    if memory is None:
        return
    if "same_length" not in vars(backbone):
        allowed = "null: this model has no memory of the tokens before"
        raise ConfigError("memory", memory, allowed, fix="leave it out")
    vars(backbone).update(memory=memory, same_length=True)
