"""The settings that a run or a user saved as YAML: plain values, in which nothing is worked out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.run.format_1 import upgrade
from plmctl.storage.reading import COPY, read_text, refuse_endless


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
