"""Write the tables of parts into these pages: `python docs/tables.py`, or `make docs`.

A table stands between `<!-- parts: SLOT -->` and `<!-- end -->`. It has one row for each part of
the slot: the first comment of the part's YAML file.
"""

import re
from pathlib import Path

from plmctl.run.explained import part_files
from plmctl.run.headers import header

DOCS = Path(__file__).parent
TABLE = re.compile(r"(?<=<!-- parts: )(\w+) -->\n(.*?)(?=<!-- end -->)", re.DOTALL)


def rows(slot: str) -> list[str]:
    """The rows of the table of `slot`, in the order of names."""
    return [
        f"| `{name}` | {header(file).about.replace('|', chr(92) + '|')} |"
        for name, file in part_files(slot).items()
    ]


def fill(page: str) -> str:
    """`page` with new tables between its marks."""

    def table(found: re.Match[str]) -> str:
        slot = found[1]
        return "\n".join(
            [f"{slot} -->", f"| `{slot}=` | what it is |", "|---|---|", *rows(slot), ""]
        )

    return TABLE.sub(table, page)


if __name__ == "__main__":
    for file in sorted(DOCS.glob("*.md")):
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
