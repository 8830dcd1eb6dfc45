"""Draw the pictures of these pages: `python docs/pictures.py`, or `make docs`.

A picture is made from the parts and recipes themselves, so that it says what they do. Each is the
same on every machine; `tests/test_docs.py` compares the files in docs/pictures/ with it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import yaml

from plmctl.chain.listing import list_parts, name_system
from plmctl.config.build import build
from plmctl.config.headers import header
from plmctl.config.recipes import conf_dir, find_recipe, load, part_files
from plmctl.report.charts import draw_lines

PICTURES = Path(__file__).parent / "pictures"
SHOWN = ("bert", "gpt2", "t5")  # recipes in the picture of slots
SLOTS = {  # the decision of each, in the order of a run
    "format": "content of a row",
    "noise": "hidden tokens",
    "pattern": "visible tokens",
    "position": "position of a token",
    "model": "network",
    "objective": "predictions",
}
# the rooms of the package from the bottom up: each floor uses those below it
FLOORS: dict[str, tuple[str, ...]] = {
    "files and values": ("core", "storage"),
    "text and rows": ("text", "knowledge", "noise", "data", "cleaning"),
    "networks": ("attention", "nn", "models", "heads", "generation", "runtime"),
    "questions": ("objectives", "graph", "vectors", "tasks", "distill", "attack"),
    "learning": ("training",),
    "published layouts, settings": ("interop", "config"),
    "runs": ("inputs", "artifacts", "analysis", "use", "runs", "probes", "datasets"),
    "answers over HTTP": ("serve",),
    "many runs": ("report", "jobs", "study", "search", "chain", "compress"),
    "faces": ("cli", "commands", "api"),
}
COLUMN, ROW, LEFT = 132, 54, 146
# ink, paper, lines, accent and its paper; light and dark
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1c2430 }
.small { font-size: 11.5px; fill: #566070 }
.name { font-weight: 600 }
.code { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.box { fill: #f3f5f9; stroke: #c3cad6 }
.own { fill: #fdebd3; stroke: #c9770a }
.line { stroke: #8a94a6; fill: none; stroke-width: 1.5 }
.tip { fill: #8a94a6 }
.all { fill: #2f6db3 }
.some { fill: #9cc0e6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef }
  .small { fill: #a5aebd }
  .box { fill: #262c38; stroke: #475064 }
  .own { fill: #4b3413; stroke: #e39a35 }
  .all { fill: #6ea8e8 }
  .some { fill: #2f5a8a }
}
"""


def draw_system() -> str:
    """The slots in the order of a run, and which part stands in each for some systems."""
    width, top = LEFT + COLUMN * (len(SHOWN) + 1) + 2, 44
    defaults = list_parts(load(conf_dir() / "pretrain.yaml"))
    systems: list[tuple[str, dict[str, str], bool]] = []
    for name in SHOWN:
        chosen = defaults | list_parts(load(find_recipe(name)))
        title = name_system(header(find_recipe(name))).partition(" (")[0]
        systems.append((title, {slot: spell(chosen[slot]) for slot in SLOTS}, False))
    systems.insert(1, ("yours", systems[0][1] | {"noise": "span_mask"}, True))
    lines = [text(8, 20, "text", "name"), text(42, 20, "as tokens", "small")]
    for row, (slot, about) in enumerate(SLOTS.items()):
        y = top + ROW * row
        lines += [arrow(38, y - (12 if row else 18), y - 1), box(8, y, LEFT - 20, 42)]
        lines += [text(18, y + 18, slot, "name"), text(18, y + 34, about, "small")]
    for column, (title, parts, own) in enumerate(systems):
        x = LEFT + COLUMN * column
        lines += [text(x + 6, 20, title, "name")]
        for row, (slot, part) in enumerate(parts.items()):
            kind = "own" if own and part != systems[0][1][slot] else "box"
            lines += [box(x, top + ROW * row + 7, COLUMN - 6, 28, kind)]
            lines += [text(x + 5, top + ROW * row + 25, part, "code")]
    height = top + ROW * len(SLOTS) + 40
    lines += [text(LEFT, height - 28, "plmctl pretrain bert noise=[span_mask]", "code")]
    said = "one part replaced: no Python, checked before any work starts"
    lines += [text(LEFT, height - 9, said, "small")]
    return frame(lines, width, height, "A system is one part for each slot")


def draw_rooms() -> str:
    """The rooms of the package, floor on floor."""
    width, left, high, step = 700, 176, 38, 46
    lines = [text(8, 18, "a room imports rooms to its left and on the floors below it", "small")]
    for row, (floor, rooms) in enumerate(reversed(FLOORS.items())):
        y = 32 + step * row
        lines += [text(8, y + 24, floor, "small")]
        side = (width - left - 8) / max(len(rooms), 4)
        for column, room in enumerate(rooms):
            x = left + side * column
            kind = "box" if floor != "runs" else "own"
            lines += [box(x, y, side - 6, high, kind), text(x + 8, y + 24, room, "code")]
    return frame(lines, width, 32 + step * len(FLOORS), "The rooms of the package")


def draw_patterns() -> str:
    """The picture of every pattern: a line for each query, a column for each key."""
    cell, columns, gap, top = 5, 4, 34, 44
    masks = {name: mask for name in part_files("pattern") if (mask := see(name))}
    side = cell * len(next(iter(masks.values())))
    lines = [text(8, 18, "rows: tokens that ask; columns: tokens that they see", "small")]
    for number, (name, mask) in enumerate(masks.items()):
        x = 8 + (number % columns) * (side + gap)
        y = top + (number // columns) * (side + gap)
        lines += [text(x, y - 6, name, "code"), box(x - 1, y - 1, side + 2, side + 2)]
        for row, line in enumerate(mask):
            lines += draw_row(line, x, y + cell * row, cell)
    height = top + (-(-len(masks) // columns)) * (side + gap) - 10
    return frame(lines, 8 + columns * (side + gap), height, "Tokens that see each other")


def see(name: str) -> list[str]:
    """The mask of a pattern with two heads and two layers, as text; empty where it shows nothing
    without marks in the row.
    """
    stated = part_files("pattern")[name].read_text(encoding="utf-8")
    for number in ("num_heads", "num_layers"):
        stated = stated.replace(f"${{size.{number}}}", "2")
    mask = str(build(yaml.safe_load(stated), path="pattern").picture())
    return mask.splitlines() if "." in mask or "+" in mask or name == "full" else []


def draw_row(line: str, x: float, y: float, cell: int) -> Iterator[str]:
    """A rectangle for each stretch of equal cells that are seen."""
    start = 0
    for mark, stretch in groupby(line):
        length = len(list(stretch))
        if mark != ".":
            place = f'x="{x + cell * start:g}" y="{y:g}" width="{cell * length}" height="{cell}"'
            yield f'<rect class="{"all" if mark == "#" else "some"}" {place}/>'
        start += length


def draw_curve() -> str:
    """The loss of the first model of these pages."""
    known = json.loads((PICTURES / "first-model.json").read_text(encoding="utf-8"))
    levels = {"counts of tokens": known["unigram"], "counts of pairs": known["bigram"]}
    curves = {"training text": known["train"], "held-out text": known["valid"]}
    title = "Three minutes of modern_encoder"
    return draw_lines(curves, title=title, x="updates", y="loss, nats", marks=levels) + "\n"


def spell(parts: object) -> str:
    """The parts of a slot as the picture writes them."""
    names = parts if isinstance(parts, list) else [parts]
    return " + ".join(map(str, names)) or "none"


def frame(lines: Sequence[str], width: int, height: int, title: str) -> str:
    """One SVG file, in light or dark as the reader's system is."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    head += f' width="{width}" height="{height}" aria-label="{escape(title)}">'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *lines, "</svg>", ""]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Words that begin at x."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """A box with round corners."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {place} rx="5"/>'


def arrow(x: float, start: float, end: float) -> str:
    """An arrow downwards."""
    tip = f'<path class="tip" d="M{x:g} {end:g}l-4.5 -8h9z"/>'
    return f'<path class="line" d="M{x:g} {start:g}V{end - 7:g}"/>{tip}'


DRAWN: dict[str, Callable[[], str]] = {
    "system": draw_system,
    "rooms": draw_rooms,
    "patterns": draw_patterns,
    "first-model": draw_curve,
}


def draw_all() -> Iterator[tuple[Path, str]]:
    """(file, content) of every picture."""
    for name, make in DRAWN.items():
        yield PICTURES / f"{name}.svg", make()


if __name__ == "__main__":
    for file, content in draw_all():
        file.write_text(content, encoding="utf-8")
