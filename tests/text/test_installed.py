"""The docstrings of what is installed beside plmctl: enough text, always the same, none twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from plmctl.text import installed
from plmctl.text.installed import drop_repeated, read_module, write_installed, write_package_task


def test_a_module_that_is_no_python_says_nothing(tmp_path: Path) -> None:
    files = {
        "old.py": b'print "hello"\n',
        "zero.py": b"\0",
        "good.py": b'"""It is a good page."""\n',
    }
    for name, code in files.items():
        (tmp_path / name).write_bytes(code)
    assert [read_module(tmp_path / name) for name in files] == [[], [], ["It is a good page."]]


def test_what_was_said_before_is_left_out() -> None:
    pages = [["a", "b", "a"], ["b"], ["c", "a"]]
    assert drop_repeated(pages) == [["a", "b"], ["c"]]


@pytest.mark.slow  # test_the_task_of_packages stays
def test_the_text_of_one_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents with a blank line between them; the built-in corpus first."""
    monkeypatch.setattr(installed, "PACKAGES", ("networkx",))
    sizes = [write_installed(tmp_path / name, processes=1) for name in ("one.txt", "two.txt")]
    one, two = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one.txt", "two.txt"))
    assert one == two
    assert sizes == [len(one) - 1] * 2
    assert len(one) > 2_000_000
    lines = [line for line in one.split("\n") if line]
    assert len(lines) == len(set(lines))
    assert any("graph" in line and "Dijkstra" in line for line in lines)


def test_the_task_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of each, nothing twice, and the same each time."""
    monkeypatch.setattr(installed, "PACKAGES", ("networkx", "numpy"))
    for name in ("one", "two"):
        write_package_task(tmp_path / name, examples=20, tested=10)
    texts = set()
    for split, size in (("train", 20), ("dev", 10)):
        text = (tmp_path / f"one/{split}.tsv").read_text(encoding="utf-8")
        assert text == (tmp_path / f"two/{split}.tsv").read_text(encoding="utf-8")
        rows = [line.split("\t") for line in text.splitlines()[1:]]
        assert Counter(label for _, label in rows) == dict.fromkeys(("networkx", "numpy"), size)
        assert len({label for _, label in rows[:10]}) == 2  # mixed
        texts |= {line for line, _ in rows}
    assert len(texts) == 60
