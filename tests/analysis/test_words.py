"""One word in several contexts, the texts of feed-forward units, and the weights of layers, against
loops.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import plmctl
from plmctl.analysis.contexts import SelfSimilarity, find_occurrences
from plmctl.analysis.keys import KeyTexts, read_units
from plmctl.analysis.mixes import LayerMixes
from plmctl.analysis.noised import NoisedRows
from plmctl.analysis.probing import read_states
from plmctl.analysis.sample import batch_held_out, batch_sentences
from plmctl.analysis.stacks import find_readers, list_cells
from plmctl.core.batch import IGNORE
from plmctl.core.errors import DataError, UsageError
from plmctl.heads.features import ScalarMix
from plmctl.report.page import Chart, TableBlock
from plmctl.report.panels import mixes, noised, words
from plmctl.report.subject import Wishes, find_subject
from plmctl.report.wishes import parse_wishes
from tests.analysis.built import build
from tests.analysis.tiny_run import pretrain

TEXT = "Return the list.\n\nA list, of returns\nno such word\nThey list: it all\n"


def cosine(u: Any, v: Any) -> float:
    dot = sum(a * b for a, b in zip(u, v, strict=True))
    return float(dot / (math.hypot(*u) * math.hypot(*v)))


def test_a_word_in_its_sentences(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(TEXT)
    given = find_occurrences("List", tmp_path / "list.txt")
    assert given.words == [
        ["Return", "the", "list", "."],
        ["A", "list", ",", "of", "returns"],
        ["They", "list", ":", "it", "all"],
    ]
    assert given.found == [2, 1, 1]
    loaded = plmctl.load(trained)
    found = SelfSimilarity.of(loaded, given)
    states = read_states(loaded, given.words, [0, 1, 2])
    own = [states[n, word].tolist() for n, word in enumerate(given.found)]
    every = [each.tolist() for each in states.values()]
    for layer in range(5):
        for vectors, mean in ((own, found.likeness[layer]), (every, found.floor[layer])):
            pairs = [
                cosine(u[layer], v[layer])
                for j, u in enumerate(vectors)
                for k, v in enumerate(vectors)
                if j != k
            ]
            assert mean == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
    for n, (other, value) in enumerate(zip(found.nearest, found.cosines, strict=True)):
        likeness = {k: cosine(own[n][-1], own[k][-1]) for k in range(3) if k != n}
        assert value == pytest.approx(likeness[other], abs=1e-6)
        assert value == pytest.approx(max(likeness.values()), abs=1e-6)


def test_words_of_several_parts_and_files_without_them(tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text("我去银行。\n银行很大\n行银\n", encoding="utf-8")
    assert find_occurrences("银行", tmp_path / "zh.txt").found == [2, 0]
    for word, problem in (("行银", "only one line has"), ("x", "no line has"), (",", "no line")):
        with pytest.raises(DataError, match=problem):
            find_occurrences(word, tmp_path / "zh.txt")
    with pytest.raises(DataError, match="no such file"):
        find_occurrences("x", tmp_path / "none.txt")


@torch.inference_mode()
def test_values_of_units_of_a_shared_layer(trained: Path) -> None:
    """ALBERT's one feed-forward cell runs in all four layers, here in slices, too."""
    loaded = plmctl.load(trained)
    batch, _ = batch_sentences(loaded, ["return the list", "it is a dictionary of names"])
    (reader,) = find_readers(loaded.model.backbone).values()
    cell: Any = next(cell for _, cell in list_cells(reader.stack) if hasattr(cell, "down"))
    given: list[Any] = []
    hook = cell.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]["text"]))
    units = read_units(loaded, batch)
    hook.remove()
    assert len(units) == len(given) == 4
    for x, values in zip(given, units, strict=True):
        wanted = cell.activation(x @ cell.up.weight.T + cell.up.bias)
        torch.testing.assert_close(values, wanted, atol=1e-5, rtol=1e-4)
    cell.chunk = 3
    for whole, sliced in zip(units, read_units(loaded, batch), strict=True):
        torch.testing.assert_close(sliced, whole, atol=1e-6, rtol=1e-5)


def test_triggers_are_the_tokens_with_the_largest_values(trained: Path) -> None:
    loaded = plmctl.load(trained)
    sentences = ["return the list", "it is a dictionary of names", "the names of it"]
    batch, rows = batch_sentences(loaded, sentences)
    values = read_units(loaded, batch)[2][..., 7]
    (unit,) = KeyTexts.of(loaded, [(2, 7)], sentences).units
    best, above, count = [], 0, 0
    for row, ids in enumerate(rows):
        scored = [(float(values[row, n]), n) for n in range(1, len(ids) - 1)]  # without cls, sep
        above, count = above + sum(value > 0 for value, _ in scored), count + len(scored)
        value, place = max(scored)
        best.append((value, loaded.tokenizer.pieces(ids)[place], row))
    assert [(t.value, t.token) for t in unit.triggers] == [each[:2] for each in sorted(best)[::-1]]
    assert unit.active == pytest.approx(above / count)
    first = unit.triggers[0]
    pieces = loaded.tokenizer.pieces(rows[max(best)[2]])
    assert [*first.before, first.token, *first.after] == pieces[: len(first.before) + 5]
    with pytest.raises(UsageError, match=r"--keys 4.0.*4 layers of 64 units"):
        KeyTexts.of(loaded, [(4, 0)], sentences)


