"""`plmctl predict`: texts in, labels out; stopped, streamed, refused."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.cli.app import main
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.inference import ReadPieces
from plmctl.tasks.readers.tables import Table
from plmctl.use.labeller import PUBLISHED, WatchedRuntime, choose_labels
from plmctl.use.labelling import rank_labels
from tests.command import plmctl
from tests.films import train_films
from tests.storage.test_kills import CALLS, in_child, run_killed

WORDS = ("dull", "fine", "film", "plot", "indeed", "and", "not", "a")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_films(tmp_path_factory.mktemp("films"), "size.num_layers=1")


def write_texts(file: Path, count: int) -> Path:
    """A file of texts of unlike lengths, in the form that its name says."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))) for _ in range(count)]
    spell: dict[str, Callable[[int, str], str]] = {
        ".txt": lambda n, text: text,
        ".csv": lambda n, text: f"{n},{text}",
        ".tsv": lambda n, text: f"{n}\t{text}",
        ".jsonl": lambda n, text: json.dumps({"number": n, "text": text}),
    }
    head = {".csv": ["number,text"], ".tsv": ["number\ttext"]}.get(file.suffix, [])
    lines = [*head, *(spell[file.suffix](n, text) for n, text in enumerate(texts))]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 8 rows."""
    monkeypatch.setattr("plmctl.tasks.unlabelled.PIECE", 8)


def test_a_dry_run_foresees_and_writes_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.use.rehearsal.SECONDS", 0.0)
    before, file = {*run.rglob("*")}, write_texts(tmp_path / "new.txt", 6)
    seen = json.loads(plmctl("eval", f"checkpoint={run}", "--dry-run", "--json"))
    labelled = json.loads(plmctl("predict", str(run), f"input={file}", "--dry-run", "--json"))
    assert (seen["rows"], labelled["rows"]) == (12, 6)
    assert min(seen["time"], labelled["time"], labelled["memory"]) > 0
    assert {*run.rglob("*")} == before
    text = "data.path=README.md"
    refused = plmctl("eval", f"checkpoint={run}", "task=lm", text, "--dry-run", code=2)
    assert "--dry-run: knows the time of" in refused


@pytest.mark.parametrize("kind", [".txt", ".csv", ".tsv", ".jsonl"])
def test_eval_with_input_is_predict_with_a_warning(run: Path, tmp_path: Path, kind: str) -> None:
    texts = write_texts(tmp_path / f"new{kind}", 11)
    outs = [tmp_path / f"{verb}.csv" for verb in ("predict", "eval")]
    for out in outs:
        plmctl(out.stem, f"checkpoint={run}", f"input={texts}", f"out={out}")
    assert outs[0].read_bytes() == outs[1].read_bytes()
    rows = list(csv.DictReader(outs[0].open()))
    assert len(rows) == 11
    assert ("number" in rows[0]) == (kind != ".txt")
    assert {row["guess"] for row in rows} <= {"0", "1"}


def test_the_warning_names_the_same_command(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    texts = write_texts(tmp_path / "new.txt", 3)
    caplog.set_level("WARNING", "plmctl")
    words = [f"checkpoint={run}", f"input={texts}", f"out={tmp_path}/a.csv", "split=dev"]
    plmctl("eval", *words, "--json")
    (line,) = [line for record in caplog.records for line in record.getMessage().splitlines()[1:]]
    fix = line.removeprefix("  fix: plmctl ").split()
    assert fix == ["predict", *words[:3], "--json"]
    found = json.loads(plmctl(*(word.replace("a.csv", "b.csv") for word in fix)))
    assert found["rows"] == 3
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.sampled(11)
@pytest.mark.parametrize("number", [1, 2, 5, 9])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("out", ["p.csv", "p.jsonl", "folder"])
@pytest.mark.usefixtures("small")
def test_a_killed_command_ends_with_the_same_bytes(
    run: Path, tmp_path: Path, call: str, number: int, out: str
) -> None:
    texts = write_texts(tmp_path / "new.jsonl", 43)
    words = ["predict", f"checkpoint={run}", f"input={texts}"]
    assert in_child(lambda: plmctl(*words, f"out={tmp_path / 'whole' / out}")) == 0
    again = [*words, f"out={tmp_path / out}"]
    died = run_killed(again, call, number)
    if died:
        assert died == -signal.SIGKILL
        assert in_child(lambda: plmctl(*again)) == 0
    name = f"{out}/new.jsonl" if out == "folder" else out
    assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(tmp_path.rglob(".*"))


def read_guesses(file: Path) -> list[tuple[Any, ...]]:
    rows = map(json.loads, file.read_text().splitlines())
    return [(row["guess"], row["probabilities"]) for row in rows]


def test_the_simple_model_of_a_run_answers_as_in_its_comparison(run: Path, tmp_path: Path) -> None:
    folder = run / "baselines" / "words"
    known = read_guesses(folder / "dev.jsonl")
    file = run.parent / "dev.tsv"
    plmctl("predict", str(folder), f"input={file}", f"out={tmp_path}/a.jsonl")
    said = json.loads(
        plmctl("predict", str(folder), f"input={file}", f"out={tmp_path}/b", "--json")
    )
    scored = json.loads(plmctl("eval", str(folder), f"out={tmp_path}/eval", "--json"))
    assert read_guesses(tmp_path / "a.jsonl") == read_guesses(tmp_path / "eval/dev.jsonl") == known
    wanted = json.loads((run / "baselines.json").read_text())["dev"]["words"]
    assert {name: scored["metrics"]["dev"][name] for name in wanted} == wanted
    assert "not calibrated" in said["probabilities"]


def test_a_simple_model_is_scored_as_its_run_is(run: Path, tmp_path: Path) -> None:
    """Four rows: two texts of train, and two new ones, of which one word tells the label."""
    own, other = Path(shutil.copytree(run, tmp_path / "run")), tmp_path / "other"
    other.mkdir()
    rows = ["a dull film\t0", "a fine film\t1", "so dull\t0", "so dull again\t1"]
    (other / "test.tsv").write_text("\n".join(["text\tlabel", *rows]))
    folder, found = own / "baselines" / "words", {}
    for model in (own, folder):
        for only in ("null", "unseen"):
            words = [f"task.path={other}", "split=test", f"only={only}", "--json"]
            found[model, only] = json.loads(plmctl("eval", str(model), *words))
    assert found[folder, "null"]["metrics"]["test"]["accuracy"] == 0.75
    assert found[folder, "unseen"]["metrics"]["test"]["accuracy"] == 0.5
    assert f"2 of 4 rows have a text that {own} " in found[folder, "null"]["remarks"]["trained on"]
    for only, name in (("null", "other-test"), ("unseen", "other-test-unseen")):
        files = [model / "eval" / f"{name}.jsonl" for model in (own, folder)]
        assert [found[model, only]["predictions"] for model in (own, folder)] == [*map(str, files)]
        lines = [[*json.loads(file.read_text().splitlines()[0])] for file in files]
        assert lines[0] == lines[1]
    compared = json.loads(plmctl("compare", *map(str, files), "--json"))
    assert compared["metrics"]["accuracy"]["second"] == 0.5
    (other / "test.tsv").write_text("text\tlabel\nso dull\tpoor\n")
    for model in (own, folder):
        told = plmctl("eval", str(model), f"task.path={other}", "split=test", code=3)
        assert "label 'poor' is none of" in told


def test_a_calibrated_simple_model_says_nothing_of_it(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run / "baselines" / "words", tmp_path / "words"))
    how = ["calibrate=[temperature]", f"out={tmp_path}/eval", "--json"]
    scored = json.loads(plmctl("eval", str(folder), *how))
    assert ("log loss" in scored, "loss" in scored["remarks"]) == (True, False)
    assert [*scored["decision"]["fitted"]] == ["temperature"]
    assert "probabilities" not in scored
    texts = write_texts(tmp_path / "new.txt", 3)
    words = (str(folder), f"input={texts}", f"out={tmp_path}/a.csv", "--json")
    found = json.loads(plmctl("predict", *words))
    assert "probabilities" not in found
    assert "temperature" in found["remarks"]["decision"]


@pytest.mark.parametrize(
    "model", ["{run}", "[{run},{run}/checkpoints/step-3]", "{run}/baselines/words"]
)
def test_rows_below_a_named_probability_are_counted(run: Path, tmp_path: Path, model: str) -> None:
    texts = write_texts(tmp_path / "new.txt", 11)
    words = [f"checkpoint={model.format(run=run)}", f"input={texts}", "--json"]
    plmctl("predict", *words, f"out={tmp_path}/all.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    sure = [max(row["probabilities"].values()) for row in rows]
    least = sorted(sure)[5]
    asked = [*words, f"unsure_below={least}", f"out={tmp_path}/some.jsonl"]
    found = json.loads(plmctl("predict", *asked))
    count = sum(own < least for own in sure)
    assert found["unsure"] == count > 0
    assert found["remarks"]["unsure"] == f"{count} of 11 rows"
    assert "as asked" in found["remarks"]["decision"]
    rows = [json.loads(line) for line in (tmp_path / "some.jsonl").read_text().splitlines()]
    assert [row.get("unsure", False) for row in rows] == [own < least for own in sure]


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("embed", ["input=README.md"], "predict, eval and serve open"),
        ("predict", ["input=README.md", "runtime=onnx"], "needs no other library"),
        ("predict", ["input=README.md", "task=regression"], "was fine-tuned on classification"),
        ("eval", ["task=lm"], "the task that the linear model was fitted to"),
        ("eval", ["task.label_names=[a,b]", "task.path=x"], "with the labels 0, 1"),
        ("eval", ["perturb=[typos]"], "as they stand"),
        ("eval", ["input=README.md", "only=unseen"], "only"),
        ("eval", ["--submission"], "fine-tuned model"),
    ],
)
def test_simple_models_are_refused_in_words(
    run: Path, verb: str, words: list[str], said: str
) -> None:
    assert said in plmctl(verb, str(run / "baselines" / "words"), *words, code=2)


@pytest.mark.parametrize("verb", ["eval", "predict"])
def test_what_is_wrong_with_a_simple_model_is_said(run: Path, verb: str) -> None:
    folder = run / "baselines" / "words"
    said = plmctl(verb, f"checkpoint=[{run},{folder}]", "input=README.md", code=2)
    assert f"{folder} is a linear model of words: an ensemble is of fine-tuned models" in said
    said = plmctl(verb, str(folder), "input=README.md", "batch_size=x", code=2)
    assert "batch_size" in said
    assert "no states" not in said
    other = run / "baselines" / "most-frequent-in-train"
    assert f"plmctl compare {run} {other}" in plmctl(verb, str(other), "input=README.md", code=2)


class Stopped:
    """A command that Ctrl-C ends once the model has read some rows, and what it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.limit = 0, 24
        real = WatchedRuntime.answer

        def answer(runtime: Any, program: Any, batch: Any) -> Any:
            if self.read + len(batch.key) > self.limit:
                raise KeyboardInterrupt
            self.read += len(batch.key)
            return real(runtime, program, batch)

        monkeypatch.setattr(WatchedRuntime, "answer", answer)

    def go_on(self) -> None:
        """Count anew, and stop no more."""
        self.read, self.limit = 0, 1_000


