"""The output of `plmctl recipes ls`, `show` and `cp`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from plmctl.chain import listing
from plmctl.config.compose import compose
from plmctl.config.groups import LENGTHS
from plmctl.config.headers import Header, header
from plmctl.config.json_schema import name_schema
from plmctl.config.recipes import find_recipe, find_study, load, recipe_names, studies
from plmctl.config.spec import Provenance, thaw
from plmctl.config.walks import leaves
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell, spell_word
from plmctl.core.terminal import print_table, tell
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import read_text


def show_list(given: Provenance, *, of_studies: bool) -> None:
    """Print all recipes, or all studies."""
    read = listing.list_studies if of_studies else listing.list_recipes
    rows = read(given.config_dirs)
    if given.json:
        tell(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    shown = [{key: value for key, value in row.items() if key != "system"} for row in rows]
    print_table(list(shown[0]), [list(row.values()) for row in shown])


def show_recipe(
    typed: str, about: Header, name: str, lines: Sequence[str], given: Provenance
) -> None:
    """Print the header of a recipe, what differs from the defaults, and the lines of its chain.

    Args:
        typed: the words behind `plmctl recipes run` that make this chain.
        name: The name of the recipe, or its file.
        lines: the commands of the chain.
    """
    differences = _differences(name, given)
    if given.json:
        record: dict[str, object] = dict(listing.describe_recipe(name, about.file))
        record |= {"file": str(about.file), "data": about.text("Data")}
        record |= {"differences": differences, "chain": list(lines)}
        tell(json.dumps(record, indent=1, ensure_ascii=False))
        return
    tell("\n".join([str(about.file), *about.lines]))
    tell("\nSettings that differ from the defaults of plmctl pretrain with the same parts:")
    rows = [[key, *values] for key, values in differences.items()]
    print_table(("setting", "here", "default"), rows)
    if lines:
        tell("\n".join([f"plmctl recipes run {typed}:", *(f"  {line}" for line in lines)]))


def copy_file(name: str, given: Provenance, dest: str | None) -> None:
    """Copy the file of a recipe or of a study, for editing; nothing is overwritten."""
    is_study = _is_study(name, given)
    source = (find_study if is_study else find_recipe)(name, given.config_dirs)
    file = Path(dest or ".").expanduser()
    file = file / f"{Path(name).stem}.yaml" if file.is_dir() else file
    if file.suffix not in (".yaml", ".yml"):
        allowed = "a recipe is a .yaml file, or an existing folder"
        raise UsageError(f"{file}: {allowed}\n  fix: {spell_word(f'{file}.yaml')}")
    if file.exists():
        others = (file.with_stem(f"{file.stem}-{number}") for number in count(2))
        free = next(other for other in others if not other.exists())
        fix = shlex.join(["plmctl", "recipes", "cp", name, "--out", str(free)])
        problem = "is there already, and stays as it is"
        raise UsageError(f"{file}: {problem}\n  fix: another name: {fix}")
    if not file.parent.is_dir():
        fix = f"mkdir -p {shlex.quote(str(file.parent))}"
        raise UsageError(f"{file}: there is no folder {file.parent}\n  fix: {fix}")
    verb = "ablate" if is_study else "pretrain"
    write_text(file, name_schema(verb) + read_text(source))
    named = shlex.quote(str(file) if file.is_absolute() else f"./{file}")
    other = f"plmctl ablate {named} --dry-run" if is_study else f"plmctl recipes run {named}"
    tell(f"{file}\nafter editing:\n  plmctl {verb} {named}\n  {other}")


def find_header(name: str, given: Provenance) -> Header:
    """The header in the file of a recipe; UsageError where the name is a study's."""
    if _is_study(name, given):
        raise UsageError(f"'{name}' is a study\n  fix: plmctl ablate {name} --dry-run")
    return header(find_recipe(name, given.config_dirs))


def _is_study(name: str, given: Provenance) -> bool:
    """Whether a name is that of a study alone."""
    return name in studies(given.config_dirs) and name not in recipe_names(given.config_dirs)


def _differences(name: str, given: Provenance) -> Mapping[str, tuple[str, str]]:
    """{setting: (here, by default)}: the parts that a recipe chooses, then the values that it
    gives them.
    """
    parts = listing.list_parts(load(find_recipe(name, given.config_dirs)))
    parts = {slot: part for slot, part in parts.items() if "@" not in slot}
    bare = [*(f"{slot}={spell(part)}" for slot, part in parts.items()), "train.steps=1"]
    options = {"config_dirs": given.config_dirs, "plugins": given.plugins}
    specs = (compose("pretrain", name, **options), compose("pretrain", None, bare, **options))
    own, default = (dict(leaves(thaw(spec))) for spec in specs)
    default |= {f"train.{length}": None for length in LENGTHS}
    values = {
        key: (spell(value), spell(default[key]) if key in default else "")
        for key, value in own.items()
        if value != default.get(key) and not key.startswith(("run.", "recipe"))
    }
    return {slot: (spell(part), "") for slot, part in parts.items()} | values
