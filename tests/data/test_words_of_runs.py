"""Chinese text without marked words is told before its runs of characters become words."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.data.words import describe_runs
from plmctl.knowledge.vector_files import read_static
from plmctl.vectors.corpus import SPLITS
from tests.command import plmctl

TEXT = "我们在北京大学学习语言学，他们在上海工作。"


@pytest.mark.parametrize("split", ["words", "spaces"])
def test_runs_are_told(split: str) -> None:
    line = describe_runs([TEXT, "and"], SPLITS[split]())
    assert "of the letters are Chinese, in runs of" in line
    assert "data.segment=jieba" in line
    assert not describe_runs(["我们 在 北京 大学 学习 语言学 ，"], SPLITS[split]())
    assert not describe_runs(["plain English words " * 20 + "北京大学学习"], SPLITS[split]())


def test_vectors_are_of_the_words_of_a_segmenter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    file = tmp_path / "text.txt"
    file.write_text(f"{TEXT}\n" * 20, encoding="utf-8")
    given = [f"data.path={file}", "data.lines=sentence", "width=4", "method.epochs=1"]
    plmctl("vectors", *given, "data.segment=jieba", f"out={tmp_path}/v.txt")
    assert {"北京大学", "上海", "工作"} <= {*read_static(tmp_path / "v.txt").words}
