"""A run made with a plug-in: who reads it is told which, and its code is imported only where
--plugin says so.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config.plugins import hash_code, named, option, recorded
from plmctl.core.errors import UsageError
from plmctl.report.panels.differences import panel
from plmctl.runs import finetuning
from plmctl.runs.resume import list_changed_code
from plmctl.training.rundir import create

PLUGIN = "plmctl_near"
SOURCE = """
from plmctl.attention.patterns.base import Pattern
from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification

@part_of("pattern")
class Near(Pattern):
    def __init__(self, *, reach: int) -> None:
        self.reach = reach
    def predicate(self, seq):
        return lambda b, h, q, k: ((q - k).abs() <= self.reach) | (k == 0) | (q == 0)

@part_of("task")
class Films(Classification):
    pass
"""
WRONG = "plmctl_wrong"
OBJECTIVES = """
import torch
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.objectives.base import Facts, Objective, Output, Term

class Guess(Objective):
    facts = Facts(needs=frozenset({"text"}), terms=frozenset({"guess"}))
    def counts(self, batch):
        return {"guess": 1}

@part_of("objective")
class Misspelt(Guess):
    def foward(self, model, batch, state=None):
        return Output({})

@part_of("objective")
class Miscounted(Guess):
    def counts(self, batch):
        return {"gues": 1}
    def forward(self, model, batch, state=None):
        return Output({"guess": Term(torch.zeros(()))})

class Undeclared(Guess):
    pass

@part_of("noise")
class Idle(Noise):
    reads = writes = removes = frozenset()
    def __cal__(self, rows, draws):
        return rows
"""
SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "train.batch_size=8",
    "train.precision=fp32",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the plug-in, its config folder and a task; whatever imported it is forgotten
    afterwards.
    """
    folder = tmp_path_factory.mktemp("home")
    (folder / f"{PLUGIN}.py").write_text(SOURCE, encoding="utf-8")
    (folder / f"{WRONG}.py").write_text(OBJECTIVES, encoding="utf-8")
    (folder / "conf/pattern").mkdir(parents=True)
    (folder / "conf/pattern/near.yaml").write_text(
        f"_target_: {PLUGIN}.Near\nreach: 3\n", encoding="utf-8"
    )
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(16)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop(PLUGIN, None)


@pytest.fixture(autouse=True)
def _unknown(home: Path) -> None:
    sys.modules.pop(PLUGIN, None)


def invoke(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def run(home: Path, tokens_of: Callable[..., Path]) -> str:
    """A pretraining under a pattern of the plug-in, stopped by its length after one update."""
    words = [
        f"data.path={tokens_of('wordpiece')}",
        *SMALL,
        "format.max_length=32",
        "eval.rows=4",
        "train.steps=1",
    ]
    done = invoke(
        "pretrain",
        "bert",
        "pattern=near",
        *words,
        "run.dir=run",
        "--plugin",
        PLUGIN,
        "--config-dir",
        "conf",
    )
    after = done.stderr.partition("next:\n")[2].splitlines()
    assert len(after) == 3
    assert all(shlex.split(line, comments=True)[-2:] == ["--plugin", PLUGIN] for line in after)
    return "run"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "+objective.own={_target_:plmctl_wrong.Misspelt}",
            [
                "objective.own: plmctl_wrong.Misspelt (",
                "plmctl_wrong.py:12) has no `forward` (did you mean 'foward'?); it defines foward",
                "fix: # def forward(self, model: Model, batch: Batch, state: Any = None) -> Output,"
                " as Objective says",
            ],
        ),
        (
            "+objective.own={_target_:plmctl_wrong.Undeclared}",
            [
                "it does not declare itself a part",
                'fix: # @part_of("objective"), of plmctl.core.parts, above the definition of',
            ],
        ),
        (
            "+objective.own={_target_:plmctl_wrong.Miscounted}",
            [
                "objective.own: the terms of plmctl_wrong.Miscounted (",
                ") differ: `forward` gives guess, `counts` gues, `facts.terms` guess",
                "fix: # the same names in all three",
            ],
        ),
        (
            "+noise.own={_target_:plmctl_wrong.Idle}",
            ["plmctl_wrong.Idle (", "has no `__call__`", "as Noise says"],
        ),
    ],
)
def test_a_mistake_in_a_part_of_ones_own_names_it(
    home: Path, tokens_of: Callable[..., Path], setting: str, said: list[str]
) -> None:
    words = [f"data.path={tokens_of('wordpiece')}", *SMALL, "format.max_length=32"]
    words += ["train.steps=1", "eval.rows=4", setting, "run.dir=wrong", "--plugin", WRONG]
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2)
    assert [part for part in said if part not in done.stderr] == [], done.stderr
    shutil.rmtree("wrong", ignore_errors=True)


