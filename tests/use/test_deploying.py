"""`plmctl convert --to onnx` and `--to openvino`: the answers of the file, and what is refused."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from plmctl.api.loading import load
from plmctl.artifacts.convert import to_plmctl
from plmctl.artifacts.deployed import open_deployed
from plmctl.artifacts.loading import open_source
from plmctl.artifacts.trained_ranges import find_ranges
from plmctl.core.errors import UsageError
from plmctl.runtime.base import Program
from plmctl.runtime.eager import EagerRuntime
from plmctl.runtime.onnx import quantize
from plmctl.runtime.signature import Signature
from plmctl.runtime.whole_numbers import round_model
from plmctl.storage.reading import read_tensors
from plmctl.use import deploying
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.vectors import make_batch
from tests.command import plmctl
from tests.task_samples import find_samples

LAYERS = 1
# the last tensor of the backbone, and the first one that reads its states
LAST, READS = "backbone.stack.blocks.f.0.norm_sum.bias", "heads.pooler.dense.weight"
PAGE = Path(__file__).parents[2] / "docs/commands/convert.md"
# around the code of the page, in a process of its own
BEFORE = """
import sys
sys.modules["torch"] = sys.modules["plmctl"] = sys.modules["transformers"] = None
"""
AFTER = "print(json.dumps(logits.tolist()))"


def make_pairs() -> list[tuple[str, str, str]]:
    words = ("dull", "fine")
    return [(f"a {words[n % 2]} film", " indeed" * (n % 5) + " so", str(n % 2)) for n in range(40)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of pairs that has learned two words."""
    folder = tmp_path_factory.mktemp("films")
    for split in ("train", "dev"):
        rows = ["text\ttext2\tlabel", *map("\t".join, make_pairs())]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    place = folder / "run"
    words = ["task=pair_classification", f"task.path={folder}", "checkpoint=null", "model=encoder"]
    words += ["size=tiny", "size.width=32", "size.inner_width=48", f"size.num_layers={LAYERS}"]
    words += ["tokenizer=wordpiece", "tokenizer.vocab_size=32", "task.max_length=16"]
    words += ["train.epochs=null", "train.steps=40", "train.precision=fp32", "optim.lr=0.005"]
    plmctl("finetune", *words, f"run.dir={place}")
    return place


@pytest.fixture(scope="module")
def calibrated(run: Path) -> Path:
    """The same one with a temperature and a threshold."""
    place = run.parent / "calibrated"
    shutil.copytree(run, place)
    plmctl("eval", f"checkpoint={place}", "calibrate=[temperature,threshold]")
    return place


