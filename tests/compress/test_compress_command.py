"""`plmctl compress`: a tiny classifier of films becomes smaller, whatever happens on the way."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from plmctl.artifacts.loading import load_source, open_source
from plmctl.compress import bench, climb, files
from plmctl.compress.bench import Bench
from plmctl.compress.files import files_of
from plmctl.compress.form import PACKED, Form
from plmctl.compress.shape import Shape
from plmctl.compress.training import Changes
from plmctl.nn.tables import count
from plmctl.runtime.base import Program
from plmctl.storage.packed import pack_arrays
from plmctl.training.pruning.base import Pruning
from tests.command import plmctl
from tests.films import train_films

WORDS = ("keep=0.01", "train.steps=4", "train.save_every=1")
ONNX = (*WORDS, "to=onnx")
WIDTH, LAYERS, HEADS, INNER = 32, 2, 2, 48
UNITS = ["num_heads", "inner_width"]


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Times are not compared here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "ENOUGH", 0.0)
        patch.setattr(bench, "ROUNDS", 2)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_films(tmp_path_factory.mktemp("films"))


# a graph takes seconds for each shape; tests/use/test_deploying.py and the next test write some
@pytest.fixture(
    scope="module",
    params=[PACKED, pytest.param(Form("onnx"), marks=pytest.mark.slow)],
    ids=Form.describe,
)
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    """The only form of files that is tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(climb, "list_forms", lambda libraries: [request.param])
        yield request.param


@pytest.fixture(scope="module")
def small(run: Path, form: Form, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the multiply-adds."""
    out = tmp_path_factory.mktemp("compressed") / "small"
    plmctl("compress", str(run), "target=flops:3x", *WORDS, f"out={out}")
    return out


def test_a_graph_has_the_costs_and_answers_of_its_model(run: Path, tmp_path: Path) -> None:
    """Written for its costs, before any training."""
    bench = Bench(str(run), 4, memory=False)
    shape = Shape(1, LAYERS, Fraction(1, HEADS))
    source = shape.cut(open_source(run))
    written = files_of(bench, Form("openvino", 32)).write_cut(source, tmp_path)
    program = Program(load_source(source).model, bench.task.logits)
    for batch in bench.batches[:2]:
        wanted, found = program(batch)["class"], written.answer(batch)["class"]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    costs = bench.cost(written.answer, written.model, 1, written.opening)
    assert (costs.parameters, costs.memory) == (count(program.model), None)
    assert 0 < costs.flops < bench.measure_run().flops / 3


def read_table(out: Path) -> dict[str, Any]:
    """The table without times, which no two measurements have in common."""
    table: dict[str, Any] = json.loads((out / "table.json").read_text())
    latency = table["run"]["costs"]["latency"]
    for rung in (table["run"], *table["rungs"]):
        for costs in filter(None, (rung["costs"], rung["predicted"])):
            faster = costs.pop("faster")
            assert costs.pop("latency") == pytest.approx(latency / faster, rel=1e-3)
    return table


def count_by_hand(layers: int, heads: int, inner: int, rest: int) -> int:
    """The numbers of a model whose layers have so many heads and neurons."""
    attention = 4 * WIDTH * heads * (WIDTH // HEADS) + 3 * heads * (WIDTH // HEADS) + WIDTH
    feed_forward = 2 * WIDTH * inner + inner + WIDTH
    return rest + layers * (attention + feed_forward + 4 * WIDTH)


def test_a_shape_has_as_many_numbers_as_its_layers(run: Path) -> None:
    source = open_source(run)
    whole = count(load_source(source).model)
    rest = whole - count_by_hand(LAYERS, HEADS, INNER, 0)
    for layers, heads in ((1, 2), (2, 1), (1, 1)):
        shape = Shape(layers, LAYERS, Fraction(heads, HEADS))
        inner = INNER * heads // HEADS
        cut = load_source(shape.cut(source)).model
        assert count(cut) == count_by_hand(layers, heads, inner, rest)
    how = {"begin_at": 0.1, "end_at": 0.7, "every": 1, "normalise": True}
    for name, heads, inner in (("heads", 1, INNER), ("neurons", HEADS, INNER // HEADS)):
        pruning = {name: {**how, "_target_": f"plmctl.training.pruning.units.{name}"}}
        units = Changes({}, pruning).find_units(())
        narrow = Shape(LAYERS, LAYERS, Fraction(1, HEADS), units)
        assert narrow.describe() == f"50% of {name}"
        cut = load_source(narrow.cut(source)).model
        assert count(cut) == count_by_hand(LAYERS, heads, inner, rest)


@pytest.mark.slow
def test_a_library_that_is_missing_is_no_result(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there when the command starts again."""
    words = ["compress", str(run), "target=size:1.1x", "keep=0.1", "to=onnx", f"out={tmp_path}/o"]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "onnxruntime", None)
        assert "pip install" in plmctl(*words, code=2)
    plmctl(*words, code=1)  # 8 bits alone make a tiny file no smaller
    assert read_table(tmp_path / "o")["rungs"][0]["score"] is not None


