"""A question for the next token is refused where the answer stands in the input, by every way to such a model."""

import pytest

from plmctl.attention.patterns import Anticausal, BySegment, Causal, Dilated, Full, Prefix, Window
from plmctl.config.compose import compose
from plmctl.config.contract import check_contract
from plmctl.errors import UsageError

SEES_ALL = "model.decoder.pattern={_target_: plmctl.attention.patterns.Full}"


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("gpt", ["pattern=full"]),
        ("gpt", ["pattern=prefix", "format=prefix"]),  # the first segment is seen whole, and asked as well
        ("gpt", ["model=two_way", "heads.clm.transform=true"]),
        ("transformer_xl", ["pattern=full"]),
        ("unilm", ["objective=[clm]"]),
        ("bart", [SEES_ALL]),
        ("transformer", [SEES_ALL]),
    ],
)
def test_a_model_that_has_seen_the_answer(recipe: str, words: list[str]) -> None:
    with pytest.raises(UsageError, match="the answer stands in the input"):
        check_contract(compose("pretrain", recipe, ["size=tiny", *words]))


@pytest.mark.parametrize(
    ("recipe", "words", "wrong"),
    [
        ("bert", ["pattern=causal", "objective=[clm]", "noise=[]"], "eval.noise.token_mask has changed"),
        ("gpt", ["noise=[token_replace]"], " noise.token_replace has changed"),
        ("bert", ["model=two_way", "objective=[bilm]", "eval.noise=null"], " noise.token_mask has changed"),
        ("gpt", ["objective=[bilm]"], "a stream for each direction"),
        ("elmo", ["model=xlnet", "position=none"], "a stream for each direction"),
    ],
)
def test_answers_are_of_the_clean_text_and_of_one_direction(recipe: str, words: list[str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        check_contract(compose("pretrain", recipe, ["size=tiny", *words]))


@pytest.mark.parametrize("recipe", ["gpt", "elmo", "transformer_xl", "bart", "mass"])
def test_the_published_ones_are_not_refused(recipe: str) -> None:
    check_contract(compose("pretrain", recipe, ["size=tiny"]))


def test_looking_ahead() -> None:
    for pattern in (Causal(), Causal() & Window(reach=2), ~Anticausal() | Causal()):
        assert not pattern.looks_ahead()
    for pattern in (Full(), Anticausal(), Window(reach=1), Dilated(reach=1, dilation=[8]), Causal() | Window(reach=1)):
        assert pattern.looks_ahead()
    assert [Prefix().looks_ahead(segment) for segment in (0, 1)] == [True, False]
    assert [BySegment(parts=[Full(), Causal()]).looks_ahead(segment) for segment in (0, 1)] == [True, False]
