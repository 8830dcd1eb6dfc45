"""`plmctl distill` from end to end: fine-tuning and pretraining, the table, the cache, resuming,
what its student can do.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.analysis.runs import RunLog
from plmctl.artifacts import loading
from plmctl.artifacts.convert import convert
from plmctl.config.command import perform
from plmctl.config.compose import compose, composed
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, ConfigErrors, DataError, UsageError
from plmctl.report.card import make_card
from plmctl.runs import distilling, finetuning, pretraining
from plmctl.runs.distill_words import as_training
from plmctl.runs.resume import resume_spec
from plmctl.runs.side_by_side import ModelColumn, SideBySide, compute_share

TINY = ["size=tiny", "size.width=16", "size.num_heads=2", "size.inner_width=32"]
TRAIN = ["train.precision=fp32", "train.threads=1", "train.batch_size=8", "train.log_every=1"]
TASK = ["task=classification", "task.max_length=24", *TRAIN]
TEXT = ["format.max_length=32", "eval.rows=16", *TRAIN]


def table(folder: Path, names: tuple[str, str] = ("bad", "good")) -> Path:
    folder.mkdir()
    draw = random.Random(3)
    for split, count in (("train", 40), ("dev", 12)):
        lines = [
            f"this is a {draw.choice(['fine', 'dull', 'odd', 'truly superb', 'quite terrible'])}"
            f" film\t{names[n % 2]}"
            for n in range(count)
        ]
        (folder / f"{split}.tsv").write_text(
            "\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8"
        )
    return folder


def distilled(*words: str, recipe: str | None = None, **flags: Any) -> Any:
    given = as_training(Provenance("distill", recipe, words, **flags))
    return distilling.distill(composed(given).spec)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("labelled") / "data")


@pytest.fixture(scope="module")
def teacher(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "teacher"
    words = [
        *TASK,
        *TINY,
        "size.num_layers=4",
        f"task.path={data}",
        "tokenizer.vocab_size=24",
        "checkpoint=null",
        f"run.dir={run}",
    ]
    words += ["train.epochs=1", "optim.lr=1e-2"]
    assert finetuning.finetune(compose("finetune", None, words)) == 0
    return run


@pytest.fixture(scope="module")
def student(
    data: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """(run, cache) of a student with two layers of its teacher."""
    folder = tmp_path_factory.mktemp("students")
    words = [
        *TASK,
        f"task.path={data}",
        f"teacher={teacher}",
        "kept_layers=[0,3]",
        "train.epochs=2",
        "optim.lr=1e-3",
    ]
    assert distilled(*words, f"teacher_cache={folder / 'cache'}", f"run.dir={folder / 'run'}") == 0
    return folder / "run", folder / "cache"


def weights(run: Path) -> bytes:
    return (loading.find(run) / "model.safetensors").read_bytes()


def test_the_table_stands_in_result_json_and_distill_md(
    student: tuple[Path, Path], teacher: Path
) -> None:
    run, _ = student
    result = json.loads((run / "result.json").read_text())
    found = result["distillation"]
    whole, part = (found[name]["parameters"] for name in ("teacher", "student"))
    assert whole == sum(tensor.numel() for tensor in loading.open_source(teacher).tensors.values())
    assert (
        whole > part == sum(tensor.numel() for tensor in loading.open_source(run).tensors.values())
    )
    assert [found[name]["layers"] for name in ("teacher", "student")] == [4, 2]
    assert found["student"]["bytes on disk"] == len(weights(run))
    assert found["student"]["accuracy"] == result["metrics"]["dev"]["accuracy"]
    assert (
        found["teacher"]["accuracy"]
        == json.loads((teacher / "result.json").read_text())["metrics"]["dev"]["accuracy"]
    )
    assert (
        found["share of the teacher's score"]
        == found["student"]["accuracy"] / found["teacher"]["accuracy"]
    )
    for rows in ("1 row", "32 rows"):
        assert 0 < found["student"][f"latency of {rows}, ms"] < 1000 * 60
    page = (run / "distill.md").read_text()
    assert page.count("\n| ") >= 8
    assert f"| parameters | {whole:,} | {part:,} | {part / whole:.3f} |" in page
    assert str(teacher) in page


def test_a_run_keeps_which_checkpoint_it_began_from(
    student: tuple[Path, Path], teacher: Path
) -> None:
    run, _ = student
    found = json.loads((run / "origins.json").read_text())
    assert json.loads((run / "result.json").read_text())["origins"] == found
    folder = loading.find(teacher)
    assert sorted(found) == ["checkpoint", "teacher"]
    for (origin,) in found.values():
        assert origin["folder"] == str(folder)
        assert f"step-{origin['step']}" == folder.name
        assert origin["sha256"] == hashlib.sha256(weights(teacher)).hexdigest()
        written = datetime.fromisoformat(origin["saved"]).timestamp()
        assert abs(written - (folder / "manifest.json").stat().st_mtime) < 2
    digest = found["checkpoint"][0]["sha256"][:12]
    began = f"| starts from | teacher (step {origin['step']}, saved {origin['saved']}, sha256"
    assert f"{began} {digest}) |" in make_card(run, RunLog.read(run).config)


def test_the_student_is_an_ordinary_checkpoint(
    student: tuple[Path, Path], data: Path, tmp_path: Path
) -> None:
    run, _ = student
    words = (f"checkpoint={run}", f"out={tmp_path / 'eval'}")
    assert perform(compose("eval", None, list(words)))  # the metrics
    assert (tmp_path / "eval/dev.jsonl").read_text() == (run / "predictions/dev.jsonl").read_text()
    convert(run, tmp_path / "hf", to="hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["num_hidden_layers"] == 2
    words = (
        *TASK,
        f"task.path={data}",
        f"checkpoint={run}",
        "train.epochs=null",
        "train.steps=1",
        f"run.dir={tmp_path / 'on'}",
    )
    assert finetuning.finetune(compose("finetune", None, list(words))) == 0


def test_it_begins_as_those_layers(teacher: Path, data: Path, tmp_path: Path) -> None:
    words = [
        *TASK,
        f"task.path={data}",
        f"teacher={teacher}",
        "kept_layers=[3,1]",
        "train.steps=1",
        "optim.lr=1e-30",
    ]
    assert distilled(*words, "optim.weight_decay=0", f"run.dir={tmp_path / 'run'}") == 0
    whole, part = (
        loading.open_source(teacher).tensors,
        loading.open_source(tmp_path / "run").tensors,
    )
    stack = "backbone.stack.blocks"
    for letter in "af":
        for place, layer in enumerate((3, 1)):
            names = [name for name in whole if name.startswith(f"{stack}.{letter}.{layer}.")]
            assert names
            assert all(
                torch.equal(part[name.replace(f".{layer}.", f".{place}.", 1)], whole[name])
                for name in names
            )
    assert all(
        torch.equal(part[name], tensor)
        for name, tensor in whole.items()
        if not name.startswith(stack)
    )


@pytest.mark.slow  # the states that are kept are compared in tests/distill
def test_what_was_kept_is_read_and_changes_nothing(
    student: tuple[Path, Path],
    data: Path,
    teacher: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, cache = student
    files = {file: file.stat().st_mtime_ns for file in cache.rglob("*.safetensors")}
    assert files
    words = [
        *TASK,
        f"task.path={data}",
        f"teacher={teacher}",
        "kept_layers=[0,3]",
        "train.epochs=2",
        "optim.lr=1e-3",
    ]
    from plmctl.distill.teachers import Frozen

    def computed(*given: Any) -> None:
        raise AssertionError("the teacher is asked again")

    with monkeypatch.context() as patch:
        patch.setattr(Frozen, "predict", computed)
        assert distilled(*words, f"teacher_cache={cache}", f"run.dir={tmp_path / 'again'}") == 0
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.safetensors")} == files
    assert weights(tmp_path / "again") == weights(run)
    # its first epoch, nothing kept
    assert distilled(*words, f"run.dir={tmp_path / 'without'}", "train.epochs=1") == 0
    one, other = (
        json.loads((place / "metrics.jsonl").read_text().splitlines()[0])
        for place in (tmp_path / "without", run)
    )
    assert one["loss/soft/class"] == other["loss/soft/class"]


def test_after_an_interruption_it_goes_on_bit_for_bit(
    student: tuple[Path, Path],
    data: Path,
    teacher: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from plmctl.training.stop import Stop

    words = [
        *TASK,
        f"task.path={data}",
        f"teacher={teacher}",
        "kept_layers=[0,3]",
        "train.epochs=2",
        "optim.lr=1e-3",
    ]
    # as `student`: in other batches answers differ in the last bit
    words.append(f"teacher_cache={tmp_path / 'cache'}")
    place = tmp_path / "run"
    agree, seen = Stop.agree, []

    def interrupted(self: Stop, counts: Any) -> None:
        agree(self, counts)
        seen.append(1)
        self.number = 2 if len(seen) == 3 else self.number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stop, "agree", interrupted)
        assert distilled(*words, f"run.dir={place}") == 130
    assert f"plmctl distill --resume run.dir={place}" in capsys.readouterr().err
    assert not (place / "distill.md").exists()
    cfg = resume_spec(
        as_training(Provenance("distill", overrides=(f"run.dir={place}",), resume=True))
    )
    given = cfg.provenance
    assert (given.verb, given.command) == ("finetune", "distill")
    assert distilling.distill(cfg) == 0
    assert (place / "distill.md").exists()
    assert weights(place) == weights(student[0])


@pytest.mark.slow  # test_lesson_commands.py distils layers while pretraining
def test_while_pretraining(
    small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *TEXT,
        *TINY,
        "size.num_layers=3",
        f"data.path={small_text}",
        "tokenizer.vocab_size=200",
        "train.steps=2",
    ]
    words.append(f"run.dir={tmp_path / 'teacher'}")
    assert pretraining.pretrain(compose("pretrain", "bert", words)) == 0
    common = [*TEXT, f"data.path={small_text}", f"teacher={tmp_path / 'teacher'}", "train.steps=2"]
    capsys.readouterr()
    assert (
        distilled(
            *common, "kept_layers=first2", f"run.dir={tmp_path / 'kept'}", recipe="bert", json=True
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [found[name]["layers"] for name in ("teacher", "student")] == [3, 2]
    for name in ("teacher", "student"):
        assert found[name]["loss/mlm"] > 0
        assert found[name]["perplexity/mlm"] == pytest.approx(
            torch.tensor(found[name]["loss/mlm"]).exp().item(), rel=1e-5
        )
    assert found["share of the teacher's score"] == pytest.approx(
        found["teacher"]["loss"] / found["student"]["loss"]
    )
    assert "latency of 1 row, ms" in found["student"]
    # its own size, the teacher's tokenizer, other widths
    fresh = ["size=tiny", "size.width=32", "size.num_layers=1"]
    assert distilled(*common, *fresh, f"run.dir={tmp_path / 'fresh'}", recipe="bert") == 0
    told = (
        loading.open_source(tmp_path / name).tokenizer.fingerprint
        for name in ("teacher", "fresh", "kept")
    )
    assert len(set(told)) == 1
    assert (tmp_path / "fresh/distill.md").exists()


def test_a_dry_run_tells_of_both(
    teacher: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TASK, f"task.path={data}", f"teacher={teacher}", "kept_layers=spread"]
    costs = distilled(*words, dry_run=True, json=True)
    assert costs["seconds"] > 0
    student, teachers = (
        json.loads(line)["metrics"] for line in capsys.readouterr().out.splitlines()
    )
    assert (
        sum(value for key, value in student["train"].items() if key.startswith("parameters"))
        < teachers[str(teacher)]["parameters"]
    )


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (
            ["teacher={teacher}", "kept_layers=[0,4]"],
            ConfigError,
            r"there is no layer 4; its layers are 0 to 3",
        ),
        (["teacher={teacher}", "kept_layers=spred"], ConfigError, r"did you mean 'spread'"),
        (["teacher={teacher}", "kept_layers=first", "size=mini"], ConfigError, r"size='?mini"),
        (
            ["teacher={teacher}", "kept_layers=first", "checkpoint=null"],
            ConfigError,
            r"chooses layers of checkpoint.*\n  fix: checkpoint=RUN",
        ),
        (["teacher=nowhere"], DataError, r"nowhere: there is no such run"),
        (["teacher={data}/train.tsv"], DataError, r"is a file, but a folder is needed"),
        ([], ConfigError, r"teacher=null: a run, a checkpoint or a Hugging Face folder"),
        (
            ["teacher={teacher}", "task.path={other}"],
            ConfigError,
            r"(?s)labels.*no, yes.*bad, good",
        ),
        (
            ["teacher={teacher}", "teacher_cache=kept", "distill=none"],
            ConfigError,
            r"nothing is learnt of it",
        ),
        (
            ["teacher={teacher}", "teacher_cache=kept", "distill=theseus", "kept_layers=first"],
            ConfigError,
            r"teacher_cache=.*apart",
        ),
        (
            ["teacher_cache=kept", "distill=self_distillation", *TINY],
            ConfigError,
            r"there is no teacher whose answers",
        ),
    ],
)
def test_bad_input_is_named_before_work_starts(
    words: list[str],
    error: type[Exception],
    message: str,
    data: Path,
    teacher: Path,
    tmp_path: Path,
) -> None:
    names = {"data": data, "teacher": teacher, "other": table(tmp_path / "other", ("no", "yes"))}
    words = [word.format(**names) for word in words]
    path = [] if any(word.startswith("task.path=") for word in words) else [f"task.path={data}"]
    with pytest.raises((error, ConfigErrors), match=message):
        distilled(*TASK, *path, *words, f"run.dir={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_is_refused(teacher: Path, data: Path, tmp_path: Path) -> None:
    from plmctl.text.tokenizer import Tokenizer

    Tokenizer.train(["a film that is another"], kind="char").save(tmp_path / "tokens")
    with pytest.raises(ConfigError, match=r"(?s)teacher=.*tokenizer.*24.*fix: tokenizer.path="):
        distilled(
            *TASK,
            f"task.path={data}",
            f"teacher={teacher}",
            f"tokenizer.path={tmp_path / 'tokens'}",
            *TINY,
        )


def test_in_pretraining_nothing_is_kept() -> None:
    with pytest.raises(UsageError, match="no answer would be read again"):
        as_training(Provenance("distill", "bert", ("teacher=x", "teacher_cache=y")))


@pytest.mark.parametrize(
    ("recipe", "words", "verb", "added"),
    [
        (None, ("teacher=t",), "pretrain", ("distill=kd", "run.name=distill")),
        (
            "bert",
            ("teacher=t", "kept_layers=first"),
            "pretrain",
            ("distill=kd", "run.name=distill", "init=${teacher}"),
        ),
        (
            None,
            ("task=sst2", "teacher=t"),
            "finetune",
            ("distill=kd", "run.name=distill", "checkpoint=null"),
        ),
        (None, ("task=sst2", "distill=mse", "checkpoint=c", "run.name=n"), "finetune", ()),
    ],
)
def test_what_is_not_said_is_added(
    recipe: str | None, words: tuple[str, ...], verb: str, added: tuple[str, ...]
) -> None:
    flags = as_training(Provenance("distill", recipe, words))
    assert (flags.verb, flags.command, flags.overrides) == (verb, "distill", (*added, *words))
    assert flags.recipe == ("bert" if verb == "pretrain" else None)


def test_a_recipe_that_says_it_is_taken_at_its_word(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "# @package _global_\ndefaults:\n  - override /distill: patient\nteacher: runs/t\nrun:"
        " {name: own}\n"
    )
    assert as_training(Provenance("distill", str(file), ())).overrides == ()


def test_scores_that_simple_models_reach_are_named(tmp_path: Path) -> None:
    simple = {"dev": {"most frequent label": {"f1": 0.7}}, "test": {"most": {"f1": 1.0}}}
    (tmp_path / "baselines.json").write_text(json.dumps(simple))
    columns = [
        ModelColumn(title, "", 1, 1, 1, scores={"f1": score})
        for title, score in {"teacher": 0.7, "student": 0.6, "other": 0.8}.items()
    ]
    tests = {"p_of_baselines": {"dev": {"most frequent label": 0.5}}}
    for better, record in ((columns[1], tests), (columns[2], {})):
        table = SideBySide(columns[:1], better, metric="f1")
        found = distilling._list_unbeaten(tmp_path, table, record)
        assert found[0].startswith("teacher: dev: f1 0.7000 is no better than without")
        assert [line.partition(":")[0] for line in found[1:]] == ["student"] * bool(record)
    assert (
        "p 0.5000"
        in distilling._list_unbeaten(
            tmp_path, SideBySide(columns[:1], columns[1], metric="f1"), tests
        )[1]
    )
    noted = SideBySide(columns[:1], columns[1], notes=found)
    assert found[0] in noted.markdown()
    assert noted.to_json()["notes"] == found
    assert not distilling._list_unbeaten(tmp_path / "none", noted, {})


def test_shares_and_ratios() -> None:
    assert compute_share(0.9, 0.8, largest_is_best=True) == pytest.approx(1.125)
    assert compute_share(4.0, 3.0, largest_is_best=False) == pytest.approx(0.75)
    assert compute_share(-0.1, 0.5, largest_is_best=True) is None
    teacher = ModelColumn("teacher", "t", 1000, 4_000_000, 12, {1: 8.0}, {"f1": 0.8})
    student = ModelColumn("student", "s", 250, 1_000_000, 3, {1: 2.0}, {"f1": 0.6})
    made = SideBySide([teacher], student, metric="f1", place="cpu")
    assert made.share == pytest.approx(0.75)
    header, rows = made.rows()
    assert header == ["", "teacher", "student", "student / teacher"]
    assert ["bytes on disk", "4.0 MB", "1.0 MB", "0.250"] in rows
    assert ["latency of 1 row, ms", "8.00", "2.00", "0.250"] in rows
    assert rows[-1] == ["share of the teacher's f1", "", "", "75.0%"]
    assert replace(made, teachers=[]).share is None
    assert replace(made, teachers=[replace(teacher, scores={})]).rows()[1][-1] == [
        "f1",
        "",
        "0.6000",
        "",
    ]
