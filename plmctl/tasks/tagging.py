"""One tag for each word of a sentence: CoNLL-2003 names, and any column file of tagged words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.crf import LinearChain
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.label_ids import label_ids
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.answers.tag_chain import CrfKind, TagChain, find_chain
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.words import Pieces, take_context, windows, word_pieces
from plmctl.tasks.readers.schemes import (
    PlacedTags,
    Spelling,
    detect,
    is_marked,
    read_as,
    spell,
    spelling_of,
    tells_entities,
)
from plmctl.tasks.readers.span_rows import list_marked, tag_text
from plmctl.tasks.readers.tag_spelling import SHOWN, describe_unmarked, respell, unify
from plmctl.tasks.record import Example
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.metrics import by_name, check_metrics, entities, entity_scores
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text.sentences import CHINESE


@dataclass(frozen=True, kw_only=True)
class TaggingSettings(TaskSettings):
    """Settings of tagging.

    Args:
        metrics: The metrics; None: f1, precision and recall of entities where the tags mark some,
            otherwise accuracy and macro_f1 of single words.
        label_names: in the order of the logits; None: as the training split has them.
        joiner: The text between words; None: nothing where every word of the training split is one
            character, otherwise a space.
        context: The content of a row: a sentence, or as much of its document around it as fits.
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a label that all labels have in equal parts.
        scheme: in which entities are spelled; None: as the reader gives them.
        words: The cut of a new line: at its "spaces", or as a "text" into words and single marks;
            None: as a text where those of training have entities by their characters.
        crf: a CRF over the tags of a sentence, "free" or "legal" (tasks/answers/tag_chain.py);
            None: a softmax for each word.
    """

    metrics: Sequence[str] | None = None  # type: ignore[assignment]
    label_names: Sequence[str] | None = None
    joiner: str | None = None
    context: Literal["sentence", "document"] = "sentence"
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0
    scheme: Spelling | None = None
    words: Literal["spaces", "text"] | None = None
    crf: CrfKind | None = None


@part_of("task")
class Tagging(Task):
    """Predicts the tag of each word at its first piece; the other pieces have no label (Devlin et
    al., 2019, sec. 5.3).

    `loss = -log softmax(head(h_first))[tag]`, averaged over words. A sentence longer than a row is
    split into windows at word boundaries, so that every word is tagged. `joiner` stands between
    words in the text that is tokenized; None: nothing where the words of training are Chinese
    characters, which are then the words of new lines, otherwise a space. `context="document"` fills
    the row around it with the words before and after it in its document. As many as fit are read,
    one from each side in turn, without labels. Differs: the paper's own packing of the context was
    never released.
    """

    known_metrics: tuple[str, ...] = (*entity_scores([], []), *by_name(None))
    of_entities: tuple[str, ...] = (*entity_scores([], []),)  # metrics that tags without any lack
    unlabelled: str | None = None  # how files spell that a word has no tag to predict
    fields: Mapping[str, Field] = {
        "targets.tag": Field("[n, T]", "int", "tag of the word that begins here, IGNORE elsewhere"),
        "values.edges": Field(
            "[n, 2]", "int", "1 if the first word begins its sentence, if the last one ends it"
        ),
        "spans.word": Field(
            "[m, 4]", "int", "row, first piece, pieces, number of the word in its sentence"
        ),
    }
    facts = TaskFacts(
        needs=frozenset({"text", "targets.tag"}),
        head="tag",
        answer="tags",
        pipeline="token-classification",
    )

    Settings = TaggingSettings

    def __init__(self, **settings: Any) -> None:
        own = TaggingSettings(**settings)
        metrics = self.of_entities if own.metrics is None else own.metrics
        metrics = check_metrics(metrics, self.known_metrics)
        super().__init__(own, metrics=metrics, label_names=own.label_names)
        self.splits = replace(self.splits, change=self._spell, streams=False)
        self._fit_metrics()
        self.joiner, self.context, self.scheme = own.joiner, own.context, own.scheme
        self.words = own.words
        self.label_loss = LabelLoss(own.class_weights, own.focal_gamma, own.label_smoothing)
        self.crf = own.crf
        if own.crf is not None:
            self._check_crf(own)
            self.requires = replace(self.requires, head_settings={"chain": True})
            allowed = "null where predictions of words are compared: a CRF scores whole sentences"
            error = ConfigError("task.crf", own.crf, allowed, fix="task.crf=null")
            self.facts = replace(self.facts, incomparable=error)
        self._first: Spelling | None = None  # the spelling of the split that was read first
        # the chains of the model that was attached last
        self._asked: list[LinearChain] = []

    def _check_crf(self, own: TaggingSettings) -> None:
        """ConfigError for settings that exclude a CRF."""
        if own.class_weights is not None or own.focal_gamma or own.label_smoothing:
            allowed = (
                "null with task.class_weights, task.focal_gamma or task.label_smoothing, which are"
                " of single words: a CRF learns the likelihood of whole sentences"
            )
            raise ConfigError("task.crf", own.crf, allowed, fix="task.crf=null, or without these")
        if self.unlabelled is not None:
            allowed = "null: only some words have a tag here, which make no chain"
            raise ConfigError("task.crf", own.crf, allowed, fix="task.crf=null")

    @cached_property
    def _chain(self) -> TagChain:
        assert self.crf is not None
        return TagChain(self.crf, self.names, self.scheme)

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        if self.crf is not None:
            find_chain(model.heads["tag"])

    def parse(self, line: str, number: int) -> Example:
        """Words separated by spaces; with `joiner=""` every character is a word, unless spaces
        divide all Chinese ones. With `words="text"`, those of a text, with their characters.
        """
        if self.words == "text" and (text := tag_text(line, None)).words:
            fields = {"words": text.words, "places": text.places, "source": line}
            return Example(id=str(number - 1), fields=fields, place=f"line {number}")
        words = line.split()
        if self.joiner == "" and (
            len(words) == 1 or any(len(CHINESE.findall(word)) > 1 for word in words)
        ):
            words = [character for word in words for character in word]
        return Example(id=str(number - 1), fields={"words": words or [""]}, place=f"line {number}")

    @property
    def decided(self) -> dict[str, Any]:
        settings = cast(TaggingSettings, self.settings)
        chosen: dict[str, Any] = {"metrics": self.metrics} if settings.metrics is None else {}
        if self.words is not None:
            chosen["words"] = self.words
        return {**super().decided, **chosen, "joiner": self.joiner, **self.label_loss.decided}

    def _fit_metrics(self) -> None:
        """Score words where the tags mark no entities; ConfigError for metrics of entities."""
        names = {*respell(self.label_names or ())} - {"O", self.unlabelled}
        asked = [name for name in self.metrics if name in self.of_entities]
        if not names or not asked or tells_entities(names):
            return
        if cast(TaggingSettings, self.settings).metrics is not None:
            shown = ", ".join(sorted(names)[:SHOWN])
            allowed = f"{', '.join(by_name(None))}: the tags ({shown}) name no entities to score"
            fix = "task.metrics=[accuracy,macro_f1]"
            raise ConfigError("task.metrics", self.metrics, allowed, fix=fix)
        self.metrics = ["accuracy", "macro_f1"]

    def _settle_names(self, examples: Iterable[Example]) -> None:
        """Spell the names of a published model's tags as its examples have them: `B-PER` for its
        `B_PER` or `PER-B`.
        """
        if self.label_names is None:
            return
        known = {tag for example in examples for tag in example.label or ()} - {self.unlabelled}
        spelled = respell(self.label_names)
        if not known <= {*self.label_names} and known <= {*spelled}:
            self.label_names = spelled
            self.splits = replace(self.splits, change=self._spell, streams=False)
        self._fit_metrics()

    def _name_numbers(self, examples: list[Example]) -> list[Example]:
        """`examples` whose tags are numbers with the stated names of these, counted from 0."""
        names = self.label_names
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
        if getattr(self.splits.reader, "scheme", None) == "auto":
            tags, _ = unify(tags, "auto", self.splits.path)
            scheme = detect(tags, self.splits.path)
        return [
            each if each.label is None else replace(each, label=read_as(own.tags, scheme))
            for each, own in zip(examples, tags, strict=True)
        ]

    def _refuse_bare(self, examples: Iterable[Example]) -> None:
        """DataError where tags are types alone, PER, and those of training say where in an entity
        a word is, B-PER, or the other way round.
        """
        names = {*(self.label_names or ())} - {"O"}
        for example in examples:
            own = {*(example.label or ())} - {"O", *names}
            for bare, marked in ((own, names), (names, own)):
                kinds = {tag[2:]: tag for tag in marked if is_marked(tag) and tag[2:]}
                if tag := next((tag for tag in sorted(bare) if tag in kinds), ""):
                    what = f"{tag} is a type alone, and {kinds[tag]} says where in it a word is"
                    where = "the training tags are of the other kind"
                    raise DataError(
                        f"{what}: {where}",
                        file=example.place,
                        fix="task.reader.scheme=io, by which types alone are entities, too",
                    )

    def _spell(self, examples: list[Example]) -> list[Example]:
        """`examples` with their entities in the scheme of the task, or that of training."""
        examples = self._name_numbers(examples)
        self._settle_names(examples)
        self._refuse_bare(examples)
        scheme = self._find_scheme(examples)
        if scheme is None:
            return examples
        spelled = []
        for example in examples:
            tags = example.label
            if tags is not None and {*tags} != {"O"}:
                if not all(tag == "O" or is_marked(tag) for tag in tags):
                    allowed = f"null: the tags at {example.place} ({tags[0]}) name no entities"
                    raise ConfigError("task.scheme", self.scheme, allowed, fix="task.scheme=null")
                tags = spell(entities(tags), len(tags), scheme)
            spelled.append(replace(example, label=tags))
        return spelled

    def _find_scheme(self, examples: Iterable[Example]) -> Spelling | None:
        """The scheme in which to spell the entities; None where they may stay as they are. A split
        has the letters of the known labels, or else of the split that was read first.
        """
        if self.scheme is not None or not hasattr(self.splits.reader, "scheme"):
            return self.scheme
        own = {tag for example in examples for tag in example.label or ()} - {"O"}
        if not tells_entities(own):
            return None
        if self._first is None:
            known = {*(self.label_names or ())} - {"O"}
            self._first = spelling_of(known if tells_entities(known) else own)
        return None if spelling_of(own) == self._first else self._first

    def describe_scoring(self, examples: Sequence[Example]) -> str:
        if not hasattr(
            self.splits.reader, "scheme"
        ):  # one of tags that are of words, as parts of speech
            return ""
        return describe_unmarked(tag for example in examples for tag in example.label or ())

    def labels_of(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        examples = list(examples)
        if self.context == "document" and not any(
            example.document is not None for example in examples
        ):
            raise ConfigError(
                "task.context",
                "document",
                "sentence: neither -DOCSTART- lines nor fields `document` are here",
            )
        if self.words is None and any("source" in example.fields for example in examples):
            self.words = "text"
        if self.joiner is None:
            self.joiner = "" if _of_characters(examples) else " "
        pairs = [
            (tag, example.place)
            for example in examples
            for tag in example.label
            if tag != self.unlabelled
        ]
        if self.label_names is None:
            self.label_names = sorted(
                _close({tag for tag, _ in pairs}), key=lambda tag: (tag != "O", tag[2:], tag)
            )
        label_ids(pairs, self.label_names, learned=not self.states_labels)
        self.splits = replace(self.splits, change=self._spell, streams=False)
        self._fit_metrics()
        if self.crf is not None:
            self._chain.check(examples)
        self.label_loss.fit((tag for tag, _ in pairs), self.label_names)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        laid_out: list[encode.Row] = []
        example_of: list[int] = []
        # row, position of its first piece, pieces, number of the word
        words: list[tuple[int, int, int, int]] = []
        joiner = " " if self.joiner is None else self.joiner
        pieces = [
            word_pieces(example.fields["words"], tokenizer, joiner=joiner) for example in examples
        ]
        for number, own in enumerate(pieces):
            beside = self.find_beside(examples[number], own)
            room = self.max_length - len(beside or ())
            room -= encode.specials(tokenizer.vocab, pair=beside is not None)
            for first, last in windows([min(len(p), room) for p in own], room):
                kept = [piece[:room] for piece in own[first:last]]
                left, right = self._context(
                    number, first, last, examples, pieces, room - sum(map(len, kept))
                )
                ids = [i for piece in (*left, *kept, *right) for i in piece]
                row = encode.lay_out(
                    ids, beside, tokenizer.vocab, max_length=self.max_length, pooling=self.pooling
                )
                starts = row.a_start + np.cumsum([sum(map(len, left)), *map(len, kept)])
                words += [
                    (len(laid_out), int(starts[w]), len(kept[w]), first + w)
                    for w in range(len(kept))
                ]
                laid_out.append(
                    replace(row, cut=sum(map(len, own[first:last])) - sum(map(len, kept)))
                )
                example_of.append(number)
        rows = encode.pad(laid_out, tokenizer.vocab, example=example_of)
        rows = replace(rows, spans={"word": np.array(words, dtype=np.int64)})
        if self.crf is not None:
            sentence = np.array(example_of)
            edges = [np.diff(sentence, prepend=-1) != 0, np.diff(sentence, append=-1) != 0]
            rows = encode.add_values(rows, edges=np.stack(edges, 1).astype(np.int64))
        return self._add_tags(rows, examples)

    def find_beside(self, example: Example, pieces: Pieces) -> list[int] | None:
        """The tokens of a second segment of its rows, or None."""
        return None

    def _context(
        self,
        number: int,
        first: int,
        last: int,
        examples: Sequence[Example],
        pieces: Sequence[Pieces],
        room: int,
    ) -> tuple[Pieces, Pieces]:
        """The words before `first` and from `last` of a sentence on, in its document, that
        `room` more tokens hold.
        """
        document = examples[number].document
        if self.context == "sentence" or document is None:
            return [], []
        before, after = pieces[number][:first], pieces[number][last:]
        neighbour = number - 1
        while neighbour >= 0 and examples[neighbour].document == document and len(before) < room:
            before = [*pieces[neighbour], *before]
            neighbour -= 1
        neighbour = number + 1
        while (
            neighbour < len(examples)
            and examples[neighbour].document == document
            and len(after) < room
        ):
            after = [*after, *pieces[neighbour]]
            neighbour += 1
        return take_context(before, after, room)

    def _add_tags(self, rows: Rows, examples: Sequence[Example]) -> Rows:
        if any(example.label is None for example in examples):
            return rows
        tags = [self._number(example) for example in examples]
        word = rows.spans["word"][:, 3]
        row, column = self._states(rows)
        target = np.full(rows.seqs["text"].ids.shape, IGNORE, dtype=np.int16)
        target[row, column] = [
            tags[e][w] for e, w in zip(rows.values["example"][row], word, strict=True)
        ]
        return rows.with_targets(tag=target)

    def _number(self, example: Example) -> list[int]:
        """The number of each tag of an example."""
        tags = [tag for tag in example.label if tag != self.unlabelled]
        numbers = iter(label_ids(((tag, example.place) for tag in tags), self.names))
        return [IGNORE if tag == self.unlabelled else next(numbers) for tag in example.label]

    def _states(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """(row, position) of the state from which each word is tagged."""
        row, start, _, _ = rows.spans["word"].T
        return row, start

    def attach(self, model: Model) -> None:
        if self.crf is not None:
            self._asked = [find_chain(model.heads["tag"])]

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        self.attach(model)
        return {"tag": model.heads["tag"](features_of(model, batch))}  # [B, T, K]

    def flatten_logits(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        if self.facts.incomparable:
            raise self.facts.incomparable
        target = batch.require("targets.tag")
        return {"tag": (logits["tag"].flatten(0, 1)[target.index], target.ids != IGNORE)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        target = batch.require("targets.tag")
        scores = logits["tag"].flatten(0, 1)[target.index]  # [P, K]
        if self.crf is None:
            total, right = self.label_loss(scores, target.ids, self.label_names)
        else:
            total, right = self._chain.loss(logits["tag"], batch, self._asked[0])
        return Output({"tag": Term(total)}, {"acc/tag": (right, target.count)})

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        row, column = self._states(rows)
        # words stand in the order of examples, windows and words
        scores = torch.from_numpy(logits["tag"][row, column])  # [W, K]
        sizes = np.bincount(rows.values["example"][row], minlength=len(examples)).tolist()
        guesses = (
            [own.argmax(-1).tolist() for own in scores.split(sizes)]
            if self.crf is None
            else self._chain.decode(scores, sizes, self._asked[0])
        )
        return [
            self._mark(e, {**self.describe(e), "guess": [self.names[tag] for tag in guess]})
            for e, guess in zip(examples, guesses, strict=True)
        ]

    def _mark(self, example: Example, prediction: dict[str, Any]) -> dict[str, Any]:
        """A prediction with its entities by their characters, where those of the text are known."""
        if "source" in example.fields:
            text, places = str(example.fields["source"]), example.fields["places"]
            prediction["entities"] = list_marked(prediction["guess"], places, text)
        return prediction

    def describe(self, example: Example) -> dict[str, Any]:
        """The entries of a prediction in addition to the guess."""
        gold = None if example.label is None else list(example.label)
        source = example.fields.get("source")
        text = {} if source is None else {"text": str(source)}
        return {"id": example.id, **text, "words": list(example.fields["words"]), "gold": gold}

    def unit(self, example: Example) -> str:
        if "source" in example.fields:
            return example.bundle or str(example.fields["source"])
        return super().unit(example)

    def texts(self, example: Example) -> list[str]:
        if "source" in example.fields:
            return [str(example.fields["source"])]
        return super().texts(example)

    def explain(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        predictions = self.predict(logits, rows, examples)
        row, column = self._states(rows)
        scores = torch.from_numpy(logits["tag"][row, column]).double()  # [W, K]
        sizes = [len(prediction["guess"]) for prediction in predictions]
        probabilities = (
            scores.softmax(-1).split(sizes)
            if self.crf is None
            else self._chain.weigh(scores, sizes, self._asked[0])
        )
        for prediction, own in zip(predictions, probabilities, strict=True):
            prediction["tag_probabilities"] = own.tolist()
        return predictions

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        flat = [tag for tags in gold for tag in tags], [tag for tags in guess for tag in tags]
        known = metrics.entity_scores(gold, guess)
        of_tags = metrics.by_name(None)
        names = [name for name in self.metrics if name in Tagging.known_metrics]
        known |= {name: metric(*flat) for name, metric in of_tags.items() if name in names}

        def best(name: str) -> float:
            return (
                metrics.constant(of_tags[name], flat[0])
                if name in of_tags
                else metrics.constant_entity_scores(gold)[name]
            )

        return {name: known[name] for name in names} | metrics.floor(names, flat[0], best)


def _of_characters(examples: Sequence[Example]) -> bool:
    """Whether the words are Chinese characters, among which whole numbers and foreign words may
    stand.
    """
    words = [
        len(word)
        for example in examples
        for word in example.fields["words"]
        if CHINESE.search(word)
    ]
    others = sum(len(example.fields["words"]) for example in examples) - len(words)
    return len(words) > others and words.count(1) > 0.95 * len(words)


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
