"""How fast an encyclopedia is read and names are found, on one core, beside two libraries.

    OMP_NUM_THREADS=1 python benchmarks/linking.py --export enwiki-pages-articles.xml.bz2
        [--pages 200] [--rounds 3]

wikitext   MB/s of wikitext to text and links; beside it mwparserfromhell, which parses alone and
           strips its markup, if it is installed
xml        MB/s of the export's XML to pages, bz2 or gz unpacked
names      MB/s of plain text in which all names of the pages are found and linked: the longest at
           the edges of words; beside it ahocorasick_rs, which finds them anywhere, if installed
memory     MB that the dictionary takes

Rounds alternate; each number is the median. CPU seconds, since other work may run beside.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from plmctl.knowledge.dictionary import Dictionary
from plmctl.knowledge.dump import Dump
from plmctl.knowledge.wikitext import Wiki


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--export", type=Path, required=True, help="a wiki's export")
    parser.add_argument("--pages", type=int, default=200, help="pages that are read")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    begin = time.process_time()
    dump = Dump(given.export)
    pages = [page for page in islice(dump, given.pages) if not page.redirect]
    size = sum(len(page.text.encode()) for page in pages) / 1e6
    print(f"xml: {size / (time.process_time() - begin):.1f} MB/s of {size:.1f} MB")

    wiki = Wiki(dump.site.namespaces)
    texts = [page.text for page in pages]
    articles = [wiki.read(text) for text in texts]
    ways: dict[str, Callable[[str], Any]] = {"plmctl": wiki.read}
    if library := load("mwparserfromhell"):
        ways["mwparserfromhell, parsing"] = library.parse
        ways["mwparserfromhell, text"] = lambda text: library.parse(text).strip_code()
    compare("wikitext", ways, texts, given.rounds)

    names = {article.text[link.start : link.end] for article in articles for link in article.links}
    before = memory()
    begin = time.process_time()
    dictionary = Dictionary((name, number, 1) for number, name in enumerate(sorted(names)))
    seconds = time.process_time() - begin
    print(
        f"dictionary: {len(dictionary):,} names in {seconds:.1f} s, {memory() - before:.0f} MB more"
    )
    ways = {"plmctl": dictionary.link}
    if library := load("ahocorasick_rs"):
        automaton = library.AhoCorasick(sorted(names))
        ways["ahocorasick_rs"] = lambda text: automaton.find_matches_as_indexes(
            text, overlapping=True
        )
    compare("names", ways, [article.text for article in articles], given.rounds)


def compare(
    what: str, ways: dict[str, Callable[[str], Any]], texts: list[str], rounds: int
) -> None:
    """Print the speed of each way, from alternating rounds."""
    size = sum(len(text.encode()) for text in texts) / 1e6
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            for text in texts:
                way(text)
            seconds[name].append(time.process_time() - begin)
    for name, each in seconds.items():
        print(f"{what}: {size / statistics.median(each):6.1f} MB/s  {name}")


def load(name: str) -> Any:
    """A library, if it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def memory() -> float:
    """MB of this process at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
