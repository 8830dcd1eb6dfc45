"""Adapters of examples/harnesses. Where a library is missing, a stand-in has its signatures:
`LM` of lm_eval/api/model.py (lm-eval 0.4.9), `ModelMeta.create_empty` of mteb/models/model_meta.py
(mteb 2.26).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import plmctl
from plmctl.use.likelihood import Likelihood, find_ways, make_scoring
from tests.command import plmctl as run

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "harnesses"


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """A module `name` with this content, unless the library is installed."""
    if importlib.util.find_spec(name.partition(".")[0]) is not None:
        return
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        module.__path__ = []
        monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update(content)


class LM:
    def __init__(self) -> None:
        self._rank, self._world_size = 0, 1


class ModelMeta(SimpleNamespace):
    @classmethod
    def create_empty(cls, overwrites: dict[str, Any] | None = None) -> ModelMeta:
        return cls(**(overwrites or {}))


@pytest.fixture(scope="module")
def checkpoint(tokens_of, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("harness") / "run"
    words = ("size=tiny", "size.width=16", "size.inner_width=32", "format.max_length=32")
    words += (f"data.path={tokens_of('wordpiece')}", "train.steps=1", "train.batch_size=4")
    run("pretrain", "bert", *words, "eval.rows=4", f"run.dir={folder}")
    return folder


def test_an_encoder_of_mteb(checkpoint, monkeypatch) -> None:
    stand_in(monkeypatch, "mteb.models.model_meta", ModelMeta=ModelMeta)
    monkeypatch.syspath_prepend(str(FOLDER))
    from mteb_plmctl import PlmctlEncoder

    encoder = PlmctlEncoder(str(checkpoint))
    assert encoder.mteb_model_meta.name == "plmctl/run"
    texts = ["a first text", "another one", "and a third"]
    batches = [{"text": texts[:2]}, {"text": texts[2:]}]
    about = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    vectors = encoder.encode(batches, **about, batch_size=2)
    assert vectors == pytest.approx(plmctl.load(checkpoint).embed(texts), abs=1e-6)
    cosines = encoder.similarity(vectors, vectors)
    assert np.diag(cosines) == pytest.approx(1)
    assert encoder.similarity_pairwise(vectors, vectors[::-1])[1] == pytest.approx(1)


def test_a_model_of_lm_eval(checkpoint, monkeypatch) -> None:
    stand_in(monkeypatch, "lm_eval.api.model", LM=LM)
    monkeypatch.syspath_prepend(str(FOLDER))
    from lm_eval_plmctl import Plmctl

    adapter, loaded = Plmctl(str(checkpoint)), plmctl.load(checkpoint)
    ways = find_ways(loaded.model, loaded.vocab)
    way, head = next(iter(ways.items()))
    scoring = make_scoring(way, loaded.model, head, loaded.tokenizer)
    scorer = Likelihood(loaded.model, scoring, loaded.precision.device)
    pairs = [("", "the cat sat"), ("the cat", " sat"), ("the cat ", "sat")]
    found = adapter.loglikelihood([SimpleNamespace(args=pair) for pair in pairs])
    ids = loaded.tokenizer.encode_batch(["the cat sat", "the cat"])
    with torch.no_grad():
        values = scorer.score_tokens([list(ids[0])])[0]
    last = values[len(ids[1]) :].sum()
    assert [score for score, _ in found] == pytest.approx([values.sum(), last, last], abs=1e-4)
    assert not any(greedy for _, greedy in found)
    rolling = adapter.loglikelihood_rolling([SimpleNamespace(args=("the cat sat",))])
    assert rolling == pytest.approx([values.sum()], abs=1e-4)
