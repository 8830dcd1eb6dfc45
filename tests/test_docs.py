"""The pictures of docs/ are those that the parts draw, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_pictures_are_current_and_well_formed() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs/pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn = dict(pictures.draw_all())
    assert len(drawn) == 3
    for file, content in drawn.items():
        assert file.read_text(encoding="utf-8") == content, f"{file.name} is stale: make docs"
        picture = ElementTree.fromstring(content)
        assert picture.get("aria-label"), "what a screen reader says"


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every link to a page, a heading or a picture is there: with `strict`, a warning is an
    error.
    """
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    pages = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.html")}
    sources = (ROOT / "docs").rglob("*.md")
    wanted = {file.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for file in sources}
    assert wanted <= pages
    assert "plmctl.noise.base.Noise" in (tmp_path / "reference/index.html").read_text()
