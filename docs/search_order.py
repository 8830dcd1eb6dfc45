"""What the search of the site shows first (a hook of mkdocs): pages that tell what to do."""

from typing import Any

WEIGHTS = {"start/": 3, "howto/": 3, "extend/": 2, "commands/": 1.5, "reference/": 0.3}


def on_page_markdown(markdown: str, page: Any, **others: Any) -> None:
    """Give a page the weight of its folder."""
    for folder, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(folder):
            page.meta["search"] = {"boost": weight}
