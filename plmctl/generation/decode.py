"""`generate`: texts that a model writes, for commands and tasks alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.generation.packed import pack_linear
from plmctl.generation.probe import check_cached
from plmctl.generation.search import Hypothesis, Search, Start, find_logp
from plmctl.generation.speculation import Speculation
from plmctl.generation.step import Reading, pad_left
from plmctl.generation.writer import choice_of, writer_of
from plmctl.heads.base import about_of, heads_about
from plmctl.models.base import Backbone, Model
from plmctl.models.capabilities import Caching
from plmctl.models.encoder_decoder import LAST
from plmctl.text.vocab import Vocab

_FIX = (
    "\n  fix: checkpoint=<a decoder or an encoder-decoder>,"
    " pretrained or fine-tuned on a task that writes"
)
LONGEST = 128  # tokens, if neither max_new nor the model's positions limit them


@dataclass(frozen=True)
class Draft:
    """A smaller model of the same vocabulary that drafts so many tokens after each pass."""

    model: Model
    tokens: int = 4


@torch.inference_mode()
def generate(
    model: Model,
    batch: Batch,
    *,
    vocab: Vocab,
    search: Search,
    head: str | None = None,
    max_new: int | None = None,
    end: int | None = None,
    keys: Sequence[int] | None = None,
    watch: Callable[[list[int]], None] | None = None,
    tracks: Mapping[str, Tensor] | None = None,
    weights: str = "fp32",
    draft: Draft | None = None,
    opening: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Write texts: for each row of `batch`, what follows its `text`, or the target of its `source`,
    best first.

    Args:
        batch: the prompts; padding may be anywhere.
        search: the search, such as greedy or beam.
        head: the head that writes; None: the first of `HEADS`.
        max_new: most tokens of a text; None: as many as the model has positions for.
        end: the end token, by default the tokenizer's `eos`.
        keys: numbers of the prompts, for searches that draw.
        watch: receives the tokens of every step.
        tracks: [B, 1] tracks of every token that an encoder-decoder writes, such as its language.
        weights: the numbers of the weights: fp32, int8, int4 or w8a8.
        draft: a smaller model that drafts tokens; None: none.
        opening: the first tokens of every text of an encoder-decoder, such as its language, which
            the result leaves out; none: as the model forces.

    Raises:
        UsageError: for a model that cannot write, or a draft with several rows.
        DataError: for a prompt that is empty or leaves no room for a token.
    """
    end = vocab.eos if end is None else end
    if (writer := writer_of(model)) is not None:
        _refuse_steps(weights, draft, opening)
        prompts, limits = _find_room(model.backbone, batch, max_new)
        how: Any = {"limits": limits.tolist(), "end": end, "watch": watch}
        return writer.write(_list_ids(prompts), search, **how)
    named: Any = {"vocab": vocab, "search": search, "head": head, "end": end, "keys": keys}

    def own(most: int | None, **more: Any) -> list[list[Hypothesis]]:
        own_tracks: Any = {"tracks": tracks or {}, "opening": opening}
        return _write(model, batch, most, **named, **own_tracks, **more)

    choice = None if weights != "fp32" or draft or watch or tracks or opening else choice_of(model)
    if choice is None:
        return own(max_new, watch=watch, weights=weights, draft=draft)
    prompts, limits = _find_room(model.backbone, batch, max_new)

    def write_itself(most: int | None) -> list[list[Hypothesis]]:
        most = max_new if most is None else most if max_new is None else min(most, max_new)
        return own(most)

    how = {"limits": limits.tolist(), "end": end, "write_itself": write_itself}
    return choice.write(_list_ids(prompts), search, **how)


