"""Whatever is wrong with a command, its settings or what they start from, one message tells it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app

WRONG = {  # three models and files that are not there
    "pretrain": ["init=no/model", "teacher=[no/first,no/second]", "distill=kd"],
    "finetune": ["task=sst2", "task.path=no/data", "checkpoint=no/model", "teacher=no/teacher"],
}
TYPES = ["train.batch_size=0", "optim.lr=many"]  # that no setting of these can have


def problems(verb: str, *words: str) -> list[str]:
    """The problems that a command tells of."""
    done = CliRunner().invoke(make_app(), [verb, *words, "train.device=cpu"])
    assert done.exit_code == 2, done.output
    text = done.output + (done.stderr if done.stderr_bytes else "")
    lines = dict.fromkeys(line[2:] for line in text.splitlines() if line.startswith("- "))
    assert f"{len(lines)} problems" in text
    return list(lines)


@pytest.mark.parametrize("verb", WRONG)
def test_three_wrong_parents_and_two_wrong_settings(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems(verb, *WRONG[verb], *TYPES)
    assert len(told) == 5
    assert sum(line.startswith(("train.batch_size", "optim.lr")) for line in told) == 2
    assert sum("no/" in line for line in told) == 3
    assert not list(tmp_path.iterdir())


def test_wrong_parents_beside_settings_that_do_not_fit_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems("pretrain", *WRONG["pretrain"], "train.micro_batch_size=5", "init_into=front")
    assert sum("no/" in line for line in told) == 3
    assert sum(line.startswith("train.") for line in told) == 1


def test_one_wrong_parent_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(make_app(), ["pretrain", "init=no/model"])
    assert done.exit_code == 3
    assert "problems" not in done.output + done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("eval runs/x task.columns.text=body", ["runs/x: there is no such run"]),
        ("eval run.dir=runs/x task.columns.text=body", ["run.dir='runs/x': there is no such"]),
        ("predict runs/x input=a.csv task.max_length=4", ["runs/x: there is no such run"]),
        ("eval chekpoint=runs/x task=lm", ["chekpoint='runs/x': there is no such setting"]),
        ("eval runs/x task.max_length=4 format.rows=1", ["format.rows=", "runs/x: there is no"]),
        ("eval runs/x runtime.int8=true", ["runtime.int8=", "runs/x: there is no such run"]),
    ],
)
def test_a_problem_that_follows_from_another_is_left_out(
    words: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(make_app(), words.split())
    lines = done.stderr.removeprefix("plmctl: ").splitlines()
    found = [line.removeprefix("- ") for line in lines if not line.startswith("  ")]
    assert len(found) == len(told) + (len(told) > 1), done.stderr  # several have a line before them
    assert all(any(line.startswith(each) for line in found) for each in told)


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "bert", "data.path=nothere.txt"],
        ["pretrain", "bert", "data.valid_path=nothere.txt"],
        ["pretrain", "tlm", "data.path=nothere.txt", "data.target_path=nothere.txt"],
        ["finetune", "task=sst2", "task.path=nothere.txt", "checkpoint=null"],
        ["distill", "bert", "data.path=nothere.txt", "teacher=nothere.txt"],
    ],
)
def test_a_dry_run_finds_the_files_that_the_run_reads(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the message of the run itself."""
    monkeypatch.chdir(tmp_path)
    dry, real = (
        CliRunner().invoke(make_app(), [*words, "train.device=cpu", *more])
        for more in (["--dry-run"], [])
    )
    assert (dry.exit_code, dry.output) == (real.exit_code, real.output)
    assert dry.exit_code in (2, 3)
    assert "nothere.txt: " in dry.output
    assert not list(tmp_path.iterdir())


def test_files_of_a_task_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader alone reads them."""
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text("text\tlabl\nfine\tgood\n")
    given = ["task=classification", "task.path=train.tsv", "checkpoint=no/model"]
    model, metric, file = sorted(problems("finetune", *given, "task.metrics=[accurcy]"))
    assert model.startswith("no/model")
    assert metric.startswith("task.metrics=['accurcy']")
    assert file.startswith("train.tsv: expected column label; found text, labl")


@pytest.mark.parametrize("wrong", ["[temprature,threshold]", "temprature"])
def test_of_a_list_the_fix_has_the_nearest_items(wrong: str) -> None:
    done = CliRunner().invoke(make_app(), ["eval", "checkpoint=x", f"calibrate={wrong}"])
    fixed = wrong.strip("[]").replace("mpr", "mper")
    assert f"\n  fix: 'calibrate=[{fixed}]'\n" in done.output


def test_every_corpus_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = problems("pretrain", "data.mixture={a:{path:no/a},b:{path:no/b}}", "--dry-run")
    assert [line.partition(":")[0] for line in told] == ["no/a", "no/b"]


def test_types_and_ranges_and_files_in_one_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one part refuses is told whatever is wrong elsewhere, each with its full key."""
    monkeypatch.chdir(tmp_path)
    words = ["train.batch_size=many", "train.clip=x", "model.embedding.dropout=2", "optim.lr=-1"]
    words += ["noise.rate=2", "schedule.warmup_share=3", "format.max_length=2", "data.path=no/text"]
    words += ["pattern=window", "pattern.reach=-1"]
    told = problems("pretrain", "bert", *words)
    keys = [line.partition(": ")[0].partition("=")[0] for line in told]
    assert sorted(keys) == sorted(
        [
            *("train.batch_size", "train.clip", "model.embedding.dropout", "optim.lr"),
            *("noise.token_mask.rate", "schedule.warmup_share", "format.max_length", "no/text"),
            "pattern.reach",
        ]
    )


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("model.embedding.dropout=2", "model.embedding.dropout=2: must be 0 or more, and less"),
        ("model.embedding.dropout=x", "model.embedding.dropout='x': must be a number"),
        ("model.stack.cells.f.activation=no", "model.stack.cells.f.activation='no': one of gelu"),
        ("model.stack.cells.k.kernel=0 model.stack.layout=kf*2", "model.stack.cells.k.kernel=0: "),
        ("heads.mlm.transform=no", "heads.mlm.transform="),
    ],
)
def test_a_mistake_is_told_once_and_with_its_full_key(word: str, answer: str) -> None:
    """Also of a part that another part makes, and of a value that other settings refer to."""
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *word.split(), "--dry-run"])
    assert done.exit_code == 2
    assert done.output.startswith(f"plmctl: {answer}")
    assert "problems" not in done.output


