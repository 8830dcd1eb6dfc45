"""Each setting that is printed is one word of a shell, and means what it says where it is typed."""

from __future__ import annotations

import ast
import json
import random
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config.composer import open_composer
from plmctl.config.keys import is_path
from plmctl.config.quoting import quote, read_names
from plmctl.config.word_grammar import parse_word
from plmctl.core.errors import DataError
from plmctl.core.pasted import spell_fix
from plmctl.core.spelling import spell, spell_line, spell_setting, spell_word
from plmctl.tasks.cloze import spell_words
from plmctl.tasks.layouts.templates import GAP, spell_template
from plmctl.tasks.readers.column_settings import spell_role
from tests.trees import walk

AWKWARD = [
    *("Message Body (HTML)", "a,b", "x=y", "正文", "正 文, 列", "it's", '"said"', "$HOME"),
    *("null", "TRUE", "12", "1e5", "1_0", "", " a", "a  b", "[x]", "{y: z}", "choice(a)", "~/x"),
    *("a\\", "\\'", "*", "<b>x</b>", "!x", "`id`", "-x", "a:b", "é", "%u41%", "a\tb", "nan", "#1"),
    *("a'b\"c", "~x=1"),
]


def type_and_read(typed: str, *, sweep: bool = False) -> Any:
    """The value of a setting that was typed into a shell, as the composed config has it."""
    (word,) = shlex.split(typed)
    with open_composer("pretrain") as composer:
        value = parse_word(quote(word, sweep=sweep), composer)._parsed.value()
    return read_names(OmegaConf.to_container(OmegaConf.create({"x": value})))["x"]


@pytest.mark.parametrize("text", AWKWARD)
def test_a_text_arrives_from_every_kind_of_setting(text: str) -> None:
    for key in ("data.field", "data.path", "run.dir", "checkpoint"):
        assert type_and_read(spell_setting(key, text)) == text
        assert type_and_read(spell_setting(key, text), sweep=True) == text
    for value in ([text, "b", 1], {"text": text, "b": [text, None]}, {text or "x": {text: 2.5}}):
        assert type_and_read(spell_setting("task.x", value)) == value
    assert type_and_read(spell_role("text", spell(text), {})) == text
    words = {text or "x": [text or "y"], "other": ["a", text or "z"]}
    expected = {text or "x": text or "y", "other": ["a", text or "z"]}
    assert type_and_read(spell_words(words)) == expected


def test_drawn_texts_arrive_through_a_real_shell() -> None:
    draws = random.Random(7)
    letters = "ab Z19.,:;=+-_/\\'\"()[]{}<>$%&*?!|~^#@`正é"
    texts = ["".join(draws.choices(letters, k=draws.randint(0, 9))) for _ in range(300)]
    texts = [text for text in texts if "${" not in text]  # a reference, in quotes, too
    line = " ".join(spell_setting("data.field", text) for text in texts)
    script = f"printf '%s\\0' {line}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    words = done.stdout.decode().split("\0")[:-1]
    assert len(words) == len(texts)
    assert [type_and_read(shlex.quote(word)) for word in words] == texts
    line = " ".join(map(spell_word, texts[:50]))
    assert shlex.split(line) == texts[:50]
    assert shlex.split(spell_line("report", "a (b)/c d")) == ["plmctl", "report", "a (b)/c d"]


def test_a_prompt_and_a_template_stand_as_they_are() -> None:
    prompt = 'the [MASK] of a list, "it\'s" ${x}'
    assert shlex.split(spell_setting("prompt", prompt)) == [f"prompt={prompt}"]
    assert type_and_read(spell_template(["text", GAP])) == f"{{text}} It was {{{GAP}}}."


def test_names_of_mappings_may_be_foreign_or_in_quotes() -> None:
    for typed, meant in (
        ("{正面: 好, 负面: 坏}", {"正面": "好", "负面": "坏"}),
        ('{"a b": [好, "b, c"], c: {é: 1}}', {"a b": ["好", "b, c"], "c": {"é": 1}}),
        ("{'x: (y)': 'a, b'}", {"x: (y)": "a, b"}),
        ("{0: a, true: b}", {0: "a", True: "b"}),
        ('{"0": a}', {"0": "a"}),
    ):
        assert type_and_read(shlex.quote(f"task.x={typed}")) == meant