def test_a_misspelt_class_is_named_with_the_line_that_names_it(home: Path) -> None:
    Path("own/pattern").mkdir(parents=True)
    near = "# @package pattern\n# near\n_target_: plmctl_near.Naer\nreach: 2\n"
    Path("own/pattern/closest.yaml").write_text(near)
    words = ["pattern=closest", "--config-dir", "own", "--plugin", PLUGIN, "--dry-run"]
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    shutil.rmtree("own")
    assert done.exit_code == 2
    assert "plmctl_near has no 'Naer' (did you mean 'Near'?)" in done.stderr
    assert "fix: # _target_: plmctl_near.Near in own/pattern/closest.yaml:3" in done.stderr


@pytest.fixture(scope="module")
def tuned(run: str) -> str:
    words = [
        "task=classification",
        "task.path=.",
        f"checkpoint={run}",
        "task.max_length=16",
        "train.steps=1",
    ]
    words += ["train.epochs=null", f"task._target_={PLUGIN}.Films"]
    done = invoke("finetune", *words, "run.dir=tuned", "--plugin", PLUGIN)
    assert f"plmctl eval checkpoint=tuned --plugin {PLUGIN}\n" in done.stderr
    return "tuned"


def refusal(of: str) -> str:
    return (
        f"plmctl: {of} is made with the plug-in {PLUGIN}, code outside plmctl: add --plugin"
        f" {PLUGIN} if you trust it\n"
    )


def test_a_run_remembers_its_plugins(run: str) -> None:
    checkpoint = next(Path(run, "checkpoints").iterdir())
    for folder in (Path(run), checkpoint):
        config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
        assert isinstance(config, dict)
        assert config["run"]["plugins"] == [PLUGIN]
        assert recorded(config) == [PLUGIN]


