"""What is installed from a wheel finds its parts and recipes from any folder."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", out],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return out


@pytest.fixture(scope="module")
def site(built, tmp_path_factory) -> Path:
    """A folder with the unpacked wheel, in front of everything else on the path of a child
    process.
    """
    out, site = built, tmp_path_factory.mktemp("site")
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


def read_metadata(built: Path) -> tuple[Message, Message]:
    """What the wheel and the sdist say of themselves."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        of_wheel = wheel.read(name).decode()
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        name = next(name for name in sdist.getnames() if name.endswith("/PKG-INFO"))
        file = sdist.extractfile(name)
        assert file is not None
        of_sdist = file.read().decode()
    return Parser().parsestr(of_wheel), Parser().parsestr(of_sdist)


def test_wheel_and_sdist_say_what_an_index_wants(built):
    for fields in read_metadata(built):
        assert fields["Name"] == "plmctl"
        assert fields["Description-Content-Type"] == "text/markdown"
        assert fields.get_payload().startswith("# plmctl")
        assert fields["License-Expression"] == "Apache-2.0"
        assert fields["Requires-Python"] == ">=3.11"
        assert {"docs", "test"} <= set(fields.get_all("Provides-Extra") or ())


def test_twine_accepts_both(built):
    check = pytest.importorskip("twine.commands.check").check
    assert not check([str(file) for file in built.iterdir()], strict=True)


def test_sdist_holds_what_its_tests_and_pages_need(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*"), *(ROOT / "examples").rglob("*")]
    wanted = {file.relative_to(ROOT).as_posix() for file in tracked if file.is_file()}
    assert {name for name in wanted if "__pycache__" not in name} <= held
    assert {"CITATION.cff", "LICENSE", "Makefile", "mkdocs.yml", "pyproject.toml"} <= held
    assert not [name for name in held if name.startswith(("runs/", "site/", ".venv/", "shared/"))]


def test_wheel_holds_every_part_and_recipe(site):
    for source, copy in (("conf", "_conf"), ("recipes", "_recipes")):
        wanted = {file.relative_to(ROOT / source) for file in (ROOT / source).rglob("*.yaml")}
        assert {
            file.relative_to(site / "plmctl" / copy)
            for file in (site / "plmctl" / copy).rglob("*.yaml")
        } == wanted


def test_wheel_holds_the_pages_and_nothing_of_developers(site):
    pages = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")}
    copies = site / "plmctl/_docs"
    held = {file.relative_to(copies) for file in copies.rglob("*") if file.is_file()}
    assert held == {*pages, Path("llms.txt")}
    assert {each.name.partition("-")[0] for each in site.iterdir()} == {"plmctl"}
    assert not [*site.rglob("*.pyc"), *site.rglob("test_*.py")]


def test_wheel_finds_them_from_an_empty_folder(site, tmp_path):
    code = (
        "from plmctl.config import recipes; print(recipes.conf_dir(), recipes.recipes_dir(),"
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


def test_wheel_explains_a_term_from_an_empty_folder(site, tmp_path):
    shown = in_empty_folder(site, tmp_path, "-m", "plmctl", "help", "perplexity")
    assert "exponential of the loss" in shown


def list_required(names: list[str]) -> list[tuple[str, Requirement]]:
    """(a package or an extra, what it requires) for packages and all that they require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    todo = [(name, Requirement(line)) for name in names for line in extras[name]]
    todo += [("plmctl", Requirement(line)) for line in project["dependencies"]]
    found: list[tuple[str, Requirement]] = []
    while todo:
        owner, required = todo.pop()
        if (owner, required) not in found:
            found.append((owner, required))
            lines = map(Requirement, metadata.requires(required.name) or ())
            kept = [one for one in lines if one.marker is None or one.marker.evaluate()]
            todo += [(required.name, one) for one in kept]
    return found


def test_the_runtimes_fit_into_one_environment() -> None:
    """The pinned versions satisfy all that the libraries ask of each other, with torch 2.13 and
    transformers 5.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pairs}
    assert pins["torch"].startswith("2.13.")
    assert pins["transformers"].startswith("5.")
    try:
        required = list_required(["onnx", "openvino", "ctranslate2", "test"])
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed")
    assert {"onnxruntime", "openvino", "nncf", "ctranslate2"} <= {one.name for _, one in required}
    for owner, one in required:
        pin = pins[canonicalize_name(one.name)]
        assert one.specifier.contains(pin, prereleases=True), f"{owner}: {one}, pinned {pin}"
        own = metadata.version(one.name).partition("+")[0]
        assert own == pin, f"{one.name}: {own} is installed, and {pin} is pinned"
