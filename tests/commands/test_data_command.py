"""`plmctl data check` from the command line: text, tokens, labelled files, JSON, pages, exit
codes.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.report.charts import draw_histogram

DATA = Path(__file__).resolve().parents[2] / "../shared/data"
REVIEWS = [
    ("a warm and funny film", 1),
    ("dull from start to finish", 0),
    ("great acting", 1),
    ("a waste of time", 0),
]


def check(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(make_app(), ["data", "check", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def found(*words: str) -> dict[str, dict[str, object]]:
    done = CliRunner().invoke(make_app(), ["data", "check", *words, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)  # a slow machine tells stderr how far it is
    assert report["verdict"] in ("ok", "look", "bad")
    assert len(report["lengths"]["edges"]) == len(report["lengths"]["counts"]) + 1
    return {finding["name"]: finding for finding in report["findings"]} | {"report": report}


def test_text_with_a_page(small_text: Path, tmp_path: Path) -> None:
    code, said = check(str(small_text), "--out", str(tmp_path / "a/checked.md"))
    assert code == 0
    assert "duplicate documents" in said
    page = (tmp_path / "a/checked.md").read_text(encoding="utf-8")
    assert "![lengths](<checked_files/lengths.svg>)" in page
    assert "<svg" in (tmp_path / "a/checked.html").read_text(encoding="utf-8")
    assert check(str(small_text), "--out", str(tmp_path / "b.html"))[0] == 0
    assert "<rect" in (tmp_path / "b.html").read_text(encoding="utf-8")
    assert check(str(small_text), "--out", "page.pdf")[0] == 2
    theirs = tmp_path / "theirs.md"
    theirs.write_text("my own notes", encoding="utf-8")
    assert check(str(small_text), "--out", str(theirs))[0] == 2
    assert theirs.read_text(encoding="utf-8") == "my own notes"
    assert check(str(small_text), "--out", str(tmp_path / "b.html"))[0] == 0  # ours is renewed


def test_escape_codes_of_users_do_not_reach_the_terminal(tmp_path: Path) -> None:
    lines = [
        "text\tlabel",
        *(f"film {number}\tgood\x1b[2J\x07语" for number in range(4)),
        "plain\tbad",
    ]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, said = check(
        str(tmp_path), "task=classification", "task.columns.text=text", "task.columns.label=label"
    )
    assert code == 0, said
    assert "good\\u001b[2J\\u0007语 80%" in said
    assert "\x1b" not in said
    code, said = check(str(tmp_path / "no\x1b[31mfile"))
    assert code == 3
    assert f"{tmp_path}/no\\u001b[31mfile" in said


def test_text_with_a_tokenizer(small_text: Path, tokens_of: Callable[..., Path]) -> None:
    plain = found(str(small_text))
    assert "not looked at" in str(plain["tokens"]["found"])
    fitted = found(
        str(small_text), f"tokenizer.path={tokens_of('wordpiece')}", "format.max_length=32"
    )
    assert 1 < fitted["size of a token"]["numbers"]["bytes"] < 8  # type: ignore[index]
    assert "rows of 32" in str(fitted["rows"]["found"])
    assert "unigram entropy" in fitted


def test_tokens(tokens_of: Callable[..., Path]) -> None:
    report = found(str(tokens_of("wordpiece")), "format=full_sentences", "format.max_length=64")
    assert report["report"]["kind"] == "tokens"
    assert "rows of 64" in str(report["rows"]["found"])
    assert report["held-out documents in train"]["verdict"] == "ok"


@pytest.fixture
def sst2(tmp_path: Path) -> Path:
    for split, rows in (
        ("train", REVIEWS * 10),
        ("dev", [*REVIEWS[:1], ("a film", 1), ("the sun " * 40, 0)]),
    ):
        lines = "".join(f"{text}\t{label}\n" for text, label in rows)
        (tmp_path / f"{split}.tsv").write_text(f"sentence\tlabel\n{lines}", encoding="utf-8")
    return tmp_path


def test_labelled_files(sst2: Path, tokens_of: Callable[..., Path]) -> None:
    report = found("task=sst2", f"task.path={sst2}")
    assert report["report"]["kind"] == "labelled"
    assert report["dev in train"]["verdict"] == "bad"
    assert report["duplicate examples"]["numbers"] == {"count": 36}
    assert "over-long examples" not in report
    short = found(
        "task=sst2", str(sst2), f"tokenizer.path={tokens_of('wordpiece')}", "task.max_length=8"
    )
    assert short["over-long examples"]["verdict"] == "bad"
    assert short["report"]["lengths"]["unit"] == "tokens"
    own = found(
        "task=classification", f"task.path={sst2 / 'train.tsv'}", "task.columns.text=sentence"
    )
    assert "dev in train" not in own  # one file is one split
    assert "header" not in own
    numbered = found(
        "task=classification", f"task.path={sst2}", "task.columns.text=0", "task.columns.label=1"
    )
    assert "the first line (sentence, label) names the columns" in numbered["header"]["found"]


def test_text_with_labels_names_the_command_that_checks_them(tmp_path: Path) -> None:
    rows = [{"text": text, "label": label} for text, label in REVIEWS]
    single, pairs = tmp_path / "my reviews.jsonl", tmp_path / "pairs"
    single.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    pairs.mkdir()
    (pairs / "dev.tsv").write_text("no header\t1\n", encoding="utf-8")
    lines = ["text2\ttext\tlabel", *(f"{text}\tfilm\t{label}" for text, label in REVIEWS)]
    (pairs / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    said = str(found(str(single))["labels"]["found"])
    assert said.endswith("task=classification  checks the labels")
    words = shlex.split(said.removeprefix("not looked at: ").partition("  ")[0])
    assert words[:3] == ["plmctl", "data", "check"]
    assert found(*words[3:])["report"]["kind"] == "labelled"
    # a folder of tables, which has no text to check
    code, said = check(str(pairs))
    assert code == 3
    assert f"labels: plmctl data check {pairs} task=pair_classification" in said
    # columns with names of their own
    (tmp_path / "own.csv").write_text("text,stars\ngreat acting,5\n", encoding="utf-8")
    assert "task=, which names the columns of own.csv (text, stars): plmctl help task" in str(
        found(str(tmp_path / "own.csv"))["labels"]["found"]
    )
    (tmp_path / "plain.jsonl").write_text('{"text": "great acting"}\n', encoding="utf-8")
    assert "labels" not in found(str(tmp_path / "plain.jsonl"))


def test_mistakes(tmp_path: Path, small_text: Path, tokens_of: Callable[..., Path]) -> None:
    assert check(str(tmp_path / "none.txt"))[0] == 3
    (tmp_path / "latin.txt").write_bytes("café".encode("latin1"))
    code, said = check(str(tmp_path / "latin.txt"))
    assert (code, "not UTF-8" in said) == (3, True)
    assert check("task=sst2", str(tmp_path))[0] == 3
    assert check("task=lm", str(tmp_path))[0] == 2
    assert check(str(small_text), "format.max_lenght=3")[0] == 2


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['plmctl', 'data', 'check', '--help']\nfrom plmctl.cli.app import"
        " main\n"
    )
    code += "try: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().endswith("False")


def test_the_picture() -> None:
    svg = draw_histogram([1, 2, 4, 8], [1, 0, 3], title="a & b", x="words")
    assert "a &amp; b" in svg
    heights = [float(part.split('"')[0]) for part in svg.split(' height="')[3:]]
    assert heights[1] == 0
    assert heights[2] == pytest.approx(3 * heights[0], abs=0.2)
    assert "4 to 7: 3" in svg
    assert "75%" in svg
    assert "25%" in svg


@pytest.mark.slow  # data written here stay
@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_real_data() -> None:
    wiki = DATA / "pretraining/zhwiki/zhwiki-valid.txt.gz"
    report = found(str(wiki), f"data.valid_path={wiki}")
    assert report["scripts"]["numbers"]["shares"]["Han"] > 0.85  # type: ignore[index]
    assert report["size"]["numbers"]["documents"] == 300  # type: ignore[index]
    assert report["held-out documents in train"]["numbers"]["share"] == 1  # type: ignore[index]
    assert report["13-grams in train"]["numbers"] == {"share": 1, "documents": 1}
    cut = found(str(DATA / "pretraining/wikitext-2/valid.txt.gz"))
    assert cut["unknown words"]["verdict"] == "bad"  # the word-level version
    rte = found("task=rte", str(DATA / "glue/RTE"))
    assert rte["size"]["numbers"] == {"train": 2490, "dev": 277, "passed over": 0}
    assert np.isclose(sum(rte["labels"]["numbers"]["train"].values()), 2490)  # type: ignore[index]