def test_weights_of_layers_are_those_of_its_mixes() -> None:
    opened, subject = build("bert", "size.num_layers=3")
    assert LayerMixes.of(opened) is None
    mix = ScalarMix(width=16, num_layers=3, layers=[0, 2, -1])
    mix.scores.data = torch.tensor([0.0, 1.0, -1.0])
    mix.gamma.data = torch.tensor(1.5)
    opened.model.heads["features"] = mix
    found = LayerMixes.of(opened)
    assert found is not None
    total = 1 + math.e + 1 / math.e
    shares = {0: 1 / total, 2: math.e / total, 3: 1 / math.e / total}
    assert found.weights == {"features": pytest.approx(shares)}
    assert found.scales == {"features": 1.5}
    _, _, table, chart = mixes.panel(subject)
    assert isinstance(table, TableBlock)
    assert isinstance(chart, Chart)
    assert [row[0] for row in table.rows] == ["layer 0", "layer 2", "layer 3", "scale"]
    assert [row[1] for row in table.rows] == ["0.245", "0.665", "0.090", "1.500"]


def test_the_panels_of_words_and_units(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(TEXT)
    wishes = parse_wishes(
        None, ["return the list"], [], words=[f"list={tmp_path / 'list.txt'}"], units="0.3,1.2"
    )
    subject = find_subject([trained], wishes)
    found = [*words.contexts(subject), *words.keys(subject)]
    assert [block.name for block in found if isinstance(block, Chart)] == ["contexts-list"]
    near, texts = (block for block in found if isinstance(block, TableBlock))
    assert [row[0] for row in near.rows] == [line for line in TEXT.splitlines() if "list" in line]
    assert [row[0] for row in texts.rows] == ["0.3", "1.2"]
    assert all("«" in row[3] for row in texts.rows)
    assert words.contexts(find_subject([trained])) == words.keys(find_subject([trained])) == []
    with pytest.raises(UsageError, match="there is no such unit"):
        words.keys(find_subject([trained], Wishes(units=[(0, 99)])))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"words": ["bank"]}, "--word bank: WORD=FILE"),
        ({"units": "1"}, "--keys 1: layer.unit"),
        ({"units": "a.b"}, "--keys a.b: layer.unit"),
    ],
)
def test_options_that_cannot_be_read(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_wishes(None, [], [], **settings)


def test_hidden_tokens_and_the_guesses_for_them(tmp_path: Path) -> None:
    words = ["size.width=16", "size.inner_width=32", "size.num_heads=2", "size.num_layers=1"]
    words += ["train.steps=1", "train.batch_size=2", "tokenizer=char", "format.max_length=48"]
    run = pretrain(tmp_path, "bert", *words, "data.valid_share=0.2", "eval.rows=4")
    opened = plmctl.load(run)
    found = NoisedRows.of(opened)
    assert found is not None
    batch, _ = batch_held_out(opened)
    targets = batch.targets["mlm"]
    logits = opened.model.heads["mlm"](opened.model(batch).words)
    for row, hidden in enumerate(found.hidden):
        length = int(batch.text.length[row])
        assert found.tokens[row] == opened.tokenizer.pieces(batch.text.ids[row, :length].tolist())
        own = {
            index % 48: label
            for index, label in zip(targets.index.tolist(), targets.ids.tolist(), strict=True)
            if label != IGNORE and index // 48 == row
        }
        assert hidden.keys() == own.keys() != set()
        for place, label in own.items():
            shares = logits[row, place].softmax(-1).tolist()
            order = sorted(range(len(shares)), key=lambda n: -shares[n])[:3]
            assert hidden[place].original == opened.tokenizer.pieces([label])[0]
            assert hidden[place].share == pytest.approx(shares[label], rel=1e-4)
            guesses = [(opened.tokenizer.pieces([n])[0], shares[n]) for n in order]
            assert [each[0] for each in hidden[place].guesses] == [each[0] for each in guesses]
            assert [each[1] for each in hidden[place].guesses] == pytest.approx(
                [each[1] for each in guesses], rel=1e-4
            )
    (unit,) = KeyTexts.of(opened, [(0, 1)]).units  # of the text, not of its masks
    read = [each for t in unit.triggers for each in (*t.before, t.token, *t.after)]
    assert "[MASK]" not in read
    pictures = [block for block in noised.panel.draw(found) if isinstance(block, Chart)]
    assert [block.name for block in pictures] == ["hidden-1", "hidden-2"]
    for block, hidden in zip(pictures, found.hidden, strict=True):
        assert block.svg.count("<title>") == len(hidden)
