"""Dependency parsing: the head of each word, and its relation to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import widen
from plmctl.heads.biaffine import Biaffine
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.label_ids import label_ids
from plmctl.tasks.answers.spanning_tree import find_tree, pick_heads
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.words import Pieces, word_pieces
from plmctl.tasks.record import Arrays, Example, Examples
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings

Row = Mapping[str, Any]
METRICS = ("las", "uas", "full_las")
PUNCTUATION = "PUNCT"


@dataclass(frozen=True, kw_only=True)
class DependencySettings(TaskSettings):
    """Settings of dependency parsing.

    Args:
        label_names: the relations in the order of the logits; None: as the training split has them.
        decode: "tree": the best tree with one word below the root; "greedy": the best head of each
            word, which need not make one.
        punctuation: whether words of the part of speech PUNCT are scored.
    """

    label_names: Sequence[str] | None = None
    decode: Literal["tree", "greedy"] = "tree"
    punctuation: bool = True
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class Dependency(Task):
    """Predicts the head of each word and its relation from their states at the first piece (Dozat
    and Manning, 2017, arXiv:1611.01734); the state that stands for the row is the root.

    `loss = -log softmax(s_arc)[head] - log softmax(s_rel at the right head)[relation]`, summed over
    words and divided by their number. `uas` is the share of words with the right head. `las` needs
    the right relation, too, without its part behind a colon, as the script of CoNLL 2018 counts
    (Zeman et al., 2018). `full_las` counts all of it. A sentence has one row; where it is too long,
    words lose their last pieces, the longest word first.
    """

    fields: Mapping[str, Field] = {
        "labels.tree": Field("[n, L, 2]", "int", "head (0: the root) and relation of each word"),
        "values.words": Field("[n, L]", "int", "position of the first piece of each word, or -1"),
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.tree", "values.words"}),
        head="tree",
        chooses=False,
        typed="sentences that you type, one a line, with spaces between words",
    )

    Settings = DependencySettings

    def __init__(self, **settings: Any) -> None:
        own = DependencySettings(**settings)
        metrics = check_metrics(own.metrics, METRICS)
        super().__init__(own, metrics=metrics, label_names=own.label_names)
        self.decoding, self.punctuation = own.decode, own.punctuation

    def parse(self, line: str, number: int) -> Example:
        words = {"words": line.split() or [""]}
        return Example(id=str(number - 1), fields=words, place=f"line {number}")

    def labels_of(self, example: Example) -> Sequence[str]:
        return list(example.label["relations"])

    def fit_labels(self, examples: Iterable[Example]) -> None:
        found = [(name, each.place) for each in examples for name in each.label["relations"]]
        if self.label_names is None:
            self.label_names = sorted({name for name, _ in found})
        label_ids(found, self.label_names, learned=not self.states_labels)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        room = self.max_length - encode.specials(tokenizer.vocab, pair=False)
        laid_out, places = [], []
        for example in examples:
            own = word_pieces(example.fields["words"], tokenizer, joiner=" ")
            kept = shorten(own, room)
            if len(kept) > room:
                allowed = f"at least {len(kept) + self.max_length - room}, for {example.place}"
                fix = f"task.max_length={len(kept) + self.max_length - room}"
                raise ConfigError("task.max_length", self.max_length, allowed, fix=fix)
            row = encode.lay_out(
                [piece for word in kept for piece in word],
                None,
                tokenizer.vocab,
                max_length=self.max_length,
                pooling=self.pooling,
            )
            laid_out.append(replace(row, cut=sum(map(len, own)) - sum(map(len, kept))))
            places.append(row.a_start + np.cumsum([0, *map(len, kept[:-1])]))
        rows = encode.pad(laid_out, tokenizer.vocab, example=range(len(examples)))
        rows = encode.add_values(rows, words=encode.fill([p.tolist() for p in places], spare=-1))
        if any(example.label is None for example in examples):
            return rows
        heads = encode.fill([example.label["heads"] for example in examples], spare=IGNORE)
        relations = [
            label_ids(((name, each.place) for name in each.label["relations"]), self.names)
            for each in examples
        ]
        tree = np.stack([heads, encode.fill(relations, spare=IGNORE)], -1)  # [n, L, 2]
        return encode.add_labels(rows, {"tree": tree})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"tree": int((batch.require("labels.tree")[..., 0] != IGNORE).sum())}

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """`arcs [B, L, 1 + L]`, and `relations [B, L, K]` below heads that are known; without
        gradients also the `heads [B, L]` that are guessed and their relations, `guesses [B, L]`.
        """
        assert batch.anchors is not None
        states, places = features_of(model, batch), batch.require("values.words")
        row = torch.arange(len(places), device=places.device)[:, None]
        root = states[row[:, 0], batch.anchors[:, 1]][:, None]
        words = torch.cat([root, states[row, places.clamp(min=0)]], 1)  # [B, 1 + L, W]
        head = cast(Biaffine, model.heads["tree"])
        arcs, as_head, as_dependent = head(words)
        arcs = widen(arcs)
        known = F.pad(places >= 0, (1, 0), value=True)
        own = torch.eye(places.shape[1], 1 + places.shape[1], device=places.device).roll(1, 1)
        hidden = ~known[:, None, :] | own.bool()  # padding, and each word itself
        found = {"arcs": arcs.masked_fill(hidden, -1e9)}
        if "tree" in batch.labels:
            gold = batch.labels["tree"][..., 0].clamp(min=0)
            found["relations"] = head.relate(as_head, as_dependent, gold)
        if not torch.is_grad_enabled():
            heads = self._find_heads(found["arcs"], places >= 0)
            found["heads"] = heads
            found["guesses"] = head.relate(as_head, as_dependent, heads).argmax(-1)
        return found

    def _find_heads(self, arcs: Tensor, known: Tensor) -> Tensor:
        """[B, L] the heads of each row, 0 at padding."""
        find = find_tree if self.decoding == "tree" else pick_heads
        scores, sizes = arcs.double().log_softmax(-1).cpu().numpy(), known.sum(1).tolist()
        heads = torch.zeros_like(known, dtype=torch.int64)
        for row, size in enumerate(sizes):
            own = find(scores[row, :size, : size + 1])
            heads[row, :size] = torch.tensor(own, device=heads.device)
        return heads

    def flatten_logits(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        allowed = "a task of classes, tags, spans or numbers: trees have no logits to distil"
        raise ConfigError("task", self.name, allowed, fix="plmctl finetune task=dependency")

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        heads, relations = batch.require("labels.tree").flatten(0, 1).unbind(-1)  # [B L] each
        arcs, kinds = logits["arcs"].flatten(0, 1), widen(logits["relations"]).flatten(0, 1)
        total = F.cross_entropy(arcs, heads, ignore_index=IGNORE, reduction="sum")
        total = total + F.cross_entropy(kinds, relations, ignore_index=IGNORE, reduction="sum")
        right = (arcs.argmax(-1) == heads) & (kinds.argmax(-1) == relations)
        return Output(
            {"tree": Term(total)}, {"acc/tree": (right.sum(), self.counts(batch)["tree"])}
        )

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        heads, kinds = logits["heads"].astype(np.int64), logits["guesses"].astype(np.int64)
        predictions = []
        for number, example in enumerate(examples):
            size = len(example.fields["words"])
            relations = [self.names[kind] for kind in kinds[number, :size].tolist()]
            guess = {"heads": heads[number, :size].tolist(), "relations": relations}
            predictions.append(
                {
                    "id": example.id,
                    "words": list(example.fields["words"]),
                    "gold": None if example.label is None else dict(example.label),
                    "guess": guess,
                }
            )
        return predictions

    def describe_metric(self, name: str) -> str:
        words = "words, punctuation included" if self.punctuation else "words without punctuation"
        subtypes = {"las": ", relations without subtypes", "full_las": ", relations with subtypes"}
        return f"{words}{subtypes.get(name, '')}"

    def score(self, predictions: Sequence[Row]) -> dict[str, float]:
        found = score_trees(predictions, punctuation=self.punctuation)
        return {name: found[name] for name in self.metrics}


def shorten(pieces: Pieces, room: int) -> Pieces:
    """Words of which the longest, of equals the last, lose their last pieces until all fit; each
    keeps one.
    """
    lengths = [len(word) for word in pieces]
    while sum(lengths) > room and max(lengths) > 1:
        longest = max(range(len(lengths)), key=lambda word: (lengths[word], word))
        lengths[longest] -= 1
    return [word[:length] for word, length in zip(pieces, lengths, strict=True)]


def score_trees(predictions: Iterable[Row], *, punctuation: bool) -> dict[str, float]:
    """`uas`, `las` and `full_las` of all words, or of all without punctuation."""
    words = heads = relations = whole = 0
    for each in predictions:
        gold, guess = each["gold"], each["guess"]
        for word, tag in enumerate(gold["upos"]):
            if tag == PUNCTUATION and not punctuation:
                continue
            words += 1
            if gold["heads"][word] != guess["heads"][word]:
                continue
            ours, theirs = guess["relations"][word], gold["relations"][word]
            heads += 1
            relations += ours.partition(":")[0] == theirs.partition(":")[0]
            whole += ours == theirs
    counts = {"uas": heads, "las": relations, "full_las": whole}
    return {name: count / words if words else 0.0 for name, count in counts.items()}
