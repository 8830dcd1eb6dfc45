"""What `plmctl recipes ls`, `show` and `cp` print."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from rich import box
from rich.table import Table

from plmctl.chain import listing
from plmctl.core.errors import UsageError
from plmctl.core.terminal import screen, tell
from plmctl.run.compose import Flags, compose
from plmctl.run.headers import Header, header
from plmctl.run.overrides import spelled
from plmctl.run.recipes import find_recipe, load, recipe_names, studies
from plmctl.run.resume import leaves
from plmctl.run.schema import LENGTHS
from plmctl.run.spec import thaw


def show_list(flags: Flags, *, of_studies: bool) -> None:
    """Print all recipes, or all studies."""
    found = listing.list_studies if of_studies else listing.list_recipes
    rows = found(flags.config_dirs)
    if flags.json:
        tell(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    shown = [{key: value for key, value in row.items() if key != "system"} for row in rows]
    print_table(list(shown[0]), [list(row.values()) for row in shown])


def show_recipe(typed: str, found: Header, name: str, lines: Sequence[str], flags: Flags) -> None:
    """Print the header of a recipe, what differs from the defaults, and the lines of its chain.

    Args:
        typed: the words behind `plmctl recipes run` that make this chain.
        found: its header.
        name: of the recipe, or its file.
        lines: the commands of the chain.
        flags: of the command line.
    """
    differences = _differences(name, flags)
    if flags.json:
        record = listing.describe_recipe(name, found.file)
        record |= {"file": str(found.file), "data": found.text("Data")}
        whole = {**record, "differences": differences, "chain": list(lines)}
        tell(json.dumps(whole, indent=1, ensure_ascii=False))
        return
    tell("\n".join([str(found.file), *found.lines]))
    tell("\nSettings that differ from the defaults of plmctl pretrain with the same parts:")
    rows = [[key, *values] for key, values in differences.items()]
    print_table(("setting", "here", "default"), rows)
    tell(f"plmctl recipes run {typed}:")
    tell("\n".join(f"  {line}" for line in lines))


def copy_recipe(name: str, found: Header, dest: str | None) -> None:
    """Copy the file of a recipe, for editing; nothing is overwritten."""
    place = Path(dest or ".").expanduser()
    place = place / f"{Path(name).stem}.yaml" if place.is_dir() else place
    if place.suffix not in (".yaml", ".yml"):
        allowed = "a recipe is a .yaml file, or a folder that is there"
        raise UsageError(f"{place}: {allowed}\n  fix: {place}.yaml")
    if place.exists():
        others = (place.with_stem(f"{place.stem}-{number}") for number in count(2))
        free = next(other for other in others if not other.exists())
        fix = shlex.join(["plmctl", "recipes", "cp", name, str(free)])
        problem = "is there already, and stays as it is"
        raise UsageError(f"{place}: {problem}\n  fix: another name: {fix}")
    if not place.parent.is_dir():
        fix = f"mkdir -p {shlex.quote(str(place.parent))}"
        raise UsageError(f"{place}: there is no folder {place.parent}\n  fix: {fix}")
    shutil.copyfile(found.file, place)
    named = shlex.quote(str(place) if place.is_absolute() else f"./{place}")
    tell(f"{place}\nafter editing:\n  plmctl pretrain {named}\n  plmctl recipes run {named}")


def find_header(name: str, flags: Flags) -> Header:
    """What the file of a recipe says of it; UsageError where the name is a study's."""
    if name in studies(flags.config_dirs) and name not in recipe_names(flags.config_dirs):
        raise UsageError(f"'{name}' is a study\n  fix: plmctl ablate {name} --dry-run")
    return header(find_recipe(name, flags.config_dirs))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is never folded."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    screen().print(table)


def _differences(name: str, flags: Flags) -> Mapping[str, tuple[str, str]]:
    """{setting: (here, by default)}: the parts that a recipe chooses, then the values that it
    gives them.
    """
    parts = listing.choices(load(find_recipe(name, flags.config_dirs)))
    parts = {slot: part for slot, part in parts.items() if "@" not in slot}
    bare = [*(f"{slot}={spelled(part)}" for slot, part in parts.items()), "train.steps=1"]
    places = {"config_dirs": flags.config_dirs, "plugins": flags.plugins}
    found = (compose("pretrain", name, **places), compose("pretrain", None, bare, **places))
    ours, theirs = (dict(leaves(thaw(spec))) for spec in found)
    theirs |= {f"train.{length}": None for length in LENGTHS}
    values = {
        key: (spelled(value), spelled(theirs[key]) if key in theirs else "")
        for key, value in ours.items()
        if value != theirs.get(key) and not key.startswith(("run.", "recipe"))
    }
    return {slot: (spelled(part), "") for slot, part in parts.items()} | values
