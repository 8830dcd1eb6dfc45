"""Positions: how alike their vectors are, and what scores get by distance and head."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.analysis.positions import Bias, Likeness, PositionEffects
from plmctl.report.grids import Grid, draw_grids
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.text import name_part

ALMOST = 0.05  # cosines that differ by less have the same colour, nearly
STRONG = 4.0  # a score that is so much lower has 2% of the weight: the darkest colour, at most
ALIKE = (
    "How alike the vectors of two positions are: their cosine, from the first position to the last"
    " in both directions. Blue: they point the same way; orange: opposite ways. A dark diagonal"
    " that fades says that near positions are alike."
)
MEAN = " A cell is the mean over two ranges of neighbouring positions, each of about {length:.2g}."
ONCE = " Maps that differ nowhere by {almost} are drawn once; the table has them all."
MEANS = "The mean cosine of positions that are so many tokens apart:"
DISTANCE = (
    "The bias that a key's distance from the query adds to its score, whatever the tokens: a"
    " line for each head (from 0). Blue: more weight; orange: less. The darkest colour is"
    " {most:.3g}; a score that is higher by 1 has 2.7 times the weight."
)


@panel_of(PositionEffects, order=65, title="Positions")
def panel(found: PositionEffects) -> list[Block]:
    """Maps and tables of positions."""
    likeness, biases = found.likeness, found.biases
    blocks: list[Block] = []
    if likeness:
        blocks += _draw_likeness(likeness)
        blocks += [Paragraph(MEANS), _tabulate_likeness(likeness)]
    if biases:
        most = min(STRONG, max(float(bias.added.abs().max()) for bias in biases))
        blocks += [Paragraph(DISTANCE.format(most=most))]
        blocks += [_draw_bias(bias, most, f"bias-{n}") for n, bias in enumerate(biases)]
        blocks += [_tabulate_biases(biases)]
    return blocks


def _draw_likeness(likeness: Sequence[Likeness]) -> list[Block]:
    drawn: list[Likeness] = []
    for each in likeness:
        if not any(_same(each, other) for other in drawn):
            drawn.append(each)
    text, size = ALIKE, likeness[0].length / len(likeness[0].cosines)
    text += MEAN.format(length=size) if size > 1 else ""
    text += ONCE.format(almost=ALMOST) if len(drawn) < len(likeness) else ""
    charts: list[Block] = [Paragraph(text)]
    scale = ((-1.0, "-1"), (-0.5, "-0.5"), (0.0, "0"), (0.5, "0.5"), (1.0, "1"))
    for place, cells in enumerate(dict.fromkeys(len(each.cosines) for each in drawn)):
        grids = [
            Grid(
                name_part(each.part, each.place),
                each.cosines.tolist(),
                ends=("0", f"{each.length - 1:,}"),
                values=each.cosines.tolist(),
            )
            for each in drawn
            if len(each.cosines) == cells
        ]
        svg = draw_grids(grids, title="Cosine of positions", scale=scale)
        charts.append(Chart(f"positions-{place}", svg))
    return charts


def _same(one: Likeness, other: Likeness) -> bool:
    """Whether the maps of two positions differ nowhere visibly."""
    if one.length != other.length:
        return False
    return float((one.cosines - other.cosines).abs().max()) < ALMOST


def _tabulate_likeness(likeness: Sequence[Likeness]) -> TableBlock:
    distances = sorted({distance for each in likeness for distance in each.by_distance})
    rows, shades = [], []
    for each in likeness:
        cosines = [each.by_distance.get(distance) for distance in distances]
        texts = ["" if cosine is None else f"{cosine:z.2f}" for cosine in cosines]
        rows.append([name_part(each.part, each.place), *texts])
        shades.append([0.0, *(max(0.0, cosine or 0.0) for cosine in cosines)])
    return TableBlock(["apart", *(f"{distance:,}" for distance in distances)], rows, shades)


def _draw_bias(bias: Bias, most: float, name: str) -> Chart:
    heads = [f"head {head}" for head in range(len(bias.added))]
    ends = (_spell(bias.offsets[0]), _spell(bias.offsets[-1]))
    cells = (bias.added / max(most, 1e-9)).tolist()
    name_of = name_part(bias.part, bias.place)
    grid = Grid(name_of, cells, lines=heads, ends=ends, values=bias.added.tolist())
    scale = [(share, f"{share * most:.2g}") for share in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    return Chart(name, draw_grids([grid], title="Added by distance", scale=scale))


def _spell(offset: int) -> str:
    if not offset:
        return "the token itself"
    return f"{abs(offset)} tokens {'before' if offset < 0 else 'after'}"


def _tabulate_biases(biases: Sequence[Bias]) -> TableBlock:
    offsets = sorted({o for bias in biases for o in bias.offsets if abs(o).bit_count() <= 1})
    rows = [
        [
            name_part(bias.part, f"{bias.place}, head {head}"),
            *(
                f"{line[bias.offsets.index(offset)]:z.2f}" if offset in bias.offsets else ""
                for offset in offsets
            ),
        ]
        for bias in biases
        for head, line in enumerate(bias.added.tolist())
    ]
    return TableBlock(["key - query", *map(str, offsets)], rows)
