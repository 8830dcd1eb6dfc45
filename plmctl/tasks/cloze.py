"""Classification as a gap in a text that a masked language model fills: no head is new, so that few
labels teach much.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.heads.base import about_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks import encode
from plmctl.tasks.base import Example, label_ids
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.encode import Row

HEAD = "mlm"
GAP = "mask"
TEXTS = ("text", "text2")
_ASKED = "<a word>"


@dataclass(frozen=True, kw_only=True)
class ClozeSettings(ClassificationSettings):
    """Settings of a cloze.

    Args:
        template: the text that is read: {text}, {text2} of a pair, and once {mask}.
        label_words: {label: the word that stands in the gap for it, or several}; None: the labels
            themselves.
    """

    template: str
    label_words: Mapping[str, str | Sequence[str]] | None = None


@part_of("task")
class Cloze(Classification):
    """Predicts the class of a text by the word in a gap (PET: Schick and Schuetze, 2021,
    arXiv:2001.07676, sec. 3.1; prompt-based fine-tuning, LM-BFF: Gao et al., 2021,
    arXiv:2012.15723, sec. 4).

    `loss = -log softmax_y(s_y)[label]`, `s_y` the mean logit, at the gap, of the words of label y:
    no other word of the vocabulary counts. A label word is one token, as it is read in its place.
    Too long texts are cut, the template never.

    Differs: PET's second loss, masked tokens at 1e-4 of its weight, is left out; so are LM-BFF's
    demonstrations and its search for templates.
    """

    head = HEAD
    asks_tokens = True
    language_heads_about = "text"

    Settings: ClassVar[type[ClassificationSettings]] = ClozeSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own: Any = self.settings
        self.parts = split_template(own.template, self.columns)
        self.label_words = {
            str(label): [words] if isinstance(words, str) else list(words)
            for label, words in (own.label_words or {}).items()
        }
        self.facts = replace(self.facts, heads=frozenset({HEAD}), terms=frozenset({"class"}))
        self._ids: list[list[int]] = []  # of the words of each label, once labels are known

    @property
    def label_name(self) -> str:
        return "class"

    @property
    def outputs(self) -> int:
        return 0  # its head is as it was

    def fit_labels(self, examples: Iterable[Example]) -> None:
        super().fit_labels(examples)
        if not self.label_words:
            self.label_words = {label: [label] for label in self.names}
        self._check_words()

    def _check_words(self) -> None:
        """ConfigError for a label without words of its own."""
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
        """The setting with another word in place of one of a label."""
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

    def check_model(self, model: Model) -> None:
        if about_of(model.heads[HEAD]) != "text":
            allowed = "a model that fills masks; this one predicts the next token"
            raise ConfigError("task", self.name, allowed, fix="task=classification")

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        self._ids = [
            [self._find_id(word, tokenizer) for word in self.label_words[label]]
            for label in self.names
        ]
        laid = [self._lay_out(example, tokenizer) for example in examples]
        rows = encode.pad(laid, tokenizer.vocab, example=range(len(laid)))
        if any(example.label is None for example in examples):
            return rows
        ids = label_ids(((example.label, example.place) for example in examples), self.names)
        return encode.add_labels(rows, {"class": np.array(ids, dtype=np.int64)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        assert batch.anchors is not None
        states = model(batch).gather_anchors(batch.anchors)  # [N, W] at the gaps
        words = model.heads[HEAD](states)  # [N, V]
        return {"class": torch.stack([words[:, ids].mean(1) for ids in self._ids], dim=1)}  # [N, K]

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        return self.loss(self.logits(model, batch), batch)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        labels = batch.require("labels.class")
        total, right = self.label_loss(logits["class"].float(), labels, self.label_names)
        return Output({"class": Term(total)}, {"acc/class": (right, self.counts(batch)["class"])})

    def _lay_out(self, example: Example, tokenizer: Any) -> Row:
        """The row of an example, whose gap is its anchor."""
        vocab = tokenizer.vocab
        texts = {name: example.fields.get(name, "") for name in TEXTS}
        pieces = [
            [vocab.mask]
            if part.name == GAP
            else tokenizer.encode(f"{part.before}{texts[part.name] if part.name else ''}")
            for part in self.parts
        ]
        places = {part.name: place for place, part in enumerate(self.parts) if part.name}
        fixed = sum(len(p) for p, part in zip(pieces, self.parts, strict=True) if not part.is_text)
        room = self.max_length - encode.specials(vocab, pair=False) - fixed
        if room < 1:
            allowed = f"more: the template alone takes {self.max_length - room} tokens"
            raise ConfigError("task.max_length", self.max_length, allowed)
        lengths = [len(pieces[places[name]]) if name in places else 0 for name in TEXTS]
        kept = encode.longest_first(lengths[0], lengths[1], room)
        for name, length in zip(TEXTS, kept, strict=True):
            if name in places:
                pieces[places[name]] = pieces[places[name]][:length]
        ids = [token for piece in pieces for token in piece]
        gap = sum(len(piece) for piece in pieces[: places[GAP]])
        whole = self.max_length
        row = encode.lay_out(ids, None, vocab, max_length=whole, pooling="first")
        return replace(row, anchor=row.a_start + gap, cut=sum(lengths) - sum(kept))

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


@dataclass(frozen=True)
class Piece:
    """A piece of a template: words of its own, a text of the example, or the gap.

    Args:
        before: words, or the space in front of a text or a gap.
        name: of the text, or of the gap; "" of words.
    """

    before: str
    name: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it is cut where a row is too long."""
        return self.name in TEXTS


