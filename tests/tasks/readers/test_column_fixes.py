"""Every fix that a message about the columns of a table offers is a setting that composes, and with
it the table is read.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from plmctl.config.asked import find_ids
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.config.quoting import quote
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell
from plmctl.tasks.readers.column_settings import spell_role
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example

# task, what is set, (the names of the columns; the first row; the second row), the fix
CASES = [
    ("classification", ["text=MessageBody"], ("Message Body,label", "x,a", "y,b"), "text"),
    ("classification", ["text=MessageBody"], ('"Message, Body",label', "x,a", "y,b"), "text"),
    ("classification", ["text=whats said"], ("what's said,label", "x,a", "y,b"), "text"),
    ("classification", ["text='202'"], ("2020,label", "x,a", "y,b"), "text"),
    ("classification", ["text=消息文"], ("消息文本,label", "x,a", "y,b"), "text"),
    ("classification", ["label=lable"], ("text,label", "x,a", "y,b"), "label"),
    ("classification", ["label=team"], ("text,team,team", "x,a,c", "y,b,d"), "label"),
    ("classification", ["text=0", "label=team"], ("text,team,team", "x,a,c", "y,b,d"), "label"),
    ("classification", ["text=[body]"], ("body,label", "x,a", "y,b"), "text"),
    (
        "pair_classification",
        ["text=[a,b]", "text2=null"],
        ("a,b,label", "x,z,a", "y,z,b"),
        "text text2",
    ),
    (
        "choice",
        ["text=q", "choices=[ending_0,ending1,'ending, 2']"],
        ('q,ending0,ending1,"ending, 2",label', "x,1,2,3,0", "y,1,2,3,1"),
        "choices",
    ),
    ("choice", ["text=q", "choices=[a,b]"], ("q,a,b,b,label", "x,1,2,3,0", "y,1,2,3,1"), "choices"),
    (
        "bi_encoder",
        ["positive=pos", "negatives=[neg,negative_2]"],
        ("query,pos,neg,negative2", "x,1,2,3", "y,1,2,3"),
        "negatives",
    ),
]


def read(words: list[str], file: Path) -> list[Example]:
    given = [f"task.path={file}", "checkpoint=null"]
    node: dict[str, Any] = thaw(compose("finetune", None, [*given, *words]))["task"]
    reader = build(node["reader"], {}, path="task.reader")
    return reader.read({"train": file}, "train", node["columns"])


def text_of(example: Example) -> str:
    return str(example.fields.get("text", example.fields.get("query")))


def told_fix(words: list[str], file: Path) -> list[str]:
    with pytest.raises((ConfigError, DataError)) as caught:
        read(words, file)
    return shlex.split(str(caught.value).rpartition("\n  fix: ")[2])


@pytest.mark.parametrize(("task", "columns", "table", "roles"), CASES)
def test_with_the_fix_the_table_is_read(
    tmp_path: Path, task: str, columns: list[str], table: tuple[str, ...], roles: str
) -> None:
    file = tmp_path / "train.csv"
    file.write_text("\n".join([*table, ""]), encoding="utf-8")
    words = [f"task={task}", *(f"task.columns.{word}" for word in columns)]
    fix = told_fix(words, file)
    set_by_it = [word.partition("=")[0] for word in fix if word != "task.reader.header=true"]
    assert set_by_it == [f"task.columns.{role}" for role in roles.split()]
    assert [text_of(example) for example in read([*words, *fix], file)] == ["x", "y"]


def test_so_it_is_of_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    row = {"q": "x", "ending 0": "1", "ending, 1": "2", "label": 0}
    file.write_text(f"{json.dumps(row)}\n", encoding="utf-8")
    words = ["task=choice", "task.columns.text=q", "task.columns.choices=[ending 0,ending_1]"]
    fix = told_fix(words, file)
    assert fix == ["task.columns.choices=[ending 0,'ending, 1']"]
    assert [text_of(example) for example in read([*words, *fix], file)] == ["x"]


def test_columns_are_spelt_as_hydra_reads_them() -> None:
    plain = ["body", "Message Body"]
    odd = [
        "größe",
        "a, b",
        "it's",
        "2020",
        "null",
        "NaN",
        "inf",
        "-x",
        " x",
        "a\\",
        'b"',
        "a=b",
        "a:b",
        "[a]",
        "${a}",
    ]
    assert [spell(name) for name in [*plain, 3, -1]] == [*plain, "3", "-1"]
    for name in [*plain, *odd]:
        words = shlex.split(spell_role("text", spell(name), {}))
        assert OverridesParser.create().parse_overrides([quote(words[0])])[0].value() == name
    columns = {"choice0": "a, b", "choice1": 2, "text": "q"}
    assert spell_role("text", "x", columns, ["choices"]) == "task.columns.text=x"
    assert spell_role("choice1", "x", columns) == "task.columns.choice1=x"
    spelt = spell_role("choice1", "x", columns, ["choices"])
    assert shlex.split(spelt) == ["task.columns.choices=['a, b',x]"]


@pytest.mark.parametrize(
    ("name", "rows", "cause", "texts"),
    [
        ("t.csv", ["正文，部门", "登录不了，账号", "地址错了，财务"], "comma ，", "登录不了"),
        ("t.csv", ["正文，部门", "登录,不了，账号", "地址错了，财务"], "comma ，", "登录,不了"),
        ("t.csv", ["正文，部门", "我，登录不了，账号", "地址错了，财务"], "，", "我，登录不了"),
        ("t.csv", ["部门，正文", "账号，我，登录不了", "财务，地址错了"], "，", "我，登录不了"),
        ("t.csv", ["正文；部门", "登录不了；账号", "地址错了；财务"], "semicolon ；", "登录不了"),
        (
            "t.tsv",
            ["正文    部门", "登录 不了   账号", "地址错了  财务"],
            "several spaces",
            "登录 不了",
        ),
        ("t.tsv", ["正文,部门", "登录不了,账号", "地址错了,财务"], ", in the first", "登录不了"),
    ],
)
def test_signs_that_divide_no_cells_are_named(
    name: str, rows: list[str], cause: str, texts: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    reader = Table(splits={"train": ["*"]})
    columns = {"text": "正文", "label": "部门"}
    with pytest.raises(DataError, match="expected columns 正文, 部门") as found:
        reader.read_file(tmp_path / name, columns)
    assert cause in str(found.value)
    command, _, setting = str(found.value).partition("\n  fix: ")[2].partition("  # then ")
    subprocess.run(command, shell=True, check=True, timeout=20)
    read = reader.read_file(Path(setting.removeprefix("task.path=")), columns)
    assert [(read[0].fields["text"], read[0].label), read[1].label] == [(texts, "账号"), "财务"]


@pytest.mark.parametrize("role", ["id", "bundle", "slice"])
def test_an_optional_column_that_a_user_names_exists(role: str, tmp_path: Path) -> None:
    """Without it a preset's file has numbers for ids, and a test file may lack bundles."""
    (tmp_path / "all.csv").write_text("text,label,owner\na b,x,Ann\nc d,y,Bob\n")
    (tmp_path / "all.jsonl").write_text('{"text": "a b", "label": "x", "owner": 1}\n')
    key = f"task.columns.{role}"
    for name in ("all.csv", "all.jsonl"):
        for wrong, fix in (("ownr", "owner"), ("nosuch", "null")):
            words = [f"task.path={{test: {tmp_path / name}}}", f"{key}={wrong}"]
            cfg = compose("finetune", None, ["task=classification", "checkpoint=null", *words])
            task = build(cfg.task, {"pooling": "first"}, path="task")
            assert task.read("test")
            task.splits.name_columns([key, "task.columns.label"])
            with pytest.raises(DataError, match=rf"{wrong}; found.*(?s:.*)  fix: {key}={fix}$"):
                task.read("test")


def test_a_blank_bundle_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a", "label": "x", "who": null}\n{"text": "b", "label": "x", "who": 7}\n'
    )
    (tmp_path / "a.csv").write_text("text,label,who\na,x,  \nb,x,7\n")
    columns = {"text": "text", "label": "label", "bundle": "who", "slice": "who"}
    for name in ("a.jsonl", "a.csv"):
        found = Table(splits={}).read_file(tmp_path / name, columns)
        assert [(each.bundle, each.slices) for each in found] == [("", ()), ("7", ("7",))]


def test_an_id_counts_as_named_where_the_user_wrote_it() -> None:
    words = ("task=classification", "task.columns.id=uid", "task.columns.bundle=owner")
    given = Provenance("finetune", overrides=words)
    assert find_ids(given) == ["task.columns.id"]
    assert find_ids(replace(given, within=True)) == find_ids(Provenance("finetune")) == []
