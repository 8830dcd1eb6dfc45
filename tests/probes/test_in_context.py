"""Prompts with examples: the text by hand, scores as a loop over tokens, draws, and rooms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import ConfigError, DataError
from plmctl.probes.base import Opened
from plmctl.probes.in_context import InContext, measure_room
from plmctl.tasks.readers.choices import Choices
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.training.device.precision import choose
from plmctl.use.likelihood import Likelihood, find_ways, make_scoring
from tests.probes.test_minimal_pairs import log_softmax, make

SPLITS = {"train": ["train.*"], "dev": ["dev.*"]}
COLUMNS = {"text": "text", "label": "label"}


def part(path: Path | str = "x", **more) -> InContext:
    own = {"columns": COLUMNS, "template": "{text}\nAnswer: {answer}"} | more
    return InContext(path=str(path), **{"reader": Table(splits=SPLITS), **own})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"a text {n}\t{n % 2}" for n in range(6)]
    for name, own in (("train", rows), ("dev", [rows[0], "other\t1"])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *own]) + "\n")
    return tmp_path


def test_a_prompt_shows_examples_with_their_answers(folder: Path, gpt_toy) -> None:
    words = {"0": "bad", "1": "good"}
    own = part(folder, shots=3, label_words=words, instruction="Judge.", seed=1)
    examples, pool, names = own.read_all("dev")
    shown = own.draw(examples, pool, 1)
    assert names == ["0", "1"]
    others = [each.fields["text"] for each in shown[0]]
    assert len(set(others)) == 3
    assert "a text 0" not in others  # the text itself
    assert shown == own.draw(examples, pool, 1)
    assert shown != own.draw(examples, pool, 2)
    told = [f"{text}\nAnswer: {words[str(int(text[-1]) % 2)]}" for text in others]
    text = "\n\n".join(["Judge.", *told, "a text 0\nAnswer:"])
    prompt = own.make_prompt(examples[0], shown[0], names, gpt_toy, None)
    assert prompt.ids == gpt_toy.encode(text)
    assert prompt.text == text
    row = own.predict(examples[0], prompt, np.log([0.25, 0.75]), names)
    assert (row["prompt"], row["shots"]) == (text, 3)
    assert row["shown"] == [each.id for each in shown[0]]
    assert prompt.answers == [gpt_toy.encode(" bad"), gpt_toy.encode(" good")]
    # the first of the examples make way for the text, then its beginning does
    room = len(gpt_toy.encode("\n\n".join(["Judge.", *told[1:], "a text 0\nAnswer:"])))
    room += max(map(len, prompt.answers))
    less = own.make_prompt(examples[0], shown[0], names, gpt_toy, room)
    assert (less.shown, less.cut, len(less.ids) + max(map(len, less.answers))) == (2, 0, room)
    least = own.make_prompt(examples[0], shown[0], names, gpt_toy, 10)
    assert (least.shown, len(least.ids) + max(map(len, least.answers))) == (0, 10)
    assert gpt_toy.encode("Judge.\n\na text 0\nAnswer:")[least.cut :] == least.ids


@pytest.mark.parametrize("normalise", ["tokens", "sum", "context"])
def test_scores_as_a_loop(normalise: str, gpt_toy) -> None:
    vocab = gpt_toy.vocab
    model = make("gpt2", vocab)
    scoring = make_scoring("next", model, find_ways(model, vocab)["next"], gpt_toy)
    own = part(normalise=normalise, label_words={"0": "no", "1": "maybe"}, shots=1)
    shown = [Example("1", {"text": "b"}, "1")]
    prompt = own.make_prompt(Example("0", {"text": "a"}, "0"), shown, ["0", "1"], gpt_toy, None)
    context = gpt_toy.encode("Answer:")
    likelihood = Likelihood(model, scoring, torch.device("cpu"))
    with torch.no_grad():
        (found,) = own.score_answers([prompt], likelihood, context)

    def loop(before: list[int], answer: list[int]) -> float:
        read, total = [*scoring.first, *before], 0.0
        for token in answer:
            total += float(log_softmax(model, "clm", read, len(read) - 1)[token])
            read.append(token)
        return total

    for score, answer in zip(found, prompt.answers, strict=True):
        expected = loop(prompt.ids, answer)
        if normalise == "tokens":
            expected /= len(answer)
        elif normalise == "context":
            expected -= loop(context, answer)
        assert score == pytest.approx(expected, abs=1e-9)
    assert measure_room(scoring, 32) == 32


def test_choices_are_answers_and_bad_settings_are_refused(folder: Path, gpt_toy) -> None:
    file = folder / "dev.jsonl"
    file.write_text('{"text": "go", "choices": ["on", "home"], "label": 1}\n')
    columns = {"text": "text", "choices": "choices", "label": "label"}
    reader = Choices(splits={"train": ["train.*"], "dev": ["dev.jsonl"]})
    own = part(folder, reader=reader, columns=columns, template="{text} {answer}")
    (example,), pool, names = own.read_all("dev")
    assert (names, own.draw([example], pool, 0)) == ([], [[]])
    prompt = own.make_prompt(example, [], names, gpt_toy, None)
    assert prompt.answers == [gpt_toy.encode(" on"), gpt_toy.encode(" home")]
    row = own.predict(example, prompt, np.log([0.25, 0.75]), names)
    assert (row["gold"], row["guess"], row["probabilities"]) == (1, 1, pytest.approx([0.25, 0.75]))
    assert own.show(example, names) == "go home"
    words = part(folder, reader=reader, columns=columns, label_words={"0": "x", "1": "y"})
    with pytest.raises(ConfigError, match="null: the choices"):
        words.read_all("dev")
    with pytest.raises(ConfigError, match="once, at its end"):
        part(template="{answer} {text}")
    with pytest.raises(ConfigError, match=r"with \{text\} and \{answer\}.*text"):
        part(template="{tex} {answer}")
    file.unlink()
    least = part(folder, shots=6)
    examples, pool, _ = least.read_all("dev")
    with pytest.raises(DataError, match=r"5 other .*, and task\.shots=6"):
        least.draw(examples, pool, 0)


def test_several_draws_have_a_mean_and_a_spread(folder: Path, gpt_toy, tmp_path: Path) -> None:
    model = make("gpt2", gpt_toy.vocab)
    source = SimpleNamespace(folder=tmp_path, plugins=())
    loaded: Any = SimpleNamespace(model=model, tokenizer=gpt_toy, source=source)
    precision = choose("fp32", torch.device("cpu"))
    opened = Opened(loaded, precision, "x", out=str(tmp_path / "out.jsonl"))
    more: Any = {"shots": 2, "label_words": {"0": "no", "1": "maybe"}}
    table = part(folder, seeds=[4, 5, 6], **more).measure(opened)
    names = [f"dev, seed {seed}" for seed in (4, 5, 6)]
    assert list(table.metrics) == [*names, "mean", "spread"]
    for seed, name in zip((4, 5, 6), names, strict=True):
        alone = part(folder, seed=seed, **more).measure(replace(opened, out=None))
        assert alone.metrics["dev"] == table.metrics[name]
    own = [table.metrics[name]["accuracy"] for name in names]
    assert table.metrics["mean"]["accuracy"] == pytest.approx(sum(own) / 3)
    spread = (sum((each - sum(own) / 3) ** 2 for each in own) / 2) ** 0.5
    assert table.metrics["spread"]["accuracy"] == pytest.approx(spread)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows] == [4, 4, 5, 5, 6, 6]
