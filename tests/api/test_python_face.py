"""`import plmctl` in a program: what its functions return is what the commands write."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import plmctl
from plmctl.api.settings import to_words
from plmctl.artifacts.kept_decision import read_decision
from plmctl.config.composer import open_composer
from plmctl.config.word_grammar import parse_word
from plmctl.runtime.eager import EagerRuntime
from tests.command import plmctl as command
from tests.report import fabricated

SMALL = {
    "size": "tiny",
    "size.num_layers": 1,
    "size.width": 32,
    "size.inner_width": 48,
    "train.precision": "fp32",
    "train.batch_size": 8,
    "train.threads": 1,
}
PRETRAIN = {**SMALL, "format.max_length": 32, "train.batch_size": 2, "train.steps": 1}
TUNE = {
    **SMALL,
    "checkpoint": None,
    "tokenizer": "char",
    "task.max_length": 16,
    "train.epochs": None,
    "train.steps": 6,
}
TEXTS = ["a fine film", "a dull film", "good and bad"]


def write_table(folder: Path, *, pairs: bool = False) -> Path:
    folder.mkdir()
    for split in ("train", "dev"):
        cells = (["a film", f"is {w}", w] if pairs else [f"a {w} film", w] for w in ["good", "bad"])
        lines = ["\t".join(row) for row in cells] * 12
        head = "text\ttext2\tlabel" if pairs else "text\tlabel"
        (folder / f"{split}.tsv").write_text("\n".join([head, *lines]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def tuned(home: Path) -> plmctl.RunFolder:
    """A classifier, in a folder that nobody named."""
    table = write_table(home / "table")
    return plmctl.train("finetune", {"task": "classification", "task.path": table, **TUNE})


@pytest.fixture(scope="module")
def model(tuned: plmctl.RunFolder) -> plmctl.TrainedModel:
    return tuned.load()


@pytest.fixture(scope="module")
def pretrained(home: Path, tokens_of: Callable[..., Path]) -> Callable[[str], Path]:
    """The folder of a run of each recipe, of one step."""
    tokenizers = {"bert": ("wordpiece",), "gpt": ("byte_bpe", "tokenizer.specials=gpt2")}
    made: dict[str, Path] = {}

    def make(recipe: str) -> Path:
        if recipe not in made:
            data = {"data.path": tokens_of(*tokenizers[recipe])}
            run = plmctl.train("pretrain", {**PRETRAIN, **data}, recipe=recipe)
            made[recipe] = run.folder
        return made[recipe]

    return make


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_training_is_that_of_the_command(home: Path, tuned: plmctl.RunFolder) -> None:
    settings = {"task": "classification", "task.path": "table", **TUNE, "run.dir": "by-command"}
    command("finetune", *to_words(settings))
    other = plmctl.read_run("by-command")
    assert tuned.folder.parent == Path("runs/finetune")
    assert (
        tuned.scores
        == other.scores
        == json.loads(Path("by-command/result.json").read_text())["metrics"]
    )
    assert tuned.predictions == other.predictions
    assert tuned.checkpoint.name == other.checkpoint.name
    kept = [run.metrics.columns() for run in (tuned, other)]
    assert kept[0]["loss/class"] == kept[1]["loss/class"]
    assert kept[0]["step"][-1] == 6
    assert tuned.config["train"]["steps"] == 6


@pytest.mark.slow  # test_a_training_is_that_of_the_command stays
def test_two_trainings_have_two_folders_and_leave_no_trace(
    home: Path, tuned: plmctl.RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), dict(os.environ), torch.get_num_threads()
    settings = {"task": "classification", "task.path": "table", **TUNE, "train.steps": 1}
    strict = {"train.threads": 2, "train.deterministic": True}
    runs = [plmctl.train("finetune", {**settings, **more}) for more in ({}, strict)]
    after = torch.get_rng_state(), random.getstate(), dict(os.environ), torch.get_num_threads()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert not torch.are_deterministic_algorithms_enabled()
    assert runs[0].folder != runs[1].folder
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "step 1" in shown.err
    row, other = plmctl.read_runs(*(run.folder for run in runs))
    assert row.keys() == other.keys() > {"run", "folder", "dev/accuracy"}
    gone_on = plmctl.train("finetune", {"run.dir": runs[0].folder, "train.steps": 2}, resume=True)
    assert gone_on.metrics[-1]["step"] == 2


def test_predictions_are_those_of_the_command(home: Path, model: plmctl.TrainedModel) -> None:
    Path("lines.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    rows = [{"text": text, "number": number} for number, text in enumerate(TEXTS)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = {"lines.txt": model.predict(TEXTS), "rows.jsonl": model.predict(rows)}
    for file, found in asked.items():
        out = f"{file}.out.jsonl"
        command("eval", f"checkpoint={model.source.folder}", f"input={file}", f"out={out}")
        assert found == model.predict(path=file) == read_lines(Path(out))
    assert asked["rows.jsonl"].columns()["number"] == [0, 1, 2]
    more = [{**row, "number": np.int64(n), "day": date(2020, 1, 1)} for n, row in enumerate(rows)]
    answers = model.predict(more).columns()
    assert answers["number"] == [0, 1, 2]
    assert answers["day"] == ["2020-01-01"] * 3
    assert set(asked["lines.txt"][0]) >= {"text", "guess", "probabilities"}


def test_pairs_are_two_texts(home: Path) -> None:
    table = write_table(home / "pairs", pairs=True)
    settings = {"task": "pair_classification", "task.path": table, **TUNE, "train.steps": 1}
    model = plmctl.train("finetune", settings).load()
    pairs = [("a film", "is good"), ("a film", "is bad")]
    first, second = model.predict(pairs)
    records = model.predict([{"text": a, "text2": b} for a, b in pairs])
    assert [r["probabilities"] for r in records] == [
        first["probabilities"],
        second["probabilities"],
    ]
    assert model.embed(pairs).shape == (2, 32)
    (with_tab,) = model.predict([("a\tfilm", "is good")])
    assert with_tab["probabilities"] == pytest.approx(first["probabilities"], abs=2e-6)
    with pytest.raises(plmctl.DataError, match=r"texts:1: .* reads pairs of texts, not 'a film'"):
        model.predict(["a film"])


def test_scores_are_those_of_the_command(home: Path, model: plmctl.TrainedModel) -> None:
    before = sorted(home.rglob("*.jsonl"))
    checkpoint = f"checkpoint={model.source.folder}"
    found = model.evaluate()
    other = model.evaluate(path=home / "table/train.tsv", settings={"batch_size": 5})
    assert sorted(home.rglob("*.jsonl")) == before
    assert found == json.loads(command("eval", checkpoint, "--json"))["metrics"]
    words = ("task=classification", "task.path=table/train.tsv", "batch_size=5", "--json")
    assert other == json.loads(command("eval", checkpoint, *words))["metrics"]


@pytest.mark.slow  # texts and trainings of the command stay
def test_vectors_are_those_of_the_command(home: Path, pretrained: Callable[[str], Path]) -> None:
    run = pretrained("bert")
    model = plmctl.load(run)
    Path("embedded.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    words = (f"checkpoint={run}", "input=embedded.txt")
    command("embed", *words, "out=all.npz")
    command("embed", *words, "out=means.npz", "layers=-1", "pooling=mean", "normalize=true")
    states, means = np.load("all.npz"), np.load("means.npz")
    for number, (own, ids) in enumerate(
        zip(model.embed_tokens(TEXTS), model.encode(TEXTS), strict=True)
    ):
        np.testing.assert_array_equal(own, states[f"hidden_{number}"])
        np.testing.assert_array_equal(ids, states[f"ids_{number}"])
    vectors = model.embed(TEXTS, normalize=True)
    np.testing.assert_array_equal(vectors, np.stack([means[f"hidden_{n}"][0] for n in range(3)]))
    assert model.embed(TEXTS, pooling="first_last").shape == (3, 32)
    assert "".join(model.tokenize(TEXTS)[0]).replace("##", "") == "afinefilm"


def test_texts_and_masks_are_those_of_the_command(
    home: Path, pretrained: Callable[[str], Path]
) -> None:
    gpt, bert = (plmctl.load(pretrained(name)) for name in ("gpt", "bert"))
    words = ("max_new=4", "search=beam", "search.width=3", "search.count=2", "--json")
    found = gpt.generate(["Return the"], search="beam", options={"width": 3, "count": 2}, max_new=4)
    shown = command("generate", f"checkpoint={gpt.source.folder}", "prompt=Return the", *words)
    assert found == [json.loads(shown)]
    masked = "a [MASK] of a list"
    shown = command(
        "generate", f"checkpoint={bert.source.folder}", f"prompt={masked}", "top=2", "--json"
    )
    assert bert.fill([masked], top=2) == [json.loads(shown)]
    with pytest.raises(plmctl.UsageError, match=r"model\.fill"):
        bert.generate([masked])
    with pytest.raises(plmctl.UsageError, match=r"model\.generate"):
        gpt.fill(["Return the"])


def test_mistakes_are_those_of_the_command(home: Path, model: plmctl.TrainedModel) -> None:
    settings = {"train.stepz": 3, "size": "tny"}
    with pytest.raises(plmctl.PlmctlError) as caught:
        plmctl.train("pretrain", settings)
    shown = command("pretrain", *to_words(settings), code=2)
    assert shown == f"plmctl: {caught.value}\n"
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None
    with pytest.raises(plmctl.UsageError, match="did you mean 'finetune'"):
        plmctl.train("fine-tune")  # type: ignore[arg-type]
    with pytest.raises(plmctl.UsageError, match="settings are a dict"):
        plmctl.train("pretrain", "size=tiny")  # type: ignore[arg-type]
    with pytest.raises(plmctl.UsageError, match="a list of texts, not one text"):
        model.predict("a film")  # type: ignore[arg-type]
    told = r"texts:2: no field text; found txt\n  fix: # rename 'txt' to 'text'$"
    with pytest.raises(plmctl.DataError, match=told):
        model.predict([{"text": "a film"}, {"txt": "a film"}])
    with pytest.raises(plmctl.ConfigError, match="device='tpu'"):
        plmctl.load(model.source.folder, device="tpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda m: plmctl.load(None), "path=None: must be a path"),
        (lambda m: plmctl.read_run(5), "path=5: must be a path"),
        (lambda m: plmctl.read_study(None), "path=None: must be a path"),
        (lambda m: plmctl.load_adapters(["runs/a"]), "paths are a dict of names and runs"),
        (lambda m: plmctl.load_adapters({"a": None}), r"paths\['a'\]=None: must be a path"),
        (lambda m: plmctl.train("pretrain", {5: 3}), "5: the name of a setting is a text"),
        (lambda m: plmctl.train({5: 3}), "must be one of pretrain, finetune"),
        (lambda m: plmctl.train("pretrain", recipe=5), "recipe=5: must be a path"),
        (lambda m: plmctl.perform(5), "5 is no command with settings"),
        (lambda m: m.predict([5]), "texts:1: each item must be a text, or a pair of texts: 5"),
        (lambda m: m.predict(["a", 5]), "texts:2: .*as the first one is: 5"),
        (lambda m: m.predict(5), "a list of texts, not 5"),
        (lambda m: m.predict({"text": "a"}), "a list of texts, not {'text': 'a'}"),
        (lambda m: m.embed(["a"], weights_from=3), "weights_from=3: must be a path"),
        (lambda m: m.predict(path=5), "path=5: must be a path"),
        (lambda m: m.embed([5]), "texts:1: each item must be a text"),
        (lambda m: m.tokenize(["a", None]), "texts:2: each item must be a text, not None"),
        (lambda m: m.encode([5]), "texts:1: each item must be a text, not 5"),
        (lambda m: m.fill([5]), "texts:1: each item must be a text, not 5"),
        (lambda m: m.evaluate("tset"), "split='tset': one of train, dev, test"),
        (lambda m: m.evaluate("test"), "no file for the split 'test'"),
        (lambda m: m.evaluate(path={"test": "lines.txt"}), "no file for the split 'dev'"),
    ],
)
def test_what_is_no_text_and_no_path_is_named(
    model: plmctl.TrainedModel, call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(plmctl.PlmctlError, match=told):
        call(model)


def test_a_split_that_is_not_there_is_named(tuned: plmctl.RunFolder) -> None:
    for found in (tuned.scores, tuned.predictions):
        with pytest.raises(plmctl.DataError, match="no split 'test': there are dev"):
            found["test"]
        assert found.get("test") is None


def test_a_stopped_training_is_a_keyboard_interrupt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.api.training.act", lambda spec: 130)
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        plmctl.train("pretrain", PRETRAIN)
    monkeypatch.setattr("plmctl.api.training.act", lambda spec: 1)
    with pytest.raises(plmctl.PlmctlError, match="code 1"):
        plmctl.train("pretrain", PRETRAIN)


def test_other_commands_write_where_out_says(home: Path) -> None:
    Path("facts.tsv").write_text("a\tis\tb\nb\tis\tc\n" * 4, encoding="utf-8")
    plmctl.perform("data triples", {"data.path": "facts.tsv", "kind": "comet", "out": "comet"})
    assert sorted(file.name for file in Path("comet").iterdir())
    Path("text.txt").write_text("one line of text\n" * 20, encoding="utf-8")
    assert "documents" in plmctl.perform("data check", {"data.path": "text.txt"})
    with pytest.raises(plmctl.UsageError, match="no command with settings"):
        plmctl.perform("data triple")


@pytest.mark.parametrize(
    "value",
    ["plain", "a, b", "it's [x]=1", "null", "1e-3x", "語", "", r"C:\x'y", 3, 2.5, 1e-5, True, None],
)
def test_settings_arrive_as_they_are(value: Any) -> None:
    words = to_words({"data.field": value, "prompt": "a, [b]", "~noise": None, "x": [value, 1]})
    with open_composer("pretrain") as composer:
        parsed = [parse_word(word, composer)._parsed.value() for word in (words[0], words[3])]
    assert [str(getattr(v, "text", v)) for v in (parsed[0], parsed[1][0])] == [str(value)] * 2
    assert words[1:3] == ("prompt=a, [b]", "~noise")


def test_a_study_is_rows(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "study")
    study = plmctl.read_study(folder)
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    assert list(study.rows) == table["rows"]
    count = sum(len(row["values"]) for row in table["rows"])
    assert len(study.values) == count
    assert {row["seed"] for row in study.values} == {0, 1}
    assert study.jobs.columns()["state"]
    with pytest.raises(plmctl.DataError, match="no study here"):
        plmctl.read_study(tmp_path)


def test_rows_are_columns_and_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = plmctl.RowList([{"a": 1}, {"a": 2, "b": "x"}])
    assert rows.columns() == {"a": [1, 2], "b": [None, "x"]}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(plmctl.UsageError, match="pip install pandas"):
        rows.frame()

    class Pandas:
        DataFrame = staticmethod(lambda columns: ("frame", columns))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert rows.frame() == ("frame", rows.columns())


def test_every_public_name_is_there() -> None:
    assert sorted(plmctl.__all__) == sorted({*plmctl._PLACES, "__version__"})
    for name in plmctl.__all__:
        value = getattr(plmctl, name)
        assert name == "__version__" or value.__doc__, name
        assert name in dir(plmctl)
    with pytest.raises(AttributeError, match="lod"):
        plmctl.lod  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_in_one_place() -> None:
    assert plmctl.__version__ in command("--version")


def test_a_decision_is_read_once_and_again_when_another_is_fitted(
    model: plmctl.TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(model)  # without what another test has read
    read: list[Path] = []
    real = read_decision

    def count(folder: Path) -> Any:
        read.append(folder)
        return real(folder)

    monkeypatch.setattr("plmctl.api.model.read_decision", count)
    before = own.predict(TEXTS)
    assert own.predict(TEXTS) == before
    assert len(read) == 1
    kept = model.source.folder / "decision.json"
    try:
        own.evaluate("dev", settings={"calibrate": ["temperature"]})
        temperature = json.loads(kept.read_text())["temperature"]
        after = own.predict(TEXTS)
    finally:
        kept.unlink(missing_ok=True)
    for old, new in zip(before, after, strict=True):
        (p, q), (r, s) = (list(row["probabilities"].values()) for row in (old, new))
        assert np.log(r / s) == pytest.approx(np.log(p / q) / temperature, abs=1e-5)
        assert (r, s) != (p, q)


def test_a_single_text_costs_few_calls_beside_the_model(
    model: plmctl.TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of Python, which are the time of a row where the library of the model is fast."""
    logits = {"class": torch.tensor([[0.25, 0.5]])}
    monkeypatch.setattr(EagerRuntime, "answer", lambda *given: logits)
    model.predict(["a fine film"])
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        model.predict(["a fine film"])
    finally:
        sys.setprofile(None)
    assert calls < 320
