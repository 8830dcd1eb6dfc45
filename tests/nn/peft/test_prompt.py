"""Soft prompts: vectors before the tokens, in rows of any length, with and without a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.encoder import token_positions
from plmctl.nn.peft.base import fold
from plmctl.nn.peft.prompt import PromptTuning

P = 3


def build(recipe: str, *words: str, seed: int = 1) -> Model:
    small = ["size=tiny", "size.num_layers=2", "size.width=16", "format.max_length=12", *words]
    config = plain(compose("pretrain", recipe, small))
    return build_model(config, vocab_size=40, seed=seed, heads={}).double().eval()


def make_batch(length: list[int], **tracks: torch.Tensor) -> Batch:
    ids = torch.randint(5, 40, (len(length), max(length)), generator=torch.Generator())
    seq = Seq(ids, torch.tensor(length), tracks, full=len({*length}) == 1)
    return Batch(torch.arange(len(length)), {"text": seq})


def add_prompt(model: Model, **settings: Any) -> PromptTuning:
    method = PromptTuning(length=P, **settings)
    method.add_to(model.backbone)
    own: Any = model.backbone.prompt
    own.double().start(torch.Generator().manual_seed(5))
    return method


@pytest.mark.parametrize("recipe", ["bert", "gpt2"])
def test_a_prompt_stands_before_the_tokens(recipe: str) -> None:
    """By the definition: each row alone, its vectors behind those of the prompt."""
    own, plain_one = build(recipe), build(recipe)
    add_prompt(own)
    backbone: Any = plain_one.backbone
    prompt: Any = own.backbone.prompt
    segment = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    given = make_batch([5, 3], segment=segment)
    found = own(given, record=frozenset({"hidden", "attention"}))
    for row, length in enumerate((5, 3)):
        ids = given.text.ids[row : row + 1, :length]
        kinds = torch.cat(
            [torch.zeros(1, P, dtype=torch.int64), segment[row : row + 1, :length]], 1
        )
        seq = Seq(
            torch.zeros(1, P + length, dtype=torch.int64),
            torch.tensor([P + length]),
            {"segment": kinds},
            full=True,
        )
        vectors = torch.cat([prompt.vectors, backbone.embedding.token(ids)[0]])[None]
        places = token_positions(seq, 0)
        x = backbone.embedding(seq, backbone.position, places, vectors)
        wanted = backbone.read(seq, x, record=frozenset({"hidden", "attention"}))
        torch.testing.assert_close(found.last[row, :length], wanted.last[0, P:])
        for mine, other in zip(found.recorded["hidden"], wanted.recorded["hidden"], strict=True):
            torch.testing.assert_close(mine[row, :length], other[0, P:])
        maps = zip(found.recorded["attention"], wanted.recorded["attention"], strict=True)
        for mine, other in maps:
            torch.testing.assert_close(mine[row, :, :length, :length], other[0, :, P:, P:])


def test_tokens_read_one_by_one_have_seen_the_prompt() -> None:
    model = build("gpt2")
    add_prompt(model)
    given = make_batch([6, 6])
    whole = model(given).last
    cache = model.backbone.fresh_cache(given)
    parts = []
    for begin, end in ((0, 3), (3, 4), (4, 6)):
        seq = replace(
            given.text, ids=given.text.ids[:, begin:end], length=torch.tensor([end - begin] * 2)
        )
        hidden = model(replace(given, seqs={"text": seq}), cache)
        cache, part = hidden.state, hidden.last
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_first_vectors_are_those_of_tokens_or_random() -> None:
    model = build("bert")
    method = add_prompt(model)
    prompt: Any = model.backbone.prompt
    assert prompt.vectors.abs().max() <= 0.5
    prompt.fit_in()
    table: Any = model.backbone.token_embedding.weight
    torch.testing.assert_close(prompt.vectors.data, table[prompt.ids].data, rtol=0, atol=0)

    class Words:
        def encode(self, text: str) -> list[int]:
            return [7, 9] if text else []

    model = build("bert")
    method = add_prompt(model, text="good bad")
    method.prepare(model.backbone, Words())
    prompt = model.backbone.prompt
    prompt.fit_in()
    table = model.backbone.token_embedding.weight
    torch.testing.assert_close(prompt.vectors.data, table[[7, 9, 7]].data, rtol=0, atol=0)
    model = build("bert")
    add_prompt(model, first="random")
    prompt = model.backbone.prompt
    before = prompt.vectors.clone()
    prompt.fit_in()
    torch.testing.assert_close(prompt.vectors, before, rtol=0, atol=0)


def test_what_has_no_place_for_a_prompt_is_named() -> None:
    model = build("bert")
    method = add_prompt(model)
    assert method.trains(model.backbone) == ["prompt.vectors"]
    with pytest.raises(ConfigError, match="once"):
        PromptTuning(length=2).add_to(model.backbone)
    with pytest.raises(ConfigError, match="not to be put into the weights"):
        fold(model.backbone, [method])
    with pytest.raises(ConfigError, match="below the 12 positions"):
        PromptTuning(length=12).add_to(build("bert").backbone)
    with pytest.raises(ConfigError, match="which XLNet does not"):
        PromptTuning(length=2).add_to(build("xlnet").backbone)
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        PromptTuning(length=2, first="randm")
