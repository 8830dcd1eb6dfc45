"""Attention maps: what is drawn is what the heads do."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.attention import AttentionMaps
from plmctl.cli.app import make_app
from plmctl.core.errors import UsageError
from plmctl.report.grids import draw_links
from plmctl.report.page import Paragraph
from plmctl.report.panels import attention
from plmctl.report.panels.attention import panel
from plmctl.report.subject import Wishes, find_subject
from tests.report import parsed

SVG = "{http://www.w3.org/2000/svg}"


def test_lines_go_from_queries_to_keys() -> None:
    weights = [[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.01, 0.01, 0.98]]
    tree = ElementTree.fromstring(draw_links(["a", "<b>", "c"], weights, title="t"))
    groups = [group for group in tree.iter(f"{SVG}g") if "from" in (group.get("class") or "")]
    assert [group.find(f"{SVG}text").text for group in groups] == ["a", "<b>", "c"]
    drawn = [
        {
            line.get("y2"): float(line.get("stroke-opacity") or 0)
            for line in group.iter(f"{SVG}line")
        }
        for group in groups
    ]
    keys = [
        str(float(text.get("y") or 0) - 4).removesuffix(".0")
        for text in tree.findall(f"{SVG}text")[1:]
    ]
    assert [[round(lines.get(key, 0.0), 2) for key in keys] for lines in drawn] == [
        [0.0, 1.0, 0.0],
        [0.5, 0.5, 0.0],
        [0.01, 0.0, 0.98],
    ]


def test_even_attention_has_lines_too() -> None:
    size = 40
    tree = ElementTree.fromstring(draw_links(["x"] * size, [[1 / size] * size] * size, title="t"))
    assert len(list(tree.iter(f"{SVG}line"))) == 2 * size


def test_probabilities_of_a_trained_model(trained: Path) -> None:
    sentences = ["return the value", "a"]
    found = AttentionMaps.of(plmctl.load(trained), sentences)
    for tokens, layers, sentence in zip(found.tokens, found.layers, sentences, strict=True):
        assert tokens[0] == "[CLS]"
        assert len(layers) == 4
        for layer in layers:
            assert layer.shape[1:] == (len(tokens), len(tokens))
            torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:2]))
        alone = AttentionMaps.of(plmctl.load(trained), [sentence]).layers[0]
        # padding changes nothing
        torch.testing.assert_close(layers[2], alone[2], atol=1e-6, rtol=1e-4)


def test_on_the_page(trained: Path, tmp_path: Path) -> None:
    words = [
        "report",
        str(trained),
        "--attention",
        "0.0,3.1",
        "--sentence",
        "return the value",
        "--sentence",
        "a < b",
    ]
    done = CliRunner().invoke(make_app(), [*words, "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.html").read_text()
    parsed.parse(text)
    assert text.count('<svg xmlns="http://www.w3.org/2000/svg" class="pairs"') == 4


def test_a_head_that_is_not_there(trained: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--attention 4\.0: there is no such head; this model has 4 layers"
    ):
        panel(find_subject([trained], Wishes(heads=[(4, 0)])))


def test_a_sentence_that_is_too_long_says_so_and_keeps_its_last_token(trained: Path) -> None:
    opened = plmctl.load(trained)
    room = opened.model.backbone.max_length - 2
    found = AttentionMaps.of(opened, ["a " * (room + 7), "a " * room])
    assert [row[-1] for row in found.tokens] == ["[SEP]", "[SEP]"]
    assert found.unread == [f"; only the first {room} of {room + 7} tokens are read", ""]
    for layer in found.layers[0]:
        torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:2]))


def test_what_is_not_drawn_or_not_known_is_said(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "LINES", 4)
    wishes = Wishes(heads=[(0, 0)], sentences=["a a a a a", "龘 a a 龘"])
    said = [
        block.text for block in panel(find_subject([trained], wishes)) if type(block) is Paragraph
    ]
    assert said[1:] == [
        "a a a a a: the first 4 of 7 tokens are drawn, without lines to the others.",
        "龘 a a 龘: 50.0% of the tokens are unknown; the first 4 of 8 tokens are drawn,"
        " without lines to the others.",
    ]


@pytest.mark.parametrize("heads", [[], [(0, 0)]])
def test_nothing_is_drawn_that_nobody_asked_for(
    trained: Path, heads: list[tuple[int, int]]
) -> None:
    assert bool(panel(find_subject([trained], Wishes(heads=heads)))) == bool(heads)
