"""ELMo's published layout: a small file of random numbers, read by us and computed from its
description in float64.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.artifacts.loading import open_source
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError, UsageError

h5py = pytest.importorskip("h5py")
C, P, H, FILTERS = 4, 6, 10, [[1, 4], [2, 5], [3, 7]]
TOTAL = sum(number for _, number in FILTERS)
SENTENCES = (["<S>", "Naïve", "birds", "sing", ".", "</S>"], ["<S>", "Pierre", "</S>"])
OPTIONS: dict[str, Any] = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": P,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": H,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": FILTERS,
        "n_highway": 2,
        "embedding": {"dim": C},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    draw = lambda *shape: random.normal(0, 0.6, shape).astype(np.float32)  # noqa: E731
    found = {"char_embed": draw(261, C)}
    for n, (size, number) in enumerate(FILTERS):
        found |= {f"CNN/W_cnn_{n}": draw(1, size, C, number), f"CNN/b_cnn_{n}": draw(number)}
    for n in range(2):
        for name in ("carry", "transform"):
            found |= {
                f"CNN_high_{n}/W_{name}": draw(TOTAL, TOTAL),
                f"CNN_high_{n}/b_{name}": draw(TOTAL),
            }
    found |= {"CNN_proj/W_proj": draw(TOTAL, P), "CNN_proj/b_proj": draw(P)}
    for direction in range(2):
        for layer in range(2):
            home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            found |= {f"{home}/W_0": draw(2 * P, 4 * H), f"{home}/W_P_0": 4 * draw(H, P)}
            found[f"{home}/B"] = np.round(draw(4 * H) * 1024) / 1024
    return found


def write(folder: Path, stored: dict[str, np.ndarray], **lstm: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    options = {**OPTIONS, "lstm": {**OPTIONS["lstm"], **lstm}}
    (folder / "elmo_tiny_options.json").write_text(json.dumps(options))
    with h5py.File(folder / "elmo_tiny_weights.hdf5", "w") as file:
        for name, array in stored.items():
            file[name] = array
    return folder


def characters(word: str) -> list[int]:
    """The ids of training (data.py), before the 1 that is added to them for use."""
    row = [260] * 50
    row[0] = 258
    content = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode()))
    row[1 : len(content) + 2] = [*content, 259]
    return row


def by_hand(stored: dict[str, np.ndarray], sentence: list[str], *, skip: bool) -> list[np.ndarray]:
    """[T, 2 P] of each layer, in float64. (Biases are chosen so that 1 can be added to them
    without rounding.)
    """
    w = {name: array.astype(np.float64) for name, array in stored.items()}
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    words = []
    for word in sentence:
        x, parts = w["char_embed"][characters(word)], []
        for n, (size, _) in enumerate(FILTERS):
            kernel = w[f"CNN/W_cnn_{n}"][0]  # [size, C, number]
            windows = [
                sum(x[start + k] @ kernel[k] for k in range(size)) for start in range(50 - size + 1)
            ]
            parts.append(np.maximum(np.max(windows, 0) + w[f"CNN/b_cnn_{n}"], 0))
        y = np.concatenate(parts)
        for n in range(2):
            carry = sigmoid(y @ w[f"CNN_high_{n}/W_carry"] + w[f"CNN_high_{n}/b_carry"])
            y = (
                carry
                * np.maximum(y @ w[f"CNN_high_{n}/W_transform"] + w[f"CNN_high_{n}/b_transform"], 0)
                + (1 - carry) * y
            )
        words.append(y @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"])
    layers: list[list[np.ndarray]] = [[np.stack(words)] * 2, [], []]
    for direction in range(2):
        xs = words[::-1] if direction else words
        for layer in range(2):
            home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            h, c, out = np.zeros(P), np.zeros(H), []
            for x in xs:
                i, j, f, o = np.split(np.concatenate([x, h]) @ w[f"{home}/W_0"] + w[f"{home}/B"], 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ w[f"{home}/W_P_0"], -3, 3)
                out.append(h + x if skip and layer else h)
            xs = out
            layers[layer + 1].append(np.stack(out[::-1] if direction else out))
    return [np.concatenate(pair, 1) for pair in layers]


@pytest.mark.parametrize("skip", [True, False])
def test_numbers_are_those_of_the_description(skip: bool, tmp_path: Path) -> None:
    stored = arrays()
    model = plmctl.load(write(tmp_path, stored, use_skip_connections=skip)).model
    rows = torch.zeros(2, 6, 50, dtype=torch.int64)
    for row, sentence in enumerate(SENTENCES):
        rows[row, : len(sentence)] = torch.tensor([characters(word) for word in sentence]) + 1
    length = torch.tensor([6, 3])
    seqs = {
        "text": Seq(torch.zeros(2, 6, dtype=torch.int64), length),
        "characters": Seq(rows, length),
    }
    with torch.no_grad():
        for kind, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
            found = model.to(kind)(
                Batch(torch.arange(2), seqs), record=frozenset({"hidden"})
            ).recorded["hidden"]
            clipped = 0
            for row, sentence in enumerate(SENTENCES):
                for mine, wanted in zip(found, by_hand(stored, sentence, skip=skip), strict=True):
                    assert np.abs(mine[row, : len(sentence)].numpy() - wanted).max() < tolerance
                    clipped += int((np.abs(wanted) == 3).sum())
            assert clipped  # so the clipping has been seen
            model = plmctl.load(tmp_path).model


def run(*words: str) -> str:
    result = CliRunner().invoke(make_app(), list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_it_is_converted_embedded_and_fine_tuned(tmp_path: Path) -> None:
    published = write(tmp_path / "published", stored := arrays())
    run("convert", str(published), str(tmp_path / "ours"), "--to", "plmctl")
    (tmp_path / "in.txt").write_text("Naïve birds sing .\n")
    for place in (published, tmp_path / "ours"):
        run("embed", f"checkpoint={place}", f"input={tmp_path / 'in.txt'}", f"out={place}.npz")
        found = np.load(f"{place}.npz")["hidden_0"]
        for mine, wanted in zip(found, by_hand(stored, SENTENCES[0], skip=True), strict=True):
            assert np.abs(mine - wanted).max() < 1e-5
    for split in ("train", "dev"):
        (tmp_path / f"{split}.txt").write_text("\n\n".join(["the O\nAnna B-PER\nsang O"] * 8))
    run(
        "finetune",
        "task=tagging",
        f"task.path={tmp_path}",
        f"checkpoint={tmp_path / 'ours'}",
        "features=mix",
        "train.epochs=1",
        "train.frozen=[backbone]",
        "task.max_length=8",
        f"run.dir={tmp_path / 'run'}",
    )
    assert "metrics" in json.loads((tmp_path / "run" / "result.json").read_text())


def test_what_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"lstm.proj_clip=2: 3 \(nothing else"):
        open_source(write(tmp_path / "clip", {}, proj_clip=2))
    stored = arrays()
    del stored["CNN_high_1/b_carry"]
    with pytest.raises(DataError, match="without the weights CNN_high_1/b_carry"):
        open_source(write(tmp_path / "lacks", stored))
    folder = write(tmp_path / "odd", arrays())
    (folder / "elmo_tiny_weights.hdf5").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        open_source(folder)
    (folder / "elmo_tiny_options.json").write_text('{"lstm": {}}')
    with pytest.raises(DataError, match="not the options of a biLM"):
        open_source(folder)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"pip install 'h5py>=3.11'"):
        open_source(tmp_path / "lacks")
