"""The texts of a run, their tokenizer, and their rows, as typed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plmctl.config.asked import is_asked
from plmctl.config.build import build, plain
from plmctl.config.groups import Corpora, Data, Eval
from plmctl.config.stage_settings import stage_config
from plmctl.data.token_batches import count_rows
from plmctl.text.recipe import Recipe

OF_KNOWLEDGE = ("model", "noise", "objective", "heads")  # the slots of parts that read entities


@dataclass(frozen=True)
class Texts:
    """Texts, and how they become tokens.

    Args:
        recipe: The tokenizer that is trained or loaded; None where another one brings the tokens.
        sources: {name: {corpora, format, noise, weight}}.
        at_most: The tokenizer may have fewer tokens than its recipe names.
        share: The share of the text to train on.
        starts: The run starts from a trained model.
        knowing: {slot: nodes} of the parts that may read entities of the text.
    """

    data: Data
    recipe: Recipe | None
    at_most: bool
    plugins: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    share: float = 1.0
    starts: bool = False
    knowing: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Any) -> Texts:
        """The texts of a pretraining, or of `plmctl tokenize`."""
        own = cls(
            spec.data,
            build(spec.tokenizer, plugins=spec.plugins, path="tokenizer"),
            at_most=not is_asked(spec.provenance, "tokenizer.vocab_size"),
            plugins=spec.plugins,
        )
        if not isinstance(spec.data, Corpora):
            return own
        return cls(
            **vars(own)
            | {
                "sources": sources(spec),
                "share": spec.train.share,
                "starts": spec.init is not None,
                "knowing": {slot: plain(spec.get(slot)) for slot in OF_KNOWLEDGE},
            }
        )

    @property
    def tokenizer(self) -> str | None:
        """The path of the tokenizer that is given."""
        return self.recipe.path if self.recipe else None


@dataclass(frozen=True)
class Feed:
    """Rows of opened texts, in training and validation.

    Args:
        sources: {name: {corpora, format, noise, weight}}.
        rows: The rows of an update, over all processes; with `tokens`, of full length.
        micro_rows: The rows of one backward pass; None: the share of a process.
        order: The order in which the rows of several sources are put together.
        temperature: Shares of corpora without weights go as tokens ** (1 / temperature).
        stage: The number of the stage whose settings these are.
        words: Whether the words of the rows are counted.
        tokens: The tokens of an update, padding included; None: it has `rows`.
    """

    sources: Mapping[str, Mapping[str, Any]]
    rows: int
    micro_rows: int | None
    order: Literal["together", "alternated", "sampled"]
    eval: Eval
    seed: int
    temperature: float | None = None
    plugins: tuple[str, ...] = ()
    stage: int = 0
    words: bool = False
    tokens: int | None = None

    @classmethod
    def of(cls, spec: Any, stage: int | None = None) -> Feed:
        """The rows of a pretraining; `stage`: as one of its stages has them."""
        staged = spec if stage is None else stage_config(spec, stage)
        size, tokens = staged.train.batch_size, staged.train.batch_tokens
        return cls(
            sources(staged),
            count_rows(size, tokens, longest_sequence(staged.format)),
            staged.train.micro_batch_size,
            staged.train.sources,
            staged.eval,
            staged.seed,
            staged.data.temperature,
            staged.plugins,
            stage or 0,
            staged.train.counts_words,
            tokens,
        )


def longest_sequence(format: Mapping[str, Any]) -> int:
    """Tokens of the longer sequence of a row in this format, at most."""
    return max(format.get(key) or 1 for key in ("max_length", "target_length"))


def sources(spec: Any) -> dict[str, dict[str, Any]]:
    """{name: {corpora, format, noise, weight}}; a run without `data.sources` has one source,
    called "text".
    """
    common = {"format": plain(spec.format), "noise": plain(spec.noise), "weight": 1.0}
    given = _mappings(plain(spec.data.sources)) or {"text": {}}
    return {
        name: {**common, **node, "corpora": _corpora(spec, name, node)}
        for name, node in given.items()
    }


def _corpora(spec: Any, source: str, node: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{corpus: {path, target_path, language, weight}} of a source: its mixture, or its path as one
    corpus; by default those of `data`, where `data.target_path` goes with `data.path`.
    """
    if "mixture" in node or "path" in node:
        stated = {key: node[key] for key in ("path", "target_path", "language") if key in node}
        return _mappings(node.get("mixture") or {}) or {source: stated}
    own = plain(spec.data)
    stated = {"path": own["path"], "target_path": own["target_path"]}
    stated |= {"language": node["language"]} if "language" in node else {}
    return _mappings(own["mixture"]) or {source: stated}


def _mappings(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """The mappings among the nodes; others are mistakes in the settings, which are reported
    elsewhere.
    """
    return {name: node for name, node in nodes.items() if isinstance(node, Mapping)}
