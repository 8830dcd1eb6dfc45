"""A draft changes no text: greedy and sampled texts are those without it, with fewer passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.errors import UsageError
from plmctl.generation import decode
from plmctl.generation.beam import Beam
from plmctl.generation.decode import Draft, generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.sample import Sample
from plmctl.generation.search import Hypothesis
from plmctl.generation.speculation import Speculation
from plmctl.models.base import Model
from tests.generation import test_reading
from tests.generation.test_reading import DECODER, TWO, VOCAB, made, prompts, together

MODELS = {
    **{f"decoder, {name}": [*DECODER, f"position={name}"] for name in ("learned", "rotary")},
    "decoder, alibi": [*DECODER, "position=alibi"],
    "encoder-decoder": [*TWO, "position=learned"],
}
NEW = 12
DRAWN = Sample(temperature=0.7, top_k=None, top_p=1.0, seed=5)


def blend(model: Model, other: Model, share: float) -> Model:
    """A draft that is right now and then: weights between those of both."""
    with torch.no_grad():
        for mine, own in zip(other.parameters(), model.parameters(), strict=True):
            mine.mul_(share).add_((1 - share) * own)
    return other


def write(
    model: Model, ids: list[int], search: Any, draft: Draft | None = None
) -> list[list[Hypothesis]]:
    name = "source" if model.backbone.writes == "target" else "text"
    how: Any = {"vocab": VOCAB, "search": search, "max_new": NEW, "keys": [3], "draft": draft}
    return generate(model, together([ids], name), **how)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("tokens", [1, 3, 20])
@pytest.mark.parametrize("words", MODELS.values(), ids=MODELS)
def test_the_text_is_that_without_a_draft(
    words: list[str], tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(words)
    used: list[Speculation] = []

    class Watched(Speculation):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            used.append(self)

    monkeypatch.setattr(decode, "Speculation", Watched)
    chosen = written = 0
    searches = (Greedy(), Greedy(no_repeat_ngram=2), DRAWN)
    wanted = [(search, ids, write(model, ids, search)) for search in searches for ids in prompts()]
    for share in (0.0, 0.15, 1.0):  # the model itself, one near to it, and another one
        draft = Draft(blend(model, made(words, seed=9), share), tokens)
        for search, ids, ((plain,),) in wanted:
            ((found,),) = write(model, ids, search, draft)
            assert found.ids == plain.ids
            assert found.finished == plain.finished
            assert found.score == pytest.approx(plain.score, abs=1e-9)
            count = used[-1].count
            if share == 0 and search is searches[0]:  # all but the first of each pass
                texts = len(found.ids) + found.finished - 1  # the last one is not read
                assert count.passes == -(-max(0, texts) // (tokens + 1))
            chosen, written = chosen + count.chosen, written + len(found.ids)
    assert 0 < chosen < written


def test_a_draft_with_fewer_positions_ends_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    words = MODELS["decoder, learned"]
    model = made(words)
    small = [word.replace("=20", "=9") for word in test_reading.SMALL]
    monkeypatch.setattr(test_reading, "SMALL", small)
    short = made(words)
    assert short.backbone.max_target == 9
    ids = prompts()[0]
    ((plain,),) = write(model, ids, Greedy())
    ((found,),) = write(model, ids, Greedy(), Draft(short, 4))
    assert found.ids == plain.ids


def test_what_cannot_be_undone_is_refused() -> None:
    words = ["objective=[clm]", "noise=[]", "format=segments", "position=none", "pattern=causal"]
    recurrent = made([*words, "model=xlnet", "model.two_streams=false"])
    plain = made(MODELS["decoder, learned"])
    for model, draft in ((recurrent, plain), (plain, recurrent)):
        with pytest.raises(UsageError, match=r"(?s)cannot be undone.*leave draft out"):
            write(model, prompts()[0], Greedy(), Draft(draft))


def test_a_beam_has_no_draft() -> None:
    model = made(MODELS["decoder, learned"])
    beam = Beam(width=2, count=1, alpha=1.0, penalty="length", early=False)
    with pytest.raises(UsageError, match=r"(?s)one text.*search=greedy"):
        write(model, prompts()[0], beam, Draft(model))
