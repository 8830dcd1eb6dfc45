"""`plmctl attack`: which texts a fine-tuned model answers otherwise once some words change."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded, load, load_for
from plmctl.attack.base import AttackSearch, Constraint, Pair, WordCandidates
from plmctl.attack.together import AskedOnce, attack_together
from plmctl.attack.word_text import WordText
from plmctl.config.build import build
from plmctl.config.spec import thaw
from plmctl.config.uses import Attack
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.locate import locate, parameters
from plmctl.core.rounding import round_floats
from plmctl.storage.gate import own
from plmctl.tasks import inference
from plmctl.tasks.classification import Classification
from plmctl.tasks.record import Example
from plmctl.tasks.task import as_task
from plmctl.text.segment import Segmenter
from plmctl.text.segment import find as find_segmenter
from plmctl.text.sentences import CHINESE
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import (
    check_out,
    choose_task,
    describe_model,
    is_printed,
    name_file,
    write_results,
)
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.sentence_vectors import choose_pooling, embed_texts

DIGITS = 6  # of probabilities: what differs by less is equal, so that no batch decides


class Victim:
    """A fine-tuned model, asked for the probabilities of labels.

    Args:
        examples: whose texts are changed.
        field: the text that is changed.
        segment: finds the words of Chinese texts.
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
    ) -> None:
        self.loaded, self.task, self.precision = loaded, task, precision
        self.examples, self.field, self.batch_size = examples, field, batch_size
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
        with torch.no_grad(), self.precision.autocast():
            logits, _ = inference.run(self.loaded.model, self.task, split.rows, **how)
        return list(np.round(self.task.measure_probabilities(logits, split.rows), DIGITS))


def attack(spec: Attack) -> int:
    """Attack the examples of a split that the model answers right; show and write what happens."""
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite)
    segment = find_segmenter(spec.segment, spec.plugins, "segment") if spec.segment else None
    loaded, precision = load_for(spec)
    given = describe_model(loaded, spec.plugins)
    task = build(choose_task(spec, loaded), given, spec.plugins, path="task")
    examples = _read(spec, task)
    how: dict[str, Any] = {"field": spec.field, "batch_size": spec.batch_size}
    victim = Victim(loaded, task, precision, examples, segment=segment, **how)
    candidates, constraints, search = build_parts(spec, loaded, precision)
    started, model = time.perf_counter(), AskedOnce(victim.score)
    rows = attack_examples(victim, model, candidates, constraints, search, window=spec.window)
    seconds = time.perf_counter() - started
    out = Path(spec.out) if spec.out else own(loaded.source.run or Path()) / "attack"
    file = write_results(
        out, spec.split, round_floats(rows), overwrite=spec.overwrite, guarded=spec.guard_cells
    )
    speed = model.answered / max(seconds, 1e-9)
    extra = {
        "task": task.name,
        "checkpoint": str(loaded.source.folder),
        "rows": len(rows),
        "texts that the model read": Told(
            f"{model.answered:,}, of {model.asked:,} queries", model.answered
        ),
        "texts a second": Told(f"{speed:.0f}", speed),
        "attacks": name_file(file),
    }
    if unchanged := explain_unchanged(rows):
        extra["unchanged"] = Told(unchanged)
    scores = {spec.split: sum_up(rows)}
    table = ScoreTable(f"{task.name} under attack", scores, extra)
    table.show(as_json=spec.provenance.json, aside=is_printed(spec))
    return 0


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
        victim: says which examples.
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
    """Accuracies before and under attack, the share of attacks that succeed, the mean share of
    words that these change, and texts asked for an example that was attacked.
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


def _read(spec: Attack, task: Any) -> list[Example]:
    """The first examples of the split, each with a label and the text that is changed."""
    if (labels := as_task(task)) is None or labels.answer != "class":
        allowed = "classes of texts: classification, pair_classification, sst2, mnli and the like"
        raise ConfigError("task", getattr(task, "name", None), allowed)
    examples = task.read(spec.split)[: spec.rows]
    known = [name for name, value in examples[0].fields.items() if isinstance(value, str)]
    if spec.field not in known:
        allowed = f"one of {', '.join(known)}{nearest(spec.field, known)}"
        raise ConfigError("field", spec.field, allowed, fix=f"field={known[-1]}")
    if any(example.label is None for example in examples):
        raise ConfigError("split", spec.split, "a split with labels", fix="split=dev")
    return examples


def build_parts(
    spec: Attack, loaded: Loaded, precision: Precision
) -> tuple[WordCandidates, list[Constraint], AttackSearch]:
    """The three parts of an attack on a loaded model."""
    plugins = spec.plugins
    given: dict[str, Any] = {"model": loaded.model, "tokenizer": loaded.tokenizer}
    writer = spec.writer
    if "writer" in parameters(locate(spec.attack_candidates["_target_"], plugins)):
        if writer is None:
            allowed, fix = "a masked language model, which proposes words", "writer=runs/<bert>"
            raise ConfigError("writer", None, allowed, fix=fix)
        other = load(writer, plugins=plugins)
        other.model.to(precision.device).eval()
        given |= {"writer": other.model, "writer_tokenizer": other.tokenizer}
    elif writer is not None:
        allowed = "null: these candidates come from elsewhere"
        raise ConfigError("writer", writer, allowed, fix="attack_candidates=masked_lm")
    candidates = build(spec.attack_candidates, given, plugins, path="attack_candidates")
    nodes: dict[str, Any] = thaw(spec.constraint) or {}
    embed = _make_embed(spec, loaded, precision)
    constraints = [
        build(node, {"embed": embed}, plugins, path=f"constraint.{name}")
        for name, node in nodes.items()
    ]
    return candidates, constraints, build(spec.attack_search, {}, plugins, path="attack_search")


def _make_embed(
    spec: Attack, loaded: Loaded, precision: Precision
) -> Callable[[Sequence[str]], np.ndarray]:
    """Vectors of texts by `embedder`, else by the attacked model itself."""

    @functools.cache
    def find_embedder() -> Loaded:
        if spec.embedder is None:
            return loaded
        found = load(spec.embedder, plugins=spec.plugins)
        found.model.to(precision.device).eval()
        return found

    def embed(texts: Sequence[str]) -> np.ndarray:
        own = find_embedder()
        pooling = choose_pooling(own, None, path="embedder")
        how: dict[str, Any] = {"batch_size": spec.batch_size, "precision": precision}
        return embed_texts(own, texts, pooling, normalize=True, **how)

    return embed
