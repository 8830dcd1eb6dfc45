"""The search of the site (a hook of mkdocs): pages that show how to do a thing come first. It also
works in pages that are opened from files, without a server.
"""

from pathlib import Path
from typing import Any

WEIGHTS = {"start/": 3, "howto/": 3, "extend/": 2, "commands/": 1.5, "reference/": 0.3}
INDEX = Path("search/search_index.json")
THEME, OWN = "assets/javascripts/bundle", "search_file.js"  # the second stands before the first


def on_page_markdown(markdown: str, page: Any, **others: Any) -> None:
    """Give a page the weight of its folder."""
    for folder, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(folder):
            page.meta["search"] = {"boost": weight}


def on_post_page(output: str, **others: Any) -> str:
    """Run `OWN` before the script of the theme, which starts the search."""
    before, tag, rest = output.partition('<script src="')
    root, theme, _ = rest.partition(THEME)
    if not theme:
        raise ValueError(f"the first script of a page is not {THEME}")
    return f'{before}{tag}{root}{OWN}"></script>{tag}{rest}'


def on_post_build(config: Any, **others: Any) -> None:
    """Write the index as a script, too: a page from a file may read no other file."""
    index = Path(config["site_dir"]) / INDEX
    text = f"var __index = {index.read_text(encoding='utf-8')}"
    index.with_suffix(".js").write_text(text, encoding="utf-8")
