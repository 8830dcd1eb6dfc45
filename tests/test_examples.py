"""The plug-in of examples/plugin keeps its definition, and its README's command trains."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.batch import IGNORE, Rows, Seq, Targets
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError

FOLDER = Path(__file__).resolve().parents[1] / "examples/plugin"
SPECIAL = 10  # ids below are special tokens


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "shuffled_tokens"]:
        del sys.modules[name]


def test_tokens_change_places_and_labels_say_which() -> None:
    from shuffled_tokens.noise import TokenShuffling

    count, length = 500, 40
    ids = np.random.default_rng(0).integers(0, 30, (count, length))

    def rows_of(*numbers: int) -> Rows:
        text = Seq(ids[list(numbers)], np.full(len(numbers), length - 5))
        return Rows(key=np.array(numbers), source="test", seqs={"text": text})

    vocab = SimpleNamespace(special=np.arange(30) < SPECIAL)
    noise = TokenShuffling(vocab=vocab, rate=0.5)
    noised = noise(rows_of(*range(count)), Draws(0, 0))
    after, labels = noised.seqs["text"].ids, noised.targets["shuffled"]
    asked = moved = 0
    for row in range(count):
        assert sorted(after[row]) == sorted(ids[row])
        for position in range(length):
            if position >= length - 5 or ids[row, position] < SPECIAL:
                assert after[row, position] == ids[row, position]
                assert labels[row, position] == IGNORE
            else:
                assert labels[row, position] == (after[row, position] != ids[row, position])
                asked, moved = asked + 1, moved + int(labels[row, position])
    # half of the tokens are chosen; about 1/12 of these stay, and 1/20 meet an equal token
    assert 0.38 < moved / asked < 0.5
    alone = noise(rows_of(7), Draws(0, 0))
    assert np.array_equal(alone.seqs["text"].ids[0], after[7])
    with pytest.raises(ConfigError, match="rate"):
        TokenShuffling(vocab=vocab, rate=0)


def test_loss_is_the_formula_written_as_a_loop() -> None:
    from shuffled_tokens.objective import ShuffledTokens

    logits = torch.randn(6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 0, 0, IGNORE, 1, IGNORE])
    batch = SimpleNamespace(require=lambda name: Targets(torch.arange(6), labels, 4))

    def model(batch: object, state: object = None) -> SimpleNamespace:
        return SimpleNamespace(gather=lambda index: logits[index])

    model.heads = {"discriminator": lambda features: features}  # type: ignore[attr-defined]
    output = ShuffledTokens()(model, batch)
    loss, right = 0.0, 0
    for logit, label in zip(logits.double().tolist(), labels.tolist(), strict=True):
        if label != IGNORE:
            moved = 1 / (1 + np.exp(-logit))
            loss -= np.log(moved if label else 1 - moved)
            right += (moved > 0.5) == (label == 1)
    assert float(output.terms["shuffled_tokens"].total) == pytest.approx(loss, rel=1e-5)
    total, of = output.logs["acc/shuffled_tokens"]
    assert (int(total), of) == (right, 4)


def test_the_command_of_its_readme_trains(
    tmp_path: Path, tokens_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    readme = Path("README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    line = re.search(r"^plmctl (pretrain .*)$", readme, re.MULTILINE)
    assert line is not None
    words = [word for word in shlex.split(line[1]) if not word.startswith("train.minutes")]
    words += ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=32"]
    words += ["train.batch_size=8", "train.steps=40", "optim.lr=5e-3", "eval.rows=16"]
    words += [f"data.path={tokens_of('wordpiece')}", f"run.dir={tmp_path}", "train.log_every=1"]
    words += ["train.eval_every=0", "train.save_every=0"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    losses = [each["loss/shuffled_tokens"] for each in records if "loss/shuffled_tokens" in each]
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < losses[0] - 0.1
