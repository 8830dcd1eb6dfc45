"""Signs of Chinese keyboards and of editors on a command line, and texts that truly have them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.cli.signs import refuse_look_alikes
from plmctl.core.errors import UsageError

OPTIONS, VALUED = {"--help", "-h", "--dry-run", "--plugin"}, {"--plugin"}


@pytest.mark.parametrize(
    ("line", "sign", "fix"),
    [
        ("tokenize data.path=a.txt tokenizer.vocab_size＝5000", "＝", "…=a.txt … …=5000"),
        ("finetune task＝classification", "U+FF1D", "finetune task=classification"),
        ("finetune －－help", "U+FF0D", "finetune --help"),
        ("finetune —help", "em dash", "finetune --help"),
        ("pretrain –-help", "en dash", "pretrain --help"),
        ("pretrain —h", "em dash", "pretrain -h"),
        ("pretrain bert —dry-run", "em dash", "pretrain bert --dry-run"),
        (
            "tokenize data.path=a.txt，tokenizer＝char",
            "，",
            "tokenize data.path=a.txt tokenizer=char",
        ),
        (
            "tokenize data.path=a.txt， tokenizer=char",
            "，",
            "tokenize data.path=a.txt tokenizer=char",
        ),
        ("finetune task=tnews\u3000task.path=路", "U+3000", "finetune task=tnews task.path=路"),
        ("finetune\u3000--help", "ideographic space", "finetune --help"),
        ("finetune task.path=“我的路径”", "“", "finetune task.path=我的路径"),
        ("finetune task.path=“我的 表.csv” seed=1", "“", "finetune 'task.path=我的 表.csv' seed=1"),
        ("finetune checkpoint＝「runs/a」", "「", "finetune checkpoint=runs/a"),
        ("data check “notes.txt”", "“", "data check notes.txt"),
        ("pretrain noise=[token_mask，span_mask]", "，", "pretrain 'noise=[token_mask,span_mask]'"),
    ],
)
def test_look_alikes_are_named_and_the_fix_runs(line: str, sign: str, fix: str) -> None:
    with pytest.raises(UsageError) as found:
        refuse_look_alikes(line.split(" "), OPTIONS, VALUED)
    problem, _, corrected = str(found.value).partition("\n  fix: plmctl ")
    assert sign in problem
    if "…" not in fix:
        assert corrected == fix
    refuse_look_alikes(shlex.split(corrected), OPTIONS, VALUED)  # nothing is left to correct


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "runs/a", "prompt=“你好”，seed=3 —help ＝"],
        ["generate", "runs/a", "—hello"],
        ["data", "check", "我的\u3000文件.txt"],
        ["data", "check", "“真”"],
        ["data", "check", "data.path=a.txt，seed=1"],
        ["eval", "task.template='{text}，answer={answer}'"],
        ["eval", "task.label_words={0:好，坏,1:“差”}"],
        ["eval", "task.answer_context=“答案是”"],
        ["pretrain", "--plugin", "a＝b"],
        ["pretrain", "--", "—help"],
        ["predict", "runs/a", "input=标题，正文.csv"],
    ],
)
def test_texts_and_names_keep_their_signs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("我的\u3000文件.txt", "“真”", "a.txt，seed=1"):
        Path(name).write_text("x")
    assert refuse_look_alikes(words, OPTIONS, VALUED) is None  # type: ignore[func-returns-value]


def test_a_command_line_is_read_whole() -> None:
    done = CliRunner().invoke(make_app(), ["finetune", "task＝tnews", "—print-config"])
    assert done.exit_code == 2
    assert done.stderr.endswith("fix: plmctl finetune task=tnews --print-config\n")
