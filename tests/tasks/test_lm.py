"""Perplexities: every token once with the promised context, a uniform model, and the words of the definition as loops."""

import functools
import math

import numpy as np
import pytest
import torch

from plmctl.batch import IGNORE
from plmctl.heads.lm import LMHead
from plmctl.models.base import Hidden
from plmctl.noise.token_mask import TokenMask
from plmctl.tasks.lm import LanguageModel, Text, causal_windows

DOCUMENTS = ["the cat sat on the mat and the dog sat on the cat, said the mouse.", "Why? Nobody knew why; 你好 to all."]


class Tiny(torch.nn.Module):
    """States that depend on the token, its place and (unless causal) on the mean of the row; `max_length` like a backbone."""

    def __init__(self, head: str, causal: bool, spread: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = torch.nn.Embedding(500, 8)
        self.token.weight.data.mul_(spread)
        kind = {"width": 8, "vocab_size": 500, "token_embedding": self.token, "transform": False, "bias": False}
        self.heads = torch.nn.ModuleDict({head: LMHead(tied=True, **kind)})
        self.causal, self.backbone, self.max_length = causal, self, 16

    def forward(self, batch, state=None, record=frozenset()):
        x = self.token(batch.text.ids) * batch.text.real[..., None]
        sums = x.cumsum(1) if self.causal else x.sum(1, keepdim=True).expand_as(x)
        return Hidden(sums + torch.arange(x.shape[1])[None, :, None] * 0.05)


def _measure(model, tokenizer, **settings):
    noise = functools.partial(TokenMask, vocab=tokenizer.vocab, rate=0.15, mask_share=1.0, random_share=0.0)
    part = LanguageModel(noise=noise, **settings)
    with torch.no_grad():
        text = Text.of(DOCUMENTS, tokenizer)
        return text, part.measure(model, text, tokenizer.vocab, batch_size=3, device=torch.device("cpu"))


@pytest.mark.parametrize(("window", "stride"), [(8, 4), (8, 7), (8, 1), (16, 8)])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 10, 40])
def test_every_token_is_asked_once_with_context(length, window, stride):
    asked = []
    for place, (ids, target) in enumerate(causal_windows(list(range(length)), window, stride)):
        assert len(ids) <= window
        hits = [i for i, t in enumerate(target) if t != IGNORE]
        assert all(target[i] == ids[i] + 1 for i in hits)
        assert place == 0 or hits[0] >= window - stride - 1
        asked += [target[i] for i in hits]
    assert asked == list(range(1, length))


@pytest.mark.parametrize(("head", "name"), [("clm", "perplexity_per_token"), ("mlm", "pseudo_perplexity")])
def test_a_uniform_model_has_the_perplexity_of_the_vocabulary(toy, head, name):
    _, found = _measure(Tiny(head, head == "clm", spread=0.0), toy)
    assert found[name] == pytest.approx(500, rel=1e-5)


def test_units_of_a_causal_model(gpt_toy):
    text, found = _measure(Tiny("clm", causal=True), gpt_toy)
    assert found["scored_tokens"] == text.tokens == found["tokens"]  # bos is read, not counted
    nll = math.log(found["perplexity_per_token"]) * text.tokens
    joined = "".join(DOCUMENTS)
    assert found["perplexity_per_word"] == pytest.approx(math.exp(nll / sum(len(d.split()) for d in DOCUMENTS)))
    assert found["bits_per_character"] == pytest.approx(nll / math.log(2) / len(joined))
    assert found["bits_per_byte"] == pytest.approx(nll / math.log(2) / len(joined.encode()))


def test_pseudo_perplexity_hides_one_token_at_a_time(toy):
    model = Tiny("mlm", causal=False)
    text, found = _measure(model, toy, window=16)
    total = 0.0
    for ids in text.ids:
        for start in range(0, len(ids), 14):
            row = [2, *ids[start : start + 14], 3]
            for place in range(1, len(row) - 1):
                hidden = torch.tensor([*row[:place], 4, *row[place + 1 :]])
                state = model.token(hidden).sum(0) + place * 0.05
                total -= torch.log_softmax(state @ model.token.weight.T, -1)[row[place]].item()
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(total / text.tokens), rel=1e-4)
    assert _measure(model, toy, window=16, pseudo_tokens=5)[1]["pseudo_tokens"] == 5


def test_the_mask_is_fixed(toy):
    first, again = (_measure(Tiny("mlm", causal=False), toy)[1]["masked_perplexity"] for _ in range(2))
    other = _measure(Tiny("mlm", causal=False), toy, seed=1)[1]["masked_perplexity"]
    assert first == again != other
    assert np.isfinite(first)