def spell_words(words: Mapping[str, Sequence[str]]) -> str:
    """`task.label_words` as a shell takes it, with a place for a word where a label has none."""
    several = {label: [*map(_spell, own or [_ASKED])] for label, own in words.items()}
    pairs = (
        f"{label}: {own[0] if len(own) == 1 else '[' + ', '.join(own) + ']'}"
        for label, own in several.items()
    )
    return shlex.quote(f"task.label_words={{{', '.join(pairs)}}}")


def _spell(word: str) -> str:
    """A word as a value of a setting: in quotes where it is no plain word."""
    plain = word == _ASKED or (re.fullmatch(r"[A-Za-z][A-Za-z0-9 ]*", word) and word != "null")
    return word if plain and word.lower() not in ("true", "false") else json.dumps(word)


def spell_template(names: Sequence[str]) -> str:
    """A template with all of `names`, as a shell takes it."""
    texts = " ".join(f"{{{name}}}" for name in names if name != GAP)
    return shlex.quote(f'task.template="{texts} It was {{{GAP}}}."')


def split_template(template: str, columns: Mapping[str, Any]) -> list[Piece]:
    """The pieces of `"{text} It was {mask}."`; a space stands at the begin of the piece behind it,
    as byte-level vocabularies have it.

        >>> split_template("{text} It was {mask}.", {"text": 0})
        [Piece("", "text"), Piece(" It was"), Piece(" ", "mask"), Piece(".")]

    Raises:
        ConfigError: It has no gap or several, or a name that is none of the columns.
    """
    known = [*(name for name in TEXTS if columns.get(name) is not None), GAP]
    found = re.findall(r"\{(\w*)\}", template)
    for name in found:
        if name not in known:
            allowed = f"with {', '.join(f'{{{each}}}' for each in known)}{nearest(name, known)}"
            raise ConfigError("task.template", template, allowed, fix=spell_template(known))
    for name in known:
        if found.count(name) != 1:
            allowed = f"{{{name}}} once; here it is {found.count(name)} times"
            raise ConfigError("task.template", template, allowed, fix=spell_template(known))
    pieces: list[Piece] = []
    space = ""
    for part in filter(None, re.split(r"(\{\w+\})", template)):
        words = part.rstrip()
        if part.startswith("{"):
            pieces.append(Piece(space, part[1:-1]))
            space = ""
        else:
            if words:
                pieces.append(Piece(f"{space}{words}"))
            space = part[len(words) :]
    return pieces
