"""`runtime=auto` writes texts by the faster of PyTorch and CTranslate2, and they are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import UsageError
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.sample import Sample
from plmctl.models.base import Model
from plmctl.runtime import faster
from plmctl.runtime.auto import FastestRuntime
from plmctl.runtime.ctranslate2 import ContinuingWriter
from tests.runtime.cells import make_cell
from tests.runtime.test_ctranslate2 import VOCAB, compare, make, make_prompts, write

RATES = {"torch": 10.0, "ctranslate2": 30.0}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The rows of each call of CTranslate2; rates are kept in a folder of the test."""
    calls: list[int] = []
    own = ContinuingWriter.ask

    def ask(self: Any, prompts: Any, how: Any) -> Any:
        calls.append(len(prompts))
        return own(self, prompts, how)

    monkeypatch.setattr(ContinuingWriter, "ask", ask)
    monkeypatch.setattr(faster, "find_cache_folder", lambda: tmp_path)
    return calls


def state(monkeypatch: pytest.MonkeyPatch, **rates: float) -> None:
    """Let rates be these, without a measurement."""
    monkeypatch.setattr(faster, "keep", lambda key, *_: rates[key.rpartition(", ")[2]])


BEAM = Beam(width=3, count=2, alpha=0.8, penalty="length", early=True)


@pytest.mark.parametrize("search", [Greedy(), Greedy(min_length=4), BEAM])
def test_the_faster_one_writes_the_same_texts(
    search: Any, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = make("gpt2"), make_prompts(make("gpt2"), [3, 5, 3])
    own = write(model, batch, search)
    for slower, rates in enumerate((RATES, {"torch": 30.0, "ctranslate2": 10.0})):
        state(monkeypatch, **rates)
        runtime = FastestRuntime()
        compare(own, write(runtime.let_write(model), batch, search))
        assert bool(written) != slower
        assert ("texts: ctranslate2" in runtime.describe()) != slower
        written.clear()


@pytest.mark.parametrize(
    ("search", "remark"),
    [
        (Sample(temperature=1.0, top_k=None, top_p=1.0, count=1, seed=3), ""),
        (Beam(width=3, alpha=1.0, penalty="length", early=True, no_repeat_ngram=2), ""),
        (Beam(width=3, alpha=1.0, penalty="length", early=False), "search.early"),
        (Greedy(no_repeat_ngram=2), "search.no_repeat_ngram"),
    ],
)
def test_other_texts_stay_with_pytorch(
    search: Any, remark: str, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state(monkeypatch, **RATES)
    model, batch = make("gpt2"), make_prompts(make("gpt2"), [3, 5])
    runtime = FastestRuntime()
    assert write(runtime.let_write(model), batch, search) == write(model, batch, search)
    assert not written
    assert remark in runtime.describe()


def test_settings_of_steps_stay_with_pytorch(
    written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state(monkeypatch, **RATES)
    model, batch = make("gpt2"), make_prompts(make("gpt2"), [4])
    choosing, seen = FastestRuntime().let_write(model), list[int]()
    how: dict[str, Any] = {"vocab": VOCAB, "search": Greedy(), "max_new": 6}
    texts = generate(choosing, batch, **how, watch=seen.extend)
    assert seen[: len(texts[0][0].ids)] == texts[0][0].ids
    assert generate(choosing, batch, **how, weights="int8")
    assert not written
    generate(choosing, batch, **how)
    assert written == [1]


def test_rates_are_measured_once_for_a_size(written: list[int], tmp_path: Path) -> None:
    model, batch = make("gpt2"), make_prompts(make("gpt2"), [3, 3])
    for _ in range(2):
        choosing = FastestRuntime().let_write(model)
        compare(write(model, batch, Greedy()), write(choosing, batch, Greedy()))
    assert written[:3] == [2] * 3
    assert len(written) in (3, 5)
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert [name.rpartition(", ")[2] for name in kept] == ["ctranslate2", "torch"]


def test_a_model_that_the_library_cannot_write_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state(monkeypatch, **RATES)
    asked: list[Model] = []

    def refuse(self: Any, model: Model) -> None:
        asked.append(model)
        raise UsageError("no such layer\n  fix: runtime=torch")

    monkeypatch.setattr("plmctl.runtime.ctranslate2.CTranslate2Runtime.open_writer", refuse)
    model, batch = make("gpt2"), make_prompts(make("gpt2"), [3])
    runtime = FastestRuntime()
    for _ in range(2):
        found = write(runtime.let_write(model), batch, Greedy())
        assert found == write(model, batch, Greedy())
    assert len(asked) == 1
    assert runtime.describe() == "texts: torch; ctranslate2: no such layer"


def test_a_model_that_writes_nothing_stays_as_it_is() -> None:
    model = make_cell("classification", "encoder").program.model
    assert FastestRuntime().let_write(model) is model
