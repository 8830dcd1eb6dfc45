"""The relative effective context length: a loop over fixed losses, and as a command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.probes.context_length import ContextLength


def literal(
    losses: list[dict[int, list[float]]], number: int, share: float, task: ContextLength
) -> int:
    """Appendix C, word by word, for model `number`."""

    def best(c: int, t: int) -> float:
        return min(model[c][t] for model in losses)

    c = task.first
    while c + task.step <= task.longest:
        longer = c + task.step
        tokens = sorted(range(len(losses[0][c])), key=lambda t: -best(c, t))
        chosen = tokens[: max(1, round(share * len(tokens)))]

        def f(length: int, c: int = c, chosen: list[int] = chosen) -> float:
            return sum(min(best(c, t), losses[number][length][t]) for t in chosen) / len(chosen)

        gain = (math.exp(f(c)) - math.exp(f(longer))) / math.exp(f(c))
        if gain < task.gain:
            break
        c = longer
    return c


@pytest.mark.parametrize("seed", range(12))
def test_is_the_appendix(seed: int) -> None:
    task = ContextLength(first=10, step=20, longest=150, gain=0.02)
    draw = np.random.default_rng(seed)
    lengths = np.array(task.contexts)
    assert lengths.tolist() == [10, 30, 50, 70, 90, 110, 130, 150]
    slow = draw.uniform(5, 60, (3, 1, 1))  # how far context helps each model
    table = 2 + 3 * np.exp(-lengths[None, :, None] / slow) + draw.normal(0, 0.3, (3, 8, 40))
    losses = [{c: row.tolist() for c, row in zip(task.contexts, one, strict=True)} for one in table]
    assert task.compare(list(table)) == [
        {f"effective_context_{r:g}": literal(losses, number, r, task) for r in task.shares}
        for number in range(3)
    ]


def test_a_model_gains_nothing_from_what_another_has_known_already() -> None:
    """The worse model needs 300 tokens for what the better one knows with 100."""
    worse = np.array([[3.0] * 4, [2.0] * 4, [1.0] * 4])
    task = ContextLength(longest=300, shares=[1.0])
    assert task.compare([worse]) == [{"effective_context_1": 300}]
    better = np.full((3, 4), 0.5)
    assert [one["effective_context_1"] for one in task.compare([worse, better])] == [100, 100]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match="at least first"):
        ContextLength(first=100, step=100, longest=150)
    with pytest.raises(DataError, match="300 are needed"):
        ContextLength(longest=300).choose(300)
    assert ContextLength(longest=300, tokens=9).choose(303) == [300, 301, 302]


SHAPE = ["size=tiny", "size.width=16", "size.num_heads=2", "size.inner_width=32"]


@pytest.fixture(scope="module")
def runs(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for recipe, length in (("transformer_xl", 12), ("gpt2", 24)):
        words = [f"data.path={tokens_of('wordpiece')}", "train.steps=2", *SHAPE]
        words += ["train.batch_size=4", f"format.max_length={length}", f"run.dir={folder / recipe}"]
        done = CliRunner().invoke(make_app(), ["pretrain", recipe, *words])
        assert done.exit_code == 0, done.output
    return [folder / "transformer_xl", folder / "gpt2"]


def evaluate(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(make_app(), ["eval", "task=context_length", "--json", *words])
    return done.exit_code, done.stdout, done.output


def test_as_a_command(runs: list[Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sees a bird . a dog likes the river .\n\n" * 20)
    words = [f"checkpoint={runs[0]}", f"task.others=[{runs[1]}]", f"data.path={text}"]
    words += ["task.first=4", "task.step=14", "task.longest=32", "task.tokens=5"]
    code, printed, output = evaluate(*words)
    assert code == 0, output
    scores = json.loads(printed)["metrics"]
    assert set(scores) == set(map(str, runs))
    # a model of rows of 24 has no more context with 32 tokens
    assert {"loss_4", "loss_18", "loss_32"} < set(scores[str(runs[1])])
    loaded = plmctl.load(runs[0])
    paragraph = loaded.tokenizer.encode_batch(text.read_text().split("\n\n")[:1])[0]
    ids = [*paragraph, loaded.vocab.id("sep")] * 20
    asked = ContextLength(first=4, step=14, longest=32, tokens=5).choose(len(ids))
    losses = []
    for t in asked:
        row = Seq(torch.tensor([ids[t - 18 : t]]), torch.tensor([18]), full=True)
        with torch.no_grad():
            states = loaded.model(Batch(torch.arange(1), {"text": row})).last[0, -1:]
            logits = loaded.model.heads["clm"](states)
        losses.append(F.cross_entropy(logits, torch.tensor(ids[t : t + 1])).item())
    assert scores[str(runs[0])]["loss_18"] == pytest.approx(np.mean(losses), abs=1e-4)


def test_a_model_of_masks_is_refused(
    runs: list[Path], tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    words = [f"data.path={tokens_of('wordpiece')}", "train.steps=1", *SHAPE]
    made = ["pretrain", "roberta", *words, f"run.dir={tmp_path / 'run'}"]
    assert CliRunner().invoke(make_app(), made).exit_code == 0
    text = tmp_path / "text.txt"
    text.write_text("the cat sees a bird . " * 300)
    code, _, output = evaluate(f"checkpoint={tmp_path / 'run'}", f"data.path={text}")
    assert (code, "does not predict it" in output) == (2, True), output
    code, _, output = evaluate(f"checkpoint={runs[0]}")
    assert (code, "data.path" in output) == (2, True), output
