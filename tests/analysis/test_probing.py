"""Linear probes: against scikit-learn, against data with a known answer, and on a trained model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import plmctl
from plmctl.analysis import probing
from plmctl.analysis.probing import Labels, ProbeResult, apply_map, fit_map, split_items
from plmctl.core.errors import DataError
from plmctl.report.page import Chart, Paragraph, TableBlock
from plmctl.report.panels.layers import probes as panel
from plmctl.report.subject import Wishes, find_subject

TAGGED = "the DT x\ncat NN x\nruns VB x\n\na DT x\ndog NN x\nsees VB x\nthe DT x\nmoon NN x\n\n"


def test_the_map_is_the_one_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(0)
    x = (
        torch.randn(200, 6, generator=generator, dtype=torch.float64)
        * torch.tensor([1, 2, 3, 4, 5, 6.0])
        + 3
    )
    y = (x[:, :3] + torch.randn(200, 3, generator=generator)).argmax(-1)
    found = fit_map(x, y, 3)
    z = (x - x.mean(0)) / x.std(0)
    theirs = linear_model.LogisticRegression(
        C=1 / (probing.PENALTY * 200), tol=1e-10, max_iter=10_000
    ).fit(z.numpy(), y.numpy())
    assert (
        np.abs(apply_map(found, x).softmax(-1).numpy() - theirs.predict_proba(z.numpy())).max()
        < 1e-3
    )


def test_the_map_has_the_least_loss() -> None:
    """The gradient of the penalised loss is nothing there."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 4, generator=generator, dtype=torch.float64), torch.arange(60) % 3
    found = fit_map(x, y, 3)
    weight = found.weight.clone().requires_grad_()
    loss = F.cross_entropy((x - found.mean) / found.deviation @ weight.T + found.bias, y)
    loss = loss + probing.PENALTY / 2 * weight.square().sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.abs().max() < 1e-5


def test_part_of_speech_of_a_trained_model(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text(TAGGED * 15)
    found = ProbeResult.of(plmctl.load(trained), split_items(Labels(tmp_path / "pos.txt")))
    assert len(found.accuracy) == 5  # the embeddings and four layers
    assert (found.train + found.test, found.classes) == (8 * 15, 3)
    assert found.by_word == 1.0
    assert found.rare == {"VB": (24, 6), "DT": (36, 9), "NN": (36, 9)}
    assert found.majority < 0.5
    assert found.accuracy[0] == 1.0  # the words of every class are its own


def test_labels_with_few_items_are_named() -> None:
    """Few to score count as few to learn from; a label may lack in one of both."""

    def make(**counts: int) -> list[probing.Item]:
        return [probing.Item([(0, 0)], tag, "w") for tag, n in counts.items() for _ in range(n)]

    train, test = make(NN=90, JJ=10, UH=3, VB=12), make(NN=20, JJ=10, VB=9, FW=1)
    question = probing.ProbeItems([["w"]], train, test)
    assert probing.count_rare(question) == {"FW": (0, 1), "UH": (3, 0), "VB": (12, 9)}
    said = probing.describe_rare(question)
    assert said.startswith("3 labels with fewer than 10 items")
    assert said.endswith("FW 0 and 1, UH 3 and 0, VB 12 and 9.")
    assert probing.describe_rare(probing.ProbeItems([["w"]], train[:90], test[:20])) == ""


def test_word_sense(trained: Path, tmp_path: Path) -> None:
    rows = [
        {
            "word": f"w{n}ord",
            "sentence1": f"a w{n}ords here",
            "sentence2": f"W{n}ord {'of' if n % 2 else 'to'}",
            "label": not n % 2,
        }
        for n in range(40)
    ]
    (tmp_path / "wic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sentences, items = probing.read(Labels(tmp_path / "wic.jsonl"))
    assert [[sentences[s][w] for s, w in item.positions] for item in items[:2]] == [
        ["w0ords", "W0ord"],
        ["w1ords", "W1ord"],
    ]
    found = probing.ProbeResult.of(
        plmctl.load(trained), split_items(Labels(tmp_path / "wic.jsonl"))
    )
    assert (found.train, found.test, found.classes) == (32, 8, 2)
    assert found.majority == 0.5
    repeated = rows[:5] * 8  # of five words, one is kept for the test
    (tmp_path / "wic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in repeated))
    found = probing.ProbeResult.of(
        plmctl.load(trained), split_items(Labels(tmp_path / "wic.jsonl"))
    )
    assert (found.train, found.test, found.by_word) == (32, 8, found.majority)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pos.txt", "a x\nb x\n\nc x\n", "too few"),
        ("pos.txt", None, "no such file"),
        ("pos.txt", "", "pos.txt"),
        ("wic.jsonl", '{"word": "a"}\n', "wic.jsonl:1: not a JSON object with word"),
        ("wic.jsonl", '{"word": 5, "sentence1": "a b", "sentence2": "c", "label": 1}\n', "too few"),
    ],
)
def test_a_file_that_cannot_be_asked(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        split_items(Labels(tmp_path / name))


def test_states_are_those_of_the_first_pieces(trained: Path) -> None:
    loaded = plmctl.load(trained)
    states = probing.read_states(loaded, [["return", "unbelievably", "it"]], [7])
    assert set(states) == {(7, 0), (7, 1), (7, 2)}
    from plmctl.analysis.sample import batch_sentences

    batch, (ids,) = batch_sentences(loaded, ["return unbelievably it"])
    hidden = loaded.model(batch, record=frozenset({"hidden"})).recorded["hidden"]
    pieces = [loaded.tokenizer.encode(text) for text in ("return", "return unbelievably")]
    for word, place in ((0, 1), (1, 1 + len(pieces[0])), (2, 1 + len(pieces[1]))):
        wanted = torch.stack([layer[0, place] for layer in hidden])
        torch.testing.assert_close(states[7, word], wanted, atol=1e-5, rtol=1e-5)
    assert len(ids) > 4


def test_the_panel(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text(TAGGED * 10)
    new = tmp_path / "new"
    new.mkdir()
    shutil.copy(trained / "config.yaml", new)
    blocks = panel(
        find_subject([trained, new], Wishes(probes={"pos": Labels(tmp_path / "pos.txt")}))
    )
    assert [block.name for block in blocks if isinstance(block, Chart)] == ["probe-pos"]
    assert [row[0] for block in blocks if isinstance(block, TableBlock) for row in block.rows] == [
        "run"
    ]
    text = " ".join(block.text for block in blocks if isinstance(block, Paragraph))
    assert "new: not probed" in text
    with pytest.raises(DataError, match="absent: no such file"):  # no run's fault
        panel(find_subject([trained], Wishes(probes={"none": Labels(tmp_path / "absent")})))
