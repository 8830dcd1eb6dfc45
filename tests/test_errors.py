"""Bad input gets a clear answer before work starts, and loses nothing: what is wrong, where,
what is allowed, the fix.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from safetensors import SafetensorError
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.command import all_commands
from plmctl.config.settings import settings
from plmctl.core.errors import DataError, PlmctlError
from plmctl.runs.session import quoted
from plmctl.training import checkpoint, rundir
from plmctl.training.checkpoint import Checkpoints, Snapshot
from plmctl.training.stop import Stop
from tests.marks import mark_slow

TINY = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=32",
    "train.batch_size=4",
    "train.steps=2",
]
Invoke = Callable[..., str]


@pytest.fixture
def plmctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in an empty folder; its output, after checking its exit code."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str, code: int) -> str:
        result = CliRunner().invoke(make_app(), list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    return invoke


@pytest.fixture
def shards(tokens_of: Callable[..., Path]) -> str:
    return f"data.path={tokens_of('wordpiece')}"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("train.steps=0", "train.steps=0: must be 1 or more"),
        ("train.tokens=-5", "train.tokens=-5: must be 1 or more"),
        ("train.minutes=0", "train.minutes=0: must be more than 0"),
        ("train.batch_size=0", "train.batch_size=0: must be 1 or more"),
        ("train.micro_batch_size=-2", "train.micro_batch_size=-2: must be 1 or more"),
        ("train.micro_batch_size=3", "train.micro_batch_size=3: must divide the 4 rows"),
        ("train.micro_batch_size=16", "fix: train.micro_batch_size=4"),
        ("train.processes=0", "train.processes=0: must be 1 or more"),
        (
            "train.processes=3",
            "train.batch_size=4: must be a multiple of the 3 processes\n  fix: train.batch_size=3",
        ),
        ("train.clip=-1", "train.clip=-1: must be 0 or more"),
        ("train.keep_last=0", "train.keep_last=0: must be 1 or more"),
        ("train.eval_every=-1", "train.eval_every=-1: must be 0 or more"),
        ("seed=-1", "seed=-1: must be 0 or more"),
        ("~noise.token mask", "~noise.token mask: on a command line a key has letters, digits"),
        ("noise.rate=2", "noise.token_mask.rate=2"),
        ("format.max_length=2", "format.max_length=2: at least 5"),
        (
            "train.stages=[{share:0.5},{share:0.6}]",
            "the share of each stage must be above 0, and all add up to 1",
        ),
        (
            "train.stages=[{shar:1}]",
            "train.stages.0.shar=1: a stage may set share, rate, trainable",
        ),
        (
            "train.stages=[{share:1,format.max_lenght:8}]",
            "train.stages.0.format.max_lenght=8: there is no such setting (did you mean",
        ),
        (
            "train.stages=[{share:1,format.max_length:abc}]",
            "train.stages.0.format.max_length='abc': must be a whole number",
        ),
        ("train.stages=[{share:1,optim.lr:1}]", "train.stages.0.optim.lr=1: a stage may set share"),
        (
            "train.stages=[{share:1,train.batch_size:0}]",
            "train.stages.0.train.batch_size=0: must be 1 or more",
        ),
    ],
)
def test_a_wrong_number_is_answered_before_any_work(
    plmctl: Invoke, tmp_path: Path, word: str, answer: str
) -> None:
    assert answer in plmctl("pretrain", "bert", *TINY, "data.path=missing", word, code=2)
    assert not list(tmp_path.iterdir())


def test_a_format_that_lacks_what_the_objective_needs_names_the_one_that_has_it(
    plmctl: Invoke,
) -> None:
    output = plmctl(
        "pretrain", "bert", "format=blocks", "objective=[mlm,nsp]", "data.path=missing", code=2
    )
    assert "objective.nsp: needs 'labels.pair'" in output
    assert "format=sentence_pair" in output


def test_a_tokenizer_that_does_not_match_the_shards(
    plmctl: Invoke, shards: str, tokens_of: Callable[..., Path]
) -> None:
    other = tokens_of("byte_bpe")
    output = plmctl("pretrain", "bert", *TINY, shards, f"tokenizer.path={other}", code=3)
    assert f"another tokenizer than tokenizer.path ({other})" in output
    assert not Path("runs").exists()


def test_a_model_and_shards_with_different_tokenizers(
    plmctl: Invoke, shards: str, tokens_of: Callable[..., Path]
) -> None:
    plmctl("pretrain", "bert", *TINY, shards, "run.dir=first", code=0)
    other = f"data.path={tokens_of('byte_bpe')}"
    output = plmctl(
        "pretrain",
        "bert",
        "train.steps=2",
        "format.max_length=32",
        other,
        "init=first",
        "run.dir=then",
        code=3,
    )
    assert "another tokenizer than the one the model starts from" in output


def test_text_that_is_not_what_its_name_says(plmctl: Invoke, tmp_path: Path) -> None:
    (tmp_path / "zipped.txt").write_bytes(gzip.compress(b"text " * 50))
    assert "zipped.txt: this is gzip data\n  fix: # name it zipped.txt.gz" in plmctl(
        "tokenize", "data.path=zipped.txt", "out=tokens", code=3
    )
    (tmp_path / "my latin.txt").write_bytes(b"good\ncaf\xe9\n")
    output = plmctl("tokenize", "data.path=my latin.txt", "out=tokens", code=3)
    assert "my latin.txt:2: not UTF-8: byte 0xe9 at column 4" in output
    assert "-t utf-8 'my latin.txt'" in output
    words = ("pretrain", *TINY, "data.path=my latin.txt", "--dry-run")
    assert "my latin.txt:2: not UTF-8: byte 0xe9 at column 4" in plmctl(*words, code=3)


def test_a_corpus_too_small_for_the_row_length(
    plmctl: Invoke, tokens_of: Callable[..., Path]
) -> None:
    words = [
        *TINY,
        f"data.path={tokens_of('byte_bpe', 'tokenizer.specials=gpt2')}",
        "format.max_length=1000000",
    ]
    output = plmctl("pretrain", "gpt", *words, code=3)
    assert "no row of format.max_length=1000000 is filled by" in output
    assert "fix:" in output


def test_a_text_is_called_as_it_was_given(plmctl: Invoke, tmp_path: Path) -> None:
    """Not by the folder of the cache that holds its tokens."""
    for name in ("short", "shorter"):
        (tmp_path / f"{name}.txt").write_text(
            f"{name} two three.\n\nFour five six.\n" * 20, encoding="utf-8"
        )
    words = [
        *TINY,
        "data.path=[short.txt,shorter.txt]",
        "tokenizer=char",
        "tokenizer.vocab_size=40",
        "format.max_length=9999",
    ]
    assert "short.txt, shorter.txt: " in plmctl(
        "pretrain", "gpt", *words, f"data.cache_dir={tmp_path / 'cache'}", code=3
    )


def test_a_single_document_is_not_held_out_and_that_is_said(
    plmctl: Invoke, tmp_path: Path, small_text: Path
) -> None:
    (tmp_path / "one.txt").write_text(
        small_text.read_text(encoding="utf-8")[:20000].replace("\n\n", "\n"), encoding="utf-8"
    )
    output = plmctl(
        "tokenize", "data.path=one.txt", "tokenizer.vocab_size=200", "out=tokens", code=0
    )
    assert "valid: nothing, too few documents" in output


def test_patterns_in_folders_with_brackets_and_lists_of_awkward_paths(
    plmctl: Invoke, tmp_path: Path, small_text: Path
) -> None:
    folder = tmp_path / "中文 [a,b] ~x'q"
    folder.mkdir()
    shutil.copy(small_text, folder / "te xt.txt")
    for path in (f"{folder}/*.txt", f"[{folder}/te xt.txt,{small_text}]"):
        plmctl("tokenize", f"data.path={path}", "tokenizer.vocab_size=300", "out=tokens", code=0)
        assert (tmp_path / "tokens/manifest.json").exists()
        shutil.rmtree(tmp_path / "tokens")


def test_a_run_directory_that_is_a_file_or_holds_other_things(
    plmctl: Invoke, tmp_path: Path, shards: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/photo").write_text("x")
    assert "run.dir=file is a file" in plmctl(
        "pretrain", "bert", *TINY, shards, "run.dir=file", code=2
    )
    assert "is not empty\n  fix: # another run.dir" in plmctl(
        "pretrain", "bert", *TINY, shards, "run.dir=other", code=2
    )


def test_a_disk_that_is_full_leaves_no_half_made_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rundir.write_text

    def write(file: Path, text: str) -> None:
        if file.name == "env.json":
            raise OSError(28, "No space left on device")
        real(file, text)

    monkeypatch.setattr(rundir, "write_text", write)
    with pytest.raises(DataError, match="No space left"):
        rundir.create(tmp_path / "run", config="a: 1", overrides=[])
    assert not (tmp_path / "run").exists()  # taken back


def test_a_disk_that_is_full_while_tensors_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        )

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(
        PlmctlError, match=r"No space left on device.*no earlier checkpoint\n  fix: # free some"
    ):
        Checkpoints(tmp_path).save(Snapshot({}, {}, {}, {}, {}), step=1)
    assert not list(tmp_path.glob("*step*"))


def test_damaged_checkpoints(plmctl: Invoke, tmp_path: Path, shards: str) -> None:
    """The newest whole one is taken; where none is whole nothing is written over."""
    plmctl("pretrain", "bert", *TINY, shards, "train.save_every=1", "run.dir=run", code=0)
    newest, older = (
        Path("run/checkpoints/step-2/model.safetensors"),
        Path("run/checkpoints/step-1/model.safetensors"),
    )
    os.truncate(newest, 100)
    output = plmctl("pretrain", "--resume", "run.dir=run", code=0)
    assert "step-2: model.safetensors is truncated or was edited: 100 of" in output
    assert "resumed from run/checkpoints/step-1" in output
    for file in (newest, older):
        os.truncate(file, 100)
    metrics = Path("run/metrics.jsonl").read_text()
    output = plmctl("pretrain", "--resume", "run.dir=run", code=3)
    assert "every checkpoint of this run is damaged" in output
    assert "fix: # remove run/checkpoints" in output
    assert Path("run/metrics.jsonl").read_text() == metrics


@pytest.mark.slow  # test_cli.py finds mistakes of sweeps before any job
def test_a_sweep_with_a_bad_value_begins_nothing_and_runs_once_it_is_corrected(
    plmctl: Invoke, shards: str
) -> None:
    words = ("pretrain", "bert", "-m", *TINY, shards, "run.dir=sweep", "train.save_every=0")
    output = plmctl(*words, "optim.lr=1e-3,abc", "seed=1,-2", code=2)
    assert "2 problems" in output
    assert "jobs 2, 3: optim.lr='abc': must be a number" in output
    assert "jobs 1, 3: seed=-2" in output
    # what fits no model, too
    output = plmctl(*words, "model.stack.cells.a.num_heads=2,3", code=2)
    assert "job 1: " in output
    assert "num_heads" in output
    assert not Path("sweep").exists()
    # a folder that holds only what is left of a job that never trained
    Path("sweep/1").mkdir(parents=True)
    refused = {"job": 1, "overrides": ["optim.lr=abc"], "varied": ["optim.lr=abc"], "code": 2}
    record = json.dumps({**refused, "metrics": {}, "dir": "sweep/1"})
    Path("sweep/1/job.json").write_text(record, encoding="utf-8")
    plmctl(*words, "optim.lr=1e-3,2e-3", code=0)
    table = Path("sweep/sweep.csv").read_text(encoding="utf-8")
    assert [line.split(",")[:3] for line in table.splitlines()[1:]] == [
        ["0", "0.001", "ok"],
        ["1", "0.002", "ok"],
    ]
    # the same settings, said otherwise, are done; others are refused before any work
    output = plmctl(*words, "optim.lr=1e-3,2e-3", "seed=0", code=0)
    assert "job 1 of 2: finished before: optim.lr=0.002" in output
    output = plmctl(*words, "optim.lr=1e-3,2e-3", "data.valid_share=0.2", code=2)
    assert "holds another run: data.valid_share=" in output
    assert "fix: run.dir=ANOTHER_FOLDER  # for the sweep, or remove " in output
    output = plmctl("pretrain", "roberta", *words[2:], "optim.lr=1e-3,2e-3", code=2)
    assert (
        "sweep/optim.lr=0.001 holds another run: the run was started with the recipe bert" in output
    )
    assert Path("sweep/sweep.csv").read_text(encoding="utf-8") == table


def test_a_stopped_sweep_goes_on_with_one_command(
    plmctl: Invoke, shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("pretrain", "bert", "-m", *TINY, shards, "seed=1,2", "run.dir=sweep")
    with monkeypatch.context() as patch:
        patch.setattr(Stop, "agree", lambda self, counts: setattr(self, "number", signal.SIGTERM))
        output = plmctl(*words, code=143)
    assert "stopped after 1 updates, all saved\n" in output
    assert output.count("To go on:") == 1
    assert "| 0 | seed=1 | stopped |" in Path("sweep/sweep.md").read_text(encoding="utf-8")
    output = plmctl(*shlex.split(output.splitlines()[-1])[1:], code=0)
    assert "job 0 of 2: goes on: seed=1" in output
    table = Path("sweep/sweep.md").read_text(encoding="utf-8")
    assert [f"| {job} | seed={job + 1} | ok |" in table for job in (0, 1)] == [True, True]


def test_every_line_after_a_run_is_a_command_that_works(
    plmctl: Invoke, tokens_of: Callable[..., Path]
) -> None:
    shards = f"data.path={tokens_of('bpe')}"
    output = plmctl("pretrain", "gpt", *TINY, shards, "run.dir=my run", code=0)
    assert "gpt: clm, " in output
    assert "2 updates of 4 rows of at most 32 tokens, on cpu" in output
    assert all(len(line) <= 128 for line in output.splitlines() if line.startswith("step"))
    commands = read_next(output)
    assert [words[0] for words in commands] == ["finetune", "generate", "eval", "report"]
    assert "checkpoint=my run" in commands[0]
    for words in commands[1:]:
        plmctl(*words, code=0)
    short = ("train.epochs=null", "train.steps=1", "run.dir=tuned")
    commands = read_next(plmctl(*commands[0], *short, code=0))
    assert [words[0] for words in commands] == ["eval", "predict", "report"]
    for words in commands:
        done = CliRunner().invoke(make_app(), words, input="a text of mine\n")
        assert done.exit_code == 0, done.output


def read_next(output: str) -> list[list[str]]:
    """The words of the commands behind `next:`."""
    lines = output.partition("next:\n")[2].splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if "plmctl " in line]


@pytest.mark.slow  # test_tokenize_command.py has one Ctrl-C
@pytest.mark.parametrize("kind", mark_slow(("unigram", "wordpiece"), slow=("wordpiece",)))
def test_ctrl_c_during_tokenizing_keeps_what_is_done(tmp_path: Path, kind: str) -> None:
    """Even while sentencepiece works, which hears no signals itself."""
    text = tmp_path / "text.txt"
    text.write_text(
        "\n\n".join(" ".join(f"w{i * j % 99991}x" for j in range(60)) for i in range(20000)),
        encoding="utf-8",
    )
    words = [
        "tokenize",
        f"data.path={text}",
        f"tokenizer={kind}",
        "tokenizer.vocab_size=8000",
        f"out={tmp_path / 'out'}",
    ]
    # a background shell ignores it, and so would the child
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen(
        [sys.executable, "-m", "plmctl", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    for _ in range(200):
        if list(tmp_path.glob(".out.*")):
            break
        time.sleep(0.1)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 130
    assert errors.startswith("tokenizing was stopped")
    assert errors.endswith("plmctl: stopped\n")
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["text.txt"],
        [".out.partial", "text.txt"],
    )


@pytest.mark.parametrize("verb", sorted(all_commands()))
def test_help_lists_every_setting(plmctl: Invoke, verb: str) -> None:
    kind = all_commands()[verb]
    output = plmctl(*kind.about.name.split(), "--help", "--all", code=0)
    for setting, _ in settings(kind):
        assert setting.partition("=")[0] + "=" in output
    found = {setting.split(".")[0].split("=")[0] for setting, _ in settings(kind)}
    assert found <= kind().keys()


def test_the_printed_resume_command_can_be_pasted(tmp_path: Path) -> None:

    folder = tmp_path / "a b'c$HOME\"[1,2]~中"
    assert shlex.split(f"run.dir={quoted(folder)}") == [f"run.dir={folder}"]
