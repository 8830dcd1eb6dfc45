"""The libraries beside which a script measures, which plmctl itself does not need."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def need(*libraries: str) -> None:
    """End the script in one line, with exit code 2, where one of `libraries`, of the extra
    `bench`, is not installed.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        print(
            f"{Path(sys.argv[0]).name} needs {', '.join(missing)}\n  fix: pip install"
            " 'plmctl[bench]'",
            file=sys.stderr,
        )
        raise SystemExit(2)
