"""A tag for each word of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.crf import LinearChain
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.answers.label_ids import label_ids
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.answers.tag_chain import CrfKind, TagChain, find_chain
from plmctl.tasks.facts import ModelNeeds, TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.sentence_rows import find_states
from plmctl.tasks.readers.schemes import (
    NAMES,
    PlacedTags,
    Spelling,
    SpellingName,
    detect,
    is_marked,
    read_as,
    spell,
    spelling_of,
    tells_entities,
)
from plmctl.tasks.readers.span_rows import list_marked
from plmctl.tasks.readers.tag_spelling import SHOWN, describe_unmarked, respell, unify
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.metrics import entities
from plmctl.tasks.scores.tags import ENTITIES, WORDS
from plmctl.tasks.splits import Splits


@part_of("answer")
class TagAnswer(Answer):
    """The tag of each word, from the state of one of its pieces; the others have no label (Devlin
    et al., 2019, sec. 5.3).

    `loss = -log softmax(head(h))[tag]`, summed over words; `LabelLoss` weighs and smooths it.

    Args:
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: The share of a label that all labels have in equal parts.
        scheme: The spelling of entities; None: as the reader gives them.
        crf: A CRF over the tags of a sentence, "free" or "legal" (tasks/answers/tag_chain.py);
            None: a softmax for each word.
        piece: The piece of a word from which its tag is read.
        unlabelled: The spelling in files of a word without a tag; None: all words have one.
    """

    fields: Mapping[str, Field] = {
        "values.edges": Field(
            "[n, 2]", "int", "1 if the first word begins its sentence, if the last one ends it"
        ),
        "targets.tag": Field("[n, T]", "int", "tag of the word that begins here, IGNORE elsewhere"),
    }
    facts = TaskFacts(
        needs=frozenset({"text", "targets.tag"}),
        head="tag",
        answer="tags",
        pipeline="token-classification",
    )
    streams = False

    def __init__(
        self,
        *,
        class_weights: Mapping[str, float] | str | None = None,
        focal_gamma: float = 0.0,
        label_smoothing: float = 0.0,
        scheme: SpellingName | None = None,
        crf: CrfKind | None = None,
        piece: Literal["first", "last"] = "first",
        unlabelled: str | None = None,
    ) -> None:
        self.label_loss = LabelLoss(class_weights, focal_gamma, label_smoothing)
        self.scheme = None if scheme is None else NAMES[scheme]
        self.crf, self.piece, self.unlabelled = crf, piece, unlabelled
        if crf is not None:
            weighed = class_weights is not None or focal_gamma or label_smoothing
            self._check_crf(crf, weighed=bool(weighed))
            self.requires = ModelNeeds(head_settings={"chain": True})
            allowed = "null where predictions of words are compared: a CRF scores whole sentences"
            error = ConfigError("task.crf", crf, allowed, fix="task.crf=null")
            self.facts = replace(self.facts, incomparable=error)
        self._first: Spelling | None = None  # the spelling of the split that was read first
        self._made: TagChain | None = None
        # the chains of the model that was attached last
        self._asked: list[LinearChain] = []

    def _check_crf(self, crf: CrfKind, *, weighed: bool) -> None:
        """ConfigError for settings that exclude a CRF."""
        if weighed:
            allowed = (
                "null with task.class_weights, task.focal_gamma or task.label_smoothing, which are"
                " of single words: a CRF learns the likelihood of whole sentences"
            )
            raise ConfigError("task.crf", crf, allowed, fix="task.crf=null, or without these")
        if self.unlabelled is not None:
            allowed = "null: only some words have a tag here, which make no chain"
            raise ConfigError("task.crf", crf, allowed, fix="task.crf=null")

    @property
    def decided(self) -> dict[str, Any]:
        return self.label_loss.decided

    def check_model(self, model: Model) -> None:
        if self.crf is not None:
            find_chain(model.heads["tag"])

    def describe_scoring(self, examples: Examples, files: Splits) -> str:
        if not hasattr(files.reader, "scheme"):  # one of tags that are of words: parts of speech
            return ""
        return describe_unmarked(tag for example in examples for tag in example.label or ())

    def settle(
        self, examples: list[Example], names: list[str] | None, files: Splits
    ) -> tuple[list[Example], list[str] | None]:
        """`examples` with their entities in the scheme of the task, or that of training; `names` of
        a published model as the examples spell them: `B-PER` for its `B_PER` or `PER-B`.
        """
        examples = self._name_numbers(examples, names, files)
        if names is not None:
            known = {tag for each in examples for tag in each.label or ()} - {self.unlabelled}
            if not known <= {*names} and known <= {*(spelled := respell(names))}:
                names = spelled
        _refuse_bare(examples, names)
        scheme = self._find_scheme(examples, names, files)
        return [self._spell(e, scheme) for e in examples] if scheme else examples, names

    def _name_numbers(
        self, examples: list[Example], names: list[str] | None, files: Splits
    ) -> list[Example]:
        """`examples` whose tags are numbers with the stated names of these, counted from 0."""
        known = {tag for each in examples for tag in each.label or ()} - {self.unlabelled}
        if not names or not known or known <= {*names} or not all(map(str.isdecimal, known)):
            return examples
        if len(names) <= (most := max(map(int, known))):
            allowed = f"a name for each of the numbers from 0 to {most}, which the tags are"
            raise ConfigError("task.label_names", names, allowed)
        # a split has no number for an unknown tag
        named = {tag: names[int(tag)] for tag in known}
        tags = [PlacedTags(0, [named.get(t, t) for t in each.label or ()]) for each in examples]
        scheme = None
        if getattr(files.reader, "scheme", None) == "auto":
            tags, _ = unify(tags, "auto", files.path)
            scheme = detect(tags, files.path)
        return [
            each if each.label is None else replace(each, label=read_as(own.tags, scheme))
            for each, own in zip(examples, tags, strict=True)
        ]

    def _spell(self, example: Example, scheme: Spelling) -> Example:
        tags = example.label
        if tags is not None and {*tags} != {"O"}:
            if not all(tag == "O" or is_marked(tag) for tag in tags):
                allowed = f"null: the tags at {example.place} ({tags[0]}) name no entities"
                raise ConfigError("task.scheme", self.scheme, allowed, fix="task.scheme=null")
            tags = spell(entities(tags), len(tags), scheme)
        return replace(example, label=tags)

    def _find_scheme(
        self, examples: Iterable[Example], names: list[str] | None, files: Splits
    ) -> Spelling | None:
        """The scheme in which to spell the entities; None where they may stay as they are. A split
        has the letters of the known labels, or else of the split that was read first.
        """
        if self.scheme is not None or not hasattr(files.reader, "scheme"):
            return self.scheme
        own = {tag for example in examples for tag in example.label or ()} - {"O"}
        if not tells_entities(own):
            return None
        if self._first is None:
            known = {*(names or ())} - {"O"}
            self._first = spelling_of(known if tells_entities(known) else own)
        return None if spelling_of(own) == self._first else self._first

    def seen(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit(self, examples: Examples, names: list[str] | None, *, stated: bool) -> list[str]:
        pairs = [
            (tag, example.place)
            for example in examples
            for tag in example.label
            if tag != self.unlabelled
        ]
        if names is None:
            names = sorted(
                _close({tag for tag, _ in pairs}), key=lambda tag: (tag != "O", tag[2:], tag)
            )
        label_ids(pairs, names, learned=not stated)
        if self.crf is not None:
            self._chain(names).check(examples)
        self.label_loss.fit((tag for tag, _ in pairs), names)
        return names

    def fit_metrics(
        self, metrics: Sequence[str], names: Sequence[str], *, stated: bool
    ) -> list[str]:
        """Metrics of words where tags mark no entities."""
        tags = {*respell(names)} - {"O", self.unlabelled}
        if not tags or not {*metrics} & {*ENTITIES} or tells_entities(tags):
            return list(metrics)
        if stated:
            shown = ", ".join(sorted(tags)[:SHOWN])
            allowed = f"{', '.join(WORDS)}: the tags ({shown}) name no entities to score"
            fix = "task.metrics=[accuracy,macro_f1]"
            raise ConfigError("task.metrics", list(metrics), allowed, fix=fix)
        return ["accuracy", "macro_f1"]

    def label(self, rows: Rows, examples: Examples, names: list[str] | None) -> Rows:
        if self.crf is not None:
            sentence = rows.values["example"]
            edges = [np.diff(sentence, prepend=-1) != 0, np.diff(sentence, append=-1) != 0]
            rows = encode.add_values(rows, edges=np.stack(edges, 1).astype(np.int64))
        if any(example.label is None for example in examples):
            return rows
        assert names is not None
        tags = [self.number_tags(example, names) for example in examples]
        word = rows.spans["word"][:, 3]
        row, column = find_states(rows, self.piece)
        target = np.full(rows.seqs["text"].ids.shape, IGNORE, dtype=np.int16)
        target[row, column] = [
            tags[e][w] for e, w in zip(rows.values["example"][row], word, strict=True)
        ]
        return rows.with_targets(tag=target)

    def number_tags(self, example: Example, names: Sequence[str]) -> list[int]:
        """The number of each tag of an example."""
        tags = [tag for tag in example.label if tag != self.unlabelled]
        numbers = iter(label_ids(((tag, example.place) for tag in tags), names))
        return [IGNORE if tag == self.unlabelled else next(numbers) for tag in example.label]

    def attach(self, model: Model) -> None:
        if self.crf is not None:
            self._asked = [find_chain(model.heads["tag"])]

    def _chain(self, names: Sequence[str] | None) -> TagChain:
        assert self.crf is not None
        self._made = self._made or TagChain(self.crf, names or [], self.scheme)
        return self._made

    def flatten(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.facts.incomparable:
            raise self.facts.incomparable
        target = batch.require("targets.tag")
        return logits.flatten(0, 1)[target.index], target.ids != IGNORE

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        target = batch.require("targets.tag")
        if self.crf is None:
            scores = logits.flatten(0, 1)[target.index]  # [P, K]
            total, right = self.label_loss(scores, target.ids, names)
        else:
            total, right = self._chain(names).loss(logits, batch, self._asked[0])
        return Output({"tag": Term(total)}, {"acc/tag": (right, target.count)})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        assert names is not None
        row, column = find_states(rows, self.piece)
        # words stand in the order of examples, windows and words
        scores = torch.from_numpy(logits[row, column])  # [W, K]
        sizes = np.bincount(rows.values["example"][row], minlength=len(examples)).tolist()
        guesses = (
            [own.argmax(-1).tolist() for own in scores.split(sizes)]
            if self.crf is None
            else self._chain(names).decode(scores, sizes, self._asked[0])
        )
        return [
            _mark(e, {**self.describe(e), "guess": [names[tag] for tag in guess]})
            for e, guess in zip(examples, guesses, strict=True)
        ]

    def describe(self, example: Example) -> dict[str, Any]:
        """The entries of a prediction in addition to the guess."""
        gold = None if example.label is None else list(example.label)
        source = example.fields.get("source")
        text = {} if source is None else {"text": str(source)}
        return {"id": example.id, **text, "words": list(example.fields["words"]), "gold": gold}

    def weigh(
        self,
        predictions: Sequence[dict[str, Any]],
        logits: np.ndarray,
        rows: Rows,
        names: list[str] | None,
    ) -> None:
        row, column = find_states(rows, self.piece)
        scores = torch.from_numpy(logits[row, column]).double()  # [W, K]
        sizes = [len(prediction["guess"]) for prediction in predictions]
        probabilities = (
            scores.softmax(-1).split(sizes)
            if self.crf is None
            else self._chain(names).weigh(scores, sizes, self._asked[0])
        )
        for prediction, own in zip(predictions, probabilities, strict=True):
            prediction["tag_probabilities"] = own.tolist()


def _mark(example: Example, prediction: dict[str, Any]) -> dict[str, Any]:
    """A prediction with its entities by their characters, where those of the text are known."""
    if "source" in example.fields:
        text, places = str(example.fields["source"]), example.fields["places"]
        prediction["entities"] = list_marked(prediction["guess"], places, text)
    return prediction


def _refuse_bare(examples: Iterable[Example], label_names: Sequence[str] | None) -> None:
    """DataError where tags are types alone, PER, and those of training say where in an entity
    a word is, B-PER, or the other way round.
    """
    names = {*(label_names or ())} - {"O"}
    for example in examples:
        own = {*(example.label or ())} - {"O", *names}
        for bare, marked in ((own, names), (names, own)):
            kinds = {tag[2:]: tag for tag in marked if is_marked(tag) and tag[2:]}
            if tag := next((tag for tag in sorted(bare) if tag in kinds), ""):
                what = f"{tag} is a type alone, and {kinds[tag]} says where in it a word is"
                where = "the training tags are of the other kind"
                fix = "task.reader.scheme=io, by which types alone are entities, too"
                raise DataError(f"{what}: {where}", file=example.place, fix=fix)


def _close(tags: set[str]) -> set[str]:
    """All tags with every prefix (B-, I-, ...) of every type: a rare I- may be missing from
    training while its B- occurs.
    """
    entity = {tag for tag in tags if tag[1:2] == "-"}
    return tags | {
        prefix + kind
        for prefix in {tag[:2] for tag in entity}
        for kind in {tag[2:] for tag in entity}
    }
