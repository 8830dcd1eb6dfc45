"""The scripts of benchmarks/ without the extra that some of them need."""

from __future__ import annotations

import runpy
import subprocess
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


RATES = ["--rates", "--lengths", "64", "--reach", "4", "--heads", "1", "--rounds", "1"]


def test_rates_of_the_kernels_of_a_cpu(
    bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / "attention_kernels.py"), *RATES])
    runpy.run_path(sys.argv[0], run_name="__main__")
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    for kernel in ("dense", "banded"):
        (first, *others) = [row for row in rows if row[:1] == [kernel]]
        assert len(others) == 2  # windows, causal ones, documents
        assert float(first[2]) > 0
        assert all(float(row[-1]) < 1e-5 for row in (first, *others))
    assert "no:" not in printed


@pytest.mark.slow
def test_rates_need_torch_and_numpy_alone() -> None:
    """A machine with a GPU may have nothing else of what plmctl needs."""
    hidden = "hydra", "omegaconf", "typer", "rich", "yaml", "safetensors", "tensorboard"
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({hidden}))
sys.argv = {[str(FOLDER / "attention_kernels.py"), *RATES]}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "documents of about 9" in done.stdout
