"""The Markdown of each page in the site, for llms.txt (a hook of mkdocs)."""

import shutil
from pathlib import Path
from typing import Any


def on_post_build(config: Any, **others: Any) -> None:
    """Copy the sources of all pages."""
    source, target = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in source.rglob("*.md"):
        shutil.copyfile(page, target / page.relative_to(source))