def test_the_target_is_reached_and_the_folder_answers(small: Path, form: Form) -> None:
    table = read_table(small)
    chosen = table["rungs"][table["chosen"]]
    assert chosen["shape"] == {"layers": 1, "all_layers": 2, "width": 0.5, "units": UNITS}
    assert table["run"]["costs"]["flops"] / chosen["costs"]["flops"] >= 3
    if form != PACKED:
        scores = json.loads((small / "model/model.json").read_text())["scores"]
        assert scores["after"]["accuracy"] == pytest.approx(chosen["score"], abs=1e-4)
    found = json.loads(
        plmctl("eval", f"checkpoint={small / 'model'}", f"out={small / 'o'}", "--json")
    )
    assert found["metrics"]["dev"]["accuracy"] == pytest.approx(chosen["score"], abs=1e-4)
    assert (small / "compress_files/latency.svg").is_file()


def test_the_prediction_is_the_file(small: Path) -> None:
    """Bytes, multiply-adds and numbers are known before the training."""
    table = read_table(small)
    chosen = table["rungs"][table["chosen"]]
    predicted = chosen["predicted"]
    assert (predicted["flops"], predicted["parameters"]) == (
        chosen["costs"]["flops"],
        chosen["costs"]["parameters"],
    )
    assert predicted["size"] == pytest.approx(chosen["costs"]["size"], rel=0.02)


