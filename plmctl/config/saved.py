"""The settings that a run or a user saved as YAML: plain values, in which nothing is worked out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.config.build import UnknownSetting, check_parts
from plmctl.config.json_schema import name_schema
from plmctl.config.make_spec import make_spec
from plmctl.config.spec import VERSION, Provenance, RunSpec
from plmctl.config.walks import references_in
from plmctl.core.errors import DataError
from plmctl.core.moved import rename_moved
from plmctl.core.terminal import tell
from plmctl.core.used_cells import drop_unused_cells
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import COPY, read_text
from plmctl.storage.settings_file import read_settings, to_yaml

CONFIG = "config.yaml"  # the config file of a run and of a checkpoint
CUT = "the file is cut off: its last line is no whole setting"


def read_saved(file: Path, *, fix: str = COPY) -> dict[str, Any]:
    """The settings that a run saved, as plain values: nothing in them is worked out, so nothing
    leaks into them.
    """
    settings = read_settings(file, fix=fix)
    refuse_references(settings, file=file)
    return drop_unused_cells(dict(rename_moved(settings)))  # an older plmctl saved all


def read_spec(folder: Path, given: Provenance | None = None) -> RunSpec | None:
    """The spec of a run, or of a checkpoint; None where nothing was saved yet.

    Args:
        given: Who asks for it; the verb is that of the saved spec.

    Raises:
        DataError: The file is damaged, or has settings that plmctl does not know.
    """
    file = folder / CONFIG
    settings = read_saved(file) if file.is_file() else {}
    if not settings:
        return None
    version = settings.pop(VERSION, 2)  # convert writes none
    if version != 2:
        fix = "use the plmctl that wrote it, or train a new run"
        what = f"a spec of version {version}; this plmctl reads version 2"
        raise DataError(what, file=file, fix=fix)
    cut = not read_text(file).endswith("\n")
    if cut and "run" not in settings and "recipe" in settings:  # the last group of each run
        raise DataError(CUT, file=file, fix=COPY)
    known_by = {"graph": "graph_score", "finetune": "task"}
    verb = next((verb for verb, key in known_by.items() if key in settings), "pretrain")
    verb = verb if "train" in settings else "convert"
    known = replace(given or Provenance(verb), verb=verb)
    spec, errors = make_spec(verb, settings, known, saved=True)
    if errors and cut:
        raise DataError(CUT, file=file, fix=COPY)
    if errors:
        raise DataError("; ".join(str(error) for error in errors[:3]), file=file, fix=COPY)
    return spec


def refuse_former_settings(parts: Mapping[str, Any], plugins: Sequence[str], *, file: Path) -> None:
    """DataError where saved parts have settings that parts of these names have no more.

    Args:
        parts: {slot: node}.
    """
    found = check_parts(parts, plugins)
    former = [error for error in found if isinstance(error, UnknownSetting)]
    if former:
        what = f"{former[0].path} is a setting of an older plmctl, which this one does not have"
        more = f" (nor {len(former) - 1} more)" if len(former) > 1 else ""
        fix = "train a new run of today's recipe, or use the plmctl that wrote it"
        raise DataError(f"{what}{more}", file=file, fix=fix)


def write_spec(spec: RunSpec, folder: Path) -> None:
    """Save a spec as `read_spec` finds it."""
    write_text(folder / CONFIG, spec_text(spec))


def spec_text(spec: RunSpec) -> str:
    """A spec as its file has it, with the version by which it is read. An editor finds the schema
    by the first line, except with parts of the user's own, which the schema lacks.
    """
    given = spec.provenance
    head = "" if given.config_dirs or given.plugins else name_schema(given.verb)
    return head + to_yaml({VERSION: 2, **spec.used()})


def print_settings(spec: RunSpec) -> None:
    """Print the settings of a command as YAML."""
    known = spec.provenance
    head = f"# {known.decision}\n" if known.decision else ""
    head += "".join(
        f"# unused, its part is not chosen: {line}\n"
        for line in known.removed
        if line.partition(".")[0] not in spec.idle
    )
    tell(head + to_yaml(spec.used()), end="")


def refuse_references(settings: Any, *, file: object) -> None:
    """DataError where a saved setting is no value but refers to another, or to the environment
    (`${oc.env:HOME}`).
    """
    for path, value in references_in(settings):
        fix = f"write its value there, if you trust the file; a run saves values alone ({path})"
        raise DataError(f"{path}={value!r} refers to something else", file=file, fix=fix)