def fix_of(*words: str) -> list[str]:
    """The words of the fix of a command that fails."""
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code in (2, 3), done.output
    return shlex.split(done.stderr.split("\n  fix: ")[1].splitlines()[0])


NAMES = ["Message Body (HTML)", "the, long=text", "正文 $1", "it's", "12"]


@pytest.mark.parametrize("name", NAMES)
def test_the_fix_of_a_field_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    folder = tmp_path / f"{name} [1]"
    folder.mkdir()
    rows = (json.dumps({name: f"text {n} of a few words. " * 9}) for n in range(99))
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    words = ["pretrain", "bert", "size=tiny", "tokenizer.vocab_size=64", "--dry-run"]
    fix = fix_of(*words, spell_path("data.path", folder / "rows.jsonI"))
    assert fix[0] == "give" or len(fix) == 1
    fix = fix_of(*words, spell_path("data.path", folder / "rows.jsonl"))
    assert type_and_read(shlex.join(fix)) == name
    again = [*words, spell_path("data.path", folder / "rows.jsonl"), *fix]
    done = CliRunner().invoke(make_app(), again)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", NAMES[:4])
def test_the_fix_of_a_column_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name} [1]" / "train.csv"
    file.parent.mkdir()
    rows = [[name, "label"], *([f"text {n}", "ab"[n % 2]] for n in range(40))]
    lines = (",".join(f'"{cell}"' for cell in row) for row in rows)
    file.write_text("\n".join(lines), encoding="utf-8")
    near = f"task.columns.text={json.dumps(name[:-1] + 'x', ensure_ascii=False)}"
    words = ["data", "check", "task=classification", spell_path("task.path", file)]
    fix = fix_of(*words, near)
    assert type_and_read(shlex.join(fix)) == name
    done = CliRunner().invoke(make_app(), [*words, *fix])
    assert done.exit_code == 0, done.output


def spell_path(key: str, path: Path) -> str:
    return shlex.split(spell_setting(key, path))[0]


