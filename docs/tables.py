"""Write the tables of parts, fields, recipes, studies and families into README.md and these pages:
`python docs/tables.py`, or `make docs`.

A table stands between `<!-- parts: SLOT -->`, `<!-- fields -->`, `<!-- recipes -->`,
`<!-- studies -->` or `<!-- families -->`, and `<!-- end -->`. A part's row is the first comment of
its YAML file; a field's row is what the part that introduces it says; a recipe's row is its first
comment and the parts that it chooses; a study's row is its question, its title and the papers that
its header names; a family of published checkpoints states its systems and classes.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from plmctl.chain.listing import list_parts, name_paper, name_system
from plmctl.interop.family import Family
from plmctl.interop.hf import FAMILIES
from plmctl.run.glossary import known_fields
from plmctl.run.headers import header
from plmctl.run.recipes import conf_dir, find_recipe, load, part_files, recipe_names, recipes_dir

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
TABLE = re.compile(
    r"(?<=<!-- )(parts: \w+|fields|recipes|studies|families) -->\n(.*?)(?=<!-- end -->)", re.DOTALL
)
AUTHORS = re.compile(r"[A-Z]\w+(?: and [A-Z]\w+| et al\.)?, \d{4}")
CHOSEN = ("model", "format", "noise", "objective")  # of a recipe
HEADS = {
    "fields": ("field", "shape", "type", "meaning"),
    "families": ("systems", "classes of transformers"),
    "studies": ("study", "question", "title", "papers"),
    "recipes": ("system", "recipe", "what it does", *CHOSEN),
}


def rows(name: str) -> list[str]:
    """The rows of the table with this mark, in the order of names."""
    if name == "recipes":
        return [recipe_row(each) for each in recipe_names()]
    if name == "studies":
        files = sorted((recipes_dir() / "studies").glob("*.yaml"))
        return [study_row(file) for file in files]
    if name == "families":
        return [family_row(family) for family in sorted(FAMILIES, key=lambda each: each.systems)]
    if name == "fields":
        return [
            row([f"`{field}`", known.shape, known.dtype, known.meaning])
            for field, (known, _) in known_fields().items()
        ]
    parts = part_files(name.removeprefix("parts: "))
    return [row([f"`{part}`", header(file).about]) for part, file in parts.items()]


def family_row(family: Family) -> str:
    """One family of published checkpoints: its systems, and the classes that are read and
    written.
    """
    names = dict.fromkeys(each.name for each in family.architectures)
    return row([", ".join(family.systems), ", ".join(f"`{name}`" for name in names)])


def recipe_row(name: str) -> str:
    """One recipe: its system and paper, its file, what it does, the parts that it chooses."""
    file = find_recipe(name)
    found = header(file)
    title, authors = name_system(found), name_paper(found)
    about = found.about.removeprefix(title).removeprefix(": ")
    chosen = list_parts(load(conf_dir() / "pretrain.yaml")) | list_parts(load(file))
    parts = [chosen[slot] if isinstance(chosen[slot], list) else [chosen[slot]] for slot in CHOSEN]
    return row(
        [
            title.partition(" (")[0] + (f" ({authors})" if authors else ""),
            f"[{name}](recipes/{file.name})",
            about[:1].upper() + about[1:],
            *(", ".join(f"`{part}`" for part in each) or "none" for each in parts),
        ]
    )


def study_row(file: Path) -> str:
    """One study: its question, its title, and the papers that its header names."""
    found = header(file)
    question, mark, _ = found.about.partition("?")
    papers = dict.fromkeys(AUTHORS.findall(" ".join([found.about, found.text("Published")])))
    return row([f"`{file.stem}`", question + mark, str(load(file)["title"]), "; ".join(papers)])


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def fill(page: str) -> str:
    """`page` with new tables between its marks."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        head = HEADS.get(name, (f"`{name.removeprefix('parts: ')}=`", "part"))
        return "\n".join([f"{name} -->", row(head), f"|{'---|' * len(head)}", *rows(name), ""])

    return TABLE.sub(table, page)


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
