"""The published form of a study: its file, as the block `published` of the file changes it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.headers import header
from plmctl.config.recipes import find_recipe
from plmctl.config.spec import Provenance, RunSpec, key_of
from plmctl.core.errors import UsageError

WORD = "scale=published"
BLOCK = "published"
FACTS = ("corpus", "parameters", "line")  # facts of the block about itself
WHOLE = ("budget", "grid", "baseline")  # groups of which no half stays
_OF_A_BLOCK = re.compile(r"(position|first_vectors|model\.([\w.]+\.)?residual\._target_)=")
# settings that a trained model decides (init=...): pretrain.new_model
_OF_A_MODEL = ("size", "tokenizer", "position")
# text and length of a published line; a study sets both once for all arms
_OF_A_RUN = ("data", "init", "train.steps", "train.epochs", "train.tokens", "train.words")


def asks_for_published(given: Provenance) -> bool:
    """Whether a command line asks for the published form of a study."""
    return given.verb == "ablate" and WORD in given.overrides


def find_study_folder(spec: RunSpec) -> Path:
    """The folder of a study: its `out`, or by its name and form."""
    ending = "-published" if spec["scale"] == "published" else ""
    return Path(spec["out"] or Path("studies") / f"{Path(spec['recipe']).stem}{ending}")


def take_published_form(settings: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The settings of a study, changed by its block `published`.

    Groups are merged by their names, null takes a name away, a list replaces a list.
    `pretrain.overrides` are the words of the line `# Published:` of the recipe, unless the block
    has `line: false`, and behind them those of the block; the small ones go. So do `start` and the
    length of the small study, and what metrics say of arms that are taken away.

    Args:
        settings: The settings of the file.
        file: The study's.

    Raises:
        UsageError: The file has no such block, or its block says why it has no form.
    """
    block = settings.get(BLOCK)
    if not isinstance(block, Mapping):
        why = str(block) if block else f"the file has no block `{BLOCK}`"
        raise UsageError(f"{file.stem}: no published experiment: {why}\n  fix: leave published out")
    small = {**settings, "start": None}
    if not isinstance(small["pretrain"].get("overrides"), list):
        small["pretrain"] = {**small["pretrain"], "overrides": []}
    changes = {name: node for name, node in block.items() if name not in FACTS}
    kept = {name: node for name, node in small.items() if not (name in WHOLE and name in changes)}
    merged: dict[str, Any] = _merge(kept, changes)
    pretrain = dict(merged["pretrain"])
    recipe = str(pretrain.get("recipe", "bert"))
    line = header(find_recipe(recipe)).command("Published")
    words = [word for word in line[3:] if not _is_of_a_run(word)]
    words = [] if block.get("line") is False else words
    words += (changes.get("pretrain") or {}).get("overrides", ())
    pretrain["overrides"] = words
    if "new_model" in pretrain:
        new = [word for word in words if key_of(word).partition(".")[0] in _OF_A_MODEL]
        pretrain |= {"new_model": new, "overrides": [word for word in words if word not in new]}
    merged["pretrain"] = pretrain
    gone = {str(name) for name, arm in (changes.get("arms") or {}).items() if arm is None}
    merged["metrics"] = {
        name: _without(metric, gone) for name, metric in merged.get("metrics", {}).items()
    }
    if "budget" not in changes and "budget" in settings:
        merged["budget"] = {"steps": read_steps(line)}
    return merged


def read_steps(line: Sequence[str]) -> int | None:
    """The updates that a published line names; None where it names none."""
    given = [word.partition("=")[2] for word in line if key_of(word) == "train.steps"]
    return int(float(given[-1])) if given and given[-1] != "null" else None


def name_other_block(settings: Mapping[str, Any]) -> str:
    """The block that the small form of a study trains, where that of its published form is another:
    "modern_encoder, not bert"; empty where it is the same, or where nothing is published.
    """
    block = settings.get(BLOCK)
    if not isinstance(block, Mapping):
        return ""
    small, changes = settings["pretrain"], block.get("pretrain") or {}
    recipe = small.get("recipe", "bert")
    published = changes.get("recipe", recipe)
    if kind := settings.get("start"):
        return f"a base that has learned ({kind}), not {published}"
    if recipe != published:
        return f"{recipe}, not {published}"
    words = [*(small.get("new_model") or ()), *(small.get("overrides") or ())]
    same = changes.get("overrides") or ()
    other = [word for word in words if _OF_A_BLOCK.match(word) and word not in same]
    values = dict.fromkeys(re.split("[=.]", word)[-1] for word in other)
    return f"{recipe} with {', '.join(values)}" if values else ""


def _is_of_a_run(word: str) -> bool:
    key = key_of(word)
    return any(f"{key}.".startswith(f"{name}.") for name in _OF_A_RUN)


def _without(metric: Mapping[str, Any], arms: Collection[str]) -> dict[str, Any]:
    """A metric without what it says of these arms."""

    def keep(node: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in node.items() if str(name) not in arms}

    kept = {**metric, "expect": keep(metric.get("expect") or {})}
    if published := metric.get("published"):
        kept["published"] = {**published, "values": keep(published["values"])}
    return kept


def _merge(node: Any, change: Any) -> Any:
    if not (isinstance(node, Mapping) and isinstance(change, Mapping)):
        return change
    merged = dict(node)
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(node[name], value) if name in node else value
    return merged
