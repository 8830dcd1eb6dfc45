"""Heads, objectives and tasks of a plug-in, under names of its own, do all that built-in ones do:
they state facts, and nothing goes by their names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from plmctl.cli.app import make_app

PLUGIN = "plmctl_own_heads"
SOURCE = """
from dataclasses import replace

import torch
from torch import nn

from plmctl.core.parts import part_of
from plmctl.heads.base import ClassHead
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective
from plmctl.objectives.clm import CLM, find_neighbours
from plmctl.tasks.classification import Classification


@part_of("heads")
class Guess(ClassHead):
    about = "text"

    def __init__(self, *, width, vocab_size):
        super().__init__()
        self.linear = nn.Linear(width, vocab_size)

    def forward(self, features):
        return self.linear(features)


@part_of("heads")
class Following(Guess):
    about = "next"


@part_of("objective")
class Cloze(Objective):
    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}),
        heads=frozenset({"guess"}),
        terms=frozenset({"cloze"}),
    )

    def counts(self, batch):
        return {"cloze": batch.counts["mlm"]}

    def forward(self, model, batch, state=None):
        return ask(model, batch, "mlm", head="guess", term="cloze", state=state)


@part_of("objective")
class NextToken(Objective):
    facts = Facts(
        needs=frozenset({"text", "targets.clm"}),
        heads=frozenset({"following"}),
        terms=frozenset({"following"}),
        asks_next="text",
        reads_text=True,
    )

    def labels(self, rows):
        return {"clm": find_neighbours(rows.seqs["text"], after=True)}

    def counts(self, batch):
        return {"following": batch.counts["clm"]}

    def forward(self, model, batch, state=None):
        return ask(model, batch, "clm", head="following", term="following", state=state)


@part_of("task")
class Films(Classification):
    facts = replace(Classification.facts, pipeline="zero-shot-classification")
"""
SMALL = ["size=tiny", "size.width=32", "size.inner_width=64", "train.batch_size=8"]
SMALL += ["train.precision=fp32", "format.max_length=32", "eval.rows=4", "train.steps=1"]
OWN = ["--plugin", PLUGIN]


def invoke(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(make_app(), [*words, *OWN])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("home")
    (folder / f"{PLUGIN}.py").write_text(SOURCE, encoding="utf-8")
    (folder / "conf/objective").mkdir(parents=True)
    for name, part, head in (("cloze", "Cloze", "guess"), ("onward", "NextToken", "following")):
        (folder / f"conf/objective/{name}.yaml").write_text(
            f"# @package _global_\nobjective:\n  {name}: {{_target_: {PLUGIN}.{part}, weight: 1.0}}"
            f"\nheads:\n  {head}: {{_target_: {PLUGIN}.{head.capitalize()}}}\n",
            encoding="utf-8",
        )
    lines = ["return the value of the file\t1", "print a list or an object\t0"] * 8
    for split in ("train", "dev"):
        text = "\n".join(["text\tlabel", *lines])
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    (folder / "lines.txt").write_text("The list of the names.\nA name.\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop(PLUGIN, None)


@pytest.fixture(scope="module")
def masked(home: Path, tokens_of: Callable[..., Path]) -> str:
    words = [f"data.path={tokens_of('wordpiece')}", *SMALL, "run.dir=masked"]
    done = invoke("pretrain", "bert", "objective=[cloze]", *words, "--config-dir", "conf")
    assert "task=lm" in done.stderr
    return "masked"


@pytest.fixture(scope="module")
def causal(home: Path, tokens_of: Callable[..., Path]) -> str:
    words = [f"data.path={tokens_of('byte_bpe')}", *SMALL, "run.dir=causal"]
    done = invoke("pretrain", "gpt", "objective=[onward]", *words, "--config-dir", "conf")
    assert "plmctl generate" in done.stderr
    return "causal"


def card(run: str) -> dict[str, Any]:
    invoke("report", run, "--out", f"{run}.html", "--card", f"{run}-card.md")
    front: dict[str, Any] = yaml.safe_load(Path(f"{run}-card.md").read_text().split("---\n")[1])
    return front


def test_masks_are_filled(masked: str) -> None:
    (answer,) = json.loads(
        invoke(
            "generate", f"checkpoint={masked}", "prompt=the [MASK] of a list", "top=3", "--json"
        ).stdout
    )["masks"]
    assert len(answer) == 3


def test_texts_are_written(causal: str) -> None:
    done = invoke(
        "generate", f"checkpoint={causal}", "prompt=Return the", "max_new=3", "search=greedy"
    )
    assert done.stdout.strip()


def test_texts_are_scored(masked: str, causal: str) -> None:
    for run, metric in ((masked, "masked_perplexity"), (causal, "perplexity_per_token")):
        done = invoke(
            "eval", f"checkpoint={run}", "task=lm", "data.path=lines.txt", "--json"
        ).stdout
        assert json.loads(done)["metrics"]["text"][metric] > 1


def test_logits_are_embedded(masked: str) -> None:
    invoke("embed", f"checkpoint={masked}", "input=lines.txt", "out=vectors.npz", "logits=true")
    with np.load("vectors.npz") as found:
        assert any(name.startswith("logits") for name in found)


def test_training_sets_are_augmented(masked: str) -> None:
    words = ["task=classification", "task.path=.", "candidates=500"]
    done = invoke("data", "augment", *words, f"checkpoint={masked}", "out=more", "--json")
    assert json.loads(done.stdout)["replaceable"] > 0


def test_the_head_is_counted_at_its_share(masked: str, tokens_of: Callable[..., Path]) -> None:
    """15% of the tokens: as the built-in head of masked tokens with a table of its own."""
    words = ["pretrain", "bert", f"data.path={tokens_of('wordpiece')}", *SMALL, "--dry-run"]
    own = invoke(*words, "objective=[cloze]", "--json", "--config-dir", "conf").stdout
    plain = ["heads.mlm.tied=false", "heads.mlm.transform=false", "heads.mlm.bias=true"]
    built_in = invoke(*words, "objective=[mlm]", *plain, "--json").stdout
    found, expected = (json.loads(text)["macs_per_token"]["heads"] for text in (own, built_in))
    assert found == expected


def test_cards_name_what_a_model_does(masked: str, causal: str) -> None:
    assert card(masked)["pipeline_tag"] == "fill-mask"
    assert card(causal)["pipeline_tag"] == "text-generation"


def test_a_task_of_a_plugin_names_its_pipeline(masked: str) -> None:
    words = ["task=classification", "task.path=.", f"task._target_={PLUGIN}.Films"]
    words += ["task.max_length=16", "train.steps=1", "train.epochs=null", "run.dir=tuned"]
    invoke("finetune", *words, f"checkpoint={masked}")
    assert card("tuned")["pipeline_tag"] == "zero-shot-classification"
