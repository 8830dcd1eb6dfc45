"""`plmctl data filter`: what it writes and counts, however it runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.cleaning import filtering
from tests.cleaning.test_rules import ITEM, PROSE
from tests.command import plmctl


def read_out(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl.gz"))
    lines = [line for f in files for line in gzip.decompress(f.read_bytes()).splitlines()]
    return [json.loads(line) for line in lines]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files: good documents, short ones, repeated ones, an empty one."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [{"text": PROSE.replace("ship", f"ship {n}"), "id": f"good{n}"} for n in range(9)]
    rows += [{"text": f"short {n}", "id": f"short{n}", "metadata": {"n": n}} for n in range(6)]
    rows += [{"text": f"{PROSE}\n" * 3, "id": f"again{n}"} for n in range(3)]
    rows += [{"text": "\n", "id": "empty"}]
    for number in range(3):
        lines = "".join(json.dumps(row) + "\n" for row in rows[number::3])
        (folder / f"{number:05}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def test_documents_that_pass_all_rules_stay(corpus: Path, tmp_path: Path) -> None:
    shown = plmctl("data", "filter", str(corpus), f"out={tmp_path}/out")
    assert {row["id"] for row in read_out(tmp_path / "out")} == {f"good{n}" for n in range(9)}
    made = json.loads((tmp_path / "out/made.json").read_text())
    assert (made["read"][0], made["kept"][0]) == (19, 9)
    drops = {"length": {"few words": 6}, "empty": {"no text": 1}}
    assert made["drops"] == drops | {"repetition": {"repeated lines": 3}}
    assert "few words" in shown
    assert "47.4%" in shown
    samples = json.loads((tmp_path / "out/samples.json").read_text())
    assert [len(samples[name]) for name in ("length", "repetition", "empty")] == [6, 3, 1]
    assert samples["length"][0]["value"] == 2
    table = (tmp_path / "out/dropped/00000.tsv").read_text().splitlines()
    assert len(table) == 11
    assert table[0].split("\t") == list(filtering.COLUMNS)


def test_processes_and_a_stop_change_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["data", "filter", str(corpus), "part_mb=0.001"]
    plmctl(*words, "processes=1", f"out={tmp_path}/one")
    plmctl(*words, "processes=2", f"out={tmp_path}/two")
    real, calls = filtering.Filtering.__call__, 0

    def stopped(self: Any, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(filtering.Filtering, "__call__", stopped)
    plmctl(*words, "processes=1", f"out={tmp_path}/stopped", code=130)
    plmctl(*words, "processes=1", f"out={tmp_path}/stopped")
    assert calls == 4  # of 3 parts, two were done
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "stopped")
    assert len(read_out(tmp_path / "one")) == 9


def test_the_next_command_is_that_of_the_kind_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,team\na b c,x\n")
    (tmp_path / "a.txt").write_text("a b c\n")
    how = ["rule=[length]", "rule.length.least=1", "processes=1"]
    shown = plmctl("data", "filter", f"{tmp_path}/a.csv", *how, f"out={tmp_path}/c")
    assert f"next: plmctl data dedup {tmp_path}/c label=" in shown
    shown = plmctl("data", "filter", f"{tmp_path}/a.txt", *how, f"out={tmp_path}/t")
    assert f"next: plmctl tokenize data.path={tmp_path}/t " in shown


@pytest.mark.parametrize("packing", ["gz", "none"])
def test_a_part_that_keeps_nothing_leaves_no_file_and_the_next_step_works(
    tmp_path: Path, packing: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "short"}\n' * 40)
    rows = (json.dumps({"text": PROSE.replace("ship", f"ship {n}")}) for n in range(40))
    (tmp_path / "b.jsonl").write_text("\n".join(rows))
    named, out = [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"], tmp_path / "out"
    how = ["rule=[length]", "part_mb=0.001", "processes=1", f"compression={packing}"]
    plmctl("data", "filter", *named, *how, f"out={out}")
    assert not (out / f"00000.jsonl{'.gz' if packing == 'gz' else ''}").exists()
    assert (out / "dropped/00000.tsv").exists()
    plmctl("tokenize", f"data.path={out}", "tokenizer=char", f"out={tmp_path}/tokens")
    shown = plmctl("data", "filter", named[0], *how, f"out={tmp_path}/none")
    assert "no document stays" in shown
    assert "next:" not in shown


def test_a_text_of_another_field_is_read_by_the_next_command(tmp_path: Path) -> None:
    rows = [{"content": PROSE.replace("ship", f"ship {n}"), "n": n} for n in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.txt").write_text(PROSE)
    for command in ("filter", "dedup"):
        out = tmp_path / command
        named = [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.txt", "field=content", f"out={out}"]
        plmctl("data", command, *named, *(["near=false"] if command == "dedup" else []))
        written = read_out(out)
        assert all("text" in row and "content" not in row for row in written)
        assert written[3]["n"] == 3
        plmctl("tokenize", f"data.path={out}", "tokenizer=char", f"out={tmp_path}/{command}-t")


def test_characters_are_counted_as_characters(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "字" * 30_000}), encoding="utf-8")
    how = ["rule=[length]", "rule.length.least=1"]
    for command in (["filter", *how], ["dedup"]):
        shown = plmctl(
            "data", command[0], f"{tmp_path}/a.jsonl", *command[1:], f"out={tmp_path}/{command[0]}"
        )
        assert "M characters" in shown
        assert "0.030" in shown


def test_a_dry_run_counts_and_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    shown = plmctl("data", "filter", str(corpus), f"out={tmp_path}/out", "--dry-run")
    assert "a sample of 19 documents; nothing is written" in shown
    some = plmctl("data", "filter", str(corpus), f"out={tmp_path}/out", "sample=4", "--dry-run")
    assert "a sample of 4 documents" in some
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.partial").exists()


def test_changes_are_shown_before_and_behind(tmp_path: Path) -> None:
    rows = [f"<p>{PROSE}</p> {n}@sea.org" for n in range(7)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in rows))
    words = ["data", "filter", f"{tmp_path}/a.jsonl", "rule=[html,pii]", f"out={tmp_path}/out"]
    shown = plmctl(*words, "--dry-run")
    assert "changes of pii, 5 of 7:" in shown
    assert "0@sea.org" in shown
    assert "+ …an to bark at the door. <email>" in shown
    assert "6@sea.org" not in shown
    plmctl(*words)
    samples = json.loads((tmp_path / "out/samples.json").read_text())
    assert [len(samples[name]) for name in ("html", "pii")] == [7, 7]
    assert samples["html"][0]["before"].startswith("<p>The keeper")
    assert samples["html"][0]["behind"].startswith("The keeper")


def test_rules_are_chosen_and_set(corpus: Path, tmp_path: Path) -> None:
    words = ["data", "filter", str(corpus), "rule=[length]", "rule.length.least=2"]
    plmctl(*words, f"out={tmp_path}/out")
    assert len(read_out(tmp_path / "out")) == 18
    told = plmctl("data", "filter", str(corpus), "rule=[]", f"out={tmp_path}/no", code=2)
    assert "fix: 'rule=[length,gopher]'" in told
    told = plmctl("data", "filter", str(corpus), "rule=[lenght]", f"out={tmp_path}/no", code=2)
    assert "did you mean 'length'" in told


def test_evaluation_sets_are_blocked_by_files_and_by_a_task(tmp_path: Path) -> None:
    text = f"{PROSE} {PROSE} {ITEM} {PROSE} {PROSE}"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "id": "x"}) + "\n")
    (tmp_path / "sets").mkdir()
    nested = {"data": [{"paragraphs": [{"qas": [{"question": f"{ITEM}?"}]}]}]}
    (tmp_path / "sets/dev.json").write_text(json.dumps(nested, indent=1))
    (tmp_path / "labelled").mkdir()
    for split in ("train", "dev", "test"):
        rows = f"{ITEM if split == 'test' else 'other words'}\tgood\nsome words\tbad\n"
        (tmp_path / f"labelled/{split}.tsv").write_text(f"text\tlabel\n{rows}")
    task = ["task=classification", f"task.path={tmp_path}/labelled"]
    words = ["data", "filter", f"{tmp_path}/a.jsonl", "rule=[blocked]"]
    for name, given in (("file", [f"block=[{tmp_path}/sets]"]), ("task", task)):
        plmctl(*words, *given, f"out={tmp_path}/{name}")
        (row,) = read_out(tmp_path / name)
        assert ITEM not in row["text"]
        assert len(row["text"]) < len(text) - 400
        made = json.loads((tmp_path / name / "made.json").read_text())
        assert made["changed"] == {"blocked": 1}
    plmctl(*words, *task, "block_split=dev", f"out={tmp_path}/dev")
    assert ITEM in read_out(tmp_path / "dev")[0]["text"]
    told = plmctl(*words[:3], "rule=[length]", *task, f"out={tmp_path}/no", code=2)
    assert "fix: 'rule=[length,blocked]'" in told


def test_a_rule_of_a_stranger(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One .py, one .yaml."""
    package = tmp_path / "strange"
    (tmp_path / "conf/rule").mkdir(parents=True)
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shout.py").write_text(
        "from plmctl.cleaning.rule import Drop, TextRule\n"
        "from plmctl.core.parts import part_of\n\n\n"
        "@part_of('rule')\nclass Shout(TextRule):\n"
        "    def __init__(self, *, letter: str) -> None:\n        self.letter = letter\n\n"
        "    def apply(self, view):\n"
        "        return Drop('a letter') if self.letter in view.text else view\n"
    )
    (tmp_path / "conf/rule/shout.yaml").write_text(
        "# @package rule.shout\n_target_: strange.shout.Shout\nletter: '7'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    given = ["--config-dir", f"{tmp_path}/conf", "--plugin", "strange"]
    words = ["rule=[length,shout]", f"out={tmp_path}/out"]
    plmctl("data", "filter", str(corpus), *words, *given)
    kept = {row["id"] for row in read_out(tmp_path / "out")}
    assert "good7" not in kept
    assert "good6" in kept