def evaluate(checkpoint: Path, out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The scores on dev, and the predictions."""
    told = plmctl("eval", f"checkpoint={checkpoint}", f"out={out}", "overwrite=true", "--json")
    found: dict[str, Any] = json.loads(told)
    return found, [json.loads(line) for line in out.read_text().splitlines()]


def read_card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return card


def find_checkpoint(run: Path) -> Path:
    return next(run.glob("checkpoints/step-*"))


@pytest.fixture(scope="module")
def deploy(
    run: Path, calibrated: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The run as a folder of a library, with options, or the calibrated one as that of ONNX; each
    is made once.
    """

    @cache
    def make(to: str, *options: str) -> Path:
        folder = tmp_path_factory.mktemp(to) / "deployed"
        source = calibrated if (to, options) == ("onnx", ()) else run
        plmctl("convert", str(source), "--to", to, *options, "--out", str(folder))
        return folder

    return make


@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_a_folder_answers_as_its_run_and_says_what_it_is(
    run: Path, calibrated: Path, deploy: Callable[..., Path], to: str, tmp_path: Path
) -> None:
    folder = deploy(to)
    scores, own = evaluate(calibrated if to == "onnx" else run, tmp_path / "run.jsonl")
    again, found = evaluate(folder, tmp_path / "deployed.jsonl")
    if to == "onnx":  # the loss of a run is that without its temperature
        assert again["metrics"]["dev"].pop("loss") < scores["metrics"]["dev"].pop("loss")
    assert again["metrics"]["dev"] == pytest.approx(scores["metrics"]["dev"], abs=1e-5)
    for one, other in zip(own, found, strict=True):
        assert one["guess"] == other["guess"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    card = read_card(folder)
    assert list(card["inputs"]) == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(each["shape"] == ["rows", "tokens"] for each in card["inputs"].values())
    assert card["outputs"] == {"logits": {"type": "float32", "shape": ["rows", 2]}}
    assert (card["labels"], card["max_length"], card["numbers"]) == (["0", "1"], 16, "fp32")
    assert card["scores"]["after"] == card["scores"]["before"]
    assert card["scores"]["after"]["accuracy"] == scores["metrics"]["dev"]["accuracy"] == 1
    assert card["scores"]["examples"] == 40
    assert card["bytes"] == {file.name: file.stat().st_size for file in folder.glob("model.[obx]*")}
    assert card["speed"]["rows_per_second"]["after"] > 0
    assert not [*folder.rglob("*.safetensors")]


def test_a_library_and_a_tokenizer_give_the_calibrated_answers(
    calibrated: Path, deploy: Callable[..., Path], tmp_path: Path
) -> None:
    """The temperature is in the graph, the threshold in decision.json; the code of the page imports
    neither PyTorch nor plmctl nor transformers.
    """
    folder = deploy("onnx")
    kept = json.loads((find_checkpoint(calibrated) / "decision.json").read_text())
    left = json.loads((folder / "decision.json").read_text())
    assert kept["temperature"] < 1
    assert left == kept | {"temperature": 1.0}
    code = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    text, pairs = '["a fine film"]', [pair[:2] for pair in make_pairs()]
    assert text in code
    words = [sys.executable, "-c", f"{BEFORE}{code.replace(text, repr(pairs))}{AFTER}"]
    told = subprocess.run(words, capture_output=True, text=True, cwd=folder.parent)
    assert told.returncode == 0, told.stderr
    wanted = evaluate(calibrated, tmp_path / "run.jsonl")[1]
    for logits, row in zip(json.loads(told.stdout), wanted, strict=True):
        weights = [math.exp(logit - max(logits)) for logit in logits]
        found = [weight / sum(weights) for weight in weights]
        assert found == pytest.approx([*row["probabilities"].values()], abs=1e-5)
    assert evaluate(folder, tmp_path / "again.jsonl")[1] == [
        row | {"probabilities": pytest.approx(row["probabilities"], abs=1e-5)} for row in wanted
    ]


@pytest.mark.sampled(2)  # the ranges of training are those of an ONNX file, below
@pytest.mark.parametrize("to", ["openvino", "onnx"])
def test_eight_bits_are_written_with_their_score(
    run: Path, deploy: Callable[..., Path], to: str, tmp_path: Path
) -> None:
    """Attention stays one operator of each layer; OpenVINO smooths the inputs of products."""
    usual = ("--calibrate", str(run.parent / "train.tsv")) if to == "openvino" else ()
    whole, small = deploy(to), deploy(to, "--int8", *usual)
    if to == "openvino":
        assert "nncf_smooth_quant" in (small / "model.xml").read_text()
    file = "model.onnx" if to == "onnx" else "model.bin"
    assert (small / file).stat().st_size < (whole / file).stat().st_size
    assert count_attention(whole) == count_attention(small) == LAYERS
    cards = [read_card(folder) for folder in (whole, small)]
    assert [card["numbers"] for card in cards] == ["fp32", "int8"]
    assert ["weights" in card for card in cards] == [False, True]
    assert cards[1]["scores"]["keep"] == 0.99
    assert cards[1]["scores"]["lost"] <= 0.01
    assert cards[1]["scores"]["after"]["loss"] != cards[1]["scores"]["before"]["loss"]
    said, _ = evaluate(small, tmp_path / "out.jsonl")
    assert said["remarks"]["runtime"].endswith(", int8")
    assert said["metrics"]["dev"]["loss"] == cards[1]["scores"]["after"]["loss"]


def count_attention(folder: Path) -> int:
    """The operators of attention in the file of a folder."""
    if (file := folder / "model.xml").is_file():
        return file.read_text().count('type="ScaledDotProductAttention"')
    nodes = onnx.load(folder / "model.onnx").graph.node
    return sum(node.op_type == "Attention" for node in nodes)


def test_without_vnni_weights_have_seven_bits(
    deploy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two products of 8 bits could overflow a sum of 16 bits there."""
    for name in ("plmctl.runtime.onnx", "plmctl.use.deploying"):
        monkeypatch.setattr(f"{name}.cpu_sums_int8", lambda: False)
    file = quantize(deploy("onnx") / "model.onnx", tmp_path / "model.onnx")
    said = deploying.describe_machine("onnx", tmp_path, int8=True)
    assert said["weights"].startswith("7 bits")
    graph = onnx.load(file).graph
    weights = [onnx.numpy_helper.to_array(each) for each in graph.initializer]
    eight = [each for each in weights if each.dtype == np.int8 and each.ndim == 2]
    assert eight
    assert max(int(np.abs(each.astype(int)).max()) for each in eight) <= 64


def copy_changed(run: Path, folder: Path, **changes: Any) -> Path:
    """A checkpoint of its own, with another config or other tensors."""
    folder.mkdir()
    to_plmctl(replace(open_source(run), **changes), folder)
    return folder


@pytest.mark.slow  # refuse_loss refuses them below
def test_eight_bits_that_lose_more_than_allowed_are_refused(run: Path, tmp_path: Path) -> None:
    """A state of ten thousands, which nothing reads: its rounding to 8 bits loses the others."""
    weights = dict(open_source(run).tensors)
    changed = {name: weights[name].clone() for name in (LAST, READS)}
    changed[LAST][0] += 1e4
    changed[READS][:, 0] = 0
    weights |= changed
    worse, folder = copy_changed(run, tmp_path / "worse", tensors=weights), tmp_path / "deployed"
    words = ["convert", str(worse), "--to", "onnx", "--int8"]
    told = plmctl(*words, "--out", str(folder), code=2)
    assert "int8 has accuracy 0.5000, and fp32 1.0000" in told
    assert "fix: --keep 0.5  # or without --int8" in told
    assert not folder.exists()
    assert not [*tmp_path.glob(".*")]
    plmctl(*words, "--keep", "0.5", "--out", str(folder))
    assert read_card(folder)["scores"]["lost"] == 0.5


def test_a_model_with_one_answer_says_that_the_gate_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(deploying, "remark", lambda text, level: said.append(text))
    directions = SimpleNamespace(larger=lambda metric: True)
    task: Any = SimpleNamespace(metrics=["accuracy"], directions=directions)
    for same in (False, True):
        answers = {"label": np.zeros((4, 2))}
        found = deploying.RuntimeScores(answers, {"accuracy": 0.5}, 1.0, same)
        deploying.refuse_loss(task, found, found, 0.99)
        assert len(said) == same
    assert "all 4 rows one answer" in said[0]
    better = deploying.RuntimeScores(answers, {"accuracy": 1.0}, 1.0)
    deploying.refuse_loss(task, better, found, 0.5)
    with pytest.raises(UsageError, match=r"fix: --keep 0\.5 "):
        deploying.refuse_loss(task, better, found, 0.51)


@pytest.mark.parametrize("name", ["torch", "onnx", "auto"])
def test_a_folder_refuses_a_runtime_by_the_name_that_was_typed(
    deploy: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    folder = deploy("onnx")
    (tmp_path / "new.txt").write_text("a film\n")
    said = plmctl("predict", str(folder), f"input={tmp_path}/new.txt", f"runtime={name}", code=2)
    assert f"runtime='{name}': null: ONNX Runtime" in said
    assert f"computes the file of {folder}" in said


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deployed"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "texts.tsv").write_text("text\ttext2\na film\tso\n")
    to = ["convert", str(run), "--to", "onnx"]
    for words, code, answer in (
        ([*to, "--out", str(tmp_path / "full")], 2, "exists and is not an empty folder"),
        (
            [*to, "--data", str(tmp_path / "texts.tsv"), "--out", str(folder)],
            3,
            "expected column label",
        ),
        ([*to, "--data", str(tmp_path / "gone.tsv"), "--out", str(folder)], 3, "no such file"),
        ([*to, "--max-length", "64", "--out", str(folder)], 2, "--max-length makes a model"),
        ([*to, "--keep", "0.9", "--out", str(folder)], 2, "--keep is of --int8"),
        (["convert", str(run), "--to", "hf", "--int8", "--out", str(folder)], 2, "--to onnx"),
    ):
        assert answer in plmctl(*words, code=code), words
    assert not folder.exists()


def test_no_split_to_score_is_refused(run: Path, tmp_path: Path) -> None:
    """A labelled file does instead."""
    config = dict(open_source(run).config)
    config["task"] = config["task"] | {"path": str(tmp_path / "gone")}
    moved, folder = copy_changed(run, tmp_path / "run", config=config), tmp_path / "deployed"
    told = plmctl("convert", str(moved), "--to", "onnx", "--out", str(folder), code=3)
    assert "the dev split of" in told
    assert "--data" in told
    loaded, _, _ = deploying.open_folded(moved, ())
    task = deploying.open_graph_task(loaded, moved)
    data = str(run.parent / "dev.tsv")
    split = deploying.read_labelled(task, loaded, moved, data)
    scores = deploying.measure_answers(EagerRuntime(), loaded, task, split, moved)
    assert scores.metrics["accuracy"] == 1


def test_a_folder_is_used_as_it_is(deploy: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "deployed"
    shutil.copytree(deploy("onnx"), folder)
    for words, code, answer in (
        (["eval", f"checkpoint={folder}", "runtime=torch"], 2, "leave runtime out"),
        (["eval", f"checkpoint={folder}", "task=lm", "data.path=x"], 2, "the run that it is from"),
        (["embed", f"checkpoint={folder}", "input=x"], 2, "give the run that it is from"),
        (["convert", str(folder), "--to", "hf", "--out", "x"], 2, "no weights that PyTorch reads"),
    ):
        assert answer in plmctl(*words, code=code), words
    told = plmctl("predict", str(folder), "input=x", "outt=x", code=2)
    assert "fix: out=x" in told
    assert "exported" not in told
    (folder / "model.onnx").write_bytes(b"damaged")
    assert "damaged" in plmctl("eval", f"checkpoint={folder}", code=3)
    (folder / "model.json").write_text("{")
    assert "model.json" in plmctl("eval", f"checkpoint={folder}", code=3)


def test_rows_beyond_the_positions_are_refused(deploy: Callable[..., Path]) -> None:
    loaded = open_deployed(deploy("onnx"))
    assert loaded.runtime is not None
    short, long = (make_batch([EmbeddingLine([5] * tokens)]) for tokens in (16, 17))
    batches = [replace(batch, anchors=torch.zeros(1, 2).long()) for batch in (short, long)]
    program = Program(loaded.model, lambda model, batch: {})
    assert loaded.runtime.answer(program, batches[0])["class"].shape == (1, 2)
    with pytest.raises(UsageError, match="a row of 17 tokens: this model has 16 positions"):
        loaded.runtime.answer(program, batches[1])
    last = replace(batches[0], anchors=torch.tensor([[0, 15]]))
    with pytest.raises(UsageError, match="by the first token of a row"):
        loaded.runtime.answer(program, last)


def remove(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Libraries that are not installed."""
    real = importlib.import_module

    def refuse(module: str, *more: Any) -> Any:
        if module in missing:
            raise ImportError(module)
        return real(module, *more)

    monkeypatch.setattr("plmctl.core.extras.importlib.import_module", refuse)


def test_a_folder_needs_the_library_that_computes_it(
    deploy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = deploy("onnx")
    with monkeypatch.context() as patch:
        remove(patch, "onnx", "onnxscript")  # they only write
        evaluate(folder, tmp_path / "out.jsonl")
    remove(monkeypatch, "onnxruntime")
    told = plmctl("eval", f"checkpoint={folder}", code=2)
    assert f"{folder} needs onnxruntime" in told
    assert "pip install" in told
    assert "runtime=torch" not in told


@pytest.mark.parametrize(
    ("to", "missing", "words"),
    [("onnx", "onnxscript", []), ("openvino", "openvino", []), ("openvino", "nncf", ["--int8"])],
)
def test_a_missing_library_is_named_with_its_extra(
    run: Path, to: str, missing: str, words: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    remove(monkeypatch, missing)
    told = plmctl("convert", str(run), "--to", to, *words, "--out", str(tmp_path / "x"), code=2)
    assert f"--to {to} needs {missing}" in told
    assert "pip install" in told


def tune(task: str, folder: Path, *words: str) -> Path:
    """A run of one update on the sample files of a task."""
    sample = find_samples(folder, [task])[task]
    size = ["size=tiny", "size.width=32", "size.inner_width=48", "size.num_layers=1"]
    once = ["train.epochs=null", "train.steps=1", "train.precision=fp32", "tokenizer=word"]
    how = ["checkpoint=null", *size, *once, f"run.dir={folder / 'run'}"]
    plmctl("finetune", f"task={task}", *sample.words, *how, *words)
    return folder / "run"


def test_transitions_of_a_tagger_decide_behind_the_graph(tmp_path: Path) -> None:
    run = tune("conll2003", tmp_path, "model=encoder", "task.crf=free", "task.max_length=32")
    tensors = dict(open_source(run).tensors)
    follow = next(name for name in tensors if name.endswith("chain.follow"))
    tensors[follow] = torch.randn(tensors[follow].shape)
    changed = copy_changed(run, tmp_path / "changed", tensors=tensors)
    folder = tmp_path / "deployed"
    plmctl("convert", str(changed), "--to", "onnx", "--out", str(folder))
    wanted, own = evaluate(changed, tmp_path / "run.jsonl")
    found, again = evaluate(folder, tmp_path / "deployed.jsonl")
    assert found["metrics"]["dev"] == pytest.approx(wanted["metrics"]["dev"], abs=1e-5)
    assert [row["guess"] for row in again] == [row["guess"] for row in own]
    (folder / "outside.safetensors").unlink()
    assert "outside.safetensors" in plmctl("eval", f"checkpoint={folder}", code=3)


def test_a_task_that_writes_is_refused(tmp_path: Path) -> None:
    words = ["model=encoder_decoder", "task.max_length=16", "task.max_target=8"]
    run = tune("translation", tmp_path, *words, "search@task.search=greedy")
    told = plmctl("convert", str(run), "--to", "onnx", "--out", str(tmp_path / "x"), code=2)
    assert "task=translation writes text, token by token" in told
    assert f"fix: plmctl convert {run} --to ctranslate2 --out written" in told


@pytest.mark.slow  # tests/runtime/test_runtimes.py refuses other shapes
def test_a_graph_that_answers_other_rows_is_refused_with_a_fix_that_runs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch answers where transformers has no class for the model; nothing is written."""
    real = Signature.label

    def double(self: Signature, found: Any) -> dict[str, torch.Tensor]:
        return {name: own.repeat(2, 1) for name, own in real(self, found).items()}

    monkeypatch.setattr(Signature, "label", double)
    folder = tmp_path / "deployed"
    for published, fix in ((True, f"--to hf --out {folder}"), (False, "runtime=torch")):
        if not published:
            monkeypatch.setattr("plmctl.use.deploying.describe_unexportable", lambda *_, **__: "x")
        told = plmctl("convert", str(run), "--to", "openvino", "--out", str(folder), code=2)
        assert "its 'logits' are" in told or "its 'class' are" in told
        assert "damaged" not in told
        assert "convert its run again" not in told
        assert not [*tmp_path.iterdir()]
        (line,) = [each for each in told.splitlines() if "fix: plmctl" in each]
        assert fix in line
        plmctl(*line.split()[2:])
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def quantised(run: Path) -> Path:
    """The same classifier, trained with whole numbers of 8 bits."""
    place, files = run.parent / "quantised", f"task.path={run.parent}"
    config = open_source(run).config
    words = [f"checkpoint={run}", "task=pair_classification", files, "task.max_length=16"]
    words += ["train.epochs=null", "train.steps=10", "train.precision=fp32", "optim.lr=0.001"]
    assert config["stabiliser"] is None
    plmctl("finetune", *words, "stabiliser=[quantised]", f"run.dir={place}")
    return place


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_the_ranges_of_training_are_those_of_the_file(
    quantised: Path, to: str, tmp_path: Path
) -> None:
    folder = tmp_path / "deployed"
    plmctl("convert", str(quantised), "--to", to, "--int8", "--out", str(folder))
    card = read_card(folder)
    assert card["ranges"] == "of training (stabiliser=[quantised])"
    state = read_tensors(find_checkpoint(quantised) / "objective.safetensors")
    steps = sorted(float(own) / 127 for name, own in state.items() if ".ranges." in name)
    if to == "onnx":
        graph = onnx.load(folder / "model.onnx").graph
        nodes = [node for node in graph.node if node.op_type == "QuantizeLinear"]
        known = {own.name: onnx.numpy_helper.to_array(own) for own in graph.initializer}
        found = sorted(float(known[node.input[1]]) for node in nodes)
    else:
        model = importlib.import_module("openvino").Core().read_model(str(folder / "model.xml"))
        nodes = [each for each in model.get_ops() if each.get_type_name() == "FakeQuantize"]
        ends = [each.input_value(4).get_node().get_data() for each in nodes]
        found = sorted(float(end.reshape(-1)[0]) / 127 for end in ends)
    assert found == pytest.approx(steps, rel=1e-6)
    assert count_attention(folder) == LAYERS


@pytest.mark.slow  # a file has them, above
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_runtime_of_8_bits_has_the_ranges_of_training(quantised: Path, name: str) -> None:
    """The answers of the whole numbers that training had, of which some are far from others."""
    own = load(quantised, runtime=name, runtime_options={"int8": True})
    new = load(quantised, runtime=name, runtime_options={"int8": True})
    new.model.find_ranges = None  # it measures ranges, as of a run without them
    ranges = find_ranges(own.source)
    assert ranges is not None
    texts = [("a b c", "d e"), ("e d c b a", "a"), ("c", "c")]

    def answer(model: Any) -> np.ndarray:
        rows = model.predict([*texts], batch_size=3)
        return np.array([[*row["probabilities"].values()] for row in rows])

    plain = load(quantised)
    wanted = answer(replace(plain, model=round_model(plain.model, ranges)))
    np.testing.assert_allclose(answer(own), wanted, rtol=0, atol=5e-6)
    assert np.abs(answer(new) - wanted).max() > 2e-5


def test_ranges_that_are_not_there_are_measured_with_a_warning(
    quantised: Path, tmp_path: Path, caplog: Any
) -> None:
    texts = ["--calibrate", str(quantised.parent / "train.tsv"), "--out", str(tmp_path / "x")]
    words = ["--to", "openvino", "--int8", *texts]
    told = plmctl("convert", str(quantised), *words, code=2)
    assert "has the ranges of its training, which no text replaces" in told
    (tmp_path / "run").mkdir()
    to_plmctl(open_source(quantised), tmp_path / "run")
    assert find_ranges(open_source(tmp_path / "run")) is None
    assert "has no objective.safetensors with the ranges" in caplog.text
    assert find_ranges(open_source(quantised)) is not None
