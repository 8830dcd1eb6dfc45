"""A study is refused whose losses are means over next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats
from typer.testing import CliRunner

from plmctl.analysis.statistics import count_needed
from plmctl.cli.app import make_app
from plmctl.storage.settings_file import to_yaml
from plmctl.study.held_out import NEEDED
from tests.study import toy_study


def test_the_floor_is_that_of_the_power_calculation() -> None:
    """n pairs of deviation 1: 80% of 5%-tests see a difference of 0.1."""
    n = count_needed(0.1, 1.0)
    shifted = stats.norm(loc=0.1 * n**0.5)
    assert shifted.sf(1.959964) + shifted.cdf(-1.959964) == pytest.approx(0.8, abs=1e-4)
    assert pytest.approx(n / 0.15, abs=1) == NEEDED


@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_a_study_of_too_little_held_out_text_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_study.write_files(tmp_path)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(corpus.read_text().split("\n\n")[:400]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(to_yaml(toy_study.STUDY), encoding="utf-8")
    done = CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", "data.valid_share=0.01", *words])
    assert done.exit_code == 3, done.output
    assert "5,233 to be seen with a probability of 80%" in done.output
    assert not (tmp_path / "studies").exists()
    fix = done.output.partition("fix: ")[2].split()[0]
    assert fix.startswith("data.valid_share=0.")
    again = CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", fix, "--dry-run"])
    assert again.exit_code == 0, again.output
    (tmp_path / "other.txt").write_text("the cat sees the moon.\n")
    given = ["data.valid_path=other.txt", "data.valid_share=0.1", "--dry-run"]
    few = CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", *given])
    assert few.exit_code == 3
    assert "other.txt" in few.output
