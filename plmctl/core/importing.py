"""The import of a plug-in's modules, whose mistakes are the user's."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType

from plmctl.core.errors import PlmctlError, UsageError


def import_own(module: str) -> ModuleType:
    """The module of this name, of plmctl or of a plug-in.

    Raises:
        ModuleNotFoundError: There is no such module.
        UsageError: A plug-in cannot be imported; the message has the file, the line and the error.
    """
    try:
        return importlib.import_module(module)
    except PlmctlError:
        raise
    except Exception as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if module.startswith("plmctl.") or (absent and f"{module}.".startswith(f"{absent}.")):
            raise
        raise explain_broken(module, error) from error


def explain_broken(module: str, error: Exception) -> UsageError:
    """The error of a module that cannot be imported, as one message with file and line."""
    package = module.partition(".")[0]
    if isinstance(error, SyntaxError) and error.filename:
        place, why = f"{error.filename}:{error.lineno}", error.msg
    else:
        frames = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package
        ]
        place, why = ":".join(map(str, frames[-1])) if frames else module, str(error)
    what = f"the plug-in {package} cannot be imported ({type(error).__name__}: {why})"
    return UsageError(f"{place}: {what}\n  fix: correct {place}")
