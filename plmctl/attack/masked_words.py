"""WordCandidates that a masked language model predicts (Garg and Ramakrishnan, 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.attack.base import Place, WordCandidates
from plmctl.attack.word_text import WordText
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.fill import fill
from plmctl.heads.base import heads_about
from plmctl.models.base import Model
from plmctl.tasks.layouts import encode
from plmctl.text.letters import is_word
from plmctl.text.tokenizer import Tokenizer

_ROOM = 512  # tokens of a row, where the model itself has no bound


@part_of("attack_candidates")
class MaskedWords(WordCandidates):
    """The complete words among the `count` likeliest tokens at a mask that replaces the word
    (BAE-R: Garg and Ramakrishnan, 2020, arXiv:2004.01970, sec. 3).

    Args:
        count: The number of candidates of a position.
        writer: a masked language model with its head.
        writer_tokenizer: its own.
        batch_size: texts that it reads at once.
    """

    def __init__(
        self, *, count: int, writer: Model, writer_tokenizer: Tokenizer, batch_size: int = 64
    ) -> None:
        self.count, self.model, self.tokenizer = count, writer, writer_tokenizer
        self.batch_size = batch_size
        if not heads_about(writer, "text") or writer_tokenizer.vocab.mask is None:
            allowed = "a model with a head that predicts masked tokens"
            fix = "writer=<a run of bert or the like>"
            raise ConfigError("writer", None, allowed, fix=fix)

    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        rows = [self._lay_out(*place) for place in places]
        order = sorted(range(len(rows)), key=lambda n: len(rows[n].ids))
        found: list[list[str]] = [[] for _ in rows]
        vocab, device = self.tokenizer.vocab, next(self.model.parameters()).device
        for start in range(0, len(order), self.batch_size):
            some = order[start : start + self.batch_size]
            padded = encode.pad([rows[n] for n in some], vocab, example=range(len(some)))
            batch, top = collate(padded, {}).to(device), min(self.count, vocab.size)
            filled = fill(self.model, batch, mask=vocab.id("mask"), top=top, size=vocab.size)
            for n, masks in zip(some, filled, strict=True):
                found[n] = self._choose(places[n], [token for token, _ in masks[0]])
        return found

    def _choose(self, place: Place, tokens: Sequence[int]) -> list[str]:
        vocab, own = self.tokenizer.vocab, place[0].word(place[1])
        whole = [i for i in tokens if vocab.word_start[i] and not vocab.special[i]]
        words = [self.tokenizer.decode([i]).strip() for i in whole]
        words = [word.title() if own.istitle() else word for word in words]
        return [word for word in words if is_word(word) and word.lower() != own.lower()]

    def _lay_out(self, text: WordText, number: int) -> encode.Row:
        """The text with a mask; of a long one what is around it."""
        vocab, limit = self.tokenizer.vocab, self.model.backbone.max_length or _ROOM
        at = text.places[number]
        before, after = ("".join(part) for part in (text.pieces[:at], text.pieces[at + 1 :]))
        left, right = (list(self.tokenizer.encode(part)) for part in (before, after))
        room = limit - encode.specials(vocab, pair=False) - 1
        kept = max(room // 2, room - len(right))
        left = left[max(0, len(left) - kept) :]
        ids = [*left, vocab.id("mask"), *right[: room - len(left)]]
        return encode.lay_out(ids, None, vocab, max_length=limit, pooling="first")