def _write(
    model: Model,
    batch: Batch,
    max_new: int | None,
    *,
    vocab: Vocab,
    search: Search,
    head: str | None,
    end: int | None,
    keys: Sequence[int] | None,
    tracks: Mapping[str, Tensor],
    opening: Sequence[int] = (),
    watch: Callable[[list[int]], None] | None = None,
    weights: str = "fp32",
    draft: Draft | None = None,
) -> list[list[Hypothesis]]:
    """`generate` by the model itself."""
    head = find_writing_head(model, head)
    training = model.training
    model.eval()
    try:
        with pack_linear(model, weights):
            first: Any = {"opening": opening}
            reading, start = begin(model, batch, head, vocab, max_new, tracks, **first)
            start = replace(start, end=end, keys=keys, watch=watch)
            if draft is None:
                return search(reading, start)
            if len(start.limits) != 1:
                raise UsageError("a draft is for one prompt at the same time")
            with pack_linear(draft.model, weights):
                own_head = find_writing_head(draft.model)
                other, own = begin(draft.model, batch, own_head, vocab, max_new, tracks, **first)
                room = int(min(start.limits[0], own.limits[0]))
                step = Speculation(reading, other, tokens=draft.tokens, room=room)
                return search(step, start)
    finally:
        model.train(training)


@torch.inference_mode()
def score_texts(
    model: Model, batch: Batch, ids: Tensor, *, vocab: Vocab, head: str | None = None
) -> Tensor:
    """[B] `sum_t log p(ids_t | prompt, ids_<t)` of texts `ids [B, T]` (below 0: none), computed as
    in `generate`.
    """
    if (writer := writer_of(model)) is not None:
        prompts, _ = _find_room(model.backbone, batch, ids.shape[1])
        texts = [row[row >= 0].tolist() for row in ids]
        return torch.tensor(writer.score(_list_ids(prompts), texts))
    head = find_writing_head(model, head)
    step, start = begin(model, batch, head, vocab, ids.shape[1], {}, opening=None)
    logp = find_logp(start.logits, start.size)
    total = torch.zeros(len(ids), dtype=logp.dtype, device=ids.device)
    for position, tokens in enumerate(ids.clamp(min=0).unbind(1)):
        total += logp.gather(1, tokens[:, None])[:, 0].masked_fill(ids[:, position] < 0, 0.0)
        if position + 1 < ids.shape[1]:
            logp = find_logp(step.advance(tokens), start.size)
    return total


def _list_ids(prompts: Seq) -> list[list[int]]:
    """The ids of each row without its padding."""
    return [ids[real].tolist() for ids, real in zip(prompts.ids, prompts.real, strict=True)]


def _refuse_steps(weights: str, draft: Draft | None, opening: Sequence[int]) -> None:
    """ConfigError for settings of steps where another library takes them."""
    allowed = "{}: another library writes the texts, with numbers of its own"
    if weights != "fp32":
        raise ConfigError("weights", weights, allowed.format("fp32"), fix="weights=fp32")
    if draft is not None:
        raise ConfigError("draft", "...", allowed.format("null"), fix="leave draft out")
    if opening:
        allowed = "none: another library writes the texts from their first token on"
        raise ConfigError("opening", list(opening), allowed, fix="runtime=torch")


def find_writing_head(model: Model, head: str | None = None) -> str:
    """The head that predicts the next token; UsageError for a model that cannot write."""
    backbone = model.backbone
    heads = ", ".join(model.heads) or "none"
    # heads for the next token, or else for the token at a mask
    name = next(iter(heads_about(model, "next", "text")), None) if head is None else head
    if name is None or name not in model.heads:
        raise UsageError(
            f"the model cannot write: it needs a head that predicts tokens, and has {heads}{_FIX}"
        )
    if not isinstance(backbone, Caching):
        raise UsageError(
            f"the model cannot write: {type(backbone).__name__} does not read token by token{_FIX}"
        )
    if backbone.writes == "text" and not _is_directed(backbone):
        raise UsageError(
            "the model cannot write: its tokens see what follows them (an encoder)\n  fix: text"
            " with mask tokens, which it fills, or a model with pattern=causal or pattern=prefix"
        )
    return name


def _is_directed(backbone: Backbone) -> bool:
    """Whether no token of the written part sees a later one."""
    if "query" in backbone.streams:
        # the query stream predicts the next position and sees only earlier tokens
        return True
    pattern: Pattern | None = getattr(backbone, "pattern", None)
    # none: it reads token by token
    return pattern is None or not pattern.looks_ahead(prefix_segments(backbone)[1])


def prefix_segments(backbone: Backbone) -> tuple[int, int]:
    """The numbers of the input's segment and of the written segment."""
    return getattr(getattr(backbone, "pattern", None), "prefix_segments", None) or (0, 1)


