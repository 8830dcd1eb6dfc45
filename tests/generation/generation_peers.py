"""Random published models beside plmctl's with the same weights, in float64, and what each of
them writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.search import Hypothesis, Search
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY
from plmctl.text.vocab import Vocab

SIZE, PAD, START, PLACES, NEW = 24, 1, 2, 24, 10


def beam(alpha: float = 1.0, early: Any = False, **more: Any) -> Beam:
    return Beam(**{"width": 4, "count": 4} | more, alpha=alpha, penalty="length", early=early)


# name -> (our search, what transformers calls it)
SETTINGS: dict[str, tuple[Search, dict[str, Any]]] = {
    "greedy": (Greedy(), {}),
    "greedy, no bigram twice": (Greedy(no_repeat_ngram=2), {"no_repeat_ngram_size": 2}),
    "greedy, at least 6": (Greedy(min_length=6), {"min_new_tokens": 6}),
    "beam 4": (beam(), {"num_beams": 4}),
    "beam 4, length 0": (beam(0.0), {"num_beams": 4, "length_penalty": 0.0}),
    "beam 4, length 2": (beam(2.0), {"num_beams": 4, "length_penalty": 2.0}),
    "beam 4, length -1": (beam(-1.0), {"num_beams": 4, "length_penalty": -1.0}),
    "beam 4, early": (beam(1.0, True), {"num_beams": 4, "early_stopping": True}),
    "beam 4, never": (
        beam(0.6, "never"),
        {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
    ),
    "beam 4, no trigram twice": (
        beam(no_repeat_ngram=3),
        {"num_beams": 4, "no_repeat_ngram_size": 3},
    ),
    "beam 4, at least 5": (
        beam(0.6, min_length=5),
        {"num_beams": 4, "length_penalty": 0.6, "min_new_tokens": 5},
    ),
    # of decoders alone with a first token
    "beam 4, first 7": (beam(first=7), {"num_beams": 4, "forced_bos_token_id": 7}),
    "greedy, all rules": (
        Greedy(repetition_penalty=1.4, excluded=[[9], [12, 5]], last=7, min_length=3),
        {"repetition_penalty": 1.4, "bad_words_ids": [[12, 5]], "suppress_tokens": [9]}
        | {"forced_eos_token_id": 7, "min_new_tokens": 3},
    ),
    "beam 4, all rules": (
        beam(repetition_penalty=1.2, excluded=[[9], [12, 5]], last=7, no_repeat_ngram=2),
        {"num_beams": 4, "repetition_penalty": 1.2, "bad_words_ids": [[12, 5], [9]]}
        | {"forced_eos_token_id": 7, "no_repeat_ngram_size": 2},
    ),
    "beam 9": (beam(width=9, count=9), {"num_beams": 9}),
}


@dataclass(frozen=True)
class Peer:
    """A published model, ours, and whether the prompt is a source."""

    theirs: Any
    ours: Model
    vocab: Vocab
    source: bool
    end: int  # a token that each of them writes now and then


def vocabulary() -> Vocab:
    none = np.zeros(SIZE, bool)
    return replace(TINY, size=SIZE, pad=PAD, bos=START, eos=START, special=none, word_start=none)


def perturbed(model: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


def gpt2() -> Peer:
    import transformers

    torch.manual_seed(0)
    special = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": START}
    numbers = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": PLACES, "vocab_size": SIZE}
    theirs = perturbed(transformers.GPT2LMHeadModel(transformers.GPT2Config(**numbers, **special)))
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        ours = plmctl.load(Path(place)).model.double()
    with torch.no_grad():  # the folder holds float64, loading may not
        torch.testing.assert_close(
            ours.backbone.embedding.token.weight[:SIZE], theirs.transformer.wte.weight
        )
    return Peer(theirs, ours, vocabulary(), source=False, end=22)


def bart() -> Peer:
    import transformers

    torch.manual_seed(0)
    numbers: dict[str, Any] = {"vocab_size": SIZE, "d_model": 16, "max_position_embeddings": PLACES}
    for end in ("encoder", "decoder"):
        numbers |= {f"{end}_layers": 2, f"{end}_attention_heads": 2, f"{end}_ffn_dim": 24}
    special = {
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": START,
        "decoder_start_token_id": START,
    }
    config = transformers.BartConfig(**numbers, **special, forced_eos_token_id=None)
    theirs = perturbed(transformers.BartForConditionalGeneration(config))
    # a text that depends on its source and on itself, not one token again and again
    with torch.no_grad():
        for layer in theirs.model.decoder.layers:
            layer.encoder_attn.out_proj.weight.mul_(2)
        theirs.model.shared.weight.mul_(3)
    words = [
        "model=encoder_decoder",
        "noise=[text_infill]",
        "objective=[seq2seq]",
        "eval.noise=${noise}",
        "position=learned",
    ]
    words += [
        "size=tiny",
        "size.width=16",
        "size.inner_width=24",
        f"format.max_length={PLACES}",
        "data.path=x",
        "train.steps=1",
    ]
    vocab = vocabulary()
    ours = (
        build_model(compose("pretrain", None, words), vocab_size=SIZE, vocab=vocab).double().eval()
    )
    copy_bart(theirs.model, ours.backbone)
    return Peer(theirs, ours, vocab, source=True, end=10)


@torch.no_grad()
def copy_bart(theirs: Any, ours: Any) -> None:
    """Both ends of BART, layer by layer."""

    def same(mine: Any, *others: Any) -> None:
        for name in ("weight", "bias"):
            if getattr(mine, name, None) is not None:
                getattr(mine, name).copy_(torch.cat([getattr(other, name) for other in others]))

    ours.encoder.embedding.token.weight[:SIZE] = theirs.shared.weight
    for mine, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        # BART's first two are never used
        mine.position.table.weight.copy_(other.embed_positions.weight[2 : 2 + PLACES])
        same(mine.embedding.norm, other.layernorm_embedding)
        blocks = mine.stack.blocks
        for number, layer in enumerate(other.layers):
            for letter, name in (("a", "self"), ("c", "encoder")):
                if letter in blocks:
                    cell, attention = blocks[letter][number].cell, getattr(layer, f"{name}_attn")
                    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
                    if letter == "a":
                        same(cell.qkv, *parts)
                    else:
                        same(cell.q, parts[0])
                        same(cell.kv, *parts[1:])
                    same(cell.out, attention.out_proj)
                    same(blocks[letter][number].norm_sum, getattr(layer, f"{name}_attn_layer_norm"))
            same(blocks["f"][number].cell.up, layer.fc1)
            same(blocks["f"][number].cell.down, layer.fc2)
            same(blocks["f"][number].norm_sum, layer.final_layer_norm)


def t5() -> Peer:
    import transformers

    # weights with which a text depends on its source: 0's is one token again and again
    torch.manual_seed(1)
    special = {"pad_token_id": PAD, "eos_token_id": START, "decoder_start_token_id": PAD}
    numbers = {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "vocab_size": SIZE,
    }
    theirs = perturbed(
        transformers.T5ForConditionalGeneration(transformers.T5Config(**numbers, **special))
    )
    with torch.no_grad():
        # or the longest vector is always written
        theirs.shared.weight.div_(theirs.shared.weight.norm(dim=1, keepdim=True))
        theirs.decoder.final_layer_norm.weight.fill_(4)
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        ours = plmctl.load(Path(place)).model.double()
    return Peer(theirs, ours, vocabulary(), source=True, end=3)


PEERS = {"GPT-2": gpt2, "BART": bart, "T5": t5}


def prompts(count: int) -> list[list[int]]:
    draw = np.random.default_rng(0)
    return [draw.integers(4, SIZE, draw.integers(1, 8)).tolist() for _ in range(count)]


class _Double:
    """torch, but for the types that `transformers` computes scores in."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def doubled() -> Any:
    """`transformers` takes logits to fp32; here they stay in float64, so that only exact ties
    are decided otherwise.
    """
    from transformers.generation import utils

    utils.torch, before = _Double(), utils.torch
    try:
        yield
    finally:
        utils.torch = before


