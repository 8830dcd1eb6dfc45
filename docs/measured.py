"""Keep the table of a shipped study that has run, for the catalogue:

python docs/measured.py studies/NAME "heading of a page of docs/results"
"""

import json
import sys
from datetime import date
from pathlib import Path

from plmctl.config.recipes import STUDIES, load, recipes_dir
from plmctl.storage.atomic import write_text
from plmctl.study.measured import FILE, identify, keep, read, spell

if __name__ == "__main__":
    folder, where = Path(sys.argv[1]), sys.argv[2]
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    settings = load(recipes_dir() / STUDIES / f"{table['study']}.yaml")
    entries = read()
    entries.setdefault(table["study"], []).append(
        keep(table, where, identify(settings), date.today().isoformat())
    )
    write_text(recipes_dir() / STUDIES / FILE, spell(entries))
