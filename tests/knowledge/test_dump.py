"""MediaWiki exports: whole, compressed, cut off, and files that are none."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.dump import Dump
from tests.knowledge.wiki import export, page

PAGES = [page("A", "one &amp; two"), page("B", "", redirect="A"), page("Talk:A", "x", number=1)]


@pytest.mark.parametrize("kind", [".xml", ".xml.bz2", ".xml.gz"])
def test_pages_are_read(tmp_path: Path, kind: str) -> None:
    pack = {".bz2": bz2.compress, ".gz": gzip.compress}.get(kind[4:], lambda data: data)
    file = tmp_path / f"wiki{kind}"
    file.write_bytes(pack(export(PAGES).encode()))
    dump = Dump(file)
    assert [tuple(each) for each in dump] == [
        ("A", 0, "one & two", ""),
        ("B", 0, "", "A"),
        ("Talk:A", 1, "x", ""),
    ]
    assert (dump.problem, dump.site.name, dump.site.namespaces["Talk"]) == ("", "Test wiki", 1)


def test_of_a_cut_file_the_pages_before_are_read_and_the_place_is_named(tmp_path: Path) -> None:
    whole = export([page(f"P{n}", f"text {n} " * 2000) for n in range(40)])
    cut = whole.index("<title>P30")
    file = tmp_path / "wiki.xml"
    file.write_text(whole[:cut])
    dump = Dump(file)
    assert [each.title for each in dump] == [f"P{n}" for n in range(30)]
    line = whole[:cut].count("\n") + 1
    assert f"damaged in line {line}, byte" in dump.problem

    packed = tmp_path / "wiki.xml.bz2"
    data = bz2.compress(whole.encode(), 1)
    packed.write_bytes(data[: len(data) // 2])
    dump = Dump(packed)
    titles = [each.title for each in dump]
    assert titles == [f"P{n}" for n in range(len(titles))]
    assert 0 < len(titles) < 40
    assert "cut off or damaged after" in dump.problem


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.xml", b"<html><body/></html>", "no MediaWiki export, but <html>"),
        ("a.xml", b"hello", "a.xml:1: no MediaWiki export"),
        ("a.xml", b"", "no MediaWiki export"),
        ("a.bz2", b"hello", "cannot be read"),
        ("a.xml", b'<!DOCTYPE x [<!ENTITY a "b">]><mediawiki>&a;</mediawiki>', "XML entities"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=what):
        list(Dump(tmp_path / name))
