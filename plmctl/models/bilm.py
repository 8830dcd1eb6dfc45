"""ELMo's bidirectional language model (Peters et al., 2018): words from characters, a stack of
LSTMs in each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.core.values import DropoutRate
from plmctl.models.base import Backbone, Hidden
from plmctl.models.encoder import Initializer
from plmctl.nn.char_cnn import CharCNN
from plmctl.nn.dropout import Dropout
from plmctl.nn.lstm import ProjectedLSTM, State
from plmctl.nn.recorder import NONE, Record

if TYPE_CHECKING:
    from plmctl.text.vocab import Vocab

CHARACTERS = 50  # characters of a row
Memory = tuple[Tensor, Tensor]  # h [B, 2 L, W / 2] and c [B, 2 L, H], the forward layers first


@part_of("model")
class BiLM(Backbone):
    """`last = [forward; backward]`: the words of `text`, read from both ends by two stacks of LSTMs
    that share the word vectors.

    x = words(characters) [B, T, W / 2]; layer 1 reads dropout(x), each further one
    `LSTM(dropout(y)) + dropout(y)`. Layers have `hidden_width` cells and W / 2 outputs.
    `record={"hidden"}`: [x; x], then [forward; backward] of each layer. (Peters et al., 2018,
    arXiv:1802.05365, sec. 3.1 and 3.4; allenai/bilm-tf training.py, model.py.)

    The characters of a word are those of the sequence `characters` where a batch has one (so every
    word of new text is spelled), else those of its id in the vocabulary. With `one_boundary`, bos
    is spelled as eos: the stream of training has a single token between two texts.

    `streams["forward"]` and `["backward"]` are the states [B, T, W / 2] that a softmax reads, after
    dropout. If a batch has a sequence `reverse`, the backward stack reads it as it is. Its half of
    `last`, `recorded` and `streams` then has the positions of `reverse`. With a state (training),
    rows that continue start from the memory of their row of the batch before; without one every row
    starts with empty memory, and so does each document of a packed row.
    """

    token_embedding = None  # type: ignore[assignment]  # words have no table
    fields: Mapping[str, Field] = {
        "characters": Field("[n, T, C]", "Seq", "the C characters of each word of `text` (ELMo)")
    }
    streams = frozenset({"forward", "backward"})
    writes = ""  # nothing: half of every state has read later tokens

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        num_layers: int,
        words: Callable[..., CharCNN],
        hidden_width: int,
        dropout: DropoutRate,
        clip: float | None,
        skip: bool,
        one_boundary: bool,
        vocab: Vocab | None = None,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError("size.width", width, "an even number: half of it for each direction")
        self.width = width
        self.num_layers = num_layers
        self.hidden_width = hidden_width
        self.skip = skip
        self.max_length = None
        self.words = words(width=width // 2)
        shape: dict[str, Any] = {
            "width": width // 2,
            "projected_width": width // 2,
            "hidden_width": hidden_width,
            "clip": clip,
        }

        def stack() -> nn.ModuleList:
            return nn.ModuleList(ProjectedLSTM(**shape) for _ in range(num_layers))

        self.forwards, self.backwards = stack(), stack()
        self.dropout = Dropout(rate=dropout)
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.register_buffer("spellings", _spell(vocab, vocab_size, one_boundary), persistent=False)
        self.one_boundary = one_boundary

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """A new tokenizer that cuts words; a trained one is checked when it is read."""
        if around.tokenizer not in (None, "word"):
            allowed = "word: this model reads the characters of whole words"
            yield ConfigError("tokenizer", around.tokenizer, allowed, fix="tokenizer=word")

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        """[B, T, W / 2] the words of `text`, or [2, B, T, W / 2] of `text` and `reverse`."""
        if "characters" in batch.seqs:
            return self._embed_words(batch.seqs["characters"].ids)
        reverse = batch.seqs.get("reverse")
        return self._look_up(
            batch.text.ids if reverse is None else torch.stack([batch.text.ids, reverse.ids])
        )

    def _look_up(self, ids: Tensor) -> Tensor:
        """Compute each different word once; not on a GPU, where finding them would wait for the
        device.
        """
        if ids.device.type != "cpu" or torch.compiler.is_compiling():
            return self._embed_words(self.spellings[ids])  # type: ignore[index]
        different, index = ids.unique(return_inverse=True)
        characters = self.spellings[different]  # type: ignore[index]
        return nn.functional.embedding(index, self.words(characters))

    def _embed_words(self, characters: Tensor) -> Tensor:
        flat = characters.flatten(0, -2)
        if flat.device.type != "cpu" or torch.compiler.is_compiling():
            return self.words(flat).unflatten(0, characters.shape[:-1])
        different, index = flat.unique(dim=0, return_inverse=True)
        return nn.functional.embedding(index.view(characters.shape[:-1]), self.words(different))

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        words, reverse_words = (x[0], x[1]) if x.dim() == 4 else (x, None)
        memory = self._memory(batch, state, words)
        forward_order = _ReadingOrder.of(batch.text, reversed_=False)
        backward_order = (
            _ReadingOrder.of(batch.text, reversed_=True)
            if reverse_words is None
            else _ReadingOrder.of(batch.seqs["reverse"], reversed_=False)
        )
        layers = self.num_layers
        left, left_state = self._stack(
            self.forwards, words, forward_order, [part[:, :layers] for part in memory]
        )
        right, right_state = self._stack(
            self.backwards,
            words if reverse_words is None else reverse_words,
            backward_order,
            [part[:, layers:] for part in memory],
        )
        hidden = [torch.cat(pair, -1) for pair in zip(left, right, strict=True)]
        return Hidden(
            hidden[-1],
            streams={"forward": self.dropout(left[-1]), "backward": self.dropout(right[-1])},
            recorded={"hidden": hidden} if "hidden" in record else {},
            state=(
                None
                if state is None
                else tuple(torch.cat(pair, 1) for pair in zip(left_state, right_state, strict=True))
            ),
        )

    def _stack(
        self, lstms: nn.ModuleList, x: Tensor, reading: _ReadingOrder, memory: Sequence[Tensor]
    ) -> tuple[list[Tensor], Memory]:
        """(x and the output of each layer at the positions of the text, the memory after the last
        token).
        """
        y, outputs, states = reading.apply(x), [x], list[State]()
        for number, lstm in enumerate(lstms):
            dropped = self.dropout(y)
            y, after = lstm(
                dropped,
                (memory[0][:, number], memory[1][:, number]),
                keep=reading.keep,
                real=reading.real,
            )
            y = y + dropped if self.skip and number else y
            y = y if reading.real is None else y * reading.real[..., None]
            outputs.append(reading.undo(y))
            states.append(after)
        return outputs, (
            torch.stack([h for h, _ in states], 1),
            torch.stack([c for _, c in states], 1),
        )

    def _memory(self, batch: Batch, state: Any, like: Tensor) -> Memory:
        """The memory at the beginning: the state in rows that continue, zeros elsewhere."""
        empty = self.fresh_state(len(like), like.device)
        continues = batch.values.get("continues")
        if state is None or continues is None:
            return empty
        h, c = (part * continues[:, None, None] for part in state)
        return (h, c) if "reverse" in batch.seqs else self._forward_only(h, c)

    def _forward_only(self, h: Tensor, c: Tensor) -> Memory:
        """The memory without the backward half: without a sequence `reverse`, the backward stack
        begins at the end of the row with empty memory.
        """
        layers = self.num_layers
        h, c = (
            torch.cat([part[:, :layers], torch.zeros_like(part[:, layers:])], 1) for part in (h, c)
        )
        return h, c

    def fresh_state(self, rows: int, device: torch.device, memory: int | None = None) -> Memory:
        kind = self.words.projection.weight.dtype
        h, c = (
            torch.zeros(rows, 2 * self.num_layers, width, device=device, dtype=kind)
            for width in (self.width // 2, self.hidden_width)
        )
        return h, c


class _ReadingOrder:
    """The order in which an LSTM reads the tokens of rows: the real ones first, from left to right
    or (`reversed_`) from the end.
    """

    def __init__(self, order: Tensor | None, real: Tensor | None, keep: Tensor | None) -> None:
        self.order, self.real, self.keep = order, real, keep

    @classmethod
    def of(cls, seq: Seq, *, reversed_: bool) -> _ReadingOrder:
        """The order for `seq`; order, mask or restart are None if they are not needed."""
        position = torch.arange(seq.ids.shape[1], device=seq.ids.device)
        order, real = position.expand(seq.ids.shape), None
        if not seq.full:
            order = (~seq.real).byte().argsort(dim=1, stable=True)
            count = seq.real.sum(1)[:, None]
            real = position < count
        if reversed_:
            last = (
                count - 1 - position
                if real is not None
                else len(position) - 1 - position.expand(order.shape)
            )
            order = order.gather(1, last if real is None else torch.where(real, last, position))
        keep = None
        if "document" in seq.tracks:
            document = seq.tracks["document"].gather(1, order)
            keep = torch.cat(
                [
                    torch.ones_like(order[:, :1], dtype=torch.bool),
                    document[:, 1:] == document[:, :-1],
                ],
                1,
            )
        plain = not reversed_ and (seq.full or "real" not in seq.tracks)
        return cls(None if plain else order, real, keep)

    def apply(self, x: Tensor) -> Tensor:
        return x if self.order is None else x.gather(1, self.order[..., None].expand_as(x))

    def undo(self, y: Tensor) -> Tensor:
        """The inverse of `apply`."""
        return (
            y
            if self.order is None
            else torch.zeros_like(y).scatter(1, self.order[..., None].expand_as(y), y)
        )


def _spell(vocab: Vocab | None, vocab_size: int, one_boundary: bool) -> Tensor:
    """[V, C] the characters of each id, zeros without a vocabulary."""
    if vocab is None:
        return torch.zeros(vocab_size, CHARACTERS, dtype=torch.int16)
    if not vocab.spellings:
        allowed = "complete words, whose characters a biLM reads"
        raise ConfigError("tokenizer", "pieces of words", allowed, fix="tokenizer=word")
    characters = torch.from_numpy(vocab.characters())
    if one_boundary and vocab.bos is not None and vocab.eos is not None:
        characters[vocab.bos] = characters[vocab.eos]
    return characters.to(torch.get_default_device())
