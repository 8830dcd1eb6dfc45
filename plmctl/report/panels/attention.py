"""The heads of attention: maps on chosen sentences (`--attention`), learned spans, and the share of
weights that are not 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from plmctl.analysis.attention import AttentionMaps, SparseHeads
from plmctl.analysis.heads import DISTANCE, ENTROPY, HeadHabits
from plmctl.analysis.runs import Curve
from plmctl.analysis.sample import choose_sentences
from plmctl.analysis.spans import HeadSpans, TokenSpans
from plmctl.core.errors import PlmctlError, UsageError, list_problems
from plmctl.report.charts import draw_lines
from plmctl.report.grids import Grid, TokenRow, draw_grids, draw_links, draw_rows
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import clip

READING = (
    "Each token on the left attends to those on the right, the darker the line the more; layers and"
    " heads count from 0. With the pointer or the arrow keys, one token at a time."
)
HABITS = (
    "The mean weight of each head on a kind of token, over all tokens of a text (Clark et al.,"
    " 2019). The first token has no previous one, the last no next one, and they count as 0, as in"
    " the code of the paper. A head with 0.9 for the previous token nearly always looks one token"
    " back. Distance is"
    " the mean number of tokens between the two. Entropy is 0 nats where a head looks at one token,"
    " ln n where it looks at n evenly. Layers and heads count from 0, as --attention takes them. A"
    " weight is no proof that the token matters for the answer."
)
UNITS = {ENTROPY: "entropy, nats", DISTANCE: "distance, tokens"}
DENSITY = (
    "The share of the tokens in sight that have a weight, in percent, the darker the more; the mean"
    " over the tokens of {about}."
)
ALPHAS = "alpha of each head: near 1 it is as dense as softmax, 2 is sparsemax."
TOKENS = 96  # tokens of a row that are drawn
LINES = 160  # tokens of a sentence that have lines
SPANS = (
    "Tokens that a head looks back with full weight, the darker the longer; behind them its weight"
    " falls to 0 over {ramp:g} tokens, and no head can look back more than {longest:,}. The time of"
    " a layer follows its longest head."
)
BY_TOKEN = (
    " Each token has spans of its own. The table has their means, the boxes below the mean of all"
    " heads at each token of one row. These are {about}."
)


@panel_of(Subject, order=60, title="Attention")
def panel(subject: Subject) -> list[Block]:
    """Pictures of the chosen heads; UsageError for heads that none of the runs has."""
    if not subject.wishes.heads:
        return []
    blocks: list[Block] = [Paragraph(READING)]
    absent = []
    for number, run in enumerate(subject.detailed):
        try:
            blocks += [Heading(run.name, 3), *_draw_maps(subject, run, number)]
        except PlmctlError as error:
            blocks.append(Paragraph(f"Not drawn: {list_problems(error)}."))
            absent += [error] if isinstance(error, UsageError) else []
    if absent and len(absent) == len(subject.detailed):
        raise absent[0]
    return blocks


def _draw_maps(subject: Subject, run: ReportedRun, number: int) -> list[Block]:
    sentences = subject.wishes.sentences or choose_sentences(run.loaded)[0][:2]
    maps = AttentionMaps.of(run.loaded, sentences)
    blocks: list[Block] = []
    for place, sentence in enumerate(sentences):
        tokens, layers = maps.tokens[place], maps.layers[place]
        _check(subject.wishes.heads, layers)
        shown = tokens[:LINES]
        cut = f"the first {LINES} of {len(tokens):,} tokens" if len(tokens) > LINES else ""
        drawn = f"; {cut} are drawn, without lines to the others" if cut else ""
        if remark := (maps.unread[place] + drawn).removeprefix("; "):
            blocks.append(Paragraph(f"{clip(sentence, 60)}: {remark}."))
        for layer, head in subject.wishes.heads:
            title = f"Layer {layer}, head {head}" + (f", {cut}" if cut else "")
            title += f", {run.name}" if len(subject.runs) > 1 else ""
            weights = layers[layer][head][: len(shown), : len(shown)].tolist()
            svg = draw_links(shown, weights, title=title)
            blocks.append(Chart(f"attention-{number}-{place}-{layer}.{head}", svg))
    return blocks


def _check(heads: Sequence[tuple[int, int]], layers: Sequence[Tensor]) -> None:
    """Raise UsageError for a head that the model does not have."""
    for layer, head in heads:
        if not (0 <= layer < len(layers) and 0 <= head < len(layers[layer])):
            shape = f"{len(layers)} layers of {len(layers[0])} heads, counted from 0"
            raise UsageError(
                f"--attention {layer}.{head}: there is no such head; this model has {shape}"
            )


@panel_of(Subject, order=60.2, title="Habits of heads")
def habits(subject: Subject) -> list[Block]:
    """A picture and a table of all heads of each run."""
    if subject.wishes.lines is None:
        return []
    blocks: list[Block] = [Paragraph(HABITS)]
    for number, run in enumerate(subject.detailed):
        try:
            found = HeadHabits.of(run.loaded, subject.wishes.lines)
        except PlmctlError as error:
            blocks += [Heading(run.name, 3), Paragraph(f"Not measured: {list_problems(error)}.")]
            continue
        table = _tabulate_habits(found)
        chart = Chart(f"heads-{number}", _draw_habits(found))
        blocks += [Heading(run.name, 3), Paragraph(table.note), chart, table]
    return blocks


def _draw_habits(found: HeadHabits) -> str:
    """A map of layers and heads for each mean."""
    grids = []
    for name, layers in found.means.items():
        most = max(1e-9, *(value for heads in layers for value in heads))
        cells = [[value / most for value in heads] for heads in layers]
        title = f"{name}, at most {most:.2f}"
        grids.append(Grid(title, cells, values=layers))
    scale = [(0.0, "0"), (1.0, "the largest of all heads")]
    return draw_grids(grids, title="Habits of heads: a line is a layer", scale=scale)


def _tabulate_habits(found: HeadHabits) -> TableBlock:
    """A line for each head."""
    rows, shades = [], []
    most = {name: max(1e-9, *map(max, layers)) for name, layers in found.means.items()}
    for layer, heads in enumerate(found.means[ENTROPY]):
        for head in range(len(heads)):
            own = {name: layers[layer][head] for name, layers in found.means.items()}
            rows.append([str(layer), str(head), *(f"{value:.3f}" for value in own.values())])
            shades.append([0.0, 0.0, *(value / most[name] for name, value in own.items())])
    names = [UNITS.get(name, name) for name in found.means]
    note = f"Means over {found.tokens:,} tokens of {found.about}."
    return TableBlock(["layer", "head", *names], rows, shades, note)


@panel_of(SparseHeads, order=63, title="Sparse attention")
def density(found: SparseHeads) -> list[Block]:
    """Tables of density and alpha by layer and head."""
    blocks: list[Block] = []
    if found.density:
        blocks += [
            Paragraph(DENSITY.format(about=found.about)),
            _tabulate(found.density, "layer", 100.0, 0, shade=True),
        ]
    if found.alphas:
        blocks += [Paragraph(ALPHAS), _tabulate(found.alphas, "cell", 1.0, 2)]
    return blocks


def _tabulate(
    rows: Sequence[Sequence[float]], name: str, factor: float, digits: int, *, shade: bool = False
) -> TableBlock:
    """A row for each layer, of numbers that are `factor` times as large."""
    lines = [
        [f"{name} {number}", *(f"{factor * value:.{digits}f}" for value in row)]
        for number, row in enumerate(rows, 1)
    ]
    heads = max(map(len, rows))
    shades = [[0.0, *row] for row in rows] if shade else ()
    return TableBlock(["", *(f"head {head}" for head in range(heads))], lines, shades)


@panel_of(HeadSpans, order=62, title="Spans of attention")
def spans(found: HeadSpans) -> list[Block]:
    """A table of layers and heads, a curve, and where tokens have spans of their own a row."""
    layers, row = found.layers, found.row
    heads = max(map(len, layers))
    rows = [
        [f"layer {layer}", *(f"{span:.0f}" for span in spans), f"{sum(spans) / len(spans):.0f}"]
        for layer, spans in enumerate(layers, 1)
    ]
    most = max(1e-9, *(span for spans in layers for span in spans))
    shade = [[0.0, *(span / most for span in spans)] for spans in layers]
    curves: dict[str, Curve] = {
        "mean": [(float(n), sum(spans) / len(spans)) for n, spans in enumerate(layers, 1)],
        "longest": [(float(n), max(spans)) for n, spans in enumerate(layers, 1)],
    }
    reading = SPANS.format(ramp=found.ramp, longest=found.longest)
    return [
        Paragraph(reading + (BY_TOKEN.format(about=row.about) if row else "")),
        TableBlock(["", *(f"head {head}" for head in range(heads)), "mean"], rows, shade),
        Chart("spans", draw_lines(curves, title="Spans", x="layer", y="tokens")),
        *([Chart("spans-by-token", _draw_tokens(row))] if row else []),
    ]


def _draw_tokens(row: TokenSpans) -> str:
    """A box for each token, the darker the longer its span."""
    spans = row.spans[:TOKENS]
    most = max(1e-9, *spans)
    cut = f"The first {TOKENS} tokens" if len(row.spans) > TOKENS else "All tokens"
    drawn = TokenRow(
        f"{cut} of a row",
        row.tokens[:TOKENS],
        [f"{span:.0f}" for span in spans],
        [span / most for span in spans],
    )
    below, scale = "the span, in tokens", ("short", "the longest one")
    return draw_rows([drawn], title="Spans by token", below=below, scale=scale)
