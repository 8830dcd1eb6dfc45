"""Attacks on a fine-tuned model: the texts that it answers otherwise once some words change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded
from plmctl.attack.base import AttackSearch, Constraint, Pair, WordCandidates
from plmctl.attack.together import AskedOnce, attack_together
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError, nearest
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.classification import Classification
from plmctl.tasks.record import Example
from plmctl.tasks.task import as_task
from plmctl.text.segment import Segmenter
from plmctl.text.sentences import CHINESE
from plmctl.training.device.precision import Precision
from plmctl.use.sentence_vectors import choose_pooling, embed_texts

# digits of probabilities: a smaller difference counts as equal, so that no batch decides
DIGITS = 6


class Victim:
    """A fine-tuned model that returns the probabilities of labels.

    Args:
        examples: The examples whose texts are changed.
        field: the text that is changed.
        segment: finds the words of Chinese texts.
        runtime: The library of the computation; None: PyTorch.
    """

    def __init__(
        self,
        loaded: Loaded,
        task: Classification,
        precision: Precision,
        examples: Sequence[Example],
        *,
        field: str,
        batch_size: int,
        segment: Segmenter | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.loaded, self.task, self.precision = loaded, task, precision
        self.examples, self.field, self.batch_size = examples, field, batch_size
        self.runtime = runtime
        self.names = tuple(task.label_names or ())
        self.segmented = segment is not None
        self.texts = [WordText.of(str(example.fields[field]), segment) for example in examples]

    def score(self, items: Sequence[tuple[int, str]]) -> list[np.ndarray]:
        """[K] for each (number of an example, its text)."""
        examples = [
            replace(own, fields={**own.fields, self.field: text}, label=None)  # no loss is wanted
            for own, text in ((self.examples[number], text) for number, text in items)
        ]
        tokenizer = self.loaded.tokenizer
        if tokenizer.vocab.spellings:
            split = inference.encode_split(self.task, "attack", examples, tokenizer)
        else:  # a text with slips may be unknown to a large part
            split = inference.Split("attack", examples, self.task.encode(examples, tokenizer))
        how: dict[str, Any] = {"batch_size": self.batch_size, "device": self.precision.device}
        how |= {"runtime": self.runtime}
        with torch.no_grad(), self.precision.autocast():
            logits, _ = inference.run(self.loaded.model, self.task, split.rows, **how)
        found = self.task.predict(logits, split.rows, examples)
        probabilities = [list(each["probabilities"].values()) for each in found]
        return list(np.round(np.array(probabilities), DIGITS))


def attack_examples(
    victim: Victim,
    model: AskedOnce,
    candidates: WordCandidates,
    constraints: Sequence[Constraint],
    search: AttackSearch,
    *,
    window: int,
) -> list[dict[str, Any]]:
    """One row for each example: what the model says of it before and after, and what was changed.

    Args:
        model: its answers.
    """
    examples, names, texts = victim.examples, victim.names, victim.texts
    golds = [names.index(str(example.label)) for example in examples]
    keepers = [each for each in constraints if type(each).keep is not Constraint.keep]
    before = model([(n, text.text) for n, text in enumerate(texts)])
    right = [n for n, own in enumerate(before) if int(np.argmax(own)) == golds[n]]
    proposals = AskedOnce(candidates.propose)
    found = attack_together(
        [search.search(texts[n], golds[n], before[n], constraints) for n in right],
        score=lambda items: model([(right[place], text) for place, text in items]),
        propose=proposals,
        keep=AskedOnce(partial(_keep, keepers)) if keepers else _keep_all,
        window=window,
    )
    _refuse_idle(victim, proposals)
    ends = dict(zip(right, found, strict=True))
    rows = []
    for n, (example, text) in enumerate(zip(examples, texts, strict=True)):
        row: dict[str, Any] = {"id": example.id, "gold": str(example.label), "text": text.text}
        row |= {"before": _describe(before[n], names), "words": len(text)}
        if n not in ends:
            rows.append({**row, "result": "wrong before"})
            continue
        end, queries = ends[n]
        numbers = text.differing(end.text)
        changes = [[k, text.word(k), end.text.word(k), text.start(k)] for k in numbers]
        rows.append(
            {
                **row,
                "result": "fooled" if end.fooled else "held",
                "after": _describe(end.probabilities, names),
                "attacked": end.text.text,
                "changes": changes,
                "queries": queries + 1,
            }
        )
    return rows


def _refuse_idle(victim: Victim, proposals: AskedOnce) -> None:
    """ConfigError for Chinese texts of which no character has another that may stand there."""
    if not proposals.known or any(proposals.known.values()) or victim.segmented:
        return
    if any(CHINESE.search(text.text) for text in victim.texts):
        allowed = "these propose nothing for any word of these texts"
        allowed += ", of which each Chinese character is one"
        fix = "attack_candidates=letters segment=jieba"
        raise ConfigError("attack_candidates", ..., allowed, fix=fix)


def _keep(constraints: Sequence[Constraint], pairs: Sequence[Pair]) -> list[bool]:
    answers = [constraint.keep(pairs) for constraint in constraints]
    return [all(own) for own in zip(*answers, strict=True)]


def _keep_all(pairs: Sequence[Pair]) -> list[bool]:
    return [True] * len(pairs)


def _describe(probabilities: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    best = int(np.argmax(probabilities))
    return {"guess": names[best], "probability": float(probabilities[best])}


def sum_up(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Accuracies before and under attack, the share of attacks that succeed, and the mean share of
    words that these change. The last number counts the texts that the model read for an attack.
    """
    attacked = [row for row in rows if row["result"] != "wrong before"]
    fooled = [row for row in attacked if row["result"] == "fooled"]
    shares = [len(row["changes"]) / max(row["words"], 1) for row in fooled]
    return {
        "accuracy": len(attacked) / len(rows),
        "accuracy under attack": (len(attacked) - len(fooled)) / len(rows),
        "success": len(fooled) / max(len(attacked), 1),
        "changed words": float(np.mean(shares)) if shares else 0.0,
        "queries": float(np.mean([row["queries"] for row in attacked])) if attacked else 0.0,
    }


