"""What objectives state of themselves: it is what they do, and a wrapper keeps it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from plmctl.artifacts.assemble import build_model, known_to_objectives
from plmctl.config.build import build, entry, plain
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.nn.restrained import Restrained
from plmctl.objectives.base import Facts, Objective
from plmctl.objectives.clm import CLM
from plmctl.objectives.costs import Charged
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.mlm import MLM
from plmctl.objectives.penalty import Penalties
from plmctl.objectives.phases import Phase
from plmctl.objectives.word_structure import WordStructure
from plmctl.runs.contract.stand_in import TINY

RECIPES = ("albert", "bart", "bert", "electra", "elmo", "gpt", "infoword", "simcse", "spanbert")
OTHERS = ("structbert", "xlnet")


def objectives(recipe: str, *words: str) -> dict[str, Objective]:
    """The objectives of a recipe, without numbers."""
    config: Any = plain(compose("pretrain", recipe, ["size=tiny", *words]))
    with torch.device("meta"):
        model = build_model(config, vocab_size=TINY.size, vocab=TINY)
        given = known_to_objectives(model, TINY)
        return {
            name: build(entry(node)[0], given, path=f"objective.{name}")
            for name, node in config["objective"].items()
        }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", [*RECIPES, *OTHERS])
def test_the_terms_are_those_that_are_counted(recipe: str) -> None:
    nothing = Batch(torch.empty(0), {}, counts=defaultdict(int))
    for name, objective in objectives(recipe).items():
        assert objective.facts.terms == objective.counts(nothing).keys(), name


@pytest.mark.parametrize("name", ["adversarial", "all_tokens_mlm", "replace_mlm", "rtd"])
def test_the_terms_of_objectives_that_no_recipe_has(name: str) -> None:
    nothing = Batch(torch.empty(0), {}, counts=defaultdict(int))
    (objective,) = objectives("electra", f"objective=[{name}]").values()
    assert objective.facts.terms == objective.counts(nothing).keys()


def full() -> Facts:
    """Facts of which none is as it is by default."""
    some = frozenset({"a"})
    return Facts(
        needs=some,
        uses=some,
        heads=some,
        terms=some,
        label_heads={"pair": "a"},
        at_every_token=some,
        contrasts=True,
        shares=True,
        least_rows=3,
        asks_next="text",
        asks_row=True,
        reads_text=True,
        heads_learn=False,
        generator_terms=frozenset({"a"}),
        helpers=((object(), some),),  # type: ignore[arg-type]
        asked_at={"a": frozenset({"x"})},
        measures=some,
        phases=(Phase(name="layer 1", share=1.0),),
    )


class Stated(Objective):
    """Nothing but facts."""

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts


def test_wrappers_keep_what_they_wrap() -> None:
    inner, default = Stated(full()), Facts()
    assert all(getattr(full(), each.name) != getattr(default, each.name) for each in fields(Facts))
    wrapped = Charged(objective=inner, costs=[Penalties({"penalty": [Restrained()]})])
    assert wrapped.facts == replace(inner.facts, terms=frozenset({"a", "penalty"}))
    mixed = Mix({"x": Entry(inner), "y": Entry(Stated(Facts(terms=frozenset({"b"}))))})
    left_to_the_parts = {"asks_next": None, "asks_row": False, "reads_text": False}
    assert mixed.facts == replace(
        inner.facts,
        terms=frozenset({"a", "b"}),
        **left_to_the_parts,  # type: ignore[arg-type]
    )


def test_each_head_is_asked_at_the_targets_of_its_objectives() -> None:
    mixed = Mix({"mlm": Entry(MLM()), "shuffled": Entry(WordStructure()), "clm": Entry(CLM())})
    assert mixed.facts.targets_of("mlm") == {"mlm", "shuffle"}
    assert mixed.facts.targets_of("clm") == {"clm"}
    assert mixed.facts.targets_of("of a generator") == {"mlm", "shuffle", "clm"}


def test_a_fact_beside_the_facts_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Old: state heads, needs in `facts = Facts\(...\)`"):
        type("Old", (Objective,), {"needs": frozenset({"text"}), "heads": frozenset()})