@pytest.fixture
def stopped(run: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command that was stopped with 24 of 43 rows answered."""
    texts = write_texts(tmp_path / "new.csv", 43)
    words = ["predict", f"checkpoint={run}", f"input={texts}", f"out={tmp_path / 'p.csv'}"]
    with monkeypatch.context() as patched:
        Stopped(patched)
        plmctl(*words, code=130)
    assert not (tmp_path / "p.csv").exists()
    return words


def says(caplog: pytest.LogCaptureFixture, *words: str) -> str:
    """The messages of a command."""
    caplog.clear()
    caplog.set_level("INFO", "plmctl")
    plmctl(*words)
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("plmctl.core.terminal.LOGGER.propagate", True)
    return caplog


def test_what_is_answered_is_not_answered_again(
    stopped: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    rest = Stopped(monkeypatch)
    rest.go_on()
    said = says(caplog, *stopped)
    assert "an earlier start was stopped; going on from there" in said
    assert "24 of 43 rows have answers already" in said
    assert rest.read == 43 - 24
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 44
    assert "exists" in plmctl(*stopped, code=2)


@pytest.mark.parametrize(
    ("word", "change"), [("batch_size=3", "batch_size: 32 -> 3"), ("", "another texts")]
)
def test_another_job_starts_afresh_and_says_why(
    stopped: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    word: str,
    change: str,
) -> None:
    whole = Stopped(monkeypatch)
    whole.go_on()
    if not word:
        texts = tmp_path / "new.csv"
        texts.write_text(texts.read_text().replace("dull", "fine", 1))
    said = says(caplog, *stopped, *([word] if word else []))
    assert f"starting afresh, an unfinished start does not fit ({change}" in said
    assert whole.read == 43


def test_a_full_disk_is_named_and_the_command_goes_on(
    run: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, out = write_texts(tmp_path / "new.csv", 43), tmp_path / "p.csv"
    words = ["predict", f"checkpoint={run}", f"input={texts}", f"out={out}"]
    plmctl(*words[:-1], f"out={tmp_path / 'whole.csv'}")
    with monkeypatch.context() as patched:
        real, seen = os.fsync, 0

        def fail(number: int) -> None:
            nonlocal seen
            seen += 1
            if seen > 20:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(number)

        patched.setattr(os, "fsync", fail)
        said = plmctl(*words, code=3)
    assert f"{out}: cannot be written (No space left on device); what is done is kept" in said
    plmctl(*words)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_several_files_go_into_a_folder(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, count in (("a.txt", 3), ("b.csv", 5)):
        write_texts(tmp_path / "in" / name, count)
    words = ["predict", f"checkpoint={run}", f"input={tmp_path}/in/*"]
    plmctl(*words, f"out={tmp_path}/out")
    counts = {f.name: len(f.read_text().splitlines()) for f in (tmp_path / "out").iterdir()}
    assert counts == {"a.jsonl": 3, "b.jsonl": 5}
    one = [w for w in words if "input" not in w]
    plmctl(*one, f"input={tmp_path}/in/b.csv", f"out={tmp_path}/b.jsonl")
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "out/b.jsonl").read_bytes()
    listed = f"input=[{tmp_path}/in/a.txt,{tmp_path}/in/b.csv]"
    printed = plmctl(*one, listed, "out=-").splitlines()
    assert len(printed) == 8
    assert "a folder: each of 2 files" in plmctl(*words, f"out={tmp_path}/all.csv", code=2)
    write_texts(tmp_path / "in" / "a.csv", 2)
    assert "files of different names" in plmctl(*words, f"out={tmp_path}/out", code=2)


def test_files_before_the_stop_are_not_answered_again(
    run: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write_texts(tmp_path / name, 19) for name in ("a.txt", "b.csv")]
    words = ["predict", f"checkpoint={run}", f"input=[{files[0]},{files[1]}]"]
    plmctl(*words, f"out={tmp_path}/whole")
    again, stop = [*words, f"out={tmp_path}/out"], Stopped(monkeypatch)
    stop.limit = 19 + 8
    plmctl(*again, code=130)
    assert {file.name for file in (tmp_path / "out").glob("[ab]*")} == {"a.jsonl"}
    stop.go_on()
    plmctl(*again)
    assert stop.read == 11
    for name in ("a.jsonl", "b.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(tmp_path.rglob(".*"))


def test_a_mistake_in_any_file_comes_before_the_work(run: Path, tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "a.txt", 3)
    (tmp_path / "b.jsonl").write_text('{"text": "fine"}\n{"body": "dull"}\n')
    words = ["predict", f"checkpoint={run}", f"out={tmp_path}/out"]
    said = plmctl(*words, f"input=[{texts},{tmp_path}/b.jsonl]", code=3)
    assert "b.jsonl:2: no field text" in said
    assert "no such file" in plmctl(*words, f"input=[{texts},{tmp_path}/c.txt]", code=3)
    assert not (tmp_path / "out").exists()


def test_answers_never_replace_their_texts(run: Path, tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "a.jsonl", 3)
    words = ["predict", f"checkpoint={run}", f"input={texts}", "overwrite=true"]
    before = texts.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(texts)
    for out in ("a.jsonl", "link.jsonl", "."):
        said = plmctl(*words, f"out={tmp_path / out}", code=2)
        assert f"another path than that of the texts: {texts} would be lost" in said
    assert texts.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (["input={empty}", "out={out}.csv"], 3, "empty.csv: "),
        (["input={texts}", "task.columns.text=body", "out={out}.csv"], 3, "body"),
        (["input={broken}", "out={out}.csv"], 3, "broken.jsonl:7: "),
        (["input={texts}", "out={texts}.pdf"], 2, "out="),
        (["input={texts}", "out=-", "runtime=onx"], 2, "did you mean 'onnx'"),
        (["input={folder}", "out={out}.csv"], 2, "fix: input='"),
        (["input=[-,{texts}]", "out={out}"], 2, "fix: input=-"),
        (["input={texts}", "task=lm", "out={out}.csv"], 2, "fix: plmctl eval task=lm"),
        (["input={texts}", "by=number", "out={out}.csv"], 2, "fix: 'checkpoint=[RUN,ANOTHER]'"),
        (["input={none}", "out={out}.csv"], 3, "no such file"),
        (["out={out}.csv"], 2, "input"),
    ],
)
def test_what_is_refused(
    run: Path, tmp_path: Path, words: list[str], code: int, answer: str
) -> None:
    names = {name: tmp_path / name for name in ("out", "folder", "none")}
    names["folder"].mkdir()
    names["texts"] = write_texts(tmp_path / "texts.csv", 5)
    names["empty"] = tmp_path / "empty.csv"
    names["empty"].touch()
    names["broken"] = write_texts(tmp_path / "broken.jsonl", 12)
    lines = names["broken"].read_text().splitlines()
    lines[6] = '{"number": 6, "text": '
    names["broken"].write_text("\n".join(lines))
    before = sorted(tmp_path.rglob("*"))
    said = plmctl("predict", f"checkpoint={run}", *(w.format(**names) for w in words), code=code)
    assert answer in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pretrained_model_is_told_to_be_fine_tuned(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a good film is a film .\n" * 200)
    small = ["size=tiny", "size.width=16", "size.inner_width=16", "size.num_heads=2"]
    words = ["bert", *small, f"data.path={tmp_path}/text.txt", "tokenizer.vocab_size=30"]
    words += ["tokenizer=word", "format.max_length=16", "train.steps=1", "train.precision=fp32"]
    plmctl("pretrain", *words, "train.minutes=null", f"run.dir={tmp_path}/run")
    said = plmctl("predict", f"checkpoint={tmp_path}/run", f"input={tmp_path}/text.txt", code=2)
    assert "a pretrained model labels nothing before it is fine-tuned" in said
    assert "plmctl finetune task=classification task.path=LABELLED_TEXTS checkpoint=" in said


def test_a_published_classifier_is_told_the_task_of_its_labels() -> None:
    settings: Any = SimpleNamespace(keys=(), asked=None)
    for head, task in PUBLISHED.items():
        heads = {"pooler": {"_target_": "x"}, head: {"_target_": "x"}}
        loaded: Any = SimpleNamespace(config={"heads": heads}, own_task=dict)
        with pytest.raises(ConfigError, match=f"fix: plmctl predict checkpoint=a task={task} inp"):
            choose_labels(loaded, settings, "a")


def test_an_ensemble_is_stopped_and_goes_on(run: Path, tmp_path: Path, small: None) -> None:
    texts = write_texts(tmp_path / "new.txt", 19)
    words = ["predict", f"checkpoint=[{run},{run}]", f"input={texts}"]
    plmctl(*words, f"out={tmp_path}/whole.jsonl")
    alone = ["predict", f"checkpoint={run}", f"input={texts}", f"out={tmp_path}/one.jsonl"]
    plmctl(*alone)
    found = [
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("whole.jsonl", "one.jsonl")
    ]
    assert [row["guess"] for row in found[0]] == [row["guess"] for row in found[1]]
    for both, one in zip(*found, strict=True):  # the mean of a model with itself
        assert both["probabilities"] == pytest.approx(one["probabilities"], rel=1e-5)
    again = [*words, f"out={tmp_path}/again.jsonl"]
    assert run_killed(again, "replace", 1) == -signal.SIGKILL
    plmctl(*again)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


class Piped:
    """A command in a process of its own, with pipes as its standard input and output."""

    def __init__(self, *words: str) -> None:
        ours, theirs = [], []
        for number, mode in enumerate(("w", "r", "r")):
            read, write = os.pipe()
            theirs.append(write if number else read)
            ours.append(os.fdopen(read if number else write, mode))
        self.number = os.fork()
        if not self.number:  # pragma: no cover
            self._run(theirs, ours, words)
        for end in theirs:
            os.close(end)
        self.write, self.read, self.errors = ours

    @staticmethod
    def _run(theirs: list[int], ours: list[Any], words: tuple[str, ...]) -> None:
        for stream in ours:
            stream.close()
        for number, end in enumerate(theirs):
            os.dup2(end, number)
        streams = (os.fdopen(number, "w" if number else "r") for number in range(3))
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv = ["plmctl", *words]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code: Any = 1
        try:
            main()
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)

    def ask(self, text: str) -> dict[str, Any]:
        """The answer to a line, before another one is written."""
        self.write.write(f"{text}\n")
        self.write.flush()
        found: dict[str, Any] = json.loads(self.read.readline())
        return found

    def end(self) -> tuple[int, str]:
        """The exit code, and what is on standard error."""
        with contextlib.suppress(BrokenPipeError):
            self.write.close()
        said = self.errors.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1]), said


def test_a_stream_is_answered_line_by_line(run: Path) -> None:
    piped = Piped("predict", str(run), "input=-")
    for text in ("a fine film", "a dull film indeed", ""):
        answer = piped.ask(text)
        assert (answer["text"], answer.get("unknown")) == (text, None if text else 1)
    piped.write.write("a fine plot\na du")  # the rest of the line comes later
    piped.write.flush()
    assert json.loads(piped.read.readline())["text"] == "a fine plot"
    assert piped.ask("ll film")["text"] == "a dull film"
    code, said = piped.end()
    assert (code, "rows: 5" in said) == (0, True)


def test_json_lines_of_a_stream_are_read_as_those_of_a_file(run: Path, tmp_path: Path) -> None:
    rows = [{"number": n, "text": f"a {word} film"} for n, word in enumerate(("fine", "dull"))]
    (tmp_path / "new.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = tmp_path / "labelled.jsonl"
    plmctl("predict", str(run), f"input={tmp_path}/new.jsonl", f"out={out}")
    piped = Piped("predict", str(run), "input=-")
    piped.write.write("\n")
    answers = [piped.ask(json.dumps(row)) for row in rows]
    for answer, line in zip(answers, out.read_text().splitlines(), strict=True):
        wanted = json.loads(line)
        assert [*answer] == [*wanted]
        assert answer["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    assert piped.end()[0] == 0


@pytest.mark.parametrize("broken", ['{"text":}', "[1]", "a plain film", '{"txt": "a film"}'])
def test_a_later_line_that_is_no_object_ends_a_stream_of_json(run: Path, broken: str) -> None:
    piped = Piped("predict", str(run), "input=-")
    assert piped.ask('{"text": "a fine film"}')["text"] == "a fine film"
    piped.write.write(f"{broken}\n")
    code, said = piped.end()
    assert (code, "standard input:2: " in said) == (3, True)


@pytest.mark.parametrize(
    ("text", "warns"),
    [("{a} fine film", False), ('{"text": broken', False), ('{"said": "a film"}', True)],
)
def test_a_text_that_begins_with_a_brace_is_a_text(run: Path, text: str, warns: bool) -> None:
    piped = Piped("predict", str(run), "input=-")
    assert piped.ask(text)["text"] == text
    code, said = piped.end()
    assert (code, "a JSON object without text, so each line is a text" in said) == (0, warns)


@pytest.mark.parametrize(("end", "code"), [("interrupt", 130), ("closed", 1)])
def test_a_stream_ends_cleanly(run: Path, end: str, code: int) -> None:
    piped = Piped("predict", str(run), "input=-")
    piped.ask("a fine film")
    if end == "interrupt":
        os.kill(piped.number, signal.SIGINT)
    else:
        piped.read.close()
        with contextlib.suppress(BrokenPipeError):
            for _ in range(20):
                piped.write.write("a dull film\n")
                piped.write.flush()
                time.sleep(0.02)
    found, said = piped.end()
    assert found == code
    assert said.splitlines() == (["plmctl: stopped"] if end == "interrupt" else [])


def test_a_broken_line_ends_a_stream_behind_its_answers(run: Path) -> None:
    piped = Piped("predict", str(run), "input=-")
    os.write(piped.write.fileno(), b"a fine film\n\xff\xfe\na dull film\n")
    assert json.loads(piped.read.readline())["text"] == "a fine film"
    code, said = piped.end()
    assert code == 3
    assert "standard input:2: " in said


def test_cells_behind_the_header_are_counted_where_rows_are_lenient(
    run: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "new.tsv"
    texts.write_text("text\tn\na film\t2\tmore\nfine\t1\na plot\t3\t\t4\n")
    words = ["predict", str(run), f"input={texts}", f"out={tmp_path}/labelled.csv"]
    said = plmctl(*words, code=3)
    assert f"{texts}:2: 3 columns where the header names 2" in said
    said = plmctl(*words, "task=classification", "task.reader.lenient=true")
    note = "2 rows with cells behind the last named column, which are left out"
    assert f"{note}; the first is {texts}:2" in said
    assert len((tmp_path / "labelled.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("first", "where"), [("b.tsv:2", "b.tsv: 90%"), ("line 1", "b.txt: 90%"), ("x", "b.txt: 90%")]
)
def test_unknown_text_is_refused_with_its_rows_and_a_fix_of_predict(first: str, where: str) -> None:
    read = ReadPieces()
    vars(read).update(unknown=9, ordinary=10, examples=2, first=first)
    with pytest.raises(DataError) as caught:
        read.refuse_unknown("b.txt")
    said, fix = str(caught.value).splitlines()
    assert said.startswith(where)
    assert ("(2 rows, from line " in said) == (first != "x")
    assert fix.startswith("  fix: checkpoint=RUN")
    assert "byte_bpe" not in fix


def test_a_pair_is_asked_for_both_columns_at_once(tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text("one,two\na,b\n")
    with pytest.raises(DataError) as caught:
        Table(splits={}).read_file(file, {"text": "left", "text2": "right"}, labelled=False)
    assert "fix: task.columns.text=COLUMN task.columns.text2=COLUMN" in str(caught.value)


def test_the_likeliest_labels_come_first_and_others_stay_out() -> None:
    shares = {"a": 0.2, "b": 0.5, "c": 0.3}
    (row,) = rank_labels([{"guess": "b", "probabilities": shares}], 2)
    assert row == {
        "guess": "b",
        "top": {"1": {"label": "b", "probability": 0.5}, "2": {"label": "c", "probability": 0.3}},
    }
    (all_of_them,) = rank_labels([{"guess": "b", "probabilities": shares}], 9)
    assert [each["label"] for each in all_of_them["top"].values()] == ["b", "c", "a"]
    assert rank_labels([{"guess": 1.0}], None) == [{"guess": 1.0}]
    with pytest.raises(ConfigError, match="no probabilities of labels"):
        rank_labels([{"guess": 1.0}], 2)


def test_a_table_has_columns_of_the_likeliest_labels(run: Path, tmp_path: Path) -> None:
    texts = tmp_path / "new.csv"
    texts.write_text("text\na fine film\npoor\n")
    plmctl("predict", str(run), f"input={texts}", f"out={tmp_path}/o.csv", "top=1")
    with (tmp_path / "o.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2
    for row in rows:
        assert row["top.1.label"] == row["guess"]
        assert 0 < float(row["top.1.probability"]) <= 1
        assert not [name for name in row if name.startswith(("probabilities", "top.2"))]