def test_stopped_anywhere_it_ends_in_the_same_table(
    run: Path, small: Path, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, before, steps = tmp_path / "small", Pruning.after_step, []
    shutil.copytree(small, out)
    last = read_table(small)["rungs"][-1]["job"]
    for folder in (*out.glob("jobs/finetune-*/run"), out / "jobs" / last / "run"):
        shutil.rmtree(folder)  # as before the training
    journal = out / "jobs/journal.jsonl"
    once = journal.read_text().count("finished")
    line = ("compress", str(run), "target=flops:3x", *WORDS, f"out={out}")

    def stop_in_third(self: Pruning, *args: Any) -> None:
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        before(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Pruning, "after_step", stop_in_third)
        said = plmctl(*line, code=130)
    assert "finished stays so. To go on:\n  plmctl compress " in said
    with monkeypatch.context() as patch:
        patch.setattr(files, "convert" if form == PACKED else "deploy", stop)
        plmctl(*line, code=130)
    plmctl(*line)
    assert read_table(out) == read_table(small)
    assert journal.read_text().count("finished") == once + 2
    ended = journal.read_text()
    plmctl(*line)  # nothing is left to do
    assert journal.read_text() == ended


def stop(*args: Any, **settings: Any) -> None:
    raise KeyboardInterrupt


def test_a_dry_run_writes_nothing_and_says_the_same_sizes(run: Path, small: Path) -> None:
    words = (f"out={small.parent / 'dry'}", "--dry-run", "--json")
    found = json.loads(plmctl("compress", str(run), "target=flops:3x", *WORDS, *words))
    assert not (small.parent / "dry").exists()
    chosen = read_table(small)["rungs"][read_table(small)["chosen"]]
    rung = next(each for each in found["rungs"] if each["reach"] >= 1)
    assert rung["score"] is None
    assert rung["costs"]["size"] == chosen["predicted"]["size"]


@pytest.mark.slow  # the target test runs the same command
def test_four_bits_are_a_way_to_a_small_file(run: Path, tmp_path: Path) -> None:
    """Bytes against the arrays that `pack_arrays` makes; the folder answers as it was scored."""
    out = tmp_path / "out"
    plmctl("compress", str(run), "target=size:3.2x", "keep=0.01", f"out={out}")
    table = read_table(out)
    chosen = table["rungs"][table["chosen"]]
    assert (chosen["form"], chosen["shape"]["layers"]) == ("torch, 4 bits", LAYERS)
    arrays = {name: own.float().numpy() for name, own in open_source(run).tensors.items()}
    packed = sum(array.nbytes for array in pack_arrays(arrays, bits=4).values())
    file = out / "model/model.safetensors"
    assert sum(array.nbytes for array in load_file(file).values()) == packed
    assert chosen["costs"]["size"] == file.stat().st_size
    said = plmctl("eval", f"checkpoint={out / 'model'}", f"out={out / 'o'}", "--json")
    found = json.loads(said)["metrics"]["dev"]["accuracy"]
    assert found == pytest.approx(chosen["score"], abs=1e-4)
    forms = {rung["form"] for rung in table["rungs"]}
    assert "onnx, 8 bits" in forms


def test_a_target_out_of_reach_is_answered_before_any_training(
    run: Path, small: Path, form: Form, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(small, out)
    line = ("compress", str(run), "target=flops:1000x", *WORDS, f"out={out}")
    said = plmctl(*line, code=1)
    assert "nothing reaches the target" in said
    smallest = f"1 of 2 layers, 50% of heads and neurons ({form.describe()})"
    assert f"{smallest} is predicted to need" in said
    assert not (out / "model").exists()
    assert len([*out.glob("jobs/finetune-*")]) == 1  # that of the other target
    nearer = said.partition("nearer targets:\n")[2].splitlines()[0]
    words = shlex.split(nearer.partition("  #")[0])
    assert [word.partition("=")[0] for word in words].count("target") == 1
    plmctl(*words[1:])
    assert read_table(out)["chosen"] is not None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("target=flop:3x",), 2, "did you mean 'flops'?"),
        ((), 2, "target"),
        (("target=size:2x", "checkpoint=nowhere"), 3, "there is no such run"),
        (("target=size:2x", "distill=tinybrt"), 2, "tinybert"),
        (("target=size:2x", "pruning=[neuron]"), 2, "neurons"),
        (("target=size:2x", "pruning=[magnitude]"), 2, "fix: 'pruning=[heads,neurons]'"),
        (("target=size:2x", "keep=1.2"), 2, "at most 1"),
    ],
)
def test_mistakes(run: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    named = any(word.startswith("checkpoint=") for word in words)
    own = [] if named else [str(run)]
    assert said in plmctl("compress", *own, *words, f"out={tmp_path / 'out'}", code=code)
    assert not (tmp_path / "out/model").exists()


@pytest.mark.slow  # the target test runs the same command
def test_changed_rows_are_measured_again_and_no_rows_are_refused(tmp_path: Path) -> None:
    """A finished step is that of the files that it read."""
    own = train_films(tmp_path)
    line = ("compress", str(own), "target=latency:1.1x", *ONNX, f"out={tmp_path / 'out'}")
    plmctl(*line)
    before = read_table(tmp_path / "out")["run"]["score"]
    rows = (tmp_path / "dev.tsv").read_text().splitlines()
    answers = plmctl("predict", str(own), f"input={tmp_path / 'dev.tsv'}", "out=-").splitlines()
    wrong = [
        row
        for row, said in zip(rows[1:], answers, strict=False)
        if json.loads(said)["guess"] != row[-1]
    ]
    (tmp_path / "dev.tsv").write_text("\n".join([rows[0], *wrong]))
    plmctl(*line)
    assert before > 0 == read_table(tmp_path / "out")["run"]["score"]
    (tmp_path / "dev.tsv").unlink()
    said = plmctl(*line, code=3)
    assert "task.dev_share=0.1" in said
    assert "--data" not in said