@pytest.mark.parametrize("words", [["eval"], ["generate"], ["embed", "input=a.txt", "out=a.npz"]])
def test_a_checkpoint_that_was_not_given_is_said_once(words: list[str]) -> None:
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert done.stderr == "plmctl: checkpoint: must be given\n  fix: checkpoint=...\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "wrong",
    [
        "train.updates=5",
        "train.stepz=5",
        "learning_rate=1e-3",
        "torch_compile='true'",
        "train.compile='false'",
        "train.clip='1'",
        "optim.lr='1e-3'",
        "model.stack.cells.a.dropout='0.2'",
        "run.nam='it s'",
        "run.name=a(b",
        "data.field=it's",
        "gradient_clip_val=1",
        "noise.span_mask.rat=0.2 noise=span_mask",
        "pattern=alibi",
        "model=bert",
        "train.micro_batch_size=5 train.batch_size=8",
        "train.batch_size=3 train.processes=2",
        "format.max_length=600 position.max_length=512",
        "pattern.reach=-1 pattern=window",
        "kernel.block=0 kernel=banded",
        "objective=[mlm,mlm]",
        "size.num_heads=3",
        "schedule.warmup=5",
        "objective.mine={_target_:plmctl.objectives.mlm.MLM,weight:1}",
    ],
)
def test_every_fix_works_as_it_is_typed(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shell, and then for plmctl: in place of the first word, it leaves nothing wrong."""
    monkeypatch.chdir(tmp_path)
    words, app = wrong.split(" ") if "it s" not in wrong else [wrong], make_app()
    base = ["size=tiny", "train.device=cpu", "train.steps=3"]

    def pretrain(*given: str) -> str:
        return CliRunner().invoke(app, ["pretrain", "bert", *base, *given, "--dry-run"]).output

    fixes = re.findall(r"^  fix: (.*)$", pretrain(*words), re.MULTILINE)
    assert fixes
    for fix in fixes:
        for choice in re.split(r"\s+# or (?=[\w.@]+=)|,? or (?=[\w.@]+=)", fix):
            typed = shlex.split(choice, comments=True)
            if typed[0] == "plmctl":
                assert CliRunner().invoke(app, [*typed[1:], "--dry-run"]).exit_code == 0
                continue
            keys = {word.partition("=")[0] for word in typed}
            others = [word for word in words[1:] if word.partition("=")[0] not in keys]
            # a fix of another setting may also stand beside the word
            told = [pretrain(*others, *typed), pretrain(words[0], *others, *typed)]
            assert not all("plmctl:" in output for output in told), f"{choice}\n{told[0]}"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("train.updates=5", "did you mean 'train.steps'?"),
        ("train.seed=5", "did you mean 'eval.seed' or 'seed'?"),
        ("train.foo=5", ""),
        ("data.text=5", ""),
        ("train.stepz=5", "did you mean 'train.steps'?"),
        ("model=bert", "bert is a recipe, not a model"),
    ],
)
def test_a_wrong_name_is_led_to_the_right_one_or_to_none(word: str, hint: str) -> None:
    done = CliRunner().invoke(make_app(), ["pretrain", word, "--dry-run"])
    assert hint in done.output
    assert bool(hint) == ("did you mean" in done.output or "is a recipe" in done.output)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.stack.cells.a=null"], r"cells\.a=null: must be a part .*\n  fix: # leave it out"),
        (["noise=[null]"], r"noise='null': null is no part; .*\n  fix: 'noise=\[\]'"),
        (
            ["data.sources={a:{path:x,format:null}}"],
            r"a\.format=null: must be a part, with _target_",
        ),
        (
            ["data.sources={a:{path:x,noise:{b:null}}}"],
            r"a\.noise\.b=null: must be a part, with _target_",
        ),
    ],
)
def test_null_where_a_part_belongs(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(make_app(), ["pretrain", *words, "train.device=cpu"])
    assert done.exit_code == 2, done.output
    assert re.search(said, done.output + done.stderr), done.output + done.stderr


@pytest.mark.parametrize("setting", ["columns", "reader"])
def test_null_in_a_task(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("text,label\na b,c\nd e,f\n")
    words = ["task=classification", "task.path=t.csv", "checkpoint=no/model"]
    done = CliRunner().invoke(make_app(), ["finetune", *words, f"task.{setting}=null"])
    assert done.exit_code in (2, 3), done.exception
    assert f"task.{setting}" in done.output + done.stderr
