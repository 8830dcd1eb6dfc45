"""Markdown and HTML about finished or running runs: `python -m plmctl.commands.report RUN [RUN ...] --out report.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from plmctl.errors import PlmctlError
from plmctl.report.runs import write_report


def main(arguments: Sequence[str]) -> int:
    """One page on all the runs named, side by side."""
    parser = argparse.ArgumentParser(prog="python -m plmctl.commands.report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory (it has metrics.jsonl)")
    parser.add_argument("--out", type=Path, default=Path("report.md"), help="a .md file; the .html is written beside it")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(str(file) for file in write_report(options.runs, options.out)))
    except PlmctlError as error:
        print(f"plmctl: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
