"""What `plmctl recipes ls` says of recipes and studies, from their files alone: nothing is
composed, torch stays out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.run.headers import Header, header
from plmctl.run.recipes import (
    STUDIES,
    conf_dir,
    find_recipe,
    load,
    recipe_names,
    recipes_dir,
    studies,
)
from plmctl.run.schema import LENGTHS

UNMEASURED = "not measured"


def list_recipes(config_dirs: Sequence[str] = ()) -> list[dict[str, str]]:
    """{name, system, paper, scale, parameters, FLOPs, reached} of every recipe that has a name,
    the user's own first.
    """
    return [
        describe_recipe(name, find_recipe(name, config_dirs)) for name in recipe_names(config_dirs)
    ]


def describe_recipe(name: str, file: Path) -> dict[str, str]:
    """The row of one recipe."""
    about, node = header(file), load(file)
    parameters, _, flops = about.text("Cost").partition(" (")[0].partition(", ")
    return {
        "name": name,
        "system": system(about),
        "paper": paper(about),
        "scale": scale(node),
        "parameters": parameters.removesuffix(" parameters"),
        "FLOPs": flops.removesuffix(" FLOPs"),
        "reached": about.text("Reached") or UNMEASURED,
    }


def system(about: Header) -> str:
    """What stands before the first colon that is outside of brackets: "BERT (Devlin et al.,
    2019, arXiv:1810.04805)".
    """
    depth = 0
    for index, letter in enumerate(about.about):
        depth += (letter == "(") - (letter == ")")
        if letter == ":" and not depth:
            return about.about[:index]
    return about.about


def paper(about: Header) -> str:
    """Authors and year in the brackets of `system`: "Devlin et al., 2019"."""
    known = re.search(r"\((?:\w+: )?([^()]*?,? \d{4})", system(about))
    return known[1] if known else ""


def scale(node: Mapping[str, Any]) -> str:
    """Size, updates and rows as the file stands: "tiny, 2,000 steps, 32 x 128"."""
    train, chosen = node.get("train") or {}, choices(node)
    length = (node.get("format") or {}).get("max_length") or _default(
        "format", chosen.get("format"), "max_length"
    )
    amounts = [f"{train[name]:,} {name}" for name in LENGTHS if train.get(name) is not None]
    rows = (
        f"{train.get('batch_size', 32)} x {length}" if length else str(train.get("batch_size", 32))
    )
    return f"{chosen.get('size', 'mini')}, {' '.join(amounts) or 'no length'}, {rows}"


def choices(node: Mapping[str, Any]) -> dict[str, Any]:
    """{slot: the part that a recipe's list of defaults chooses}."""
    pairs = [
        pair
        for entry in node.get("defaults") or ()
        if isinstance(entry, Mapping)
        for pair in entry.items()
    ]
    return {slot.removeprefix("override ").removeprefix("/"): chosen for slot, chosen in pairs}


def list_studies(config_dirs: Sequence[str] = ()) -> list[dict[str, str]]:
    """{name, title, arms, seeds, budget, tasks, results} of every study."""
    results = recipes_dir() / "RESULTS.md"
    text = results.read_text(encoding="utf-8") if results.is_file() else ""
    return [_study(name, load(file), text) for name, file in studies(config_dirs).items()]


def _study(name: str, node: Mapping[str, Any], results: str) -> dict[str, str]:
    grid = [
        max(1, len(re.split(r",(?![^\[(]*[\])])", str(word).partition("=")[2])))
        for word in node.get("grid") or ()
    ]
    arms = len(node.get("arms") or ()) + (math.prod(grid) if grid else 0)
    amounts = (node.get("budget") or {}).items()
    budget = next((f"{value:,} {kind}" for kind, value in amounts if value is not None), "")
    seeds = len(node.get("seeds") or (0, 1, 2))
    return {
        "name": name,
        "title": str(node.get("title") or ""),
        "arms": str(arms),
        "seeds": str(seeds),
        "budget": budget,
        "tasks": ", ".join((node.get("finetune") or {}).get("tasks") or ()),
        "results": "RESULTS.md" if f"{STUDIES}/{name}.yaml" in results else UNMEASURED,
    }


def _default(group: str, option: Any, key: str) -> Any:
    file = conf_dir() / group / f"{option}.yaml"
    return load(file).get(key) if file.is_file() else None
