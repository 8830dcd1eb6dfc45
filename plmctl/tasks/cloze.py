"""Classification as a gap in a text that a masked language model fills: no head is new, so that few
labels teach much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Share, Whole
from plmctl.heads.base import about_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.demonstrations import Demonstrations
from plmctl.tasks.layouts.encode import Row
from plmctl.tasks.layouts.templates import GAP, Piece, fill_template, split_template
from plmctl.tasks.record import Arrays, Example, Examples
from plmctl.tasks.task import need

HEAD = "mlm"
_ASKED = "<a word>"


@dataclass(frozen=True, kw_only=True)
class ClozeSettings(ClassificationSettings):
    """Settings of a cloze.

    Args:
        template: the text that is read: {text}, {text2} of a pair, and once {mask}.
        label_words: {label: the word that stands in the gap for it, or several}; None: the labels
            themselves.
        demonstrations: sets of training examples that are shown behind a text; 0: none.
        demonstration_share: The share of the training examples of a class, the nearest to the text,
            from which one is drawn.
        demonstration_seed: The seed of the demonstrations.
    """

    template: str
    label_words: Mapping[str, str | Sequence[str]] | None = None
    demonstrations: Whole = 0
    demonstration_share: Share = 1.0
    demonstration_seed: int = 0


@part_of("task")
class Cloze(Classification):
    """Predicts the class of a text by the word in a gap (PET: Schick and Schuetze, 2021,
    arXiv:2001.07676, sec. 3.1; prompt-based fine-tuning, LM-BFF: Gao et al., 2021,
    arXiv:2012.15723, sec. 4).

    `loss = -log softmax_y(s_y)[label]`, `s_y` the mean logit, at the gap, of the words of label y:
    no other word of the vocabulary counts. A label word is one token, in the spelling that fits the
    gap. Too long texts are cut, the template never.

    With demonstrations a row is `T(x) [SEP] T'(x_1) [SEP] ... T'(x_K)`, T' the template with a word
    of the label in its gap, x_k a training example of class k (LM-BFF, sec. 6.1); an example makes
    a row for each set, all of them are learned, and the mean of their scores is its prediction.

    Differs: PET's second loss, masked tokens at 1e-4 of its weight, is left out; so is LM-BFF's
    search for templates. A text keeps its sets, where LM-BFF draws one anew in each update.
    """

    facts = replace(Classification.facts, head=HEAD, own_label="class", outputs=0)
    requires = ModelNeeds(reads_ids=True, heads_about="text")

    Settings: ClassVar[type[ClassificationSettings]] = ClozeSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own: Any = self.settings
        self.parts = split_template(own.template, self.columns)
        self.label_words = {
            str(label): [words] if isinstance(words, str) else list(words)
            for label, words in (own.label_words or {}).items()
        }
        self.facts = replace(
            self.facts,
            heads=frozenset({HEAD}),
            terms=frozenset({"class"}),
            shows_train=own.demonstrations > 0,
        )
        self.shown = own.demonstrations
        self._ids: list[list[int]] = []  # the ids of the words of each label, once labels are known
        self._pool: Demonstrations | None = None

    def fit_labels(self, examples: Iterable[Example]) -> None:
        super().fit_labels(examples)
        self._check_words()

    def _check_words(self) -> None:
        """ConfigError for a label without words of its own; without any, a label is its word."""
        if not self.label_words:
            self.label_words = {label: [label] for label in self.names}
        fix = spell_words({name: self.label_words.get(name, []) for name in self.names})
        known: dict[str, str] = {}
        for label in self.names:
            if label not in self.label_words:
                allowed = f"a word for each label; '{label}' has none"
                allowed += nearest(label, self.label_words)
                raise ConfigError("task.label_words", dict(self.label_words), allowed, fix=fix)
            for word in self.label_words[label]:
                if known.setdefault(word, label) != label:
                    allowed = f"other words for each label; '{word}' is that of two"
                    fix = self._spell_without(label, word)
                    raise ConfigError("task.label_words", dict(self.label_words), allowed, fix=fix)

    def _spell_without(self, label: str, word: str) -> str:
        """The setting in which a placeholder replaces one word of a label."""
        own = [_ASKED if each == word else each for each in self.label_words[label]]
        return spell_words({**self.label_words, label: own})

    def check_tokenizer(self, tokenizer: Any) -> None:
        if tokenizer.vocab.mask is None:
            allowed = "a tokenizer with a mask: the gap is one"
            fix = "checkpoint=<a masked language model>"
            raise ConfigError("task", self.name, allowed, fix=fix)
        for words in self.label_words.values():
            for word in words:
                self._find_id(word, tokenizer)

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        if about_of(model.heads[HEAD]) != "text":
            allowed = "a model that fills masks; this one predicts the next token"
            raise ConfigError("task", self.name, allowed, fix="task=classification")

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        self._check_words()
        self._ids = [
            [self._find_id(word, tokenizer) for word in self.label_words[label]]
            for label in self.names
        ]
        sets = [self._draw(example) for example in examples]
        laid = [
            self._lay_out(example, tokenizer, shown)
            for example, own in zip(examples, sets, strict=True)
            for shown in own
        ]
        each = [n for n, own in enumerate(sets) for _ in own]
        rows = encode.pad(laid, tokenizer.vocab, example=each)
        return need(self.answer).label(rows, [examples[n] for n in each], self.names)

    def _draw(self, example: Example) -> list[list[Example]]:
        """The sets of demonstrations of an example; a single empty set without demonstrations."""
        if not self.shown:
            return [[]]
        if self._pool is None:
            if self.splits.path is None or not self.splits.has("train"):
                allowed = "the training examples, of which some are shown behind each text"
                raise DataError(
                    f"no examples have the labels {allowed}", file=self.splits.path or "task.path"
                )
            pool = self.read("train")
            own: Any = self.settings
            share, seed = own.demonstration_share, own.demonstration_seed
            self._pool = Demonstrations(pool, self.names, similar=share, seed=seed)
        return self._pool.draw(example, self.shown)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        own, first = logits["class"], encode.firsts(rows)  # [n, K], as many rows for each example
        mean = own.reshape(len(first), -1, own.shape[-1]).mean(1)
        means = own.copy()
        means[first] = mean
        return super().predict({"class": means}, rows, examples)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        assert batch.anchors is not None
        states = model(batch).gather_anchors(batch.anchors)  # [N, W] at the gaps
        words = model.heads[HEAD](states)  # [N, V]
        return {"class": torch.stack([words[:, ids].mean(1) for ids in self._ids], dim=1)}  # [N, K]

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        return self.loss(self.logits(model, batch), batch)

    def _lay_out(self, example: Example, tokenizer: Any, shown: Examples) -> Row:
        """The row of an example and of the demonstrations behind it; its gap is its anchor."""
        vocab = tokenizer.vocab
        own = fill_template(self.parts, example, tokenizer, vocab.mask)
        others = [
            fill_template(
                self.parts, other, tokenizer, self._ids[self.names.index(str(other.label))][0]
            )
            for other in shown
        ]
        fixed = sum(len(each.ids) - each.words for each in (own, *others)) + len(others)
        room = self.max_length - encode.specials(vocab, pair=False) - fixed
        if room < 1 + len(others):
            what = f"the template with {len(others)} demonstrations" if others else "the template"
            allowed = f"more: {what} alone takes {self.max_length - room} tokens"
            raise ConfigError("task.max_length", self.max_length, allowed)
        part = room // (1 + len(others))
        room -= sum(other.cut(part) for other in others)  # the text has what is left
        words = own.words
        kept = own.cut(room)
        separator = vocab.sep if vocab.sep is not None else vocab.eos
        ids = [*own.ids, *(token for other in others for token in (separator, *other.ids))]
        row = encode.lay_out(ids, None, vocab, max_length=self.max_length, pooling="first")
        return replace(row, anchor=row.a_start + own.gap, cut=words - kept)

    def _find_id(self, word: str, tokenizer: Any) -> int:
        """The token of a label word in the gap."""
        place = next(place for place, part in enumerate(self.parts) if part.name == GAP)
        before = self.parts[place].before
        left = self.parts[place - 1] if place else Piece("")  # tokens differ within a text
        last = "a" if left.name else left.before[-1:]
        start = tokenizer.encode(last)
        ids = tokenizer.encode(f"{last}{before}{word}")
        own = ids[len(start) :] if ids[: len(start)] == start else ids
        if len(own) != 1 or own[0] == tokenizer.vocab.unk:
            pieces = "unknown" if own == [tokenizer.vocab.unk] else f"{len(own)} tokens"
            allowed = f"words that are one token of this vocabulary; '{word}' is {pieces}"
            label = next(name for name, words in self.label_words.items() if word in words)
            fix = self._spell_without(label, word)
            raise ConfigError("task.label_words", word, allowed, fix=fix)
        return own[0]


def spell_words(words: Mapping[str, Sequence[str]]) -> str:
    """`task.label_words` in the spelling of a shell, with a placeholder for a label without
    words.
    """
    several = {label: [*own] or [_ASKED] for label, own in words.items()}
    pairs = {label: own[0] if len(own) == 1 else own for label, own in several.items()}
    return spell_setting("task.label_words", pairs)
