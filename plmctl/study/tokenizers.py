"""The trial of every arm's tokenizer by `plmctl ablate --dry-run`. It is trained on the beginning
of the text, and the parts that read the vocabulary are checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from plmctl.artifacts.assemble import build_model, build_objective, without_weights
from plmctl.config.asked import is_asked
from plmctl.config.build import build, plain
from plmctl.config.injected import ToNoises
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.config.texts import sources
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, raise_all
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import remark
from plmctl.data.shards import is_tokens
from plmctl.data.tokenizing import choose_training_texts
from plmctl.inputs.tokenize import find_sources
from plmctl.runs.vocabulary import SHORT, USUAL, FirstTexts
from plmctl.study.plan import StudyPlan
from plmctl.text.recipe import SMALLEST, Recipe, TooLittleText
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

FEWER = 8  # for a longer text, the part of the texts that it is trained on, for its special tokens


def try_tokenizers(plan: StudyPlan, given: Provenance) -> list[str]:
    """Train the tokenizer of every arm that pretrains, and build its parts with the vocabulary.

    Returns:
        The open questions of that trial, a line each.

    Raises:
        UsageError: What would end an arm, of all arms together.
    """
    tried: dict[str, _Tried | None] = {}
    open_questions: dict[str, None] = {}
    errors: list[PlmctlError] = []
    for name, composed in plan.arms.items():
        config = dict(composed.pretrain)
        if not composed.arm.pretrain or config.get("init"):  # whose tokenizer is there
            continue
        words = tuple(plan.study.tokenizer_words(composed.arm))
        free = not is_asked(Provenance("tokenize", overrides=words), "tokenizer.vocab_size")
        key = json.dumps([config["data"], config["tokenizer"], free], sort_keys=True, default=str)
        try:
            if key not in tried:
                tried[key] = None  # its mistake is reported once
                tried[key] = found = _learn(config, given, free=free)
                if found.question:
                    open_questions[f"{found.question} (arm '{name}')"] = None
            if known := tried[key]:
                _build_parts(config, known, given)
        except TooLittleText as small:
            shared = plan.study.pretrain
            own = any(word.startswith(f"{small.path}=") for word in composed.arm.overrides)
            told = small if own else _spell_smaller(small, shared)
            errors.append(UsageError(f"arm '{name}': {told}"))
        except PlmctlError as error:
            errors.append(UsageError(f"arm '{name}': {error}"))
    raise_all(errors)
    return list(open_questions)


def _spell_smaller(error: TooLittleText, shared: Sequence[str]) -> ConfigError:
    """The error of a text that yields too few tokens, whose fix is a word of the study."""
    fix = error.fix
    if error.size >= SMALLEST:
        kept = [word for word in shared if not word.startswith(f"{error.path}=")]
        fix = spell_word(f"pretrain.overrides=[{','.join([*kept, f'{error.path}={error.size}'])}]")
    return ConfigError(error.path, error.value, error.allowed, fix=fix)


class _Tried(NamedTuple):
    """The known facts about the vocabulary of an arm."""

    vocab: Vocab | None  # with all special tokens, and the others of some of the text
    size: int = 0  # the size of the vocabulary that the run would have
    question: str = ""  # the open question


def _learn(config: Mapping[str, Any], given: Provenance, *, free: bool) -> _Tried:
    """Load the tokenizer of an arm, or train it.

    Args:
        free: Its size is not set: the text may yield fewer tokens.
    """
    data, node = config["data"], config["tokenizer"]
    path = node.get("path") or (data["path"] if is_tokens(data["path"]) else None)
    if path:
        vocab = Tokenizer.load(path).vocab
        return _Tried(vocab, vocab.size)
    if data["mixture"] or data["sources"]:
        return _Tried(None, question="the tokenizer of several texts")
    if str(data["path"]).startswith("hf:"):
        question = f"the tokenizer of {data['path']}, which may have to be downloaded"
        return _Tried(None, question=question)
    recipe: Recipe = build(node, plugins=given.plugins, path="tokenizer")
    source, _ = find_sources(plain(data), data["path"])
    part, beginning = replace(recipe, sample_bytes=SHORT), FirstTexts(source.documents())
    texts = list(choose_training_texts(beginning, part))
    if beginning.is_all or recipe.sample_bytes <= SHORT:
        vocab = Tokenizer.learn_most(lambda: texts, recipe, remark if free else None).vocab
        return _Tried(vocab, vocab.size)
    few = texts[: max(1, len(texts) // FEWER)]
    try:
        return _Tried(Tokenizer.learn(few, recipe).vocab, recipe.vocab_size)
    except TooLittleText as error:
        smaller = replace(recipe, vocab_size=error.size)
    much = recipe.vocab_size * USUAL > SHORT
    question = f"whether the text yields {recipe.vocab_size:,} tokens" if much else ""
    try:
        return _Tried(Tokenizer.learn(few, smaller).vocab, recipe.vocab_size, question)
    except ConfigError:  # a size that no tokenizer of so little text can have
        return _Tried(None, question="the tokenizer, of which little text says nothing")


def _build_parts(config: Mapping[str, Any], known: _Tried, given: Provenance) -> None:
    """Build, without weights, whatever asks the vocabulary for its special tokens."""
    vocab, size = known.vocab, known.size
    if vocab is None:
        return
    spec, plugins = spec_of("pretrain", dict(config), given), given.plugins
    with without_weights():
        model = build_model(config, vocab_size=size, vocab=vocab, plugins=plugins)
        build_objective(
            spec.objective, model, vocab, vocab_size=size, plugins=plugins, seed=spec.seed
        )
    reads = ToNoises(vocab=vocab, corpus_sample=np.zeros(1, np.int64)).by_name()
    for node in sources(spec).values():
        build(node["format"], {"vocab": vocab}, plugins, path="format")
        build(node["noise"] or {}, reads, plugins, path="noise")
