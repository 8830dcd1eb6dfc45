"""Mistakes in parts of users: methods that a class lacks, and errors that its code raises."""

from __future__ import annotations

import inspect
import traceback
from types import TracebackType
from typing import Any

from plmctl.core.errors import nearest
from plmctl.core.parts import declared, target_of
from plmctl.core.pasted import spell_fix

_OF_TORCH = {"_forward_unimplemented": "forward"}  # how a module says that it has none


def place_of(kind: Any) -> str:
    """`own_parts.focal_mlm.FocalMLM (focal_mlm.py:12)`."""
    name = target_of(kind)
    try:
        return f"{name} ({inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]})"
    except (OSError, TypeError):  # typed at a prompt, say
        return name


def describe_unwritten(kind: type, method: str) -> tuple[str, str]:
    """(what is wrong with a class that has no `method` of its own, the fix)."""
    own = [
        name for name, value in vars(kind).items() if callable(value) and not name.startswith("__")
    ]
    listed = f"; it defines {', '.join(own)}" if own else ""
    allowed = f"{place_of(kind)} has no `{method}`{nearest(method, own)}{listed}"
    base = next((base for base in kind.__mro__ if method in vars(base)), kind)
    signature = inspect.signature(getattr(base, method), eval_str=False)
    words = str(signature).replace("'", "") if base.__module__.startswith("plmctl.") else "(...)"
    return allowed, f"def {method}{words}, as {base.__qualname__} says"


def explain_unwritten(error: BaseException) -> str:
    """The same for an error that the base class of a part raised instead of the part; "" for any
    other error.
    """
    if not isinstance(error, NotImplementedError) or error.__traceback__ is None:
        return ""
    frame = _last(error.__traceback__).tb_frame
    kind, method = type(frame.f_locals.get("self")), frame.f_code.co_name
    method = _OF_TORCH.get(method, method)
    if not declared(kind) or kind.__module__.startswith("plmctl."):
        return ""
    allowed, fix = describe_unwritten(kind, method)
    return f"{allowed}\n  fix: {spell_fix(fix)}"


def explain_own_code(error: BaseException) -> str:
    """`mynoise.py:34, in WindowMask.__call__: ZeroDivisionError: division by zero` for an error in
    the code of a part that is not of plmctl, or in a function of its package; "" for any other
    error.
    """
    found, packages = "", set[str]()
    for frame, line in traceback.walk_tb(error.__traceback__):
        kind, module = type(frame.f_locals.get("self")), frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if kind.__module__ == module and declared(kind) and package != "plmctl":
            packages.add(package)
        if package in packages:
            found = f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_qualname}"
    return f"{found}: {type(error).__name__}: {error}" if found else ""


def _last(trace: TracebackType) -> TracebackType:
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace
