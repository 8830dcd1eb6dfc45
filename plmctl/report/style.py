"""The style of a page in light and dark mode, and the colours of its pictures.

A picture sets its light colours itself, as attributes, and stands alone. A dark page replaces them
through the `color` of its classes, which strokes and fills take up. The classes are `paper` for the
ground, `grid` and `axis` for the lines, `c0` to `c5` for the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

LIGHT, DARK = "#ffffff", "#15171a"  # the grounds
INK, DARK_INK = "#1a1c1f", "#e8eaed"
# told apart by colour-blind readers, after Okabe and Ito; 3:1 against the ground or more (WCAG 2.2,
# 1.4.11)
SERIES = ("#0072b2", "#c44e00", "#00795a", "#a3437c", "#7a6200", "#5a5fc7")
DARK_SERIES = ("#56b4e9", "#ff9e57", "#3ecf9b", "#e89ac4", "#f0c94a", "#a5a9ff")
DASHES = ("", "6 3", "2 3", "9 3 2 3")  # one set of colours after the other

RULES = {  # lines of the frame: their class, and their strokes
    "grid": ("grid", 'stroke="#dddddd"'),
    "stem": ("grid", 'stroke="#dddddd" stroke-width="4"'),
    "axis": ("axis", 'stroke="#333333"'),
    "mark": ("axis", 'stroke="#555555" stroke-dasharray="5 4"'),
    "dots": ("axis", 'stroke="#555555" stroke-dasharray="1.5 3"'),
    "both": ("axis", 'stroke="#555555" stroke-dasharray="9 3 1.5 3"'),
    "long": ("axis", 'stroke="#555555" stroke-dasharray="14 4"'),
}
MARKS = ("mark", "dots", "both", "long")  # levels and guides of one picture, told apart

STYLE = (
    f":root{{color-scheme:light dark;--paper:{LIGHT};--ink:{INK};"
    "--rule:#c8ccd1;--soft:#f3f4f6;--link:#0058a3}"
    f"@media(prefers-color-scheme:dark){{:root{{--paper:{DARK};--ink:{DARK_INK};"
    "--rule:#4a4f57;--soft:#22252a;--link:#7db8ff}"
    + "".join(f"svg .c{number}{{color:{colour}}}" for number, colour in enumerate(DARK_SERIES))
    + "svg .grid{stroke:#33373d}svg .axis{stroke:#9aa0a6}}"
    "body{font-family:system-ui,sans-serif;max-width:78rem;margin:1.5rem auto;padding:0 1rem;"
    "line-height:1.45;background:var(--paper);color:var(--ink);overflow-wrap:break-word}"
    "p{max-width:46rem}a{color:var(--link)}h1{font-size:1.5rem}h2{font-size:1.2rem;"
    "margin-top:2.2rem}h3{font-size:1rem}"
    "nav ul{padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}"
    "td,th{border:1px solid var(--rule);padding:.2rem .5rem;text-align:left;vertical-align:top;"
    "min-width:2.5rem}td:first-child:not(.n),td:nth-child(2):last-child{min-width:7rem;"
    "overflow-wrap:anywhere}th{background:var(--soft)}"
    ".n{text-align:right}td.n{font-variant-numeric:tabular-nums;white-space:nowrap}"
    "pre{background:var(--soft);padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    "summary{cursor:pointer}"
    # pictures beside each other, as many as fit
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,21rem),1fr));"
    "gap:1rem;margin:1rem 0}figure{margin:0;position:relative;min-width:0}"
    "svg{display:block;width:100%;max-width:30rem;height:auto}"
    "svg text{fill:var(--ink)}svg .paper{fill:var(--paper)}svg .rim{stroke:var(--paper)}"
    "svg.pairs:has(.from:hover,.from.on) .from:not(:hover,.on){opacity:.12}"
    # the values at the pointer
    "svg .cursor{stroke:var(--ink);stroke-opacity:.5}svg .cell{stroke-opacity:1;stroke-width:2}"
    "svg .on:not(.from){outline:2px solid var(--ink)}"
    "output{position:absolute;top:100%;left:0;right:0;z-index:1;padding:.2rem .5rem;"
    "font-size:.85rem;background:var(--soft);border:1px solid var(--rule)}"
    "output:empty{display:none}"
    "pre{max-width:60rem}"
    # a table of numbers with shades is narrow on a phone; any other one that does not fit is a list
    "main{container-type:inline-size}@container(max-width:40rem){"
    ".shaded th,.shaded td{padding:.1rem;min-width:0;line-height:1.1;"
    "font-size:.7rem}.shaded thead th{writing-mode:vertical-rl;"
    "text-orientation:sideways}.shaded span{display:block;"
    "max-height:9rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}}"
    ".list table,.list tbody,.list tr,.list td{display:block}.list thead{display:none}"
    ".list tr{border:1px solid var(--rule);margin-bottom:.5rem}"
    ".list td{border:0;text-align:left;white-space:normal;display:grid;gap:.5rem;"
    "grid-template-columns:7.5rem minmax(0,1fr)}.list td::before{content:attr(data-head);"
    "opacity:.75}.list td:empty{display:none}"
)

WIDTH = 380  # the width of all pictures: on a phone their letters are as large as a footnote's
LETTER = 7.8  # pixels of a letter of 13 pixels in sans-serif, wide ones among them


def draw_frame(parts: Sequence[str], *, title: str, height: float, kind: str = "") -> str:
    """The frame of a picture: background, title, content."""
    named = f' class="{kind}"' if kind else ""
    top = (
        f'<svg xmlns="http://www.w3.org/2000/svg"{named} viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" font-family="sans-serif" '
        f'font-size="13" fill="{INK}" role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect class="paper" width="{WIDTH}" height="{height:g}" fill="{LIGHT}"/>'
    words = escape(shorten_text(title, WIDTH - 20, LETTER * 14 / 13))
    named = f'<text x="8" y="20" font-size="14" font-weight="600">{words}</text>'
    return "\n".join([top, ground, named, *parts, "</svg>"])


def draw_shape(tag: str, style: str = "", inner: str = "", /, **attributes: object) -> str:
    """An element of a picture with its style, its attributes (`_` for `-`) and what is in it."""
    pairs = (f'{name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    words = " ".join(word for word in (tag, style, *pairs) if word)
    return f"<{words}>{inner}</{tag}>" if inner else f"<{words}/>"


def shorten_text(text: str, room: float, letter: float = LETTER) -> str:
    """A text that fits into `room` pixels, with a mark where it is cut."""
    most = max(1, int(room / letter))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def style_series(number: int) -> str:
    """The attributes of a series: its class, its colour, and dashes that distinguish the seventh
    line from the first.
    """
    dash = DASHES[number // len(SERIES) % len(DASHES)]
    colour = number % len(SERIES)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'class="c{colour}" color="{SERIES[colour]}"{dashed}'


def draw_text(x: object, y: object, text: str, anchor: str = "") -> str:
    """A text whose start, or whose `anchor` ("middle", "end"), is at (x, y)."""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x}" y="{y}"{where}>{text}</text>'


def draw_rule(kind: str, start: tuple[object, object], end: tuple[object, object]) -> str:
    """A line of the frame from (x, y) to (x, y); `kind`: one of `RULES`."""
    name, strokes = RULES[kind]
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{name}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {strokes}/>'
