"""Trackers, with modules that stand in for their libraries and write down what they are told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from plmctl.core.errors import DataError, UsageError
from plmctl.training.log import METRICS, Log, read_metrics
from plmctl.training.trackers.choose import TRACKERS, open_trackers
from tests.command import plmctl

SETTINGS = {"train": {"steps": 3, "clip": 1.0}, "run": {"trackers": ["x"]}}


class StandIn(ModuleType):
    """A module that keeps its calls, as both libraries have them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, Any]] = []
        self.broken = ""  # the function that fails

    def note(self, name: str, /, *given: Any, **named: Any) -> None:
        if name == self.broken:
            raise ConnectionError("no server")
        self.calls.append((name, {**named, **({"": given} if given else {})}))

    def named(self, name: str) -> list[Any]:
        return [given for call, given in self.calls if call == name]


class Wandb(StandIn):
    def init(self, **given: Any) -> Any:
        self.note("init", **given)
        note = self.note
        return SimpleNamespace(
            id=given.get("id", "w-1"),
            log=lambda numbers, step: note("log", numbers, step=step),
            finish=lambda: note("finish"),
        )


class Mlflow(StandIn):
    def active_run(self) -> None:
        return None

    def start_run(self, **given: Any) -> Any:
        self.note("start_run", **given)
        return SimpleNamespace(info=SimpleNamespace(run_id=given.get("run_id", "m-1")))

    def log_params(self, settings: dict[str, str]) -> None:
        self.note("log_params", settings)

    def log_metrics(self, numbers: dict[str, float], step: int) -> None:
        self.note("log", numbers, step=step)

    def end_run(self) -> None:
        self.note("finish")


