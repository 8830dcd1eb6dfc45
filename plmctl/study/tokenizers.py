"""What `plmctl ablate --dry-run` tries of every arm beyond its settings: its tokenizer, on the
beginning of its text, and the parts that read the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.core.errors import PlmctlError, UsageError, raise_all
from plmctl.data.shards import is_tokens
from plmctl.data.tokenizing import choose_training_texts
from plmctl.run.assemble import build_model, build_objective, without_weights
from plmctl.run.build import build, plain
from plmctl.run.corpus import sources
from plmctl.run.injected import ToNoises
from plmctl.run.make_spec import spec_of
from plmctl.run.spec import Provenance
from plmctl.run.tokenize import find_sources
from plmctl.study.plan import StudyPlan
from plmctl.text.document import Document
from plmctl.text.recipe import Recipe, TooLittleText
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

PART = 1 << 19  # characters of a text that are read; a tokenizer is trained on all of a shorter one
FEWER = 8  # of a longer text it is trained on this part of them, for its special tokens
USUAL = 64  # characters that yield one more token, or fewer


def try_tokenizers(plan: StudyPlan, given: Provenance) -> list[str]:
    """Train the tokenizer of every arm that pretrains, and build its parts with the vocabulary.

    Returns:
        What that cannot tell, a line each.

    Raises:
        UsageError: What would end an arm, of all arms together.
    """
    tried: dict[str, Vocab | None] = {}
    open_questions: dict[str, None] = {}
    errors: list[PlmctlError] = []
    for name, composed in plan.arms.items():
        if not composed.arm.pretrain:
            continue
        config = dict(composed.pretrain)
        key = json.dumps([config["data"], config["tokenizer"]], sort_keys=True, default=str)
        try:
            if key not in tried:
                tried[key] = None  # what is wrong with it is said once
                tried[key], question = _learn(config, given)
                open_questions |= {f"{question} (arm '{name}')": None} if question else {}
            vocab = tried[key]
            if vocab is not None:
                _build_parts(config, vocab, given)
        except PlmctlError as error:
            errors.append(UsageError(f"arm '{name}': {error}"))
    raise_all(errors)
    return list(open_questions)


def _learn(config: Mapping[str, Any], given: Provenance) -> tuple[Vocab | None, str]:
    """The vocabulary of an arm, and what is not known of it."""
    data, node = config["data"], config["tokenizer"]
    path = node.get("path") or (data["path"] if is_tokens(data["path"]) else None)
    if path:
        return Tokenizer.load(path).vocab, ""
    if data["mixture"] or data["sources"]:
        return None, "the tokenizer of several texts"
    if str(data["path"]).startswith("hf:"):
        return None, f"the tokenizer of {data['path']}, which may have to be downloaded"
    recipe: Recipe = build(node, plugins=given.plugins, path="tokenizer")
    source, _ = find_sources(plain(data), data["path"])
    part, beginning = replace(recipe, sample_bytes=PART), _Beginning(source.documents())
    texts = list(choose_training_texts(beginning, part))
    if beginning.is_all or recipe.sample_bytes <= PART:
        return Tokenizer.learn(texts, recipe).vocab, ""
    few = texts[: max(1, len(texts) // FEWER)]
    try:
        return Tokenizer.learn(few, recipe).vocab, ""
    except TooLittleText as error:
        vocab = Tokenizer.learn(few, replace(recipe, vocab_size=error.size)).vocab
    much = recipe.vocab_size * USUAL > PART
    return vocab, f"whether the text yields {recipe.vocab_size:,} tokens" if much else ""


class _Beginning:
    """Documents, and whether all of them have been read."""

    def __init__(self, documents: Iterator[Document]) -> None:
        self.documents, self.is_all = documents, False

    def __iter__(self) -> Iterator[Document]:
        yield from self.documents
        self.is_all = True


def _build_parts(config: Mapping[str, Any], vocab: Vocab, given: Provenance) -> None:
    """Build, without weights, whatever asks the vocabulary for its special tokens."""
    spec, plugins = spec_of("pretrain", dict(config), given), given.plugins
    with without_weights():
        model = build_model(config, vocab_size=vocab.size, vocab=vocab, plugins=plugins)
        build_objective(spec, model, vocab, plugins=plugins)
    reads = ToNoises(vocab=vocab, corpus_sample=np.zeros(1, np.int64)).by_name()
    for node in sources(spec).values():
        build(node["format"], {"vocab": vocab}, plugins, path="format")
        build(node["noise"] or {}, reads, plugins, path="noise")
