"""The page of a real study in the site, made by the build (a hook of mkdocs): what `plmctl report`
writes of `pictures/study.json`.

`python docs/report_page.py studies/<name>` stores another study there.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import METRICS
from plmctl.report.page import write_html
from plmctl.report.studies import JOBS, STUDY, TABLE
from plmctl.report.subject import find_subject
from plmctl.report.write import make_blocks
from plmctl.storage.job_events import JOURNAL
from plmctl.storage.lines import read_lines

STORED = Path(__file__).parent / "pictures/study.json"
PAGE = "pictures/study.html"
TOLD = (STUDY, TABLE)
# docs/site.js sends the scheme that the reader has chosen: it replaces that of the system
FOLLOW = """<script>
addEventListener("message", ({ data }) => {
  if (!["light", "dark"].includes(data.scheme)) return;
  document.documentElement.style.colorScheme = data.scheme;
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule.media) rule.media.mediaText = data.scheme === "dark" ? "all" : "not all";
});
</script>"""


def store(folder: Path) -> dict[str, Any]:
    """The input of the page of a study: its settings, table and journal, and the validations of its
    runs.
    """
    jobs = folder / JOBS
    runs = {
        file.parts[-3]: [record for record in read_lines(file)[0] if "valid/loss" in record]
        for file in sorted(jobs.glob(f"*/run/{METRICS}"))
    }
    known = {name: json.loads((folder / name).read_text(encoding="utf-8")) for name in TOLD}
    return {"name": folder.name, **known, JOURNAL: read_lines(jobs / JOURNAL)[0], "runs": runs}


def restore(stored: dict[str, Any]) -> Path:
    """Write a stored study as a folder below this one; returns the folder."""
    folder = Path("studies") / stored["name"]
    jobs = folder / JOBS
    files = {folder / name: [stored[name]] for name in TOLD} | {jobs / JOURNAL: stored[JOURNAL]}
    files |= {jobs / name / "run" / METRICS: lines for name, lines in stored["runs"].items()}
    for file, lines in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        file.write_text(text, encoding="utf-8")
    return folder


def draw_report() -> str:
    """The HTML page of the stored study."""
    here, stored = Path.cwd(), json.loads(STORED.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # the page names the folder as a user sees it
        try:
            blocks = make_blocks(find_subject([restore(stored)]))
            return write_html(blocks, Path("page.html")).read_text(encoding="utf-8")
        finally:
            os.chdir(here)


def embed(page: str) -> str:
    """The page as the site embeds it: it follows the switch between light and dark."""
    return page.replace("</body>", f"{FOLLOW}</body>")


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File  # as no test but that of the site has it

    files.append(File.generated(config, PAGE, content=embed(draw_report())))
    return files


if __name__ == "__main__":
    STORED.write_text(json.dumps(store(Path(sys.argv[1]))) + "\n", encoding="utf-8")
