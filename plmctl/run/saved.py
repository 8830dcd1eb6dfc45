"""The settings that a run or a user saved as YAML: plain values, in which nothing is worked out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.run.format_1 import upgrade
from plmctl.run.schema import make
from plmctl.run.spec import Provenance, RunSpec, thaw
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import COPY, read_text, refuse_endless

CONFIG = "config.yaml"  # of a run and of a checkpoint
VERSION = "version"  # the key of a saved spec that says how it is read


def read_yaml(file: Path, *, fix: str = COPY) -> Any:
    """The group of settings in a YAML file, as an OmegaConf mapping; what it refers to is not
    resolved.
    """
    import yaml
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    text = read_text(file, fix=fix)
    try:
        refuse_endless(text, file=file, fix=fix)
        found = OmegaConf.load(io.StringIO(text))
    except RecursionError:
        raise DataError("nested too deeply, or a group holds itself", file=file, fix=fix) from None
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"not readable as YAML ({reason[:300]})", file=file, fix=fix) from error
    if not isinstance(found, DictConfig) or any(not isinstance(key, str) for key in found):
        raise DataError("not a group of settings", file=file, fix=fix)
    return found


def read_saved(file: Path, *, fix: str = COPY) -> dict[str, Any]:
    """The settings that a run saved, as plain values: nothing in them is worked out, so nothing
    leaks into them.
    """
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(read_yaml(file, fix=fix))
    assert isinstance(found, dict)
    refuse_references(found, file=file)
    return {str(key): value for key, value in upgrade(found).items()}


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
    version = settings.pop(VERSION, 1)
    if version not in (1, 2):
        fix = "a newer plmctl, which wrote it"
        raise DataError(
            f"a spec of version {version}, which this plmctl does not read", file=file, fix=fix
        )
    verb = (
        "convert" if "train" not in settings else "finetune" if "task" in settings else "pretrain"
    )
    known = replace(given or Provenance(verb), verb=verb)
    spec, errors = make(verb, settings, known, saved=True)
    if errors:
        raise DataError("; ".join(str(error) for error in errors[:3]), file=file, fix=COPY)
    return spec


def write_spec(spec: RunSpec, folder: Path) -> None:
    """Save a spec as `read_spec` finds it."""
    write_text(folder / CONFIG, to_yaml(spec, versioned=True))


def to_yaml(spec: Mapping[str, Any], *, versioned: bool = False) -> str:
    """Settings as a YAML file has them; `versioned`: with the version of what is saved."""
    from omegaconf import OmegaConf

    head = {VERSION: 2} if versioned else {}
    return str(OmegaConf.to_yaml(OmegaConf.create(head | thaw(spec))))


def refuse_references(settings: Any, *, file: object) -> None:
    """DataError where a saved setting is no value but refers to another, or to the environment
    (`${oc.env:HOME}`).
    """
    for path, value in reference_in(settings):
        fix = f"write its value there, if you trust the file; a run saves values alone ({path})"
        raise DataError(f"{path}={value!r} refers to something else", file=file, fix=fix)


def reference_in(settings: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, text) of every text in nested settings that OmegaConf would work out."""
    if isinstance(settings, str) and "${" in settings:
        yield path, settings
    children = (
        settings.items()
        if isinstance(settings, dict)
        else enumerate(settings)
        if isinstance(settings, list)
        else ()
    )
    for key, value in children:
        yield from reference_in(value, f"{path}.{key}" if path else str(key))
