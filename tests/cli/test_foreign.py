"""Names that other trainers use lead to ours; hints name what is there, and are the fix."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.other_names import OURS, guess
from plmctl.config.spec import thaw
from plmctl.config.walks import paths
from plmctl.core.errors import did_you_mean, find_alike, find_meant, find_meant_beside, nearest
from plmctl.core.pasted import spell_fix
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
    ]
    return [thaw(cfg) for cfg in made]


def test_every_name_of_ours_is_there(trees: list[dict[str, Any]]) -> None:
    known = {path for tree in trees for path in paths(tree)}
    # noise.rate
    short = {
        f"{path.split('.')[0]}.{path.split('.')[-1]}" for path in known if path.startswith("noise.")
    }
    assert {name.partition("=")[0] for name in OURS} - known - short == set()


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
        ("train.per_device_train_batch_size=8", "train.batch_size", "train.batch_size=8"),
        ("num_train_epochs=3", "train.epochs", "train.epochs=3"),
        ("fp16=true", "train.precision", "train.precision=fp16"),
        (
            "gradient_accumulation_steps=2",
            "train.micro_batch_size",
            "train.micro_batch_size=<train.batch_size / accumulated batches>",
        ),
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
