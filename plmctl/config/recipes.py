"""Where part files and recipes lie, and how a recipe's name, or a user's own file, becomes an
option Hydra can choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.walks import references_in
from plmctl.core.errors import DataError, UsageError, find_meant, nearest
from plmctl.core.spelling import spell_word
from plmctl.storage.paths import find_near
from plmctl.storage.settings_file import read_settings

STUDIES = "studies"  # the folder of studies among recipes
GRAPHS = "graph"  # and that of recipes for plmctl graph
SEARCHES = "searches"  # and that of files for plmctl search
LISTED = "plmctl recipes ls says what each one is"


def conf_dir() -> Path:
    """The folder of part files: conf/ of a checkout, or its copy in an installed wheel."""
    return _shipped("conf")


def recipes_dir() -> Path:
    """The folder of recipes: recipes/ of a checkout, or its copy in an installed wheel."""
    return _shipped("recipes")


def docs_dir() -> Path:
    """The folder of pages: docs/ of a checkout, or its copy in an installed wheel."""
    return _shipped("docs")


def slots(config_dirs: Sequence[str] = ()) -> list[str]:
    """The slots that have part files, in conf/ or in the user's folders."""
    folders = [conf_dir(), *map(Path, config_dirs)]
    groups = {place.name for folder in folders for place in folder.iterdir() if place.is_dir()}
    return sorted(groups - {"recipes"})


def hint_at_own(config_dirs: Sequence[str]) -> str:
    """A hint at the folder of a user's own parts, if no folder is named; else ""."""
    hint = "; a part of your own needs --config-dir <folder> (and --plugin <module>)"
    return "" if config_dirs else hint


def part_files(group: str, config_dirs: Sequence[str] = ()) -> dict[str, Path]:
    """{name: file} of the parts of a slot; a user's own hides one of conf/ that is called the
    same.
    """
    folders = [conf_dir(), *map(Path, reversed(config_dirs))]
    return {
        file.stem: file for folder in folders for file in sorted((folder / group).glob("*.yaml"))
    }


def find_line(target: str, config_dirs: Sequence[str]) -> str:
    """`file:line` of the first of the user's own files that names the part `target`; "" if none
    does.
    """
    for folder in map(Path, config_dirs):
        for file in sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")]):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            for number, line in enumerate(lines, 1):
                if re.search(rf"_target_: *[\"']?{re.escape(target)}(?![\w.])", line):
                    return f"{file}:{number}"
    return ""


class UnknownRecipe(UsageError):
    """There is no recipe of this name; `meant` is the name that is spelt alike, or ""."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.meant = find_meant(name, known)
        fix = self.meant or LISTED
        super().__init__(
            f"there is no recipe '{name}'{nearest(name, known)};"
            f" there are {', '.join(known)}, or give ./yours.yaml\n  fix: {fix}"
        )


def find_recipe(name: str, config_dirs: Sequence[str] = ()) -> Path:
    """The file of a recipe: ./mine.yaml as it stands, a name from the user's folders, then from
    recipes/.
    """
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            near = find_near(Path(name), folders=False)
            fix = spell_word(str(near)) if near else "plmctl recipes ls lists the named recipes"
            raise UsageError(f"{name}: there is no such file\n  fix: {fix}")
        return Path(name)
    for folder in [*_recipe_folders(config_dirs), recipes_dir()]:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise UnknownRecipe(name, recipe_names(config_dirs))


def is_shipped(name: str) -> bool:
    """Whether this name, or this file, is of recipes/; a user's folders are not looked into."""
    return find_recipe(name).resolve().is_relative_to(recipes_dir())


def find_study(name: str, config_dirs: Sequence[str] = ()) -> Path:
    """The file of a study: ./mine.yaml as it stands, a name from studies/ of the user's recipes,
    then of recipes/.
    """
    if name.endswith((".yaml", ".yml")):
        return find_recipe(name)
    files = studies(config_dirs)
    if name not in files:
        problem = f"there is no study '{name}'{nearest(name, files)}." if name else "which study?"
        fix = find_meant(name, files) or "plmctl recipes ls --studies says what each one is"
        there = f"There are {', '.join(files)}, or give ./yours.yaml"
        raise UsageError(f"{problem} {there}\n  fix: {fix}")
    return files[name]


