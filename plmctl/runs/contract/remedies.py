"""The advice of a message about parts that do not fit together: the parts in conf/ that would."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.build import build
from plmctl.config.recipes import conf_dir, load, part_files, recipes_dir
from plmctl.config.references import work_out
from plmctl.core.errors import ConfigError, PlmctlError, did_you_mean, find_meant_beside
from plmctl.core.fields import Fields
from plmctl.runs.contract.stand_in import TINY

SHOWN = 2  # settings of a fix that are written out
# slot -> the attribute that says what its parts add
GIVERS = {"format": "provides", "noise": "writes"}
# the first word of a config path -> where a part that stands there says what it reads
READS = {"noise": "reads", "objective": "facts.needs"}


def find_objectives(outputs: int, config_dirs: Sequence[str]) -> list[str]:
    """The objectives in conf/ that bring a head of their own name with so many outputs."""
    return [
        file.stem
        for file in _find_files("objective", config_dirs)
        if (load(file).get("heads") or {}).get(file.stem, {}).get("num_classes") == outputs
    ]


def find_formats(
    label: str, outputs: int, config_dirs: Sequence[str], plugins: Sequence[str]
) -> list[str]:
    """The formats in conf/ that number so many relations of `label`."""
    formats = {file.stem: _build_part(file, plugins) for file in _find_files("format", config_dirs)}
    return [
        name
        for name, format in formats.items()
        if len(getattr(format, "meanings", {}).get(label, ())) == outputs
    ]


def find_providers(
    config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> dict[str, list[str]]:
    """{field: settings that provide it, like "format=sentence_pair"}, from the parts that conf/
    names.

    Parts that the recipes use come first.
    """
    providers: dict[str, list[str]] = {}
    for slot, attribute in GIVERS.items():
        for file in _find_files(slot, config_dirs):
            setting = f"{slot}=[{file.stem}]" if slot == "noise" else f"{slot}={file.stem}"
            for field in getattr(_build_part(file, plugins), attribute, ()):
                providers.setdefault(field, []).append(setting)
    return providers


def _find_files(slot: str, config_dirs: Sequence[str]) -> list[Path]:
    """The part files of a slot: the user's own, then those of the recipes by frequency."""
    recipes = "".join(file.read_text(encoding="utf-8") for file in recipes_dir().glob("*.yaml"))

    def rank(file: Path) -> tuple[bool, int]:
        uses = re.findall(rf"/{slot}: .*\b{file.stem}\b", recipes)
        return file.is_relative_to(conf_dir()), -len(uses)

    return sorted(part_files(slot, config_dirs).values(), key=rank)


def _build_part(file: Path, plugins: Sequence[str]) -> Any:
    """The part that a file describes, since some know only then what they add; None where it
    cannot be made by itself.
    """
    given = {"vocab": TINY, "max_length": 8}
    try:
        # the settings that part files may refer to
        settings = work_out({"train": {"batch_size": 2}, "part": load(file)})
        return build(settings["part"], given, plugins, path=file.parent.name)
    # a part of a plugin that is not named, one that needs more, or reads a missing file
    except (PlmctlError, OSError, ValueError):
        return None


def explain_field(field: str, known: Fields) -> str:
    """The explanation of a field in the glossary `known`, in brackets."""
    nowhere = "a name that `fields` of no part introduces"
    return f" ({known[field].meaning if field in known else nowhere})"


def report_lack(
    asker: str, field: str, known: Fields, givers: Mapping[str, Sequence[str]], taken: str | None
) -> ConfigError:
    """A field that nothing gives to a part, with the settings that would.

    Args:
        asker: The path in the config of the part that needs it.
        field: The field that is missing.
        known: The glossary.
        givers: {field: settings that give it}.
        taken: The noise that took the field away; None: no noise did.
    """
    if taken is not None:
        gone = f"needs '{field}', which noise.{taken} turns into a source and a target"
        fix = "another noise, or a model and an objective that read source and target"
        return ConfigError(asker, ..., gone, fix=fix)
    settings = givers.get(field, ())
    without = known[field].without if field in known else ""
    fix = " or ".join(settings[:SHOWN]) or without
    others = ", ".join(setting.partition("=")[2].strip("[]") for setting in settings[SHOWN:])
    fix += f" (or {others})" if others else ""
    allowed = f"needs '{field}'{explain_field(field, known)}, which nothing here gives"
    meant = "" if fix or field in known else find_meant_beside(field, {*known, *givers}, least=0.7)
    if meant:
        allowed += did_you_mean([meant])
        fix = f"'{meant}' in {READS.get(asker.partition('.')[0], 'needs')} of {asker}"
    elif not fix:
        allowed += "; no part in conf/ gives it"
        fix = f"a format of your own that provides '{field}', or a noise that writes it"
    return ConfigError(asker, ..., allowed, fix=fix)