def _find_room(
    backbone: Backbone, batch: Batch, max_new: int | None, *, read: int = 1
) -> tuple[Seq, Tensor]:
    """(the prompts, [B] the most tokens that each may be followed by).

    Args:
        read: The tokens that the decoder of an encoder-decoder reads before it writes.

    Raises:
        DataError: A prompt is empty, or leaves no room for a token.
    """
    source = batch.seqs[batch.input] if backbone.writes == "target" else batch.text
    if not bool(source.real.any(1).all()):
        row = int((~source.real.any(1)).nonzero()[0])
        raise DataError(
            f"prompt {row + 1} of the batch is empty", fix="give every prompt at least one token"
        )
    longest, places = int(source.real.sum(1).max()), backbone.max_length
    if places is not None and longest + (backbone.writes == "text") > places:
        raise DataError(
            f"a prompt has {longest} tokens, but the model has {places} positions,"
            " and needs at least one to write",
            fix="a shorter prompt",
        )
    limit = backbone.max_target
    if limit is not None and backbone.writes == "target":
        limit -= max(0, read - 1)
    most = LONGEST if max_new is None and limit is None else limit if max_new is None else max_new
    assert most is not None
    used = source.real.sum(1) * (backbone.writes == "text")
    room = torch.full_like(used, most) if limit is None else (limit - used).clamp(max=most)
    return source, room


def begin(
    model: Model,
    batch: Batch,
    head: str,
    vocab: Vocab,
    max_new: int | None,
    tracks: Mapping[str, Tensor],
    *,
    joins: bool = False,
    opening: Sequence[int] | None = (),
) -> tuple[Reading, Start]:
    """Read the prompts of `batch`, as `generate` says.

    Args:
        joins: Other rows may come later.
        opening: The first tokens of every text; (): as the model forces; None: no token is forced.
    """
    backbone = model.backbone
    first_ids = _find_opening(backbone, opening) if backbone.writes == "target" else []
    source, room = _find_room(backbone, batch, max_new, read=len(first_ids))
    segmented = backbone.writes == "text" and (
        "tracks.segment" in backbone.needs or "segment" in source.tracks
    )
    if backbone.writes == "target":
        first = source.ids.new_tensor(first_ids).repeat(len(source.ids), 1)
        spread = {name: track.expand_as(first) for name, track in tracks.items()}
        prompt = Seq(first, torch.full_like(first[:, 0], len(first_ids)), spread, full=True)
        prompt = pad_left(prompt, pad=vocab.pad, always=True) if joins else prompt
        history = first
    else:
        prompt = pad_left(source, pad=vocab.pad, always=joins)
        if segmented:
            prompt = prompt.with_tracks(
                segment=torch.full_like(prompt.ids, prefix_segments(backbone)[0])
            )
        history = (
            prompt.ids.new_zeros(len(prompt.ids), 0)
            if segmented
            else prompt.ids.masked_fill(~prompt.real, -1)
        )
    mask = vocab.id("mask") if about_of(model.heads[head]) == "text" else None
    check_cached(model, batch, prompt, vocab.size)
    # more than the usual text has no room from the start
    new = min(int(room.max()), LONGEST) + (mask is not None)
    step = Reading(
        model=model,
        head=model.heads[head],
        batch=batch,
        prompt=prompt,
        size=vocab.size,
        mask=mask,
        segment=prefix_segments(backbone)[1] if segmented else None,
        room=prompt.ids.shape[1] + new,
    )
    limits, read = room.cpu().numpy().astype(np.int64), history.cpu().numpy()
    return step, Start(step.begin(), limits, vocab.size, history=read)


def _find_opening(backbone: Backbone, opening: Sequence[int] | None) -> list[int]:
    """The tokens that a decoder reads before it writes."""
    start = getattr(backbone, "start", None)
    if start is None:
        raise UsageError("the first token of the decoder is unknown: the model has no start token")
    forced = getattr(backbone, "forced", None)
    own = [forced] if forced is not None and opening is not None else []
    begin = list(opening or own)
    if start != LAST:
        return [int(start), *begin]
    if not begin:
        problem = "the decoder of this model begins with the token of a language, and none is named"
        fix = "target_language=<a token of its tokenizer, such as de_DE>"
        raise UsageError(f"{problem}\n  fix: {fix}")
    return begin
