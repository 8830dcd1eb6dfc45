"""Names of segmenters and dictionaries of the user, without jieba itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.text.segment import find, read_dictionary


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("机器学习\t5\tn", "write it as: 机器学习 5 n"),
        ("机器学习,5,n", "write it as: 机器学习 5 n"),
        ("机器 学习 5 n", "write it as: 机器学习 5 n"),
        ("《三体》 7.5 nz", "write it as: 三体 7 nz"),
        ("7 三体", "write it as: 三体 7"),
        ("三体 n 7", "write it as: 三体 7 n"),
        ("，，", "leave this line out"),
    ],
)
def test_the_fix_has_the_word_of_the_line(line: str, fix: str, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(f"词典\n{line}\n")
    with pytest.raises(DataError, match=f"words.txt:2: .*\n  fix: # {fix}$"):
        read_dictionary(file)
    if mended := fix.partition("write it as: ")[2]:
        file.write_text(mended)
        assert len(read_dictionary(file)) == 1


def test_a_missing_dictionary_leaves_the_segmenter(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*\n  fix: data.segment=jieba$"):
        find(f"jieba:{tmp_path / 'nosuch.txt'}")
    (tmp_path / "words.txt").touch()
    with pytest.raises(ConfigError, match=r"/words\.txt"):
        find(f"jieba:{tmp_path / 'word.txt'}")