COMMANDS = {
    "finetune": [
        "finetune",
        "task=classification",
        "task.path=.",
        "checkpoint={run}",
        "--dry-run",
        "task.max_length=16",
    ],
    "eval": ["eval", "checkpoint={run}", "task=lm", "data.path=train.tsv"],
    "eval of its rows": ["eval", "checkpoint={run}", "task=held_out", "task.rows=4"],
    "generate": ["generate", "checkpoint={run}", "prompt=a [MASK] film"],
    "embed": ["embed", "checkpoint={run}", "input=train.tsv", "out={out}/vectors.npz"],
    "convert": ["convert", "{run}", "{out}/converted", "--to", "plmctl"],
    "init": [
        "pretrain",
        "bert",
        "init={run}",
        "data.path=train.tsv",
        "format.max_length=16",
        "--dry-run",
    ],
    "teacher": [
        "distill",
        "bert",
        "teacher={run}",
        "data.path=train.tsv",
        "format.max_length=16",
        "--dry-run",
        *SMALL,
    ],
    "resume": ["pretrain", "--resume", "run.dir={run}"],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_of_it_is_imported_unless_it_is_named(name: str, run: str, tmp_path: Path) -> None:
    words = [word.format(run=run, out=tmp_path) for word in COMMANDS[name]]
    done = invoke(*words, code=2)
    fix = f"  fix: plmctl pretrain --resume run.dir={run} --plugin {PLUGIN}\n"
    told = refusal(f"run.dir={run}") + fix if name == "resume" else refusal(run)
    assert done.stderr.endswith(told)
    assert PLUGIN not in sys.modules
    invoke(*words, "--plugin", PLUGIN)


def test_from_python(run: str) -> None:
    with pytest.raises(UsageError, match=rf"{PLUGIN}, .* add plugins=\['{PLUGIN}'\] if"):
        plmctl.load(run)
    assert PLUGIN not in sys.modules
    assert plmctl.load(run, plugins=[PLUGIN]).model.backbone.max_length == 32


def test_a_task_of_the_plugin(tuned: str, tmp_path: Path) -> None:
    assert invoke("eval", f"checkpoint={tuned}", code=2).stderr == refusal(tuned)
    scored = invoke("eval", f"checkpoint={tuned}", "--json", "--plugin", PLUGIN).stdout
    assert (
        json.loads(scored)["metrics"]["dev"]
        == json.loads(Path(tuned, "result.json").read_text())["metrics"]["dev"]
    )


def test_report_and_average_take_it(run: str, tuned: str, tmp_path: Path) -> None:
    """A page can be had without the model; what needs it says what it lacks, on the page and on
    the way.
    """
    done = invoke("report", run, tuned, "--out", str(tmp_path / "bare.md"))
    lacks = (
        f"is made with the plug-in {PLUGIN}, code outside plmctl: add --plugin {PLUGIN} if you"
        " trust it"
    )
    told = "plmctl: without what is measured on its model:"
    assert done.stderr == "".join(f"{told} {name} {lacks}\n" for name in (run, tuned))
    assert f"{run}: not measured, {run} {lacks}." in (tmp_path / "bare.md").read_text()
    assert PLUGIN not in sys.modules
    whole = tmp_path / "whole.md"
    assert invoke("report", run, tuned, "--out", str(whole), "--plugin", PLUGIN).stderr == ""
    assert "not measured" not in whole.read_text()
    invoke(
        "pretrain",
        "--resume",
        f"run.dir={run}",
        "train.steps=2",
        "pattern=near",  # of the --config-dir that the run was started with
        "--plugin",
        PLUGIN,
    )
    invoke("average", run, "--last", "2", "--out", str(tmp_path / "mean"), "--plugin", PLUGIN)
    assert plmctl.load(tmp_path / "mean", plugins=[PLUGIN]).config["run"]["plugins"] == [PLUGIN]


def test_a_stopped_run_tells_the_line_that_goes_on(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "task=classification",
        "task.path=.",
        f"checkpoint={run}",
        "task.max_length=16",
        "train.steps=2",
    ]
    words += ["train.epochs=null", f"run.dir={tmp_path / 'stopped'}", "--plugin", PLUGIN]
    words += ["--config-dir", "conf"]
    options = f"--config-dir conf --plugin {PLUGIN}"
    fit = finetuning.fit

    def stopped(session: Any, **rest: Any) -> Any:
        result = fit(session, **rest)
        return type(result)(**{**vars(result), "exit_code": 130})

    monkeypatch.setattr(finetuning, "fit", stopped)
    line = invoke("finetune", *words, code=130).stderr.splitlines()[-1]
    assert line == f"  plmctl finetune --resume run.dir={tmp_path / 'stopped'} {options}"
    monkeypatch.undo()
    told = invoke(*shlex.split(line)[1:]).stderr.splitlines()
    assert f"  plmctl eval checkpoint={tmp_path / 'stopped'} {options}" in told
    assert f"  plmctl report {tmp_path / 'stopped'} --plugin {PLUGIN}" in told


def test_a_recipe_that_is_the_config_of_another_run_asks_too(run: str) -> None:
    words = ["data.path=train.tsv", "run.plugins=[other]"]
    done = invoke("pretrain", "bert", *SMALL, *words, code=2)
    told = "is made with the plug-in other, code outside plmctl: add --plugin other if you trust it"
    assert done.stderr == f"plmctl: this config (run.plugins) {told}\n"


def test_what_a_config_names() -> None:
    node = {
        "a": {"_target_": "plmctl.x.Y", "b": [{"_target_": "mine.C"}]},
        "c": {"_target_": "yours.d.E"},
        "d": {"_target_": 3},
    }
    assert named(node) == ["mine", "yours"]
    assert named({"_target_": "not a name.x"}) == []
    assert option(["a", "b"]) == " --plugin a --plugin b"
    assert recorded({"run": {"plugins": ["first"]}, **node}) == ["first", "mine", "yours"]
    assert recorded({"task": {}}) == []


def test_an_edit_of_the_code_since_a_run_began_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"noise": {"late": {"_target_": "edited_late.Late"}}}
    for name, code in (("old", "x = 1"), ("new", "x = 2")):
        Path("edited_late.py").write_text(code)
        create(Path(name), config="seed: 1\n", overrides=[], code=hash_code(spec))
    assert list_changed_code(spec, Path("new")) == []
    (line,) = list_changed_code(spec, Path("old"))
    assert "edited_late.py" in line
    runs = [
        SimpleNamespace(name=n, folder=Path(n), log=SimpleNamespace(config={"seed": 1}))
        for n in ("old", "new")
    ]
    subject: Any = SimpleNamespace(runs=runs)
    tables: Any = panel.draw(subject)
    ((setting, old, new),) = tables[1].rows
    assert setting == "code.edited_late.py"
    assert old != new
