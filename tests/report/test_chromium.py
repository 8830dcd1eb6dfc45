"""Pages in a browser, where one is installed: nothing in the console, the tables there, no wider
than a phone, values of pictures by keys.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from plmctl.report.grids import Grid, draw_grids
from plmctl.report.subject import find_subject
from plmctl.report.write import write_report
from tests.report import fabricated, parsed

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
# what the page is at the end, as the browser sees it: appended by the test, not part of a report
MEASURE = (
    "<script>document.title=["
    "document.documentElement.scrollWidth<=window.innerWidth,"
    "[...document.querySelectorAll('figure,.wide,pre')]"
    ".every(box=>box.scrollWidth<=box.clientWidth+1),"
    "[...document.querySelectorAll('figure')].every(figure=>figure.dispatchEvent("
    "new KeyboardEvent('keydown',{key:'End',cancelable:true}))===false"
    "&&figure.querySelector('output').textContent),"
    "document.querySelectorAll('table').length,"
    "document.querySelectorAll('svg').length].join('"
    " ')</script>"
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["run", "study"])
def test_a_page_opens_without_a_word_in_the_console(tmp_path: Path, kind: str) -> None:
    folder = (
        fabricated.run(tmp_path / "run") if kind == "run" else fabricated.study(tmp_path / "rates")
    )
    (file,) = write_report(find_subject([folder]), tmp_path / "page.html")
    maps = draw_grids([Grid("map", [[1.0, 0.5]], values=[[2.0, 1.0]])], title="map", scale=[])
    figure = f'<figure tabindex="0" role="region" aria-label="map">{maps}</figure>'
    text = file.read_text().replace("</main>", f"{figure}</main>")
    page = parsed.parse(text)
    file.write_text(text.replace("</body>", f"{MEASURE}</body>"))
    words = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--window-size=500,900",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    assert (
        f"<title>true true true {len(page.tables)} {page.tags.count('svg')}</title>" in done.stdout
    )
    assert len(page.tables) >= 3