def find_graph_recipe(name: str, config_dirs: Sequence[str] = ()) -> Path:
    """The file of a recipe of `plmctl graph`: ./mine.yaml as it stands, else as for a study."""
    return _find(name, graph_recipes, config_dirs, f"recipe '{name}' for plmctl graph", "graph")


def find_search(name: str, config_dirs: Sequence[str] = ()) -> Path:
    """The file of a search: ./mine.yaml as it stands, else as for a study."""
    return _find(name, searches, config_dirs, f"search '{name}'", "search")


def _find(
    name: str,
    known: Callable[[Sequence[str]], dict[str, Path]],
    config_dirs: Sequence[str],
    described: str,
    command: str,
) -> Path:
    """The file of a name that a command knows; UsageError with all names."""
    if name.endswith((".yaml", ".yml")):
        return find_recipe(name)
    files = known(config_dirs)
    if name not in files:
        fix = find_meant(name, files) or f"plmctl {command} --help says what each one is"
        raise UsageError(
            f"there is no {described}{nearest(name, files)}; there are {', '.join(files)},"
            f" or give ./yours.yaml\n  fix: {fix}"
        )
    return files[name]


def searches(config_dirs: Sequence[str] = ()) -> dict[str, Path]:
    """{name: file} of every search, in the same way as studies."""
    return _files_in(SEARCHES, config_dirs)


def studies(config_dirs: Sequence[str] = ()) -> dict[str, Path]:
    """{name: file} of every study; a user's own hides one of recipes/ that is called the same."""
    return _files_in(STUDIES, config_dirs)


def graph_recipes(config_dirs: Sequence[str] = ()) -> dict[str, Path]:
    """{name: file} of every recipe of `plmctl graph`, in the same way."""
    return _files_in(GRAPHS, config_dirs)


def _files_in(place: str, config_dirs: Sequence[str]) -> dict[str, Path]:
    """{name: file} of one folder of recipes/ and of the user's recipes, whose files come first."""
    folders = [
        *(Path(folder, place) for folder in _recipe_folders(config_dirs)),
        recipes_dir() / place,
    ]
    return {
        file.stem: file for folder in reversed(folders) for file in sorted(folder.glob("*.yaml"))
    }


def recipe_names(config_dirs: Sequence[str] = ()) -> list[str]:
    """Every recipe that has a name, the user's own first."""
    folders = [*(Path(folder, "recipes") for folder in config_dirs), recipes_dir()]
    names = [
        file.relative_to(folder).with_suffix("")
        for folder in folders
        for file in sorted(folder.rglob("*.yaml"))
    ]
    return list(
        dict.fromkeys(
            str(name) for name in names if name.parts[0] not in (STUDIES, GRAPHS, SEARCHES)
        )
    )


def option_name(recipe: str) -> str:
    """A recipe's name, or a file's path, in letters that Hydra's grammar takes."""
    return re.sub(r"\W", "_", recipe, flags=re.ASCII)


def load(file: Path) -> dict[str, Any]:
    """The settings that a recipe, a study or a part file writes; none may read the environment."""
    try:
        settings = read_settings(file, fix="correct it: settings as key: value")
        if wrong := _find_no_name(settings):
            what = f"{wrong} is no name (YAML reads on and yes as true, off and no as false)"
            raise DataError(what, file=file, fix="the name in quotes")
        for path, text in references_in(settings):
            if "oc.env" in text:
                fix = f"say it on the command line: {path}=$NAME"
                raise DataError(
                    f"{path}={text!r}: a file does not read the environment", file=file, fix=fix
                )
        return settings
    except DataError as error:
        raise UsageError(str(error)) from None


def _find_no_name(settings: Any, path: str = "") -> str:
    """The path of a key that is true, false or null, or ""."""
    if not isinstance(settings, dict):
        return ""
    for key, value in settings.items():
        here = f"{path}.{key}" if path else str(key)
        if key is None or isinstance(key, bool):
            above = f"{path}: " if path else ""
            return f"{above}the key {'null' if key is None else str(key).lower()}"
        if found := _find_no_name(value, here):
            return found
    return ""


def _recipe_folders(config_dirs: Sequence[str]) -> list[Path]:
    return [place for base in config_dirs for place in (Path(base, "recipes"), Path(base))]


def _shipped(name: str) -> Path:
    package = Path(__file__).parents[1]
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name
