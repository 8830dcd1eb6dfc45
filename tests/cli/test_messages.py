"""What a user types wrong is answered with the smallest fix, exit code 2 or 3, and no traceback."""

from __future__ import annotations

import gzip
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.pasted import spell_fix
from tests.command import plmctl

TINY = "size=tiny data.path=t.txt format.max_length=32 train.batch_size=4 train.steps=4"

# (what stands behind `plmctl`, what the message says, the fix)
MISTAKES = [
    ("pretrain brt", "there is no recipe 'brt' (did you mean 'bert'?)", "bert"),
    ("pretrain zzz", "there is no recipe 'zzz'", "plmctl recipes ls says what each one is"),
    ("pretrain ./mine.yml", "there is no such file", "mine.yaml"),
    ("recipes show brt", "there is no recipe 'brt'", "bert"),
    ("pretrain --resume", "--resume needs the run", "plmctl pretrain --resume run.dir=runs/NAME"),
    ("pretrain --resume nope", "no folder nope", "plmctl pretrain --resume run.dir=runs/<name>/"),
    (
        "pretrain --resume run.dir=runs/sevnth",
        "no folder",
        "plmctl pretrain --resume run.dir=runs/seventh",
    ),
    (f"pretrain {TINY} kernel=dens", "there is no such kernel", "kernel=dense"),
    (f"pretrain {TINY} kernel=zzz", "there are auto, banded", "plmctl help kernel"),
    (
        f"pretrain {TINY} kernel=zzz",
        "needs --config-dir <folder> (and --plugin <module>)",
        "plmctl",
    ),
    (f"pretrain {TINY} noise=tken_mask", "there is no such noise", "noise=[token_mask]"),
    ("data filter x rule=[htlm,pii] out=y", "did you mean 'html'", "rule=[html,pii]"),
    ("report out=r.html", "report takes options with --", "--out r.html"),
    (f"pretrain {TINY} noise.rat=0.2", "there is no such setting", "noise.token_mask.rate=0.2"),
    (
        f"pretrain {TINY} regulariser.epsilon=0.1",
        "regulariser=none, and has no settings",
        "regulariser=fgm regulariser.epsilon=0.1",
    ),
    (
        "finetune task=sst2 checkpoint=runs/first beside.a/b.task=sst2",
        "between the dots of a key have letters, digits, _ and -, and no /",
        "beside.a_b.task=sst2",
    ),
    (
        f"pretrain {TINY} pattern=sparse_transformer pattern.variant=fixd",
        "must be one of strided, fixed",
        "pattern.variant=fixed",
    ),
    (
        f"pretrain {TINY} pattern=longformer pattern.reach=4",
        "did you mean 'pattern.parts.0.reach'?",
        "pattern.parts.0.reach=4",
    ),
    (
        f"pretrain {TINY} +model.classifier.pooling=menn",
        "one of first, last, mean, late, compare, concat",
        "model.classifier.pooling=mean",
    ),
    (
        f"pretrain {TINY} train.trainable=[backbone.stak]",
        "matches no parameter",
        "train.trainable=[backbone.stack]",
    ),
    (f"pretrain {TINY} data.path=empty.txt", "the file is empty", "name files with text in"),
    (f"pretrain {TINY} data.path=t.tx", "no such file, folder or pattern", "data.path=t.txt"),
    (
        f"pretrain {TINY} data.path=strings:cpy:5-9:100",
        "strings are one of copy,",
        "data.path=strings:copy:5-9:100",
    ),
    (
        "pretrain transformer size=tiny data.path=strings:copy:5 data.fields=[sourc,target]",
        "no text in a field 'sourc'",
        "data.fields=[source,target]",
    ),
    (f"pretrain {TINY} data.path=rows.jsonl data.field=txt", "field 'txt'", "data.field=text"),
    (
        "eval task=held_out checkpoint=runs/first format.max_length=8",
        "format=null, and has no settings",
        "format=<blocks, ...> format.max_length=8",
    ),
    ("eval task=held_out checkpoint=runs/first format.zzzz=8", "no such setting", "leave it out"),
    (f"pretrain {TINY} init=runs/frist", "there is no such run", "give runs/first"),
    (
        "tokenize data.path=tables out=o",
        "a .csv is read where it is named",
        "data.path=tables/a.csv",
    ),
    ("tokenize data.path=rows.jsonl data.field=txt out=o", "field 'txt'", "data.field=text"),
    (
        "tokenize data.path=t.txt out=o tokenizer=wordpice",
        "no such tokenizer",
        "tokenizer=wordpiece",
    ),
    ("vectors data.path=t.txt run.dir=a/b", "run.dir='a/b': there is no such setting", "out=a/b"),
    ("eval run.dir=a/b", "(did you mean 'checkpoint'?)", "checkpoint=a/b"),
    (f"pretrain {TINY} out=a/b", "out='a/b': there is no such setting", "run.dir=a/b"),
    ("tokenize data.path=t.txt", "out: must be given", "out=..."),
    (
        "finetune task=rte checkpoint=null",
        "data: https://dl.fbaipublicfiles.com/glue/data/RTE.zip",
        "task.path=...",
    ),
    (
        "distill task=classification teacher=runs/first",
        "as in task.path=[train.tsv,dev.tsv]",
        "task.path=...",
    ),
    ("finetune task=sst checkpoint=runs/first", "there is no such task", "task=sst2"),
    (
        "finetune task=classification task.path=t.tsv checkpoint=runs/frist",
        "(did",
        "give runs/first",
    ),
    ("eval task=held_out checkpoint=runs/f*", "a pattern of 1 folder", "-m"),
    ("eval task=held_out checkpoint=runs/other", "there is no such run", "give one that exists, s"),
    ("eval task=held_out", "checkpoint: must be given", "checkpoint=..."),
    ("generate checkpoint=runs/frist prompt=a", "did you mean 'runs/first'?", "give runs/first"),
    (
        "generate checkpoint=bert-base prompt=a",
        "there is no such run",
        "hf download bert-base --local-dir bert-base",
    ),
    (
        "embed checkpoint=runs/frist input=t.txt out=o.npz",
        "there is no such run",
        "give runs/first",
    ),
    ("distill task=sst2 task.path=t.tsv teacher=runs/frist", "no such run", "give runs/first"),
    ("ablate electr", "there is no study 'electr' (did you mean 'electra'?)", "electra"),
    ("ablate zzz", "there is no study 'zzz'", "plmctl recipes ls --studies says what each one is"),
    ("convert runs/frist out --to hf", "there is no such run", "give runs/first"),
    ("convert runs/first out", "Missing option '--to'", "--to hf, or --to plmctl"),
    (
        "convert runs/first out --max-length 64 --without copie",
        "--without copie: must be one of copies, projections",
        "--without copies",
    ),
    (
        "convert runs/first out --to huggingface",
        "must be one of hf, plmctl, peft",
        "--to <hf or plmctl or peft>",
    ),
    (
        "convert runs/first out --to hf --reach 4",
        "--reach is of",
        "--max-length 4096, or no --reach",
    ),
    ("average runs/frist --out o", "there is no such folder", "plmctl average runs/first"),
    ("report runs/frist", "there is no such folder (did you", "plmctl report runs/first"),
    ("report zzz", "there is no such folder", "give a run.dir, or a study's out"),
    ("report runs/first", "neither a run", "give a run.dir, or a study's out"),
    (f"pretrain {TINY} train.device=gpu", "did you mean 'cuda'?", "train.device=cuda"),
    (f"pretrain {TINY} train.precision=half", "must be one of", "train.precision=fp16"),
    (f"pretrain {TINY} size.width=abc", "size.width='abc': must be a whole number", "size.width=1"),
    (f"pretrain {TINY} size.num_layers=2.5", "2.5: must be a whole number", "size.num_layers=2"),
    (f"pretrain {TINY} size.width=null", "size.width=null: must be a whole number", "size.width=1"),
    (f"pretrain {TINY} size.width=1e9", "size.width=1000000000: no tensor of this", "size=tiny"),
    (
        f"pretrain {TINY} data.path=null data.mixture.a=t.txt",
        "data.mixture.a='t.txt': a mapping of names to values",
        "data.mixture.a.path=t.txt",
    ),
    (f"pretrain {TINY} data.sources.a=t.txt", "a mapping of names", "data.sources.a.path=t.txt"),
    (
        "pretrain ernie_thu model.stack.adds={x:9}",
        "model.stack.adds.x=9: where the cell stands: one of replaces, before, after",
        "model.stack.adds={x:{replaces:f}}",
    ),
    (
        "pretrain bert model.stack.adds={x:9}",
        "model.stack.adds.x=9: where the cell stands",
        "model.stack.adds={x:{replaces:f}}",
    ),
    (
        "pretrain ernie_thu model.stack.adds=[x,7]",
        "model.stack.adds=['x', 7]: a mapping of names to values, not a list",
        "model.stack.adds.x.replaces=f",
    ),
    (
        "pretrain ernie_thu model.stack.adds.0=x",
        "there is no such setting; model.stack.adds has names, not numbers: x, m",
        "model.stack.adds.x.replaces=f",
    ),
    ("pretrain bert eval.noise=[token_mask]", "not a list", "eval.noise='${noise}'"),
    ("pretrain bert size", "only one recipe may be named", "bert alone, or size=<a value>"),
    ("pretrain bert --plugin nope", "there is no such package", "export PYTHONPATH=FOLDER"),
    ("pretrain bert --config-dir tabels", "there is no such folder", "--config-dir tables"),
    ("pretrain bert -m --print-config", "cannot be combined", "name the run.dir or"),
    (
        "finetune task=classification task.columns.text=Message Body",
        "'Body': has no =; the shell ends a value at a space",
        "'task.columns.text=Message Body'",
    ),
    ("finetune bert", "recipes are for pretrain", "plmctl pretrain bert, or leave bert out"),
    ("convert", "Missing argument 'IN'", "plmctl convert"),
    ("report", "Missing argument", "plmctl report"),
    ("average runs/first --out o --last x", "must be a whole number", "--last NUMBER"),
    ("help zzzz", "there is no such slot, part or setting", "plmctl help lists the slots"),
    ("recipes run brt", "there is no recipe 'brt'", "bert"),
    ("data check t.tx", "no such file", ""),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("some words of a text\n" * 40)
    Path("t.tsv").write_text("a text\t1\nanother\t0\n")
    Path("rows.jsonl").write_text('{"text": "a row", "title": "b"}\n')
    Path("empty.txt").touch()
    Path("mine.yaml").write_text("# @package _global_\n")
    Path("tables").mkdir()
    Path("tables/a.csv").write_text("text\nsome words\n")
    Path("runs/first").mkdir(parents=True)
    Path("runs/seventh").mkdir()
    Path("runs/seventh/config.yaml").touch()
    return tmp_path


def say(words: str) -> tuple[str, int]:
    """The answer to a command and its exit code; an exception that is no message is raised."""
    done = CliRunner().invoke(make_app(), shlex.split(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output + (done.stderr if done.stderr_bytes else ""), done.exit_code


@pytest.mark.parametrize(("words", "message", "fix"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_answered_with_its_fix(words: str, message: str, fix: str) -> None:
    told, code = say(words)
    assert code in (2, 3)
    assert message in told
    assert f"fix: {spell_fix(fix)}" in told
    assert "Traceback" not in told
    assert "???" not in told


def test_a_packed_table_is_named_too(folder: Path) -> None:
    (folder / "packed").mkdir()
    (folder / "packed/a.csv.gz").write_bytes(gzip.compress(b"text\nwords\n"))
    told, _ = say("tokenize data.path=packed out=o")
    assert "fix: data.path=packed/a.csv.gz" in told


def test_of_a_parameter_that_is_given_twice_the_last_one_counts() -> None:
    """As of a setting that stands in a file."""
    words = ("position.max_length=64", "position.max_length=48")
    assert compose("pretrain", "bert", words).position["max_length"] == 48


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("task.path=json.jsonl", "one JSON object a line"),
        ("task.path=t.tvs", "task.path=t.tsv"),
        ("task.path=empty.txt", "name a file with examples"),
    ],
)
def test_files_of_a_task(words: str, fix: str) -> None:
    Path("json.jsonl").write_text("no JSON\n")
    spec = "finetune task=classification checkpoint=null size=tiny train.steps=2 --dry-run"
    told, code = say(f"{spec} {words}")
    assert code == 3
    assert told.count(f"fix: {spell_fix(fix)}") >= 1


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (("--keep", "2"), "--keep 2: must be at most 1", "--keep 1"),
        (("--keep", "-1"), "--keep -1: must be at least 0", "--keep 0"),
        (("--bits", "9"), "--bits 9: must be at most 8", "--bits 8"),
        (("--to", "onx"), "--to onx: must be one of hf", "--to onnx"),
        (("--int8",), "--int8 is of --to onnx, openvino, ctranslate2", "--to onnx --int8"),
    ],
)
def test_a_wrong_value_of_an_option_has_its_range_and_a_fix(
    words: tuple[str, ...], said: str, fix: str
) -> None:
    found = plmctl("convert", "run", *words, "--out", "converted", code=2)
    assert f"plmctl: {said}" in found
    assert f"fix: {fix}" in found
