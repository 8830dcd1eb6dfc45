"""The docstrings of the packages that torch brings along: about 10 MB of English that every
machine with plmctl has. The same docstrings make a labelled task: from which package is this one?
"""

from __future__ import annotations

import sysconfig
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from pathlib import Path

from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.text.corpus import load_documents, read_paragraphs

PACKAGES = ("networkx", "numpy", "sympy", "torch")
MODULE_SHARE = 5  # docstrings of one module in the task, at most
SHORTEST, LONGEST = 80, 400  # characters of its texts; longer ones are cut
TESTS = {"test", "tests", "testing", "_vendor", "_numpy"}  # folders whose text says little


def write_installed(file: Path, *, processes: int = 2) -> int:
    """Write the built-in corpus and the docstrings of `PACKAGES`, a document for each module, a
    blank line between documents.

    Returns:
        The number of characters.
    """
    sources = [source for name in PACKAGES for source in find_sources(name)]
    with ProcessPoolExecutor(processes) as pool:
        modules = pool.map(read_module, sources, chunksize=64)
        pages = [list(document.paragraphs) for document in load_documents()]
        pages += [paragraphs for paragraphs in modules if paragraphs]
    text = "\n\n".join("\n".join(paragraphs) for paragraphs in drop_repeated(pages))
    write_text(file, text + "\n")
    return len(text)


def write_package_task(folder: Path, *, examples: int = 250, tested: int = 100) -> None:
    """Write train.tsv and dev.tsv with the columns text and label: `examples` paragraphs of each of
    `PACKAGES`, and `tested` others; no module and no text is in both.
    """
    sizes = {"train": examples, "dev": tested}
    rows: dict[str, list[str]] = {"train": [], "dev": []}
    seen: set[str] = set()
    for name in PACKAGES:
        counts = dict.fromkeys(rows, 0)
        # in the order of a hash, so that every part of a package is there
        for source in sorted(find_sources(name), key=_hash):
            split = ("train", "dev")[_hash(source)[-1] % 2]
            for text in _choose_texts(source, seen)[: sizes[split] - counts[split]]:
                rows[split].append(f"{text}\t{name}\n")
                counts[split] += 1
            if counts == sizes:
                break
    admit(folder).mkdir(parents=True, exist_ok=True)
    for split, lines in rows.items():
        text = "".join(sorted(lines, key=lambda line: _hash(Path(line))))
        write_text(folder / f"{split}.tsv", "text\tlabel\n" + text)


def _choose_texts(source: Path, seen: set[str]) -> list[str]:
    texts: list[str] = []
    for paragraph in dict.fromkeys(read_module(source)):
        if len(paragraph) >= SHORTEST and paragraph not in seen and len(texts) < MODULE_SHARE:
            seen.add(paragraph)
            texts.append(paragraph[:LONGEST])
    return texts


def find_sources(name: str) -> list[Path]:
    """The modules of an installed package, without its tests."""
    folder = Path(sysconfig.get_paths()["purelib"])
    return [
        source
        for source in sorted((folder / name).rglob("*.py"))
        if not TESTS & set(source.relative_to(folder).parts)
    ]


def _hash(source: Path) -> bytes:
    """An order that depends on the last names of a path alone, not on where it is installed."""
    return blake2b("/".join(source.parts[-3:]).encode(), digest_size=8).digest()


def read_module(file: Path) -> list[str]:
    """The paragraphs of a module's docstrings; none of a file that is no Python of this version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for escapes in other people's strings
            return read_paragraphs(file)
    except (SyntaxError, ValueError):
        return []


def drop_repeated(pages: Iterable[list[str]]) -> list[list[str]]:
    """The pages without paragraphs that stood before: packages repeat many of them word for word,
    such as what an argument means.
    """
    seen: set[str] = set()
    kept = []
    for page in pages:
        new = [paragraph for paragraph in dict.fromkeys(page) if paragraph not in seen]
        seen.update(new)
        if new:
            kept.append(new)
    return kept
