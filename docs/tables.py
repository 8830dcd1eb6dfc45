"""Write the tables of parts and of fields into these pages: `python docs/tables.py`, or
`make docs`.

A table stands between `<!-- parts: SLOT -->`, or `<!-- fields -->`, and `<!-- end -->`. A part's
row is the first comment of its YAML file; a field's row is what the part that introduces it says.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from plmctl.run.explained import part_files
from plmctl.run.glossary import known_fields
from plmctl.run.headers import header

DOCS = Path(__file__).parent
TABLE = re.compile(r"(?<=<!-- )(?:parts: (\w+)|fields) -->\n(.*?)(?=<!-- end -->)", re.DOTALL)
FIELDS = "fields"


def rows(name: str) -> list[str]:
    """The rows of the table of a slot, in the order of names, or of all fields."""
    if name == FIELDS:
        return [
            row([f"`{field}`", known.shape, known.dtype, known.meaning])
            for field, (known, _) in known_fields().items()
        ]
    return [row([f"`{part}`", header(file).about]) for part, file in part_files(name).items()]


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def fill(page: str) -> str:
    """`page` with new tables between its marks."""

    def table(found: re.Match[str]) -> str:
        name = found[1] or FIELDS
        head = ["field", "shape", "type", "meaning"] if name == FIELDS else [f"`{name}=`", "part"]
        mark = found[0].partition("\n")[0]
        return "\n".join([mark, row(head), f"|{'---|' * len(head)}", *rows(name), ""])

    return TABLE.sub(table, page)


if __name__ == "__main__":
    for file in sorted(DOCS.glob("*.md")):
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