def test_no_path_stands_bare_in_a_line_that_is_printed() -> None:
    """Paths in fixes and command lines go through `spell_setting`, in every module."""
    bare = []
    for file in sorted(Path(plmctl.__file__).parent.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in walk(ast.parse(source if re.search(r"fix: |plmctl ", source) else "")):
            if not isinstance(node, ast.JoinedStr):
                continue
            parts = (each.value if isinstance(each, ast.Constant) else "\0" for each in node.values)
            text = "".join(map(str, parts)).partition("fix: ")
            line = text[2] or (text[0] if re.match(r"(next: )?plmctl [a-z]+ ", text[0]) else "")
            if any(is_path(key) for key in re.findall(r"([\w.]+)=\0", line)):
                bare.append(f"{file.name}:{node.lineno}: {line}")
    assert not bare


def test_lines_that_end_in_several_ways_are_said_with_a_line_that_mends_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a table (1).csv"
    file.write_bytes(b"text,label\none,a\rtwo,b\nthree,a\nfour,b\n")
    words = ["data", "check", "task=classification", spell_path("task.path", file)]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 3, done.output
    assert "universal" not in done.stderr
    assert "end in several ways" in done.stderr
    line = done.stderr.split("  fix: ")[1].split(", and name")[0]
    subprocess.run(["bash", "-c", line], check=True)
    assert (
        tmp_path / "a table (1)-lines.csv"
    ).read_text() == "text,label\none,a\ntwo,b\nthree,a\nfour,b\n"


def list_texts(node: ast.expr) -> list[str]:
    """The texts that an expression of literals may be, with a word for each value in it."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "it" for each in node.values)
        return ["".join(map(str, parts))]
    if isinstance(node, ast.IfExp):
        return [*list_texts(node.body), *list_texts(node.orelse)]
    if isinstance(node, ast.BoolOp):
        return [text for each in node.values for text in list_texts(each)]
    return []


def list_fixes() -> list[tuple[str, str]]:
    """(place, text) of each literal fix of the source: an argument or a name `fix`, and what
    stands behind "fix: " in a text.
    """
    found = []
    for file in sorted(Path(plmctl.__file__).parent.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in walk(ast.parse(source if re.search("fix", source, re.I) else "")):
            texts = []
            if isinstance(node, ast.keyword) and node.arg == "fix":
                texts = list_texts(node.value)
            elif isinstance(node, ast.Assign):
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
                texts = list_texts(node.value) if {"fix", "FIX", "_FIX"} & {*names} else []
            elif isinstance(node, ast.JoinedStr | ast.Constant) and "\n  fix: " in "".join(
                list_texts(node)
            ):
                texts = [text.split("\n  fix: ")[1].strip() for text in list_texts(node)]
            line = getattr(node, "lineno", getattr(getattr(node, "value", None), "lineno", 0))
            texts = [re.sub(r"^\s*fix: ", "", text).splitlines()[0] for text in texts if text]
            found += [(f"{file.name}:{line}", text) for text in texts if text]
    return found


def test_each_fix_of_the_source_is_a_line_that_a_shell_reads_as_words() -> None:
    """As its error prints it: words first, everything else behind #."""
    fixes = list_fixes()
    assert len(fixes) > 800
    lines = [(place, text, str(DataError("wrong", fix=text))) for place, text in fixes]
    lines = [(place, text, told.split("\n  fix: ")[1]) for place, text, told in lines]
    for place, text, line in lines:
        words = shlex.split(line, comments=True)
        bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", "", re.sub(r"(^|\s)#.*", "", line))
        program = words[:1] in (["tr"], ["head"], ["iconv"])  # writes to a file, behind >
        assert not re.search("[|;&()]" if program else "[<>|;&()]", bare), (place, text, line)
        assert spell_fix(line) == line, (place, text, line)
        first = re.match(r"[\w.@]+=[\w\[]", text)
        assert not first or words, (place, text, line)  # what can be typed is no comment
    script = "".join(
        f"printf '%s\\0' {line}\necho\n" for _, _, line in lines if not re.search(r" [<>] ", line)
    )
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    done = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True)
    assert not done.stderr
    expected = [
        "".join(f"{word}\0" for word in shlex.split(line, comments=True) or [""])
        for _, _, line in lines
        if not re.search(r" [<>] ", line)
    ]
    assert done.stdout.decode().split("\n")[:-1] == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("noise=[token_mask] or noise=[span_mask]", "'noise=[token_mask]'  # or noise=[span_mask]"),
        ("init=<a run of bert>, or init=null", "init=RUN_OF_BERT  # or init=null"),
        ("search=<beam or sample> search.count=2", "search=beam search.count=2  # or sample"),
        ("a larger file, or train.steps=9", "train.steps=9  # or a larger file"),
        ("name them: task.path=[a,b]", "'task.path=[a,b]'  # name them"),
        ("give task.path=a (a folder)", "task.path=a  # (a folder)"),
        ("task.columns={text: <one>, label: b}", "'task.columns={text: ONE, label: b}'"),
        ("model.a={x:1,y:2}, as published", "'model.a={x:1,y:2}'  # as published"),
        ("data.field='Message Body (or so)', or b", "data.field='Message Body (or so)'  # or b"),
        ('prompt="it\'s; or", or -', 'prompt="it\'s; or"  # or -'),
        ("--last 5: the mean", "--last 5  # the mean"),
        (
            "plmctl data link a=<one b> out=c, then x=1",
            "plmctl data link a=ONE_B out=c  # then x=1",
        ),
        ("plmctl eval x=1 with the same words", "plmctl eval x=1  # with the same words"),
        ("tr -s '\\r' < 'a b' > c, and name c", "tr -s '\\r' < 'a b' > c  # and name c"),
        ("pip install 'a>=2', or nothing", "pip install 'a>=2'  # or nothing"),
        ("the run's own file", "# the run's own file"),
        ("bert", "bert"),
        ("正文=$HOME", "'正文=$HOME'"),
        ("# nothing", "# nothing"),
        ("", ""),
    ],
)
def test_a_fix_has_its_words_first_and_the_rest_behind_a_sign(text: str, line: str) -> None:
    assert spell_fix(text) == line == spell_fix(line)
    run = subprocess.run(["bash", "-nc", f"printf '' {line}"], capture_output=True, check=False)
    assert not run.returncode
