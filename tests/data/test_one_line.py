"""A text that has no end of a sentence, all on one line: it fills rows, and what no row takes is
said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.data.formats.base import Plan, count_lost
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def one_line(
    tokens_of: Callable[..., Path], small_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The words of 100 kB of text without a mark, on one line, tokenized."""
    folder = tmp_path_factory.mktemp("line")
    words = "".join(
        c if c.isalpha() else " " for c in small_text.read_text(encoding="utf-8")
    ).split()
    (folder / "line.txt").write_text(" ".join(words), encoding="utf-8")
    recipe = build(
        compose(
            "tokenize", None, [f"tokenizer.path={tokens_of('wordpiece')}", "data.path=x", "out=x"]
        ).tokenizer,
        path="tokenizer",
    )
    tokenize(
        TokenizingJob(TextSource(str(folder / "line.txt")), recipe, valid_share=0, processes=1),
        folder / "tokens",
    )
    return folder / "tokens"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    ["sentence_pair", "full_sentences", "doc_sentences", "segment_pair", "sentences", "blocks"],
)
def test_it_fills_many_rows(name: str, one_line: Path) -> None:
    shards = Shards.open(one_line)
    assert len(shards.ids) > 20_000
    assert len(shards.sentences) - 1 > 20
    cfg = compose(
        "pretrain",
        None,
        [f"format={name}", "format.max_length=128", "objective=[mlm]", "train.steps=1"],
    )
    plan = build(cfg.format, {"vocab": Tokenizer.load(one_line).vocab}, path="format").plan(
        shards, seed=0, epoch=0, input_length=128
    )
    assert plan.rows >= 10


def test_what_is_lost_in_a_plan_that_repeats_nothing() -> None:
    assert count_lost(Plan(1, {}, {"cut": 3, "dropped": 4, "padding": 9})) == 7
    assert count_lost(Plan(1, {})) == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [16, 128])
@pytest.mark.parametrize("name", ["sentence_pair", "stream_pair", "segment_pair", "blocks"])
def test_what_is_lost_is_what_no_row_holds(name: str, length: int, one_line: Path) -> None:
    """Counted one token after the other; a row that repeats a token cannot lose it twice."""
    shards = Shards.open(one_line)
    words = [f"format={name}", f"format.max_length={length}", "train.steps=1", "objective=[mlm]"]
    words += ["format.streams=2", "format.reuse_length=8"] if name == "stream_pair" else []
    given = {"vocab": Tokenizer.load(one_line).vocab}
    format = build(compose("pretrain", None, words).format, given, path="format")
    plan = format.plan(shards, seed=0, epoch=0, input_length=length)
    lost = set(range(len(shards.ids)))
    for start, size in zip(plan.arrays["start"], plan.arrays["size"], strict=True):
        lost -= set(range(start, start + size))
    assert count_lost(plan) == len(lost)
    if name == "sentence_pair" and length == 16:  # more was cut than the text has tokens
        assert plan.report["cut"] + plan.report["dropped"] > len(shards.ids) > len(lost)


def test_a_run_says_what_stands_in_no_row(one_line: Path, tmp_path: Path) -> None:
    tiny = [
        "size=tiny",
        "size.width=32",
        "size.inner_width=48",
        "train.steps=1",
        "train.batch_size=2",
    ]
    words = [f"data.path={one_line}", "format.max_length=32", "objective=[mlm]"]
    said = {}
    for name in ("sentences", "blocks"):
        done = CliRunner().invoke(
            make_app(), ["pretrain", *tiny, *words, f"format={name}", f"run.dir={tmp_path / name}"]
        )
        said[name] = done.output
    fix = "A longer format.max_length, or a format that packs (format=blocks), keeps more."
    assert "% of its tokens stand in no row. " + fix in " ".join(said["sentences"].split())
    assert "stand in no row" not in said["blocks"]
