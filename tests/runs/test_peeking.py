"""A question for the next token is refused where the answer stands in the input, by every way to
such a model.
"""

import pytest

from plmctl.attention.patterns.anticausal import Anticausal
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.by_segment import BySegment
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.config.compose import compose
from plmctl.core.errors import UsageError
from plmctl.runs.contract.contract import check_contract
from plmctl.tasks import inference
from plmctl.tasks.record import Example

SEES_ALL = "model.decoder.pattern={_target_: plmctl.attention.patterns.base.Full}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("gpt", ["pattern=full"]),
        # the first segment is seen whole, and asked as well
        ("gpt", ["pattern=prefix", "format=prefix"]),
        ("gpt", ["model=two_way", "heads.clm.transform=true"]),
        ("gpt", ["pattern=dilated", "pattern.dilation=[16,17]"]),  # over two layers: the next token
        # far away
        (
            "gpt",
            [
                "pattern=dilated",
                "pattern.reach=1",
                "pattern.dilation=[1500]",
                "format.max_length=2048",
            ],
        ),
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
        (
            "bert",
            ["pattern=causal", "objective=[clm]", "noise=[]"],
            "changed by eval.noise.token_mask",
        ),
        ("gpt", ["noise=[token_replace]"], "changed by noise.token_replace"),
        (
            "bert",
            ["model=two_way", "objective=[bilm]", "eval.noise=null"],
            "changed by noise.token_mask",
        ),
        ("gpt", ["objective=[bilm]"], "a stream for each direction"),
        ("elmo", ["model=xlnet", "position=none"], "a stream for each direction"),
        ("gpt", ["heads.clm.about=text"], "fix: heads.clm.about=next"),
    ],
)
def test_answers_are_of_the_clean_text_and_of_one_direction(
    recipe: str, words: list[str], wrong: str
) -> None:
    with pytest.raises(UsageError, match=wrong):
        check_contract(compose("pretrain", recipe, ["size=tiny", *words]))


@pytest.mark.parametrize("recipe", ["gpt", "elmo", "transformer_xl", "bart", "mass"])
def test_the_published_ones_are_not_refused(recipe: str) -> None:
    cfg = compose("pretrain", recipe, ["size=tiny"])
    assert set(check_contract(cfg).heads) == set(cfg.heads)


@pytest.mark.parametrize(
    ("recipe", "words", "wrong"),
    [
        ("bert", ["pattern=causal"], "objective.nsp: asks the first token"),
        # the first segment does not see the second
        ("bert", ["pattern=prefix"], "objective.nsp: asks the first token"),
        ("albert", ["pattern=causal"], "objective.sop: asks the first token"),
        ("simcse", ["pattern=causal", "init=null"], "objective.simcse: asks the first token"),
        (
            "roberta",
            ["noise.token_mask.mask_share=0", "noise.token_mask.random_share=0"],
            "something to hide",
        ),
    ],
)
def test_questions_that_nobody_could_answer_or_anybody(
    recipe: str, words: list[str], wrong: str
) -> None:
    with pytest.raises(UsageError, match=wrong):
        check_contract(compose("pretrain", recipe, ["size=tiny", *words]))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("bert", ["pattern=window"]),
        ("xlnet", ["objective=[plm,nsp]", "format=stream_pair"]),
        ("unilm", []),
        ("structbert", []),
    ],
)
def test_a_token_that_hears_of_its_row_layer_by_layer_is_asked(
    recipe: str, words: list[str]
) -> None:
    cfg = compose("pretrain", recipe, ["size=tiny", *words])
    assert set(check_contract(cfg).heads) == set(cfg.heads)


def test_looking_ahead() -> None:
    for pattern in (Causal(), Causal() & Window(reach=2), ~Anticausal() | Causal()):
        assert not pattern.looks_ahead()
    for pattern in (
        Full(),
        Anticausal(),
        Window(reach=1),
        Dilated(reach=1, dilation=[8]),
        Dilated(reach=1, dilation=[40, 41]),
        Causal() | Window(reach=1),
    ):
        assert pattern.looks_ahead()
    assert [CausalWithPrefix().looks_ahead(segment) for segment in (0, 1)] == [True, False]
    assert [BySegment(parts=[Full(), Causal()]).looks_ahead(segment) for segment in (0, 1)] == [
        True,
        False,
    ]


def test_examples_that_train_has_too() -> None:
    train = [
        Example(str(n), {"text": text}, label)
        for n, (text, label) in enumerate([("a", "x"), ("b", "y"), ("c", "x")])
    ]
    both = [Example("0", {"text": "b"}, "y"), Example("1", {"text": "a"}, "y", place="dev.tsv:2")]
    said = inference.describe_overlap(train, both)
    assert said == "2 of 2 have a text of train, 1 with another label: dev.tsv:2"
    assert inference.describe_overlap(train, both[:1]) == "1 of 1 have a text of train"
    assert inference.describe_overlap(train, [Example("0", {"text": "d"}, "y")]) == ""


def test_passages_and_choices_in_any_order_are_known() -> None:
    def ask(text: str, choices: str, label: int = 0) -> Example:
        return Example("0", {"text": text, "choices": [*choices]}, str(label), place="dev:1")

    train = [ask("p", "abc"), ask("q", "abc")]
    said = inference.describe_overlap(train, [ask("p", "bca", 2), ask("p", "xyz"), ask("r", "abc")])
    question = "1 of 3 have a question of train, with its text and choices"
    assert said == f"{question}; 1 of 2 passages are in train"
    assert "1 with another label" in inference.describe_overlap(train, [ask("p", "bca", 0)])
    asked = [Example("0", {"question": q, "context": "c", "answers": []}) for q in "xy"]
    assert inference.describe_overlap(asked[:1], asked[1:]) == "1 of 1 passages are in train"
