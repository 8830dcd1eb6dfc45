"""The command line: help without torch, options, exit codes, sweeps, resuming; the commands are
stand-ins that record calls.
"""

from __future__ import annotations

import csv
import errno
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf
from typer.testing import CliRunner

from plmctl.cli import app as cli
from plmctl.cli.app import make_app
from plmctl.cli.mistakes import retype
from plmctl.commands.eval import Evaluate
from plmctl.config import command as commands
from plmctl.config.command import list_commands
from plmctl.config.compose import compose
from plmctl.config.composer import HydraComposer
from plmctl.config.saved import write_spec
from plmctl.core.errors import ConfigError, ConfigErrors, DataError, UsageError
from plmctl.core.terminal import WARN, remark, tell
from plmctl.jobs.sweep_job import read_last_metrics, score
from plmctl.report.sweeps import describe_end
from plmctl.storage import paths
from plmctl.storage.job_events import JobEvents
from plmctl.use.predict import ScoreTable
from tests import probe

Invoke = Callable[..., Any]


class Command:
    """What stands for every command: keeps (spec, provenance), writes metrics, fails as told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []
        self.fail: Callable[[Any], Any] = lambda cfg: 0

    def run(self, cfg: Any, *, flags: Any = None) -> Any:
        self.calls.append((cfg, flags or cfg.provenance))
        if cfg.get("run") and cfg.run.dir:
            Path(cfg.run.dir).mkdir(parents=True, exist_ok=True)
            assert {file.name for file in Path(cfg.run.dir).iterdir()} <= {"log.txt"}
            lines = [
                {"step": 1, "loss": 9.0},
                {"step": 2, "loss": cfg.optim.lr, "valid/loss": 2 * cfg.optim.lr},
            ]
            Path(cfg.run.dir, "metrics.jsonl").write_text(
                "\n".join(json.dumps(line) for line in lines) + '\n{"cut', encoding="utf-8"
            )
        return self.fail(cfg)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command()
    monkeypatch.setattr(commands, "perform", lambda spec: made.run(spec))
    monkeypatch.setattr(commands, "check", lambda spec: None)  # its parts are no real ones
    return made


@pytest.fixture
def plmctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Invoke:
    conf = probe.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(probe.PLUGIN, None)
    app = cli.make_app()

    def invoke(*words: str, own: bool = True) -> Any:
        places = ["--config-dir", conf, "--plugin", probe.PLUGIN] if own else []
        return CliRunner().invoke(app, [*words, *places])

    return invoke


def test_versions_are_shown(plmctl: Invoke) -> None:
    done = plmctl("--version", own=False)
    assert done.exit_code == 0
    assert re.fullmatch(r"plmctl \S+, torch \S+, Python 3\.\d+\.\d+\n", done.stdout)
    assert plmctl("--versions", own=False).exit_code == 2


@pytest.mark.parametrize("verb", list(list_commands()))
def test_each_help_has_two_examples(plmctl: Invoke, verb: str) -> None:
    shown = plmctl(*verb.split(), "--help", own=False).output
    assert plmctl(*verb.split(), "-h", own=False).output == shown
    examples = shown.partition("\nMore:")[0]
    assert len(re.findall(rf"^  plmctl {verb}(?: \S|$)", examples, re.MULTILINE)) == 2
    whole = plmctl(*verb.split(), "-h", "--all", own=False).output
    assert (shown == whole) is ("\nMore:\n" not in shown)
    if verb == "pretrain":
        assert re.search(r"^  tiny +tiny, 2 layers of 128", whole, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("pretrain", "--print-confg"), "--print-config"),
        (("pretrain", "--epochs=3"), "--epochs"),
        (("pretrain", "--dryrun"), "--dry-run"),
        (("pretrian",), "pretrain"),
        (("convert", "a", "b", "--to", "tf"), "tf"),
        (("convert", "a"), "--out"),
    ],
)
def test_wrong_options_are_refused_with_the_nearest(
    plmctl: Invoke, command: Command, words: tuple[str, ...], answer: str
) -> None:
    done = plmctl(*words, own=False)
    assert done.exit_code == 2
    assert answer in done.stderr
    assert not command.calls


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("pretrain", ""), "word 1 after the command is empty"),
        (("pretrain", " ", "data.path=a.txt"), "word 1 after the command is empty"),
        (("pretrain", "bert", "data.path="), "data.path= is empty"),
        (("finetune", "task=sst2", "init="), "init= is empty"),
        (("eval", "checkpoint="), "checkpoint= is empty"),
        (("tokenize", "data.path=a.txt", "out= "), "out= is empty"),
        (("pretrain", "data.mixture.a.path="), "data.mixture.a.path= is empty"),
        (("report", ""), "word 1 after the command is empty"),
        (("convert", "a", "--out", ""), "word 3 after the command is empty"),
    ],
)
def test_an_empty_variable_is_no_default(
    plmctl: Invoke, command: Command, words: tuple[str, ...], named: str
) -> None:
    """What a shell makes of "$unset": no recipe, no folder, and not the one that one is in."""
    done = plmctl(*words, own=False)
    assert done.exit_code == 2
    assert f"{named}: is a variable not set?" in done.stderr
    fix = next(line for line in done.stderr.splitlines() if line.startswith("  fix: plmctl"))
    assert not any(word.endswith("=") or not word for word in shlex.split(fix)[1:])
    assert not command.calls


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("report", "a", "--out", ""), "plmctl report a"),
        (("convert", "--out", "", "a", "--to", "hf"), "plmctl convert a --to hf"),
        (("pretrain", "--dry-run", "", "bert"), "plmctl pretrain --dry-run bert"),
    ],
)
def test_an_option_goes_with_its_empty_value(
    plmctl: Invoke, command: Command, words: tuple[str, ...], fix: str
) -> None:
    assert f"  fix: {fix}\n" in plmctl(*words, own=False).stderr
    assert not command.calls


@pytest.mark.parametrize(
    "line",
    [
        "tokenize data.path=text.txt out=x.xls",
        "tokenize data.path=text.txt out=x.CSV",
        "pretrain data.path=text.txt run.dir=x.zip",
        "ablate bert_sizes data.path=text.txt out=x.xlsx",
        "data contexts data.path=text.txt words=text.txt out=x.jsonl",
        "data mine task=bi_encoder task.path=text.txt out=x.tsv",
        "data augment checkpoint=run task=classification task.path=text.txt out=x.json",
        "data triples data.path=builtin kind=descriptions out=x.txt",
        "average run --out x.bin",
        "convert run --to hf --out x.pt",
        "eval checkpoint=run task=lm data.path=text.txt out=x.xls",
        "attack checkpoint=run out=x.pdf",
        "generate checkpoint=run prompt=a out=x.json",
        "embed checkpoint=run input=text.txt out=x.csv",
        "data polarity data.path=text.txt lexicon=text.txt out=x.txt",
        "data spans text.txt out=x.csv",
    ],
)
def test_a_folder_or_a_file_of_no_known_kind_is_not_made(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fix names a folder, or the ending that there is."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("One line of text.\n" * 40, encoding="utf-8")
    done = CliRunner().invoke(make_app(), line.split())
    assert done.exit_code == 2, done.output
    key, _, wrong = line.split()[-1].rpartition("=")
    key = key or "--out"
    fix = next(text for text in done.stderr.splitlines() if text.startswith("  fix: "))
    assert fix.startswith(f"  fix: {key}=x")
    assert fix.rpartition("=")[2] != wrong
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt"}


@pytest.mark.parametrize("name", ["v1.2", "bert.base", "texts/2026.11.28", "old.csv"])
def test_a_folder_may_have_a_point_in_its_name(name: str, tmp_path: Path) -> None:
    """It is made under this very name; one that has the name of a file is there before."""
    text, folder = tmp_path / "text.txt", tmp_path / name
    text.write_text("One line of text.\n\n" * 400, encoding="utf-8")
    if folder.suffix == ".csv":
        folder.mkdir()
    words = ["tokenize", f"data.path={text}", "tokenizer=char", f"out={folder}"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    assert (folder / "manifest.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", name.partition("/")[0]}


def test_a_text_may_be_empty(plmctl: Invoke) -> None:
    """A model may begin with nothing."""
    assert "is a variable not set" not in plmctl("generate", "prompt=", own=False).stderr


def test_a_recipe_has_a_name() -> None:
    with pytest.raises(UsageError, match="the name of the recipe is empty"):
        compose("pretrain", "")


def test_a_run_gets_config_and_flags(plmctl: Invoke, command: Command) -> None:
    assert (
        plmctl(
            "pretrain", "optim.lr=0.5", "probe", "--dry-run", "--preview", "3", "data.path=a b,c"
        ).exit_code
        == 0
    )
    ((cfg, flags),) = command.calls
    assert (cfg.optim.lr, cfg.data.path, cfg.seed) == (0.5, "a b,c", 11)
    assert (flags.verb, flags.recipe, flags.dry_run, flags.preview) == (
        "pretrain",
        "probe",
        True,
        3,
    )
    assert flags.overrides == ("optim.lr=0.5", "data.path=a b,c")
    assert flags.plugins == (probe.PLUGIN,)


def test_print_config_stops_and_shows_what_was_removed(plmctl: Invoke, command: Command) -> None:
    done = plmctl("pretrain", "probe", "noise=[]", "--print-config")
    assert not command.calls
    assert done.stdout.startswith("# unused, its part is not chosen: noise.token_mask.rate=0.2\n")
    assert OmegaConf.create(done.stdout).model.width == 128


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (DataError("empty", file="a.txt"), 3, "plmctl: a.txt: empty"),
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), 1, "x.bin\n  fix: # free some"),
        (PermissionError(errno.EACCES, "Permission denied", "runs"), 1, "Permission denied: runs"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "n" * 300),
            2,
            "fix: # a name of at most",
        ),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 1, "plmctl: out of memory\n  fix: train.micro_batch_size=1  # the"),
        (torch.OutOfMemoryError("CUDA out of memory."), 1, "out of memory: CUDA out of memory."),
        (RuntimeError("[enforce fail] can't allocate memory: you tried ..."), 1, "out of memory"),
    ],
)
def test_a_users_error_is_one_message(
    plmctl: Invoke, command: Command, failure: BaseException, code: int, message: str
) -> None:
    def fail(cfg: Any) -> int:
        raise failure

    command.fail = fail
    done = plmctl("pretrain", "probe")
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_our_own_bugs_keep_their_traceback_and_codes_pass(plmctl: Invoke, command: Command) -> None:
    command.fail = lambda cfg: 1 / 0
    assert isinstance(plmctl("pretrain", "probe").exception, ZeroDivisionError)
    command.fail = lambda cfg: 143
    assert plmctl("pretrain", "probe").exit_code == 143


def test_wrong_config_exits_with_2(plmctl: Invoke, command: Command) -> None:
    done = plmctl("pretrain", "probe", "train.stepz=3", "size=tny")
    assert done.exit_code == 2
    assert "2 problems in the configuration" in done.stderr
    assert plmctl("pretrain", "probe", "gpt").exit_code == 2
    assert plmctl("pretrain", "probe", "--plugin", "no_such_package").exit_code == 2
    assert not command.calls


def test_convert_is_plain(plmctl: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, Path, str, str]] = []

    def convert(source: Path, out: Path, *, to: str, part: str, **_: Any) -> None:
        calls.append((source, out, to, part))

    monkeypatch.setattr("plmctl.artifacts.convert.convert", convert)
    assert plmctl("convert", "in here", "out,there", "--to", "hf", own=False).exit_code == 0
    assert calls == [(Path("in here"), Path("out,there"), "hf", "model")]
    done = plmctl("convert", "one", "other", "--max-length", "4096", own=False)
    assert done.exit_code == 0, done.stderr
    assert calls[1:] == [(Path("one"), Path("other"), "plmctl", "model")]
    for words in ([], ["--to", "hf", "--reach", "9"]):
        done = plmctl("convert", "one", "other", *words, own=False)
        assert (done.exit_code, len(calls)) == (2, 2)
        assert "fix: " in done.stderr
    done = plmctl("convert", "one", "other", "--max-length", "abc", own=False)
    assert done.exit_code == 2
    assert "--max-length abc: must be a whole number\n  fix: --max-length NUMBER" in done.stderr


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("corpus, [中文].txt",), {"data.path": "corpus, [中文].txt"}),
        (("glue/SST-2", "task=sst2"), {"task.path": "glue/SST-2", "task.name": "sst2"}),
        (
            ("a b", "format.max_length=64", "--out", "c d.md"),
            {"data.path": "a b", "format.max_length": 64, "out": "c d.md"},
        ),
    ],
)
def test_a_path_is_the_setting_that_it_stands_for(
    plmctl: Invoke, command: Command, words: tuple[str, ...], settings: dict[str, Any]
) -> None:
    done = plmctl("data", "check", *words, "--json", own=False)
    assert done.exit_code == 0, done.stderr
    ((cfg, flags),) = command.calls
    assert {key: cfg.select(key) for key in settings} == settings
    assert (flags.verb, flags.json) == ("check", True)


def test_a_sweep_runs_every_job_in_its_folder_and_survives_a_failure(
    plmctl: Invoke, command: Command
) -> None:
    def fail(cfg: Any) -> int:
        if cfg.optim.lr == 2:
            raise ValueError("broken job")
        return 0

    command.fail = fail
    done = plmctl(
        "pretrain", "probe", "-m", "optim.lr=1,2,3", "train.steps=1e3", "hydra.sweep.dir=my sweeps"
    )
    assert done.exit_code == 1
    assert [(call[0].optim.lr, call[0].train.steps) for call in command.calls] == [
        (1, 1000),
        (2, 1000),
        (3, 1000),
    ]
    assert [Path(call[0].run.dir) for call in command.calls] == [
        Path(f"my sweeps/optim.lr={rate}").resolve() for rate in (1, 2, 3)
    ]
    assert command.calls[0][1].overrides == ("optim.lr=1", "train.steps=1000.0")
    table = done.stdout[done.stdout.index("3 jobs") :]
    assert "failed (1)" in table
    assert "job 1: ValueError: broken job" in table
    assert "valid/loss" in table


def test_a_refused_job_has_no_score_of_the_run_that_is_there(
    plmctl: Invoke, command: Command
) -> None:
    train = command.run

    def run(spec: Any, *, flags: Any = None) -> Any:
        train(spec, flags=flags)  # by the process that holds the folder
        raise UsageError(f"run.dir={spec.run.dir}: a run is going on there")

    command.run = run  # type: ignore[method-assign]
    done = plmctl("pretrain", "probe", "-m", "optim.lr=7", "hydra.sweep.dir=swept")
    assert done.exit_code == 1
    assert "failed (2)" in done.stdout
    (row,) = csv.DictReader(Path("swept/sweep.csv").read_text(encoding="utf-8").splitlines())
    assert "valid/loss" not in row


def test_a_job_that_another_sweep_finishes_meanwhile_is_done(
    plmctl: Invoke, command: Command
) -> None:
    def finish_the_other(cfg: Any) -> int:
        there = Path("swept/optim.lr=2")
        there.mkdir()
        (there / "config.yaml").write_text("version: 2", encoding="utf-8")
        record = {"job": 1, "overrides": ["optim.lr=2", "recipe=probe"], "varied": ["optim.lr=2"]}
        record |= {"metrics": {"valid/loss": 4.0}, "dir": str(there), "code": 0}
        JobEvents(Path("swept")).write("finished", there.name, record=record)
        return 0

    command.fail = finish_the_other
    done = plmctl("pretrain", "probe", "-m", "optim.lr=1,2", "hydra.sweep.dir=swept")
    assert done.exit_code == 0, done.stderr
    assert "job 1 of 2: finished before: optim.lr=2" in done.stderr
    assert len(command.calls) == 1


def test_one_run_dir_holds_the_folders_of_all_jobs(plmctl: Invoke, command: Command) -> None:
    done = plmctl("pretrain", "probe", "-m", "seed=1,2", "run.dir=runs/my seeds")
    assert done.exit_code == 0, done.stderr
    assert [cfg.run.dir for cfg, _ in command.calls] == [
        str(Path("runs/my seeds", f"seed={n}").resolve()) for n in (1, 2)
    ]


def test_a_sweep_says_and_keeps_what_it_varied(plmctl: Invoke, command: Command) -> None:
    words = ("noise=[token_mask],[drop]", "optim.lr=1", "seed=1,2", "hydra.sweep.dir=swept")
    done = plmctl("pretrain", "probe", "-m", *words)
    assert done.exit_code == 0, done.stderr
    table = done.stdout[done.stdout.index("4 jobs in") :]
    assert [
        table.count(text) for text in ("noise=[token_mask]", "noise=[drop]", "seed=2", "optim.lr")
    ] == [3, 3, 2, 0]
    folder = Path("swept").resolve()
    assert done.stderr.splitlines() == [
        *(
            line
            for place, noise in enumerate(("[token_mask]", "[drop]"))
            for seed in (1, 2)
            for line in (
                f"job {2 * place + seed - 1} of 4: noise={noise} seed={seed}",
                f"  ok: valid/loss 2; log: swept/noise={noise[1:-1]},seed={seed}/log.txt",
            )
        ),
        "table: swept/sweep.md",
    ]
    assert Path("swept/sweep.md").read_text(encoding="utf-8").splitlines()[2:] == [
        "| job | varied | status | valid/loss |",
        "| --- | --- | --- | --- |",
        "| 0 | noise=[token_mask] seed=1 | ok | 2 |",
        "| 1 | noise=[token_mask] seed=2 | ok | 2 |",
        "| 2 | noise=[drop] seed=1 | ok | 2 |",
        "| 3 | noise=[drop] seed=2 | ok | 2 |",
        "|  | noise=[token_mask]: mean ± deviation | 2 ok | 2 ± 0 |",
        "|  | noise=[drop]: mean ± deviation | 2 ok | 2 ± 0 |",
    ]
    with Path("swept/sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["noise"], row["seed"], row["valid/loss"], row["dir"]) for row in rows] == [
        (noise, seed, "2", str(folder / f"noise={noise[1:-1]},seed={seed}"))
        for noise in ("[token_mask]", "[drop]")
        for seed in "12"
    ]


def test_the_log_of_a_job_has_its_lines_and_a_terminal_its_warnings(
    plmctl: Invoke, command: Command
) -> None:
    train = command.run

    def run(spec: Any, *, flags: Any = None) -> Any:
        remark("step 1")
        remark("too hot", WARN)
        tell("scores")
        return train(spec, flags=flags)

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "optim.lr=1,2", "hydra.sweep.dir=swept")
    done = plmctl(*words)
    assert done.stderr.splitlines()[:3] == [
        *("job 0 of 2: optim.lr=1", "too hot"),
        "  ok: valid/loss 2; log: swept/optim.lr=1/log.txt",
    ]
    assert "scores" not in done.stdout
    log = Path("swept/optim.lr=1/log.txt").read_text(encoding="utf-8")
    assert log == "step 1\ntoo hot\nscores\n"
    shown = plmctl(*words[:-1], "hydra.sweep.dir=loud", "--verbose")
    assert "step 1" in shown.stderr
    assert "scores" in shown.stdout


def test_a_dry_run_of_a_sweep_changes_no_numbers(plmctl: Invoke, command: Command) -> None:
    train = command.run

    def run(spec: Any, *, flags: Any = None) -> Any:
        return 0 if spec.provenance.dry_run else train(spec, flags=flags)

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "hydra.sweep.dir=swept")
    assert plmctl(*words, "optim.lr=1,2", "--dry-run").exit_code == 0
    table = Path("swept/sweep.md").read_text(encoding="utf-8")
    assert table.count("| not run |") == 2
    assert " ok |" not in table
    assert plmctl(*words, "optim.lr=1,2").exit_code == 0
    table = Path("swept/sweep.md").read_text(encoding="utf-8")
    assert table.count("| ok |") == 2
    assert plmctl(*words, "optim.lr=1,2", "--dry-run").exit_code == 0
    assert Path("swept/sweep.md").read_text(encoding="utf-8") == table


def test_a_dry_run_of_a_sweep_ends_with_the_sum_of_its_jobs(
    plmctl: Invoke, command: Command
) -> None:
    times = {1: 40.0, 2: 25.0}

    def foresee(spec: Any, *, flags: Any = None) -> Any:
        known = {"seconds": times[spec.optim.lr], "flops": 3e9} if spec.optim.lr in times else {}
        busy = {"busy_seconds": 2 * times[2]} if spec.optim.lr == 2 else {}
        return {**known, "bytes": 1e7 * spec.optim.lr, **busy}

    command.run = foresee  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "--dry-run", "hydra.sweep.dir=swept")
    done = plmctl(*words, "optim.lr=1,2")
    total = (
        "2 jobs: about 1:05 alone, about 1:30 now, 6e+09 training FLOPs, 20.0 MB of memory at most"
    )
    assert done.stderr.splitlines()[-1] == total
    assert "0:40" in done.stdout
    assert total in Path("swept/sweep.md").read_text(encoding="utf-8")
    done = plmctl(*words, "optim.lr=1,2,3")
    assert done.stderr.splitlines()[-1].startswith(
        "3 jobs: about 1:05 alone, about 1:30 now, 6e+09"
    )
    assert done.stderr.endswith("30.0 MB of memory at most; the time of 1 is not known\n")


def test_a_dry_run_of_a_sweep_leaves_no_jobs_to_other_starts(
    plmctl: Invoke, command: Command
) -> None:
    train = command.run

    def run(spec: Any, *, flags: Any = None) -> Any:
        return {"seconds": 40.0} if spec.provenance.dry_run else train(spec, flags=flags)

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "hydra.sweep.dir=swept")
    assert plmctl(*words, "optim.lr=1,2", "--dry-run").exit_code == 0
    done = plmctl(*words, "optim.lr=3,4", "--dry-run")
    assert "2 jobs: about 1:20" in done.stderr
    assert not Path("swept/optim.lr=1").exists()
    done = plmctl(*words, "optim.lr=3")
    assert done.exit_code == 0, done.stderr
    assert "about" not in done.stderr
    table = Path("swept/sweep.md").read_text(encoding="utf-8")
    assert table.count("| ok |") == 1
    assert "not run" not in table
    done = plmctl(*words, "optim.lr=3,5", "--dry-run")  # the run stays
    assert "1 job: about 0:40" in done.stderr
    assert Path("swept/sweep.md").read_text(encoding="utf-8").count("| ok |") == 1


def test_sweeps_of_groups_ranges_recipes_and_paths(plmctl: Invoke, command: Command) -> None:
    words = ("size=tiny,mini", "seed=range(3,4)", "noise.rate=choice(0.1)", "data.path=a b,c")
    done = plmctl("pretrain", "probe", "-m", *words, "--json", "--dry-run")
    assert done.exit_code == 0, done.stderr
    seen = {(c.size.width, c.seed, c.noise.token_mask.rate, c.data.path) for c, _ in command.calls}
    assert seen == {(width, 3, 0.1, path) for width in (128, 256) for path in ("a b", "c")}
    assert len(command.calls) == 4
    assert {record["code"] for record in json.loads(done.stdout)} == {0}
    command.calls.clear()
    assert (
        plmctl(
            "pretrain", "probe", "-m", "size=glob([tiny,mini])", "hydra.sweep.dir=again"
        ).exit_code
        == 0
    )
    assert [call[0].size.width for call in command.calls] == [256, 128]


def test_a_pattern_of_checkpoints_is_a_job_for_each_in_the_order_of_numbers(
    plmctl: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = (2000000, 10000000, 1000000)
    for number in numbers:
        Path(f"it's/words-{number}").mkdir(parents=True)
    asked: list[Any] = []

    def answer(self: Evaluate) -> ScoreTable:
        asked.append(self.checkpoint)
        return ScoreTable("t", {"dev": {"accuracy": 0.25 * len(asked), "f1": None}}, {})

    monkeypatch.setattr(Evaluate, "_answer", answer)
    monkeypatch.setattr(commands, "perform", lambda spec: spec.perform())
    words = ("checkpoint=it's/words-*", "hydra.sweep.dir=curve")
    done = plmctl("eval", "-m", *words)
    assert done.exit_code == 0, done.stderr
    assert asked == [f"it's/words-{number}" for number in sorted(numbers)]
    rows = [*csv.DictReader(Path("curve/sweep.csv").read_text(encoding="utf-8").splitlines())]
    assert [row["dev/accuracy"] for row in rows] == ["0.25", "0.5", "0.75"]
    assert [row["checkpoint"] for row in rows] == asked
    assert "dev/f1" not in rows[0]
    assert "dev/accuracy" in done.stdout
    for pattern, names in {
        "it's/words-1*,old/words-*,old/last": [
            *("it's/words-1000000", "it's/words-10000000"),
            *("old/words-9", "old/last"),
        ],
        "lr=1,seed=*": ["lr=1,seed=2"],  # a name with a comma
    }.items():
        for name in names:
            Path(name).mkdir(parents=True, exist_ok=True)
        asked.clear()
        done = plmctl("eval", "-m", f"checkpoint={pattern}", f"hydra.sweep.dir={len(names)}")
        assert (done.exit_code, asked) == (0, names)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (
            ["hydra/launcher=basic"],
            ["optim.lr=1", "optim.lr=2"],
        ),  # which is given what was composed
        (["hydra/sweeper=basic"], ["0", "1"]),  # which makes the jobs itself
        (["hydra.sweep.subdir=rate-${optim.lr}"], ["rate-1", "rate-2"]),
    ],
)
def test_launchers_and_sweepers_of_hydra_run_the_jobs(
    plmctl: Invoke, command: Command, words: list[str], folders: list[str]
) -> None:
    done = plmctl("pretrain", "probe", "-m", "optim.lr=1,2", "hydra.sweep.dir=swept", *words)
    assert done.exit_code == 0, done.stderr
    assert [(Path(c.run.dir).name, c.optim.lr) for c, _ in command.calls] == [
        (name, rate) for name, rate in zip(folders, (1, 2), strict=True)
    ]
    with Path("swept/sweep.csv").open(encoding="utf-8") as file:
        rows = [(row["job"], row["optim.lr"], row["valid/loss"]) for row in csv.DictReader(file)]
    assert rows == [("0", "1", "2"), ("1", "2", "4")]


def test_the_former_sweeper_of_optuna_is_answered_with_the_search(
    plmctl: Invoke, command: Command
) -> None:
    words = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2")
    words += ("hydra.sweeper.sampler.seed=1", "optim.lr=interval(1,5)", "hydra.sweep.dir=found")
    done = plmctl("pretrain", "probe", "-m", *words, "train.steps=3")
    assert done.exit_code == 2
    assert not command.calls
    fix = done.stderr.partition("fix: ")[2].splitlines()[0]
    line = shlex.split(fix)
    assert line[-4::2] == ["--config-dir", "--plugin"]
    assert line[:-4] == [
        *("plmctl", "search", "individual.recipe=probe", "individual.overrides=['train.steps=3']"),
        *("space.words=['optim.lr=interval(1,5)']", "strategy=tpe", "budget.individuals=4"),
        *("parallel=2", "seed=1", "out=found"),
    ]
    done = plmctl("finetune", "-m", "hydra/sweeper=optuna", "optim.lr=1,2", "task=words")
    assert "plmctl search individual.command=finetune" in done.stderr
    line = done.stderr.partition("fix: ")[2]
    done = plmctl("finetune", "hydra/sweeper=optuna", "optim.lr=1,2", "task=words")
    assert (done.exit_code, done.stderr.partition("fix: ")[2]) == (2, line)  # without -m, too
    for words in (("graph", "transe"), ("eval", "-m"), ("data", "rewrite")):
        done = plmctl(*words, "hydra/sweeper=optuna")
        assert done.exit_code == 2
        assert "plmctl search is for pretrain, finetune" in done.stderr


def test_a_job_is_composed_once(
    plmctl: Invoke, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed: list[str] = []

    def count(kind: type, name: str) -> None:
        compose = getattr(kind, name)

        def note(self: Any, *args: Any, **options: Any) -> Any:
            composed.append(name)
            return compose(self, *args, **options)

        monkeypatch.setattr(kind, name, note)

    count(HydraComposer, "_compose_own")  # the parts of all jobs
    count(ConfigLoaderImpl, "_load_configuration_impl")  # the settings of Hydra
    assert plmctl("pretrain", "probe", "-m", "seed=1,2,3,4").exit_code == 0
    assert len(command.calls) == 4
    assert sorted(composed) == ["_compose_own", "_load_configuration_impl"]


def test_a_comma_in_the_folder_of_a_sweep_is_a_letter(
    plmctl: Invoke, command: Command, tmp_path: Path
) -> None:
    assert plmctl("pretrain", "probe", "-m", "seed=1,2", "run.dir=runs/a,b").exit_code == 0
    assert [Path(call[0].run.dir) for call in command.calls] == [
        tmp_path / "runs/a,b/seed=1",
        tmp_path / "runs/a,b/seed=2",
    ]


def test_sweep_mistakes_are_found_before_any_job(plmctl: Invoke, command: Command) -> None:
    assert "did you mean 'tiny'" in plmctl("pretrain", "probe", "-m", "size=mini,tny").stderr
    assert "did you mean 'optim.lr'" in plmctl("pretrain", "probe", "-m", "optim.lrr=1,2").stderr
    assert plmctl("pretrain", "probe", "-m", "--resume").exit_code == 2
    assert plmctl("pretrain", "probe", "-m", "seed=1,2", "hydra/launcher=none").exit_code == 2
    assert not command.calls


def test_an_interrupted_job_ends_the_sweep(plmctl: Invoke, command: Command) -> None:
    command.fail = lambda cfg: 130
    assert plmctl("pretrain", "probe", "-m", "seed=1,2").exit_code == 130
    assert len(command.calls) == 1


@pytest.mark.slow  # test_errors.py stops a sweep and goes on
def test_a_sweep_goes_on_where_it_was_stopped(
    plmctl: Invoke, command: Command, tmp_path: Path
) -> None:
    started: list[tuple[float, bool]] = []
    stops = {2}

    def run(spec: Any, *, flags: Any = None) -> int:
        started.append((spec.optim.lr, spec.provenance.resume))
        folder = Path(spec.run.dir)
        if not spec.provenance.resume:
            write_spec(spec, folder)
            words = "\n".join(spec.provenance.overrides)
            (folder / "overrides.txt").write_text(words, encoding="utf-8")
        if spec.optim.lr in stops:
            stops.clear()
            return 130
        line = json.dumps({"step": 1, "valid/loss": spec.optim.lr})
        (folder / "metrics.jsonl").write_text(f"{line}\n", encoding="utf-8")
        return 0

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "optim.lr=1,2,3")
    done = plmctl(*words, "hydra.sweep.dir=my sweep")
    assert (done.exit_code, started) == (130, [(1, False), (2, False)])
    line = shlex.split(done.stderr.splitlines()[-1])
    assert line[1:6] == [*words, "hydra.sweep.dir=my sweep"]
    started.clear()
    done = plmctl(*line[1:], own=False)
    assert done.exit_code == 0, done.stderr
    assert started == [(2, True), (3, False)]
    table = Path("my sweep/sweep.csv").read_text(encoding="utf-8")
    with Path("my sweep/sweep.csv").open(encoding="utf-8") as file:
        assert [row["valid/loss"] for row in csv.DictReader(file)] == ["1", "2", "3"]
    # nothing is left to do; nor without the journal, as in a folder of the first format
    started.clear()
    assert plmctl(*line[1:], own=False).exit_code == 0
    Path("my sweep/journal.jsonl").unlink()
    assert plmctl(*line[1:], own=False).exit_code == 0
    assert not started
    assert Path("my sweep/sweep.csv").read_text(encoding="utf-8") == table
    # what is gone runs again; another value is no resumed run
    shutil.rmtree("my sweep/optim.lr=2")
    assert plmctl(*line[1:], own=False).exit_code == 0
    assert started == [(2, False)]
    # no old score stands beside a new value
    started.clear()
    done = plmctl(*words[:-1], "optim.lr=1,2,4", "hydra.sweep.dir=my sweep")
    assert (done.exit_code, started) == (0, [(4, False)])
    with Path("my sweep/sweep.csv").open(encoding="utf-8") as file:
        rows = [(row["optim.lr"], row["valid/loss"]) for row in csv.DictReader(file)]
    assert sorted(rows) == [("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")]


@pytest.mark.parametrize("numbered", [False, True])
def test_a_sweep_grows_by_a_seed_also_one_whose_jobs_have_numbers(
    plmctl: Invoke, command: Command, numbered: bool
) -> None:
    """Groups are swept beside it, so the place of a job in the order is another one each time."""
    started: list[tuple[str, int]] = []

    def run(spec: Any, *, flags: Any = None) -> int:
        folder, given = Path(spec.run.dir), spec.provenance
        started.append((folder.name, spec.seed))
        write_spec(spec, folder)
        words = [given.recipe, *given.overrides]
        (folder / "overrides.txt").write_text("\n".join(words), encoding="utf-8")
        line = json.dumps({"step": 1, "valid/loss": spec.size.width + spec.seed})
        (folder / "metrics.jsonl").write_text(f"{line}\n", encoding="utf-8")
        return 0

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "size=tiny,mini", "hydra.sweep.dir=swept")
    assert plmctl(*words, "seed=1,2").exit_code == 0
    names = [f"seed={seed},size={size}" for size in ("tiny", "mini") for seed in (1, 2)]
    assert [name for name, _ in started] == names
    folders = names
    if numbered:  # as an earlier version left it: of one job there is no record, it was killed
        folders = [*map(str, range(4))]
        for name, number in zip(names, folders, strict=True):
            Path("swept", name).rename(Path("swept", number))
        Path("swept/journal.jsonl").unlink()
        Path("swept/3/job.json").unlink()
    started.clear()
    done = plmctl(*words, "seed=3,1,2")
    assert done.exit_code == 0, done.stderr
    again = [("3", 2)] if numbered else []
    new = [("seed=3,size=tiny", 3), ("seed=3,size=mini", 3)]
    assert sorted(started) == sorted([*new, *again])
    with Path("swept/sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["job"] for row in rows}) == 6
    found = {(row["size"], row["seed"]): Path(row["dir"]).name for row in rows}
    assert set(folders) < set(found.values())
    assert found["mini", "2"] == folders[3]
    values = {(row["size"], row["seed"]): float(row["valid/loss"]) for row in rows}
    assert values["mini", "3"] - values["mini", "1"] == 2
    started.clear()
    assert plmctl(*words, "seed=3,1,2").exit_code == 0
    assert not started


def test_a_run_whose_default_is_given_later_counts_once(plmctl: Invoke, command: Command) -> None:
    """A sweep without seeds grows by two, one of which its runs had by default."""
    started: list[str] = []

    def run(spec: Any, *, flags: Any = None) -> int:
        folder, given = Path(spec.run.dir), spec.provenance
        started.append(folder.name)
        write_spec(spec, folder)
        words = [given.recipe, *given.overrides]
        (folder / "overrides.txt").write_text("\n".join(words), encoding="utf-8")
        line = json.dumps({"step": 1, "valid/loss": spec.optim.lr + spec.seed})
        (folder / "metrics.jsonl").write_text(f"{line}\n", encoding="utf-8")
        return 0

    command.run = run  # type: ignore[method-assign]
    words = ("pretrain", "probe", "-m", "optim.lr=1,2", "hydra.sweep.dir=swept")
    assert plmctl(*words).exit_code == 0
    assert started == ["optim.lr=1", "optim.lr=2"]
    started.clear()
    assert plmctl(*words, "seed=11,12").exit_code == 0
    assert started == ["optim.lr=1,seed=12", "optim.lr=2,seed=12"]
    table = Path("swept/sweep.md").read_text(encoding="utf-8")
    assert "optim.lr=1: mean ± deviation | 2 ok | 12.50 ± 0.71 |" in table
    started.clear()  # the other way: a sweep that leaves out what was given
    assert plmctl(*words[:3], "optim.lr=1,3", words[4]).exit_code == 0
    assert started == ["optim.lr=3"]
    # another value is another run
    started.clear()
    assert plmctl(*words, "seed=12", "train.clip=1,2").exit_code == 0
    assert sorted(started) == ["optim.lr=1,train.clip=2", "optim.lr=2,train.clip=2"]


def test_names_of_folders_are_short_and_plain(plmctl: Invoke, command: Command) -> None:
    words = ("data.path=a b,c/d,正文", "noise=[token_mask],[drop]", "hydra.sweep.dir=swept")
    assert plmctl("pretrain", "probe", "-m", *words).exit_code == 0
    longer = f"data.path={'x' * 300},{'x' * 299}y"
    assert plmctl("pretrain", "probe", "-m", longer, words[-1]).exit_code == 0
    names = [folder.name for folder in Path("swept").iterdir() if folder.is_dir()]
    assert len(names) == 8
    assert all(re.fullmatch(r"[\w.,=+@-]{1,120}", name) for name in names)


def saved_run(plmctl: Invoke, command: Command, tmp_path: Path) -> Path:
    assert plmctl("pretrain", "probe", "optim.lr=0.5").exit_code == 0
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    write_spec(command.calls.pop()[0], folder)
    command.run = lambda spec: command.calls.append((spec, spec.provenance)) or 0
    return folder


def test_resume_takes_the_saved_config(plmctl: Invoke, command: Command, tmp_path: Path) -> None:
    folder = saved_run(plmctl, command, tmp_path)
    for words in (("run.dir=runs/one",), ("runs/one",)):
        # its plug-in is not confirmed
        assert plmctl("pretrain", "--resume", *words, own=False).exit_code == 2
        assert (
            plmctl("pretrain", "--resume", *words, "--plugin", probe.PLUGIN, own=False).exit_code
            == 0
        )
        cfg, flags = command.calls.pop()
        assert (cfg.optim.lr, cfg.train.steps, cfg.run.dir, cfg.run.resume, flags.changes) == (
            0.5,
            100,
            "runs/one",
            True,
            (),
        )
    done = plmctl(
        "pretrain",
        "--resume",
        f"run.dir={folder}",
        "train.minutes=2",
        "train.save_every=7",
        "optim.lr=0.5",
    )
    assert done.exit_code == 0, done.stderr
    cfg, flags = command.calls.pop()
    assert (cfg.train.minutes, cfg.train.steps, cfg.train.save_every) == (2, None, 7)
    assert set(flags.changes) == {
        "train.minutes: 2.0 instead of train.steps: 100",
        "train.steps: 100 -> null",
        "train.save_every: null -> 7",
    }


def test_resume_refuses_what_would_change_the_run(
    plmctl: Invoke, command: Command, tmp_path: Path
) -> None:
    saved_run(plmctl, command, tmp_path)
    done = plmctl(
        "pretrain", "--resume", "run.dir=runs/one", "optim.lr=1", "size=mini", "train.steps=200"
    )
    assert done.exit_code == 2
    assert "optim.lr=1: the run was started with 0.5" in done.stderr
    assert "size='mini': changes size.num_layers from 2 to 4 and 4 other sett" in done.stderr
    assert "needs the run" in plmctl("pretrain", "--resume").stderr
    assert "no folder" in plmctl("pretrain", "--resume", "run.dir=none").stderr
    assert not command.calls


def test_resuming_a_folder_without_config_starts_at_0(
    plmctl: Invoke, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert plmctl("pretrain", "probe", "--resume", "run.dir=empty").exit_code == 0
    assert command.calls[0][0].run.resume is True


@pytest.mark.parametrize("module", ["plmctl.cli.app", "plmctl.commands.pretrain"])
def test_ctrl_c_before_all_is_imported_is_a_line(module: str) -> None:
    """A signal in the middle of an import ends the process; once all is there, Python hears it
    again.
    """
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['plmctl', 'pretrain', '--help']\n"
        "from plmctl.__main__ import main\nmain()"
    )
    # a background shell ignores it, and so would the child
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=heard
    )
    assert (done.returncode, done.stderr) == (130, "plmctl: stopped\n")
    code = (
        "import signal, sys; sys.argv = ['plmctl', 'help', 'adamw', '--json']\n"
        "from plmctl import __main__\nfrom plmctl.config import help\n"
        "help.explain = lambda *words, **options: print("
        "signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n__main__.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=heard
    )
    assert done.stdout == "True\n", done.stderr


def test_last_metrics_and_score(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(
        '{"loss": 3, "note": "x"}\n{"loss": 2, "valid/loss": 1.5}\n{"lo', encoding="utf-8"
    )
    assert read_last_metrics(tmp_path) == {"loss": 2, "valid/loss": 1.5}
    assert score(read_last_metrics(tmp_path)) == 1.5
    assert score({}) != score({})
    (tmp_path / "result.json").write_text(
        '{"metrics": {"dev": {"accuracy": 0.5, "loss": 1}}}', encoding="utf-8"
    )
    # of the checkpoint that is kept
    assert (last := read_last_metrics(tmp_path)) == {"valid/accuracy": 0.5, "valid/loss": 1}
    assert score(last, ("valid/accuracy", True)) == -0.5
    assert score(last, ("valid/loss", False)) == score(last) == 1
    assert score(last, ("valid/f1", True)) == 1  # there is none: the loss
    (tmp_path / "result.json").write_text(
        '{"metrics": {"dev": {"loss": 1}}, "beside": {"rte": {"metrics": {"dev": {"loss": 2}}}}}',
        encoding="utf-8",
    )
    assert read_last_metrics(tmp_path) == {"valid/loss": 1, "valid/rte/loss": 2}


def test_the_end_of_a_sweep_says_what_did_best_and_what_learned_nothing(tmp_path: Path) -> None:
    def job(number: int, accuracy: float, code: int = 0) -> dict[str, Any]:
        metrics = {"valid/accuracy": accuracy, "valid/majority": 0.6, "valid/loss": 1 - accuracy}
        return {"job": number, "varied": [f"seed={number}"], "dir": f"r/{number}", "code": code,
                "metrics": metrics, "best": ["valid/accuracy", True], "overrides": []}  # fmt: skip

    jobs = [job(0, 0.605), job(1, 0.8), job(2, 0.8), job(3, 0.9, code=1), job(4, 0.62)]
    assert describe_end(jobs) == [
        "best on dev: job 1, accuracy 0.8 (equal: job 2): seed=1; r/1",
        "learned nothing (at most 1% above the most frequent label): 1 of 4 runs: 0",
    ]
    for number, examples in enumerate([5, 7]):  # as task.path=a,b has them
        place = tmp_path / str(number)
        place.mkdir()
        known = {"metrics": {}, "examples": {"dev": examples}}
        (place / "result.json").write_text(json.dumps(known), encoding="utf-8")
    unlike = [{**each, "dir": str(tmp_path / str(n))} for n, each in enumerate(jobs[:2])]
    sizes = "job 0: 5 examples; job 1: 7 examples"
    assert describe_end(unlike)[0] == (
        f"no job is the best: scored on different examples ({sizes}), so scores do not compare"
    )
    for each in jobs:
        each["best"] = ["valid/loss", False]
    assert describe_end(jobs)[0].startswith("best on dev: job 1, loss 0.2")
    assert describe_end(jobs[:1]) == []
    jobs[2]["best"] = ["valid/accuracy", True]  # a job of another task
    assert describe_end(jobs) == []
    del jobs[1]["best"], jobs[2]["best"]
    assert describe_end(jobs[1:3]) == []


def test_runs_that_differ_in_the_seed_get_a_mean(plmctl: Invoke, command: Command) -> None:
    command.run = lambda spec: {"valid/acc": float(spec.seed)}
    assert "3.0 ± 1.4" in plmctl("pretrain", "probe", "-m", "seed=2,4", "run.dir=seeds").stdout
    assert "±" not in plmctl("pretrain", "probe", "-m", "optim.lr=1,2", "run.dir=rates").stdout


def test_sweeps_of_one_second_share_no_folder(
    plmctl: Invoke, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths.time, "strftime", lambda form: "noon")
    command.run = lambda spec: {"valid/acc": float(spec.seed)}
    for process in (1, 1, 2):
        monkeypatch.setattr(paths.os, "getpid", lambda process=process: process)
        assert "2 jobs in" in plmctl("pretrain", "probe", "-m", "seed=2,4").stdout
    assert {path.name for path in Path("multirun").iterdir()} == {"noon-1", "noon-1-2", "noon-2"}


def test_as_a_module_it_is_the_same_program() -> None:
    """`python -m plmctl` is what torchrun starts."""
    shown = subprocess.run(
        [sys.executable, "-m", "plmctl", "pretrain", "--help"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert "plmctl pretrain" in shown.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "plmctl", "pretrain", "--no-such-option"],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("Usage: plmctl pretrain")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["eval", "checkpoint=runs/aa", "seed=1"], "checkpoint=runs/a"),
        (["compare", "runs/aa/", "my runs/b"], "plmctl compare runs/a 'my runs/b'"),
        (["average", "runs/*"], "# give runs/a"),
    ],
)
def test_a_misspelt_path_is_typed_again(words: list[str], fix: str) -> None:
    error = DataError("no such run", file=Path("runs/aa"), meant=Path("runs/a"))
    other = ConfigError("seed", "x", "a number", fix="seed=0")
    assert retype(error, words) == f"runs/aa: no such run\n  fix: {fix}"
    assert f"  fix: {fix}\n- seed" in retype(ConfigErrors([error, other]), words)


@pytest.mark.parametrize(
    ("typed", "fix", "line"),
    [
        ("report a --out x.pdf --brief", "--out x.html", "report a --out x.html --brief"),
        ("report a --out=x.pdf", "--out x.html", "report a --out x.html"),
        ("compare a b", "--as classes", "compare a b --as classes"),
        ("convert a --int8", "--to onnx --int8", "convert a --int8 --to onnx"),
        ("convert a", "--to hf  # or --to plmctl", "convert a --to hf  # or --to plmctl"),
        ("eval plugin=a x=1", "--plugin own x=2", "eval plugin=a x=2 --plugin own"),
    ],
)
def test_a_fix_that_begins_with_an_option_is_the_whole_line(
    typed: str, fix: str, line: str
) -> None:
    error = UsageError(f"wrong\n  fix: {fix}")
    assert retype(error, typed.split()) == f"wrong\n  fix: plmctl {line}"
    assert retype(error, ["-q", *typed.split()]) == f"wrong\n  fix: {fix}"
