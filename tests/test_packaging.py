"""What is installed from a wheel finds its parts and recipes from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the unpacked wheel, in front of everything else on the path of a child
    process.
    """
    pytest.importorskip("hatchling")
    out, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


def in_empty_folder(site: Path, folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_every_part_and_recipe(site):
    for source, copy in (("conf", "_conf"), ("recipes", "_recipes")):
        wanted = {file.relative_to(ROOT / source) for file in (ROOT / source).rglob("*.yaml")}
        assert {
            file.relative_to(site / "plmctl" / copy)
            for file in (site / "plmctl" / copy).rglob("*.yaml")
        } == wanted


def test_wheel_finds_them_from_an_empty_folder(site, tmp_path):
    code = (
        "from plmctl.run import recipes; print(recipes.conf_dir(), recipes.recipes_dir(),"
        " sep='\\n')"
    )
    assert in_empty_folder(site, tmp_path, "-c", code).splitlines() == [
        str(site / "plmctl" / n) for n in ("_conf", "_recipes")
    ]


def test_wheel_composes_a_recipe_from_an_empty_folder(site, tmp_path):
    shown = in_empty_folder(
        site, tmp_path, "-m", "plmctl", "pretrain", "roberta", "size=tiny", "--print-config"
    )
    assert "plmctl.models.encoder.Encoder" in shown
    assert not list(tmp_path.iterdir())
