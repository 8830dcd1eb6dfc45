"""Soft prompts: learned vectors before the input, as if they were tokens (Lester et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor, nn

from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.nn.peft.base import LONGEST, Method, check_size
from plmctl.nn.starting import FitsIn, Starting

Beginning = Literal["vocabulary", "random"]
COMMON = 5000  # tokens that first vectors are drawn from (sec. 3.2)


class LearnedPrompt(Starting, FitsIn):
    """`vectors` [P, E], which stand before the token vectors of a row."""

    def __init__(
        self, *, table: nn.Module, width: int, length: int, from_table: bool, bound: float
    ) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(length, width))
        self.bound, self.from_table = bound, from_table
        self.ids: Tensor | None = None  # [P] tokens whose vectors it begins with
        self._table = (table,)  # not a part of this one

    @property
    def length(self) -> int:
        """P."""
        return len(self.vectors)

    def start(self, generator: Generator) -> None:
        nn.init.uniform_(self.vectors, -self.bound, self.bound, generator=generator)
        if self.from_table:
            size = getattr(self._table[0], "vocab_size", self._table[0].num_embeddings)
            most = min(COMMON, int(size))  # type: ignore[arg-type]
            self.ids = torch.randint(most, (self.length,), generator=generator)

    @torch.no_grad()
    def fit_in(self) -> None:
        if self.ids is not None:
            self.vectors.copy_(self._table[0](self.ids.to(self.vectors.device)))

    def extend(self, seq: Seq) -> Seq:
        """`seq` with P more tokens at its beginning, as real as the others and without marks."""
        tracks = {name: self._lead(name, track) for name, track in seq.tracks.items()}
        first = seq.ids[:, :1].expand(-1, self.length, *seq.ids.shape[2:])
        ids = torch.cat([first, seq.ids], 1)
        return replace(seq, ids=ids, length=seq.length + self.length, tracks=tracks)

    def before(self, vectors: Tensor) -> Tensor:
        """[B, T, E] -> [B, P + T, E]."""
        own = self.vectors.to(vectors.dtype).expand(vectors.shape[0], -1, -1)
        return torch.cat([own, vectors], 1)

    def _lead(self, name: str, track: Tensor) -> Tensor:
        """[B, P + T] a track from the first token of the prompt on."""
        lead = torch.zeros_like(track[:, :1]).expand(-1, self.length, *track.shape[2:])
        if name == "real":
            lead = torch.ones_like(lead)
        if name == "document":
            lead = lead + track[:, :1]
        if name == "position":  # tokens stand behind all of it
            places = torch.arange(self.length, device=track.device, dtype=track.dtype)
            return torch.cat([lead + places, track + self.length], 1)
        return torch.cat([lead, track], 1)


@part_of("peft")
class PromptTuning(Method):
    """P learned vectors precede the input, as if they were tokens, and nothing else is added
    (Lester et al., 2021, arXiv:2104.08691, sec. 2; P-tuning v1 without its network: Liu et al.,
    2021, arXiv:2103.10385).

    Tokens stand behind it, at positions from P on; states of the prompt are left out of the result.
    In an encoder-decoder the encoder has the prompt, and the decoder reads its states. Differs:
    vectors of the vocabulary are drawn from the first 5,000 ids, not from the 5,000 most frequent
    tokens of the corpus.

    Args:
        length: P.
        first: the vectors at first: of tokens of the "vocabulary", or "random", U(-bound, bound).
        text: The text whose tokens give the first vectors, repeated from the beginning if it is
            short (labels: sec. 3.2); None: `first` decides.
        bound: The bound of random vectors.
    """

    mark = "prompt"

    def __init__(
        self,
        *,
        length: Count,
        first: str = "vocabulary",
        text: str | None = None,
        bound: Amount = 0.5,
    ) -> None:
        known = get_args(Beginning)
        if first not in known:
            raise ConfigError("first", first, f"one of {', '.join(known)}{nearest(first, known)}")
        self.length, self.first, self.text, self.bound = length, first, text, bound
        self.places = length

    def add_to(self, model: nn.Module) -> None:
        reader: Any = getattr(model, "prompt_reader", None)
        if reader is None:
            what = type(model).__name__
            allowed = f"for models that read one row of tokens by one stack, which {what} does not"
            raise ConfigError("length", self.length, allowed, fix="peft=[lora]")
        if reader.prompt is not None:
            raise ConfigError("peft", self.mark, "once: two parts of a method would have one name")
        longest = reader.max_length
        why = "a prompt that a row is still read fast with"
        if longest is not None:
            why = f"below the {longest} positions of this model"
        check_size("length", self.length, LONGEST if longest is None else longest - 1, why)
        reader.prompt = LearnedPrompt(
            table=reader.token_embedding,
            width=reader.embedding.table_width,
            length=self.length,
            from_table=self.first == "vocabulary" and self.text is None,
            bound=self.bound,
        )

    def prepare(self, model: nn.Module, tokenizer: Any) -> None:
        if self.text is None:
            return
        ids: Sequence[int] = tokenizer.encode(self.text)
        if not ids:
            raise ConfigError("peft.prompt.text", self.text, "a text that has tokens")
        reader: Any = model.prompt_reader
        places = torch.arange(self.length) % len(ids)
        reader.prompt.ids = torch.tensor(ids)[places]

    def check_folding(self) -> None:
        raise self.refuse_folding("vectors that it puts before the tokens of a row, in no table")
