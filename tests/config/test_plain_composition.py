"""Tests of compositions without Hydra: they are what Hydra makes of the same files and words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.types import RunMode

from plmctl.config.compose import attempt
from plmctl.config.composer import open_composer, store_recipe, to_plain
from plmctl.config.plain_composition import Unusual
from plmctl.config.recipes import recipe_names
from plmctl.config.spec import Provenance

LEFT_TO_HYDRA = ("t5",)  # it sets a part in the place of a reference to another one


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("pretrain", ["recipe=modern_electra"]),
        ("pretrain", ["recipe=universal_transformer", "size=tiny", "~distill"]),
        ("pretrain", ["recipe=knowbert", "noise@eval.noise.token_mask=span_mask"]),
        ("finetune", ["task=summarization", "search@task.search=sample", "peft=[lora,adapter]"]),
        ("rewrite", []),
    ],
)
def test_settings_are_those_that_hydra_composes_in_the_same_order(
    verb: str, words: list[str]
) -> None:
    with open_composer(verb) as composer:
        for word in words:
            if word.startswith("recipe="):
                store_recipe(word.removeprefix("recipe="))
        whole = to_plain(composer._hydra.compose_config(verb, words, RunMode.RUN))
        assert json.dumps(composer._compose_own(words)) == json.dumps(whole)


def test_parts_and_recipes_of_a_user_are_composed_in_the_same_way(tmp_path: Path) -> None:
    files = {
        "noise/mine.yaml": "# @package noise.mine\nrate: 1e-1\n",
        "size/own.yaml": "width: 32\nnum_layers: 0x2\n",
        "recipes/two.yaml": "defaults:\n  - /noise@eval.noise.mine: mine\n"
        "  - override /size: own\nnoise: null\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with open_composer("pretrain", [str(tmp_path)]) as composer:
        words = [f"recipe={store_recipe('two', [str(tmp_path)])}", "optim=lamb"]
        whole = to_plain(composer._hydra.compose_config("pretrain", words, RunMode.RUN))
        assert json.dumps(composer._compose_own(words)) == json.dumps(whole)
        assert (whole["size"]["num_layers"], whole["eval"]["noise"]["mine"]["rate"]) == (2, 0.1)


def test_every_recipe_is_composed_without_hydra() -> None:
    left = []
    with open_composer("pretrain") as composer:
        for name in recipe_names():
            try:
                composer._compose_own([f"recipe={store_recipe(name)}"])
            except Unusual:
                left.append(name)
    assert tuple(left) == LEFT_TO_HYDRA


@pytest.mark.parametrize("word", ["size=1", "size=null", "x=1", "noise=[1]", "+seed=1", "size=a,b"])
def test_other_words_are_left_to_hydra(word: str) -> None:
    with open_composer("pretrain") as composer, pytest.raises(Unusual):
        composer._compose_own([word])


def test_a_config_takes_a_tenth_of_the_time_of_hydra() -> None:
    """All of a config beside Hydra's part of it alone, since a ratio holds on any machine."""

    def fastest(compose: Callable[[int], object], rounds: int) -> float:
        times = []
        for number in range(rounds):
            start = time.process_time()
            compose(number)
            times.append(time.process_time() - start)
        return min(times)

    def whole(number: int) -> object:
        return attempt(Provenance("pretrain", "bert", ("size=tiny", f"train.steps={number + 1}")))

    whole(0)  # reads the files
    with open_composer("pretrain") as composer:
        words = [f"recipe={store_recipe('bert')}"]
        hydra = fastest(lambda _: composer._hydra.compose_config("pretrain", words, RunMode.RUN), 3)
    assert fastest(whole, 8) < hydra / 10