class TrackioLibrary(StandIn):
    """As trackio 0.43: it prints, and a run's name is what it is known by."""

    def init(self, *, project: str, name: str, config: Any, resume: str) -> Any:
        print("* Trackio project initialized")
        self.note("init", project=project, name=name, config=config, resume=resume)
        note = self.note
        return SimpleNamespace(
            name=name,
            log=lambda metrics, step: note("log", metrics, step=step),
            finish=lambda: note("finish"),
        )


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    made: dict[str, StandIn] = {"wandb": Wandb("wandb"), "mlflow": Mlflow("mlflow")}
    made["trackio"] = TrackioLibrary("trackio")
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("WANDB_NAME", "WANDB_DIR", "TRACKIO_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return made


def log_of(folder: Path, *names: str) -> Log:
    folder.mkdir(exist_ok=True)
    trackers = open_trackers(names or tuple(TRACKERS))
    return Log(folder, tensorboard=False, trackers=trackers, settings=SETTINGS)


def test_the_numbers_of_metrics_jsonl_arrive(tmp_path: Path, modules: dict[str, StandIn]) -> None:
    records = [
        {"step": 1, "loss/mlm": 2.5, "tokens": 10, "note": "a text"},
        {"step": 2, "valid/mrr@10": 0.5},
    ]
    log = log_of(tmp_path)
    with log:
        for record in records:
            log.record(record)
    log.close()
    log.close()
    wandb, mlflow, trackio = modules["wandb"], modules["mlflow"], modules["trackio"]
    numbers = [{"loss/mlm": 2.5, "tokens": 10}, {"valid/mrr@10": 0.5}]
    assert wandb.named("log") == [{"": (numbers[n],), "step": n + 1} for n in range(2)]
    assert trackio.named("log") == wandb.named("log")
    assert [given[""][0] for given in mlflow.named("log")] == [numbers[0], {"valid/mrr_10": 0.5}]
    assert [given["step"] for given in mlflow.named("log")] == [1, 2]
    assert [len(each.named("finish")) for each in (wandb, mlflow, trackio)] == [1, 1, 1]
    assert trackio.named("init")[0]["config"] == SETTINGS
    assert wandb.named("init")[0]["config"] == SETTINGS
    assert mlflow.named("log_params") == [
        {"": ({"train.steps": "3", "train.clip": "1.0", "run.trackers": "['x']"},)}
    ]


def test_the_variables_of_the_library_count(
    tmp_path: Path, modules: dict[str, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    with log_of(tmp_path / "a", "wandb") as log:
        given = modules["wandb"].named("init")[0]
        log.close()
    assert (given["dir"], given["name"]) == (f"{tmp_path / 'a'}", f"{tmp_path.name}/a")
    assert not {"project", "entity", "mode"} & given.keys()
    monkeypatch.setenv("WANDB_NAME", "mine")
    monkeypatch.setenv("WANDB_DIR", "elsewhere")
    with log_of(tmp_path / "b", "wandb"):
        given = modules["wandb"].named("init")[1]
    assert given.keys() == {"config"}


def test_a_resumed_run_is_the_same_run_there(tmp_path: Path, modules: dict[str, StandIn]) -> None:
    for _ in range(2):
        with log_of(tmp_path) as log:
            log.close()
    first, second = modules["wandb"].named("init")
    assert "id" not in first
    assert (second["id"], second["resume"]) == ("w-1", "allow")
    first, second = modules["mlflow"].named("start_run")
    assert "run_id" not in first
    assert second["run_id"] == "m-1"
    assert len(modules["mlflow"].named("log_params")) == 1
    first, second = modules["trackio"].named("init")
    assert first == {**second, "resume": "never"}
    assert (second["resume"], second["project"]) == ("allow", "plmctl")
    assert second["name"] == f"{tmp_path.parent.name}/{tmp_path.name}"


def test_trackio_writes_nothing_on_standard_output(
    tmp_path: Path,
    modules: dict[str, StandIn],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    with log_of(tmp_path, "trackio") as log:
        log.close()
    assert modules["trackio"].named("init")[0]["project"] == "mine"
    assert capsys.readouterr().out == ""


def test_one_that_fails_ends_no_run(
    tmp_path: Path, modules: dict[str, StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    modules["wandb"].broken = "log"
    with log_of(tmp_path) as log:
        for step in (1, 2):
            log.record({"step": step, "loss": 1.0})
    log.close()
    assert len(list(read_metrics(tmp_path / METRICS))) == len(modules["mlflow"].named("log")) == 2
    assert not modules["wandb"].named("finish")
    assert capsys.readouterr().err.count("wandb failed (no server)") == 1


def test_one_that_does_not_begin_is_told_before_any_work(
    tmp_path: Path, modules: dict[str, StandIn]
) -> None:
    modules["mlflow"].broken = "start_run"
    with pytest.raises(
        UsageError,
        match=r"mlflow does not begin: no server\n  fix: # install or set it, or leave mlflow out",
    ):
        log_of(tmp_path).__enter__()


def test_a_library_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UsageError, match=rf"run\.trackers=\[{name}\] needs {name}\n  fix: pip"):
            open_trackers([name])
    words = ["pretrain", "size=tiny", "run.trackers=[mlflow]", f"run.dir={tmp_path / 'run'}"]
    said = plmctl(*words, "train.steps=1", code=2)
    assert "leave run.trackers out" in said
    assert not (tmp_path / "run").exists()


def test_a_tracker_of_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples/parts"))
    monkeypatch.setenv("SHEET", str(tmp_path / "numbers.csv"))
    words = ["run.trackers=[own_parts.sheet.Sheet]", "--plugin", "own_parts"]
    train(tmp_path, *words)
    rows = [line.split(",") for line in (tmp_path / "numbers.csv").read_text().splitlines()]
    wanted = [
        (record["step"], name)
        for record in read_metrics(tmp_path / "run" / METRICS)
        for name, value in record.items()
        if isinstance(value, int | float) and name != "step"
    ]
    assert [(int(step), name) for _, step, name, _ in rows] == wanted
    assert {run for run, *_ in rows} == {f"{tmp_path.name}/run"}


@pytest.mark.parametrize(
    ("name", "plugins", "told"),
    [
        ("wandbb", (), r"<module>\.<class> of a --plugin package \(did you mean 'wandb'\?\)"),
        ("own_parts.sheet.Sheet", (), "fix: --plugin own_parts$"),
        ("torch.nn.Linear", (), r"fix: --plugin own_parts 'run\.trackers=\[own_parts\.make\]'"),
        ("wandbx.Run", (), r"there is no package wandbx\n  fix: 'run\.trackers=\[wandb\]'"),
        ("own_parts.sheet.Shet", ("own_parts",), "did you mean 'Sheet'"),
        ("own_parts.blockwise.Blockwise", ("own_parts",), "a subclass of Tracker"),
    ],
)
def test_what_is_no_tracker(
    name: str, plugins: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples/parts"))
    with pytest.raises(UsageError, match=told):
        open_trackers([name], plugins)


def train(folder: Path, *words: str, code: int = 0) -> str:
    (folder / "text.txt").write_text("\n\n".join(f"a text of {n} words" for n in range(60)))
    small = ["size=tiny", "size.width=32", "size.inner_width=64", "size.num_layers=1"]
    return plmctl(
        *("pretrain", *small, f"data.path={folder / 'text.txt'}", "tokenizer=char"),
        *("train.steps=2", "train.batch_size=2", "format.max_length=16", "train.threads=1"),
        *(
            "train.log_every=1",
            "run.trackers=[wandb,mlflow,trackio]",
            f"run.dir={folder / 'run'}",
            *words,
        ),
        code=code,
    )


def test_a_training_that_fails_is_finished(
    tmp_path: Path, modules: dict[str, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: Log) -> None:
        raise DataError("no space left")

    monkeypatch.setattr(Log, "sync", fail)
    assert "no space left" in train(tmp_path, code=3)
    for module in modules.values():
        assert module.named("log")
        assert len(module.named("finish")) == 1


def test_a_training_is_tracked(tmp_path: Path, modules: dict[str, StandIn]) -> None:
    train(tmp_path)
    run = tmp_path / "run"
    wanted = [record["step"] for record in read_metrics(run / METRICS)]
    for module in modules.values():
        assert [given["step"] for given in module.named("log")] == wanted
        assert len(module.named("finish")) == 1
    assert modules["wandb"].named("init")[0]["config"]["train"]["steps"] == 2