def explain_unchanged(rows: Sequence[Mapping[str, Any]]) -> str:
    """Why no text was changed at all; "" where one was."""
    attacked = [row for row in rows if row["result"] != "wrong before"]
    if not attacked:
        return f"no text was attacked: the model answers none of these {len(rows)} right"
    if any(row["changes"] for row in attacked):
        return ""
    return (
        "no word of any text was changed: attack_candidates proposes none that constraint allows"
        " and that makes the right answer less likely (constraint=[] allows all)"
    )


def read_attacked(task: Any, split: str, field: str, rows: int | None) -> list[Example]:
    """The first examples of the split, each with a label and the text that is changed.

    Args:
        field: The text of an example to change.
        rows: The number of examples; None: all.
    """
    if (labels := as_task(task)) is None or labels.facts.answer != "class":
        allowed = "classes of texts: classification, pair_classification, sst2, mnli and the like"
        raise ConfigError("task", getattr(task, "name", None), allowed)
    examples = task.read(split)[:rows]
    known = [name for name, value in examples[0].fields.items() if isinstance(value, str)]
    if field not in known:
        allowed = f"one of {', '.join(known)}{nearest(field, known)}"
        raise ConfigError("field", field, allowed, fix=f"field={known[-1]}")
    if any(example.label is None for example in examples):
        raise ConfigError("split", split, "a split with labels", fix="split=dev")
    return examples


def make_embed(
    open_embedder: Callable[[], Loaded], *, batch_size: int, precision: Precision
) -> Callable[[Sequence[str]], np.ndarray]:
    """Vectors of texts by a model that is opened once, when the first ones are needed."""
    opened = functools.cache(open_embedder)

    def embed(texts: Sequence[str]) -> np.ndarray:
        own = opened()
        pooling = choose_pooling(own, None, path="embedder")
        how: dict[str, Any] = {"batch_size": batch_size, "precision": precision}
        return embed_texts(own, texts, pooling, normalize=True, **how)

    return embed
