"""Names that other trainers use lead to ours; hints name what is there, and are the fix."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config.compose import attempt, compose
from plmctl.config.instead import INSTEAD
from plmctl.config.other_names import OURS, guess
from plmctl.config.other_values import _BY_NAME
from plmctl.config.spec import Provenance, thaw
from plmctl.config.walks import paths
from plmctl.core.errors import did_you_mean, find_alike, find_meant, find_meant_beside, nearest
from plmctl.core.pasted import spell_fix
from plmctl.core.spelling import spell
from plmctl.text.undecodable import guess_encoding

GLUE = ["task=sst2", "task.path=nowhere", "checkpoint=null"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(*words: str, code: int = 2) -> str:
    done = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return str(done.stderr)


@pytest.fixture(scope="module")
def trees() -> list[dict[str, Any]]:
    made = [
        compose("pretrain", "bert", ["pattern=window"]),
        compose("finetune", None, [*GLUE, "pattern=window"]),
        compose("finetune", None, ["task=summarization", "task.path=nowhere", "checkpoint=null"]),
        compose("generate", None, ["checkpoint=x", "search=beam"]),
        compose("tokenize", None, ["out=x"]),
        compose("finetune", None, ["task=pair_classification", "task.path=x", "checkpoint=null"]),
        compose("embed", None, ["checkpoint=x", "input=x", "out=x"]),
    ]
    return [thaw(cfg) for cfg in made]


def test_every_name_of_ours_is_there(trees: list[dict[str, Any]]) -> None:
    known = {path for tree in trees for path in paths(tree)}
    known |= {"optim.betas.0", "optim.betas.1"}  # of a list
    # noise.rate
    short = {
        f"{path.split('.')[0]}.{path.split('.')[-1]}" for path in known if path.startswith("noise.")
    }
    assert set(OURS) - known - short == set()


def test_no_name_of_theirs_is_a_setting_of_ours(trees: list[dict[str, Any]]) -> None:
    theirs = {name for names in OURS.values() for name in names.split()}
    assert len(theirs) > 150
    # those with run.dir have no `out`, for which it is proposed elsewhere
    assert theirs & {path for tree in trees[:3] for path in paths(tree)} == {"run.dir"}
    assert "out" in theirs


def test_a_rate_that_others_follow_names_them() -> None:
    told = said("pretrain", "model.dropout=0")
    assert "fix: model.embedding.dropout=0  # model.stack.cells.a.dropout, model.stack" in told


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("adam", "optim=adamw"),
        ("dropout", "model.embedding.dropout"),
        ("batch size", "batch_size=32"),
        ("layernorm", "model.embedding.norm"),
        ("seed", "The number that decides all random numbers"),
    ],
)
def test_common_words_are_explained(word: str, answer: str) -> None:
    done = CliRunner().invoke(make_app(), ["help", word], env={"COLUMNS": "200"})
    assert answer in done.output


@pytest.mark.parametrize(
    ("word", "ours", "fix"),
    [
        ("optim.learning_rate=1e-4", "optim.lr", "optim.lr=1e-4"),
        ("learning_rate=1e-4", "optim.lr", "optim.lr=1e-4"),
        ("max_grad_norm=1", "train.clip", "train.clip=1"),
        ("warmup_ratio=0.1", "schedule.warmup_share", "schedule.warmup_share=0.1"),
        (
            "train.per_device_train_batch_size=8",
            "train.batch_size",
            "train.batch_size=8, rows of all processes",
        ),
        ("num_train_epochs=3", "train.epochs", "train.epochs=3"),
        ("fp16=true", "train.precision", "train.precision=fp16"),
        ("gradient_accumulation_steps=2", "train.micro_batch_size", "train.micro_batch_size=16"),
        ("hidden_size=64", "size.width", "size.width=64"),
        ("num_hidden_layers=2", "size.num_layers", "size.num_layers=2"),
        (
            "model.activation=silu",
            "model.stack.cells.f.activation",
            "model.stack.cells.f.activation=silu",
        ),
        ("save_steps=5", "train.save_every", "train.save_every=5"),
        ("logging_steps=5", "train.log_every", "train.log_every=5"),
        ("max_seq_length=64", "format.max_length", "format.max_length=64"),
        ("mlm_probability=0.2", "noise.rate", "noise.rate=0.2"),
        (
            "pattern.width=64",
            "pattern.reach",
            "pattern=<dilated or window or windows> pattern.reach=64",
        ),
    ],
)
def test_a_name_of_another_trainer(word: str, ours: str, fix: str) -> None:
    key, _, value = word.partition("=")
    expected = (
        f"plmctl: {key}='{value}': there is no such setting (did you mean '{ours}'?)\n  fix:"
        f" {spell_fix(fix)}\n"
    )
    assert said("pretrain", word) == expected


LEFT_OUT = "leave it out"
# names whose values are other ones here -> {typed: what is pasted}; <...> only the user knows
VALUES: dict[str, dict[str, str]] = {
    "fp16 half": {"true": "train.precision=fp16", "False": "train.precision=fp32"},
    "bf16": {"True": "train.precision=bf16", "false": "train.precision=fp32"},
    "amp": {"true": "train.precision=auto", "false": "train.precision=fp32"},
    "mixed_precision": {"no": "train.precision=fp32", "bf16": "train.precision=bf16"},
    "dtype torch_dtype precision": {
        "float16": "train.precision=fp16",
        "bfloat16": "train.precision=bf16",
    },
    "no_cuda use_cpu": {"true": "train.device=cpu", "false": "train.device=auto"},
    "gradient_checkpointing activation_checkpointing checkpoint_activations": {
        "true": "train.checkpoint_activations=true",
        "false": "train.checkpoint_activations=false",
    },
    "torch_compile": {"true": "train.compile=true", "false": "train.compile=false"},
    "load_best_model_at_end": {"true": "train.keep_best=true", "false": "train.keep_best=false"},
    "full_determinism deterministic": {
        "true": "train.deterministic=true",
        "false": "train.deterministic=false",
    },
    "async_save async_checkpoint use_async_checkpoint async_mode": {
        "true": "train.save_async=true",
        "false": "train.save_async=false",
    },
    "optimizer": {"adamw_torch_fused": "optim=adamw", "sgd": "optim=momentum"},
    "lr_scheduler lr_scheduler_type scheduler": {
        "constant_with_warmup": "schedule=constant",
        "cosine": "schedule=cosine schedule.min_ratio=0",
    },
    "betas adam_betas": {
        "[0.8,0.95]": "optim.betas=[0.8,0.95]",
        "'(0.9, 0.98)'": "optim.betas=[0.9,0.98]",
    },
    "warmup warmup_steps warmup_updates warmup_iters num_warmup_steps": {
        "20": "schedule.warmup_steps=20",
        "0.06": "schedule.warmup_share=0.06",
    },
    "per_device_train_batch_size per_gpu_train_batch_size": {
        "8": "train.batch_size=8, rows of all processes",
        "16 train.processes=2": "train.batch_size=32, rows of all processes",
        "8 gradient_accumulation_steps=4": "train.batch_size=32, rows of all processes",
    },
    "gradient_accumulation_steps gradient_accumulation accumulate_grad_batches update_freq": {
        "4": "train.micro_batch_size=8",
        "[2]": "train.micro_batch_size=16",
        "4 per_device_train_batch_size=8": "train.batch_size=32 train.micro_batch_size=8",
        "1": LEFT_OUT,
    },
    "max_steps num_steps total_steps train_steps max_update max_updates max_iters num_train_steps"
    " num_updates updates total_num_update": {"100": "train.steps=100", "-1": LEFT_OUT},
    "epochs num_epochs n_epochs max_epoch max_epochs num_train_epochs": {
        "2.5": "train.epochs=2.5",
        "-1": LEFT_OUT,
    },
    "save_total_limit keep_last_epochs keep_interval_updates": {
        "3": "train.keep_last=3",
        "None": LEFT_OUT,
    },
    "save_steps": {"50": "train.save_every=50", "0.1 max_steps=200": "train.save_every=20"},
    "eval_steps val_check_interval": {
        "50": "train.eval_every=50",
        "0.1": "train.eval_every=<updates, 0.1 of all>",
    },
    "logging_steps": {"5": "train.log_every=5", "0.5 train.steps=8": "train.log_every=4"},
    "n_gpu num_gpus devices world_size nproc_per_node": {
        "2": "train.processes=2",
        "[0,1,2]": "train.processes=3",
        "0": "train.device=cpu",
    },
    "eval_strategy evaluation_strategy": {
        "no": "train.eval_every=0",
        "epoch": "train.eval_every=null",
        "steps eval_steps=7": "train.eval_every=7",
        "steps": "train.eval_every=<updates>",
    },
    "save_strategy": {
        "no": "train.save_every=0",
        "epoch": "train.save_every=null",
        "best": "train.keep_best=true",
    },
    "logging_strategy": {
        "no": "train.log_every=0",
        "epoch": "train.log_every=<updates of an epoch>",
    },
    "metric_for_best_model best_checkpoint_metric monitor": {
        "eval_loss": "train.best_metric=loss",
        "macro_f1": "train.best_metric=macro_f1",
    },
    "max_train_samples": {"100": "train.share=<share of 100 rows>", "None": LEFT_OUT},
    "limit_train_batches": {"0.5": "train.share=0.5", "10": "train.share=<share of 10 batches>"},
    "max_time time_limit": {"00:01:30:00": "train.minutes=90", "90": "train.minutes=<minutes>"},
    "stop_time_hours": {"1.5": "train.minutes=90", "-1": LEFT_OUT},
    "id2label": {
        "{1:yes,0:nope}": "task.label_names={0:nope,1:yes}",
        "[a,b]": "task.label_names=[a,b]",
    },
    "label2id": {
        "{yes:1,nope:0}": "task.label_names={0:nope,1:yes}",
        "{a:0,b:1}": "task.label_names={0:a,1:b}",
    },
    "label_list label_names": {
        "[a,b]": "task.label_names=[a,b]",
        "[x,y,z]": "task.label_names=[x,y,z]",
    },
    "trackers report_to wandb use_wandb logger loggers": {
        "none": "run.trackers=[]",
        "wandb": "run.trackers=[wandb]",
        "[wandb,tensorboard]": "run.trackers=[wandb]",
        "tensorboard": "run.trackers=[]",
        "all": "run.trackers=[wandb,mlflow,trackio]",
    },
    "lora_r r lora_rank": {
        "4": "peft=[lora] peft.lora.rank=4",
        "16 peft=[dora]": "peft.dora.rank=16",
        "2 peft=[bitfit]": "peft=[bitfit,lora] peft.lora.rank=2",
    },
    "lora_alpha": {"16": "peft=[lora] peft.lora.alpha=16", "32 peft=[lora]": "peft.lora.alpha=32"},
    "lora_dropout": {
        "0.1": "peft=[lora] peft.lora.dropout=0.1",
        "0.0": "peft=[lora] peft.lora.dropout=0.0",
    },
    "use_rslora": {
        "true": "peft=[lora] peft.lora.root=true",
        "false": "peft=[lora] peft.lora.root=false",
    },
    "target_modules lora_target_modules": {
        "[q_proj,v_proj]": "peft=[lora] peft.lora.maps=[query,value]",
        "all-linear": "peft=[lora] peft.lora.maps=[query,key,value,output,up,down]",
    },
    "use_lora use_peft peft_type": {
        "true": "peft=[lora]",
        "IA3": "peft=[ia3]",
        "PREFIX_TUNING": "peft=[prefix]",
        "false": LEFT_OUT,
    },
    "use_dora": {"true": "peft=[dora]", "false": LEFT_OUT},
    "line_by_line": {"false": LEFT_OUT, "no": LEFT_OUT},
    "sample_break_mode": {"none": LEFT_OUT, "complete": LEFT_OUT},  # of pretraining
    "resume_from_checkpoint": {
        "true": "plmctl finetune --resume run.dir=<its folder>",
        "runs/a": "plmctl finetune --resume run.dir=runs/a",
        "false": LEFT_OUT,
    },
    "train_file train_data train_path": {
        "a.csv": "task.path=a.csv",
        "a.csv validation_file=b.csv test_file=c.csv": "task.path=[a.csv,b.csv,c.csv]",
    },
    "validation_file valid_file valid_path val_path eval_data_file test_file": {
        "b.csv task.path=a.csv": "task.path=[a.csv,b.csv]",
        "b.csv task.path=[a.csv]": "task.path=[a.csv,b.csv]",
    },
    "log_level verbose": {"debug": "-v", "error": "-q", "warning": LEFT_OUT},
    "fp16_full_eval bf16_full_eval": {"true": LEFT_OUT, "false": LEFT_OUT},  # of plmctl eval
}
BASE = ("task=classification", "checkpoint=null")


def fixes_of(verb: str, *words: str) -> dict[str, str]:
    """{wrong setting: its fix}."""
    found = attempt(Provenance(verb, None, words)).errors
    told = [(getattr(error, "path", ""), str(error)) for error in found]
    return {path: text.partition("\n  fix: ")[2] for path, text in told}


@pytest.mark.parametrize("names", VALUES)
def test_a_value_of_another_trainer_keeps_its_meaning(names: str) -> None:
    for typed, expected in VALUES[names].items():
        value, *others = typed.split(" ") if not typed.startswith("'") else [typed]
        for name in names.split():
            told = fixes_of("finetune", f"{name}={value}", *BASE, *others)
            assert told[name] == spell_fix(expected)
        if "<" in expected or expected.startswith(("plmctl", "-", LEFT_OUT)):
            continue
        ours = [word for word in others if word.partition("=")[0] in ("peft", "train.processes")]
        words = (*BASE, "task.path=nowhere", *ours, *expected.partition(", ")[0].split())
        assert not attempt(Provenance("finetune", None, words)).errors


def test_every_name_with_other_values_is_tested() -> None:
    assert set(" ".join(VALUES).split()) == set(_BY_NAME)


def test_a_name_alone_keeps_the_value_and_none_is_the_default(trees: list[dict[str, Any]]) -> None:
    plain = {name: key for key, names in reversed(OURS.items()) for name in names.split()}
    known = {"optim.betas.0", "optim.betas.1", *paths(trees[1])}
    names = [name for name in plain if plain[name] in known]
    names = [name for name in names if name not in _BY_NAME and "." not in name]
    threes = fixes_of("finetune", *[f"{name}=3" for name in names], *BASE)
    nones = fixes_of("finetune", *[f"{name}=None" for name in names], *BASE)
    for name in names:
        assert f"{plain[name]}=3" in threes[name].split()
        assert nones[name] == spell_fix(LEFT_OUT)


def test_what_is_no_setting_here_is_left_out_where_its_value_says_no() -> None:
    names = [name for name in INSTEAD if name not in _BY_NAME]
    left = fixes_of("finetune", *[f"{name}=false" for name in names], *BASE)
    told = fixes_of("finetune", *[f"{name}=abc" for name in names], *BASE)
    for name in names:
        typed = INSTEAD[name].typed.replace("{}", "abc").replace("<command>", "finetune")
        typed = "" if typed.startswith("format=") else typed  # of pretraining
        assert left[name] == spell_fix(LEFT_OUT)
        assert told[name] == spell_fix(typed or LEFT_OUT)


@pytest.mark.parametrize(
    ("verb", "words", "fix"),
    [
        ("pretrain", ["sample_break_mode=complete"], "format=full_sentences"),
        ("pretrain", ["sample_break_mode=none"], "format=blocks format.crossing=true"),
        ("pretrain", ["line_by_line=true"], "format=sentences"),
        ("pretrain", ["lora_r=4"], LEFT_OUT),
        ("pretrain", ["adam_beta1=0.8"], "optim.betas.0=0.8"),
        ("finetune", ["adam_beta2=0.98", *GLUE], "optim.betas.1=0.98"),
        ("pretrain", ["resume_from_checkpoint=runs/a"], "plmctl pretrain --resume run.dir=runs/a"),
        ("pretrain", ["mlm_probability=0.2"], "noise.rate=0.2"),
        ("pretrain", ["save_strategy=epoch"], "train.save_every=<updates of an epoch>"),
        ("finetune", ["mlm_probability=0.2", *GLUE], LEFT_OUT),
        ("finetune", ["eval_batch_size=4", *GLUE], LEFT_OUT),
        ("finetune", ["num_beams=4", *GLUE], LEFT_OUT),
        ("finetune", ["optim=adamw_torch_fused", *GLUE], "optim=adamw"),
        ("finetune", ["schedule=polynomial", *GLUE], "schedule=linear"),
        ("eval", ["optim.lr=1", "checkpoint=x"], LEFT_OUT),
        ("eval", ["validation_file=b", "task=sst2", "checkpoint=x"], "task.path=b"),
        ("eval", ["data.path=b", "task=sst2", "task.path=a", "checkpoint=x"], LEFT_OUT),
        ("finetune", ["data.valid_path=b", *BASE, "task.path=a"], "task.path=[a,b]"),
        ("finetune", ["data.valid_share=0.1", *GLUE], LEFT_OUT),
        ("finetune", ["data.path=a", *GLUE[:2], "checkpoint=b"], LEFT_OUT),
        ("finetune", ["train.spike_window=50", *GLUE], "train.spikes=skip"),
        ("pretrain", ["train.spike_deviations=5"], "train.spikes=skip"),
        ("finetune", ["train.frozen_limit=5", *GLUE], "train.frozen_outputs=once"),
        ("finetune", ["teacher_weights=[1,2]", *GLUE], "teacher=[<a run>,<another run>]"),
        ("vectors", ["data.valid_path=a", "out=b"], LEFT_OUT),
        ("pretrain", ["validation_file=b"], "data.valid_path=b"),
        ("eval", ["learning_rate=1", "task=sst2", "task.path=x", "checkpoint=x"], LEFT_OUT),
        ("eval", ["fp16=true", "task=sst2", "task.path=x", "checkpoint=x"], "precision=fp16"),
        (
            "embed",
            ["normalize_embeddings=true", "checkpoint=x", "input=x", "out=y"],
            "normalize=true",
        ),
    ],
)
def test_a_fix_is_one_of_the_command(verb: str, words: list[str], fix: str) -> None:
    assert fixes_of(verb, *words)[words[0].partition("=")[0]] == spell_fix(fix)


def test_the_name_that_this_command_has() -> None:
    assert "\n  fix: task.max_length=64\n" in said("finetune", *GLUE, "max_seq_length=64")
    assert "\n  fix: checkpoint=a\n" in said("finetune", *GLUE, "model_name_or_path=a")
    assert "\n  fix: init=a\n" in said("pretrain", "model_name_or_path=a")
    assert "\n  fix: search=beam search.width=4  # or constrained or diverse\n" in said(
        "generate", "checkpoint=x", "num_beams=4"
    )
    Path("mine.yaml").write_text(
        "# @package _global_\n# mine\ntrain: {learning_rate: 1, num_train_epochs: 2}\n"
    )
    told = said("pretrain", "./mine.yaml")
    assert "train.learning_rate=1: there is no such setting (did you mean 'optim.lr'?)" in told
    assert (
        "train.num_train_epochs=2: there is no such setting (did you mean 'train.epochs'?)" in told
    )


def test_the_table_of_defaults_that_differ_is_true() -> None:
    arguments = pytest.importorskip("transformers").TrainingArguments
    theirs = {field.name: field.default for field in dataclasses.fields(arguments)}
    ours = compose("finetune", None, [*BASE, "task.path=x"])
    page = Path(plmctl.__file__).parents[1] / "docs" / "coming-from.md"
    rows = re.findall(
        r"^\| `(\w+)` \| `(\S+)` \| `([\w.]+)=(\S+?)`", page.read_text(), re.MULTILINE
    )
    assert len(rows) == 11
    for name, default, key, value in rows:
        stated, own = theirs[name], spell(ours.select(key))
        assert str(getattr(stated, "value", stated)) == default
        assert own == value or float(own) == float(value)
        assert own != spell(stated)


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["--size", "tiny"], "size=tiny"),
        (["--optim.lr=1"], "optim.lr=1"),
        (["--learning-rate", "1e-4"], "optim.lr=1e-4"),
        (["--fp16"], "train.precision=fp16"),
        (["--size"], "size=..."),
        (["--size", "--dry-run"], "size=..."),
    ],
)
def test_a_setting_written_as_an_option(words: list[str], fix: str) -> None:
    name = words[0].partition("=")[0]
    told = said("pretrain", *words)
    assert (
        f"Error: there is no option {name}: settings are written without dashes\n"
        f"  fix: {spell_fix(fix)}\n" in told
    )
    assert "No such option: --nonsense" in said("pretrain", "--nonsense", "tiny")


def test_an_option_that_would_swallow_the_next_one(tmp_path: Path) -> None:
    assert "Error: --card needs a FILE, but --out is an option" in said(
        "report", "run", "--card", "--out", "x.html"
    )
    told = said("pretrain", "bert", "--preview")
    assert "Error: --preview needs a number behind it\n  fix: --preview 5\n" in told
    (tmp_path / "run").mkdir()
    told = said("report", "run", "--out", "page.md", "--card", "page.md")
    assert (
        told
        == "plmctl: --card page.md: the page itself is written there\n  fix: --card page-card.md\n"
    )


@pytest.mark.parametrize(("heads", "width", "fix"), [(3, 128, 4), (5, 64, 4), (12, 100, 10)])
def test_heads_that_do_not_divide_the_width(heads: int, width: int, fix: int) -> None:
    told = said("pretrain", "size=tiny", f"size.num_heads={heads}", f"size.width={width}")
    fits = [n for n in range(1, width + 1) if width % n == 0]
    shown = ", ".join(map(str, fits[:8])) + (", ..." if len(fits) > 8 else "")
    wider = heads * -(-width // heads)
    assert (
        told == f"plmctl: size.num_heads={heads}: must divide size.width={width}: {shown}\n"
        f"  fix: size.num_heads={fix}  # or size.width={wider}\n"
    )
    assert not Path("runs").exists()
    assert told == said(
        "finetune", *glue(), "size=tiny", f"size.num_heads={heads}", f"size.width={width}"
    )


def glue() -> list[str]:
    Path("glue").mkdir(exist_ok=True)
    for split in ("train", "dev"):
        rows = "".join(f"text {n} of {split}\t{n % 2}\n" for n in range(4))
        Path("glue", f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return ["task=sst2", "task.path=glue", "checkpoint=null"]


CHINESE = "今天天气很好，我们一起去公园散步。\n语言模型的预训练\n"


@pytest.mark.parametrize(
    ("text", "encoding", "found"),
    [
        (CHINESE, "gbk", "gb18030"),
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "utf-16", "utf-16"),
        ("中文 abc 测试", "gbk", "gb18030"),
        ("Le café était fermé; à bientôt.", "latin1", ""),
        ("Über größere Wälder", "latin1", ""),
        ("Сегодня хорошая погода, и мы идём гулять.", "cp1251", ""),
        ("Сегодня хорошая погода, и мы идём гулять.", "koi8-r", ""),
    ],
)
def test_the_encoding_that_a_text_seems_to_have(text: str, encoding: str, found: str) -> None:
    assert guess_encoding(text.encode(encoding)) == found


def test_files_in_gbk_are_told_how_to_be_converted() -> None:
    Path("文本.txt").write_bytes(CHINESE.encode("gbk"))
    told, fix = (
        "not UTF-8: byte 0xbd at column 1; it seems to be gb18030",
        "iconv -f gb18030 -t utf-8 '文本.txt' > converted.txt",
    )
    assert (
        said("data", "check", "文本.txt", code=3)
        == f"plmctl: 文本.txt:1: {told}\n  fix: {spell_fix(fix)}\n"
    )
    Path("train.tsv").write_bytes(f"text\tlabel\n{CHINESE}".encode("gbk"))
    told = said("data", "check", "train.tsv", "task=classification", code=3)
    assert told.endswith(
        "it seems to be gb18030\n  fix: iconv -f gb18030 -t utf-8 train.tsv > converted.tsv\n"
    )
    Path("latin.txt").write_bytes("café\n".encode("latin1"))
    told = "plmctl: latin.txt:1: not UTF-8: byte 0xe9 at column 4, saved in an unknown encoding,"
    told += " such as cp1252\n"
    fix = "  fix: iconv -f cp1252 -t utf-8 latin.txt > converted.txt\n"
    assert said("data", "check", "latin.txt", code=3) == told + fix


@pytest.mark.parametrize("encoding", ["koi8-r", "cp1251"])
def test_a_text_of_another_script_is_never_called_latin1(encoding: str) -> None:
    file = Path("it's text.txt")
    file.write_bytes("Сегодня хорошая погода.\n".encode(encoding) * 3)
    told, fix = said("data", "check", str(file), code=3).split("\n  fix: ")
    assert "saved in an encoding of another script" in told
    shown = subprocess.run(["sh", "-c", fix], capture_output=True, check=True).stdout
    assert f"{encoding}: Сегодня хорошая погода.".encode() in shown


def test_the_path_that_is_missing_is_the_one_that_is_named() -> None:
    Path("a.txt").write_text("some text\n" * 20)
    told = said("pretrain", "size=tiny", "data.path=a.txt", "data.valid_path=nothere", code=3)
    assert (
        told == "plmctl: nothere: no such file, folder or pattern\n  fix: data.valid_path="
        "EXISTING_ONE\n"
    )
    told = said("data", "check", "a.txt", "data.valid_path=empty", code=3)
    assert told.endswith("fix: data.valid_path=EXISTING_ONE\n")


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        (
            "bert-base-uncased",
            "download it first: hf download bert-base-uncased --local-dir bert-base-uncased",
        ),
        (
            "google/electra",
            "download it first: hf download google/electra --local-dir google/electra",
        ),
        ("imported", "give one that exists, such as runs/other"),
        ("runs/wiki", "give one that exists, such as runs/other"),
        ("runs/2/wiki", "check the path"),
        ("./bert", "check the path"),
        ("/no/bert", "check the path"),
        ("a/b/c", "check the path"),
        ("wiki/", "give one that exists, such as runs/other"),
        ("org/bert/", "download it first: hf download org/bert --local-dir org/bert"),
    ],
)
def test_a_checkpoint_that_is_not_there(name: str, fix: str) -> None:
    Path("runs/other").mkdir(parents=True)
    told = said("embed", f"checkpoint={name}", "input=x", "out=y.npz", code=3)
    assert (
        told
        == f"plmctl: {Path(name)}: there is no such run, checkpoint or Hugging Face folder\n  fix:"
        f" {spell_fix(fix)}\n"
    )


def test_a_wrong_name_means_the_setting_nearest_in_the_tree() -> None:
    known = ["rounds", "optim.lr", "optim.round", "model.encoder.rate", "model.decoder.rate"]
    assert guess("round", known) == ["rounds"]
    assert guess("train.round", known) == ["optim.round"]
    assert guess("model.decoder.stack.rate", known) == ["model.decoder.rate"]
    assert guess("noise.rate", known) == ["model.encoder.rate", "model.decoder.rate"]
    assert guess("optim.lrr", known) == ["optim.lr"]


def test_near_names_are_found_in_one_place_for_all_messages() -> None:
    assert find_meant("seeed", ["steps", "seed"]) == "seed"
    assert find_meant("zzz", ["steps", "seed"]) == ""
    assert find_alike("step", ["stop", "steps", "lr"], most=2) == ["steps", "stop"]
    assert find_meant("step", ["stop"], least=0.8) == ""
    assert nearest("step", ["steps"]) == did_you_mean(["steps"]) == " (did you mean 'steps'?)"
    assert did_you_mean(["a", "b"]) == " (did you mean 'a' or 'b'?)"
    assert did_you_mean([]) == nearest("zzz", ["steps"]) == ""
    keys = ["train.seed", "optim.seeds", "seeded"]
    assert find_meant_beside("train.sed", keys) == "train.seed"
    assert find_meant_beside("data.seed", keys) == ""
    assert find_meant_beside("sedded", keys) == "seeded"
    package = Path(plmctl.__file__).parent
    users = [
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if "get_close_matches" in file.read_text(encoding="utf-8")
    ]
    assert users == ["core/errors.py"]
