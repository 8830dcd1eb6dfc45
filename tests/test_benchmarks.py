"""The scripts of benchmarks/ without the extra that some of them need."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHARED = ("peers", "made_vocab")  # modules of several scripts
PEERS = {
    "pretrain_cpu": "transformers, accelerate",
    "peer_trainer": "transformers, accelerate",
    "peer_loss": "transformers, accelerate",
    "generation": "transformers",
}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if only plmctl and what it needs were installed."""
    for name in ("transformers", "accelerate"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.syspath_prepend(str(FOLDER))
    return monkeypatch


@pytest.mark.parametrize("script", PEERS)
def test_the_extra_is_named_where_it_is_missing(
    script: str, bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / f"{script}.py")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err
        == f"{script}.py needs {PEERS[script]}\n  fix: pip install 'plmctl[bench]'\n"
    )


@pytest.mark.parametrize(
    "script",
    sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in (*SHARED, *PEERS)),
)
def test_the_others_need_none(
    script: str, bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / f"{script}.py"), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")
