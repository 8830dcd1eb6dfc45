"""What is composed as plain values is what Hydra composes, and what is not is left to Hydra."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from plmctl.run import schema
from plmctl.run.composer import open_composer, store_recipe
from plmctl.run.hydra_words import set_values, to_plain
from plmctl.run.recipes import conf_dir, option_name, recipe_names, recipes_dir
from plmctl.run.usual_files import Unusual, compose_usual

STUDIES = sorted((recipes_dir() / "studies").glob("*.yaml"))
TASKS = sorted(file.stem for file in (conf_dir() / "task").glob("*.yaml"))
CASES = [
    ("pretrain", ["recipe=bert", "size=mini"]),
    ("pretrain", ["recipe=electra", "noise=[token_mask,sequence_span]", "objective=[]"]),
    ("pretrain", ["recipe=mass_translation", "noise@eval.noise.token_mask=token_replace"]),
    ("finetune", ["task=wsc", "peft=[lora]"]),
    ("finetune", ["task=translation", "search@task.search=sample"]),
    ("data", []),
]


def assert_equal(
    verb: str, words: Sequence[str], folders: Sequence[Path] = (), recipe: str | None = None
) -> dict[str, Any]:
    """Compose in both ways, and return what comes of it."""
    with open_composer(verb, [str(folder) for folder in folders]) as composer:
        for word in words:
            if word.startswith("recipe="):
                store_recipe(recipe or word.removeprefix("recipe="))
        own = compose_usual(verb, words, composer._loader.repository.read_plain)
        assert json.dumps(own) == json.dumps(to_plain(composer._compose_own(words)))
    return own


@pytest.mark.parametrize(("verb", "words"), CASES)
def test_shipped_files(verb: str, words: list[str]) -> None:
    assert_equal(verb, words)


@pytest.mark.slow
def test_all_shipped_files() -> None:
    for verb in schema.VERBS:
        if (conf_dir() / f"{verb}.yaml").is_file():
            assert_equal(verb, [])
    for recipe in recipe_names():
        if recipe != "t5":  # its settings go on where there is a reference
            assert_equal("pretrain", [f"recipe={recipe}"])
    for study in STUDIES:
        assert_equal("ablate", [f"recipe={option_name(str(study))}"], recipe=str(study))
    for task in TASKS:
        assert_equal("finetune", [f"task={task}"])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_files(**files: str) -> Path:
        """Files of a user's folder: `{"noise__mine": text}` is noise/mine.yaml."""
        for name, text in files.items():
            file = tmp_path / f"{name.replace('__', '/')}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return tmp_path

    return write_files


PLACES = {
    "data": (
        "defaults:\n- plumbing: data\n- outer: one\n- inner@there.more: two\n- _self_\n"
        "- outer@x: two\n- head: it\n"
        "- override outer/inner@there: two\nmine: {a: 1, list: [1, 2]}\n"
    ),
    "head__it": "# @package top.low\nh: 1\n",
    "outer__two": "# @package _global_.elsewhere\nq: 1\n",
    "inner__two": "b: 2\n",
    "outer__one": "defaults: [{inner@_global_.there: two}, parts/beside, _self_]\na: 3\nmine: 5\n",
    "outer__inner__two": "# @package _global_.elsewhere\nc: {d: [1], e: null}\n",
    "outer__parts__beside": "a: 9\nz: ???\n",
}


def test_places_and_order(write: Callable[..., Path]) -> None:
    folder = write(**PLACES)
    own = assert_equal("data", ["outer=one"], [folder])
    assert own["there"] == {"c": {"d": [1], "e": None}, "more": {"b": 2}}
    assert own["outer"] == {"parts": {"a": 9, "z": "???"}, "a": 3, "mine": 5}
    assert (own["x"], own["top"]) == ({"q": 1}, {"low": {"h": 1}})


@pytest.mark.parametrize(
    "more",
    [
        "mine: {a: '???', b: {c: 1}, list: [3]}",
        "mine: null",
        "mine: text",
        "mine: {list: null, a: {b: 1}}",
        "mine: ???",
        "mine: '${path}'",
    ],
)
def test_one_file_over_another(more: str, write: Callable[..., Path]) -> None:
    text = "defaults: [_self_, {over@_global_: it}]\nmine: {a: 1, b: null, list: [1, 2]}\npath: x\n"
    assert_equal("data", ["over@_global_=it"], [write(data=text, over__it=f"{more}\n")])


@pytest.mark.parametrize(
    ("defaults", "words"),
    [
        ("[_self_, {optional over: it}]", []),
        ("[_self_, {over: '${kind}'}, {kind: it}]", []),
        ("[_self_, {over: it}, {over: it}]", []),
        ("[_self_, {override over: it}]", []),
        ("[{override over: it}, {over: it}]", []),
        ("[_self_, {over: '???'}]", []),
        ("[_self_, {over: it}]", ["over=other"]),
        ("[_self_, {over: it}]", ["~over"]),
        ("[_self_, {over: it}]", ["+kind=it"]),
        ("[_self_, {over: it}]", ["over=null"]),
        ("[_self_]", ["over=it"]),
    ],
)
def test_what_is_left_to_hydra(defaults: str, words: list[str], write: Callable[..., Path]) -> None:
    folder = write(data=f"defaults: {defaults}\n", over__it="a: 1\n", kind__it="b: 1\n")
    with open_composer("data", [str(folder)]) as composer, pytest.raises(Unusual):
        compose_usual("data", words, composer._loader.repository.read_plain)


def test_settings_over_a_reference_are_left_to_hydra(write: Callable[..., Path]) -> None:
    text = "defaults: [_self_, {over@_global_: it}]\nother: {a: 1, c: 2}\nmine: ${other}\n"
    with open_composer("data", [str(write(data=text, over__it="mine: {a: 3}\n"))]) as composer:
        with pytest.raises(Unusual):
            compose_usual("data", [], composer._loader.repository.read_plain)
        assert composer.compose([]) == {"other": {"a": 1, "c": 2}, "mine": {"a": 3, "c": 2}}


@pytest.mark.parametrize(
    "words",
    [
        ["a.b=2", "a.c=[3,x]", "d=null"],
        ["a=null", "e=1e-3"],
        ["d='quoted, text'", "a.b=true", "+a.new=1", "a.b=4"],
        ["a.c=[[1]]", "e=5"],
        ["a={b:7}", "~d"],
        ["e=${a.b}", "d=x"],
        ["e=[1]"],
        ["++new.one=1", "e={x:1}"],
    ],
)
def test_values_are_set_as_hydra_sets_them(words: list[str]) -> None:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    settings: dict[str, Any] = {"a": {"b": 1, "c": [1, 2]}, "d": "text", "e": "${a.c}"}
    config = OmegaConf.create(settings)
    OmegaConf.set_struct(config, True)
    ConfigLoaderImpl._apply_overrides_to_config(
        OverridesParser.create().parse_overrides(words), config
    )
    assert not set_values(settings, words)
    assert settings == to_plain(config)
