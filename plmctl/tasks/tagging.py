"""One tag for each word of a sentence: CoNLL-2003 names, and any column file of tagged words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from plmctl.batch import IGNORE, Batch, Rows
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks import encode, metrics
from plmctl.tasks.base import Example, Reader, Task, label_ids


class Tagging(Task):
    """Asks for the tag of each word at its first piece, the other pieces are not asked (Devlin et al., 2019, sec. 5.3).

    `loss = -log softmax(head(h_first))[tag]`, averaged over words. A sentence longer than a row is split into windows at word
    boundaries, so that every word is tagged. `joiner` stands between words in the text that is tokenized ("" for Chinese).
    Differs: no document context around the sentence (the paper's packing was never released), no CRF.
    """

    head = "tag"
    needs = frozenset({"text", "targets.tag"})

    def __init__(
        self, *, name: str, reader: Reader, columns: Mapping[str, Any], max_length: int, metrics: Sequence[str],
        label_names: Sequence[str] | None = None, joiner: str = " ", pooling: str = "first", path: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            name=name, reader=reader, columns=columns, max_length=max_length, metrics=metrics, label_names=label_names,
            submission=None, pooling=pooling, path=path,
        )  # fmt: skip
        self.joiner = joiner

    def parse(self, line: str, number: int) -> Example:
        """Words separated by spaces; without spaces and with `joiner=""`, every character is a word."""
        words = line.split()
        words = list(words[0]) if self.joiner == "" and len(words) == 1 else words
        return Example(id=str(number - 1), fields={"words": words or [""]}, place=f"line {number}")

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pairs = [(tag, example.place) for example in examples for tag in example.label]
        if self.label_names is None:
            self.label_names = sorted(_closed({tag for tag, _ in pairs}), key=lambda tag: (tag != "O", tag[2:], tag))
        label_ids(pairs, self.label_names)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        room = self.max_length - encode.specials(tokenizer.vocab, pair=False)
        laid: list[encode.Row] = []
        example_of: list[int] = []
        words: list[tuple[int, int, int, int]] = []  # row, position of its first piece, pieces, number of the word
        for number, example in enumerate(examples):
            pieces = word_pieces(example.fields["words"], tokenizer, joiner=self.joiner)
            for first, last in windows([min(len(p), room) for p in pieces], room):
                kept = [piece[:room] for piece in pieces[first:last]]
                row = encode.lay_out(
                    [i for piece in kept for i in piece],
                    None,
                    tokenizer.vocab,
                    max_length=self.max_length,
                    pooling=self.pooling,
                )
                starts = row.a_start + np.cumsum([0, *map(len, kept)])
                words += [(len(laid), int(starts[w]), len(kept[w]), first + w) for w in range(len(kept))]
                laid.append(replace(row, cut=sum(map(len, pieces[first:last])) - sum(map(len, kept))))
                example_of.append(number)
        rows = encode.pad(laid, tokenizer.vocab, example=example_of)
        return self._with_tags(replace(rows, spans={"word": np.array(words, dtype=np.int64)}), examples)

    def _with_tags(self, rows: Rows, examples: Sequence[Example]) -> Rows:
        if any(example.label is None for example in examples):
            return rows
        tags = [label_ids(((tag, e.place) for tag in e.label), self.names) for e in examples]
        row, start, _, word = rows.spans["word"].T
        target = np.full(rows.seqs["text"].ids.shape, IGNORE, dtype=np.int16)
        target[row, start] = [tags[e][w] for e, w in zip(rows.values["example"][row], word, strict=True)]
        return rows.with_targets(tag=target)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"tag": model.heads["tag"](model(batch).last)}  # [B, T, K]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        target = batch.require("targets.tag")
        found = logits["tag"].flatten(0, 1)[target.index].float()  # [P, K]
        right = (found.argmax(-1) == target.ids).sum()
        total = F.cross_entropy(found, target.ids, ignore_index=IGNORE, reduction="sum")
        return Output({"tag": Term(total)}, {"acc/tag": (right, target.count)})

    def predict(self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]) -> list[dict[str, Any]]:
        row, start, _, _ = rows.spans["word"].T
        guesses = logits["tag"][row, start].argmax(-1)  # words stand in the order of examples, windows and words
        found: list[list[str]] = [[] for _ in examples]
        for e, guess in zip(rows.values["example"][row].tolist(), guesses.tolist(), strict=True):
            found[e].append(self.names[guess])
        return [
            {"id": e.id, "words": list(e.fields["words"]), "gold": None if e.label is None else list(e.label), "guess": guess}
            for e, guess in zip(examples, found, strict=True)
        ]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        flat = [tag for tags in gold for tag in tags], [tag for tags in guess for tag in tags]
        known = metrics.entity_scores(gold, guess)
        known |= {name: metric(*flat) for name, metric in metrics.by_name(None).items() if name in self.metrics}
        return {name: known[name] for name in self.metrics} | {"majority": metrics.majority(flat[0])}


def _closed(tags: set[str]) -> set[str]:
    """With every prefix (B-, I-, ...) of every type: a rare I- may be missing from training while its B- is there."""
    entity = {tag for tag in tags if tag[1:2] == "-"}
    return tags | {prefix + kind for prefix in {tag[:2] for tag in entity} for kind in {tag[2:] for tag in entity}}


def windows(lengths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Consecutive [first, last) runs of words whose pieces fit into `room`, as few as filling each in turn needs."""
    found: list[tuple[int, int]] = []
    first = used = 0
    for place, length in enumerate(lengths):
        if used + length > room and place > first:
            found.append((first, place))
            first, used = place, 0
        used += length
    return [*found, (first, len(lengths))]


def word_pieces(words: Sequence[str], tokenizer: Any, *, joiner: str) -> list[list[int]]:
    """The pieces of each word, at least one a word, tokenized as part of the sentence.

    A piece belongs to the word in which its first visible character lies. Where a piece spans two words (so that one of them
    would have none), the words of that sentence are tokenized one by one.
    """
    text = joiner.join(words)
    begins = np.cumsum([0, *(len(word) + len(joiner) for word in words[:-1])])
    ends = begins + [len(word) for word in words]
    ids, offsets = tokenizer.encode_offsets(text)
    found: list[list[int]] = [[] for _ in words]
    clean = True
    for token, (start, end) in zip(ids, offsets, strict=True):
        while start < end and text[start].isspace():
            start += 1
        word = min(max(int(np.searchsorted(begins, start, side="right")) - 1, 0), len(words) - 1)
        clean &= end <= ends[word] or not text[ends[word] : end].strip()
        found[word].append(token)
    if clean and all(found):
        return found
    unknown = tokenizer.vocab.unk if tokenizer.vocab.unk is not None else tokenizer.vocab.pad
    return [tokenizer.encode(joiner + word if place and joiner else word) or [unknown] for place, word in enumerate(words)]