def written_by_theirs(
    peer: Peer, given: Sequence[list[int]], settings: dict[str, Any]
) -> list[list[list[int]]]:
    """Prompts of one length at a time: without padding, which would count for n-grams."""
    count = settings.get("num_beams", 1)
    found: dict[int, list[list[int]]] = {}
    with doubled(), torch.no_grad():
        for length in sorted({len(ids) for ids in given}):
            numbers = [i for i, ids in enumerate(given) if len(ids) == length]
            ids = torch.tensor([given[i] for i in numbers])
            out = peer.theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=NEW,
                num_return_sequences=count,
                eos_token_id=peer.end,
                **settings,
            )
            texts = out[:, 1 if peer.source else length :].tolist()
            for place, number in enumerate(numbers):
                found[number] = [
                    cut(text, peer.end) for text in texts[place * count : (place + 1) * count]
                ]
    return [found[i] for i in range(len(given))]


def cut(text: list[int], end: int) -> list[int]:
    """The tokens before the end token, or before the padding of a text that has none."""
    while text and text[-1] == PAD:
        text = text[:-1]
    return text[: text.index(end)] if end in text else text


def written_by_ours(
    peer: Peer, given: Sequence[list[int]], search: Search
) -> list[list[Hypothesis]]:
    """All prompts in one batch, padded behind as a loader does."""
    length = torch.tensor([len(ids) for ids in given])
    ids = torch.tensor([[*ids, *[PAD] * (int(length.max()) - len(ids))] for ids in given])
    batch = Batch(torch.arange(len(ids)), {"source" if peer.source else "text": Seq(ids, length)})
    return generate(peer.ours, batch, vocab=peer.vocab, search=search, max_new=NEW, end=peer.end)
