"""The lists of `plmctl recipes ls`: recipes and studies, from their files alone. Nothing is
composed, and of recipes torch stays out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.groups import LENGTHS
from plmctl.config.headers import Header, header
from plmctl.config.recipes import conf_dir, find_recipe, load, recipe_names, studies

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
        "system": name_system(about),
        "paper": name_paper(about),
        "scale": describe_scale(node),
        "parameters": parameters.removesuffix(" parameters"),
        "FLOPs": flops.removesuffix(" FLOPs"),
        "reached": about.text("Reached") or UNMEASURED,
    }


def name_system(about: Header) -> str:
    """The text before the first colon that is outside of brackets: "BERT (Devlin et al., 2019,
    arXiv:1810.04805)".
    """
    depth = 0
    for index, letter in enumerate(about.about):
        depth += (letter == "(") - (letter == ")")
        if letter == ":" and not depth:
            return about.about[:index]
    return about.about


def name_paper(about: Header) -> str:
    """Authors and year in the brackets of `system`: "Devlin et al., 2019"."""
    known = re.search(r"\((?:\w+: )?([^()]*?,? \d{4})", name_system(about))
    return known[1] if known else ""


def describe_scale(node: Mapping[str, Any]) -> str:
    """Size, updates and rows as the file stands: "tiny, 2,000 steps, 32 x 128"."""
    train, chosen = node.get("train") or {}, list_parts(node)
    part = conf_dir() / "format" / f"{chosen.get('format')}.yaml"
    format_ = {**(load(part) if part.is_file() else {}), **(node.get("format") or {})}
    amounts = [f"{train[name]:,} {name}" for name in LENGTHS if train.get(name) is not None]
    tokens = train.get("batch_tokens")
    rows = f"{tokens:,} tokens" if tokens else str(train.get("batch_size", 32))
    rows += f" x {format_['max_length']}" if format_.get("max_length") else ""
    return f"{chosen.get('size', 'mini')}, {' '.join(amounts) or 'no length'}, {rows}"


def list_parts(node: Mapping[str, Any]) -> dict[str, Any]:
    """{slot: the part that a recipe's list of defaults chooses}."""
    entries = [entry for entry in node.get("defaults") or () if isinstance(entry, Mapping)]
    return {
        slot.removeprefix("override ").removeprefix("/"): part
        for entry in entries
        for slot, part in entry.items()
    }


def list_studies(config_dirs: Sequence[str] = ()) -> list[dict[str, str]]:
    """{name, title, arms, seeds, budget, tasks, results} of every study."""
    from plmctl.study.measured import count

    return [
        _study(name, node := load(file)) | {"results": count(name, node)}
        for name, file in studies(config_dirs).items()
    ]


def _study(name: str, node: Mapping[str, Any]) -> dict[str, str]:
    grid = [
        max(1, len(re.split(r",(?![^\[(]*[\])])", str(word).partition("=")[2])))
        for word in node.get("grid") or ()
    ]
    arms = len(node.get("arms") or ()) + (math.prod(grid) if grid else 0)
    budget = {kind: value for kind, value in (node.get("budget") or {}).items() if kind != "hours"}
    return {
        "name": name,
        "title": str(node.get("title") or ""),
        "arms": str(arms),
        "seeds": str(len(node.get("seeds") or (0, 1, 2))),
        "budget": next((f"{value:,} {kind}" for kind, value in budget.items() if value), ""),
        "tasks": ", ".join((node.get("finetune") or {}).get("tasks") or ()),
    }
