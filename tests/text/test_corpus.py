"""The built-in text: real, large enough, and the same task whatever the order of things."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from plmctl.text import corpus
from plmctl.text.corpus import extract_paragraphs, load_documents, load_labelled
from plmctl.text.reader import read_documents


def test_the_corpus() -> None:
    found = list(load_documents())
    assert [text.name for text in found] == [text.name for text in load_documents()]
    assert len(found) > 300
    assert sum(len(p) for text in found for p in text.paragraphs) > 1_300_000
    assert sum(len(text.paragraphs) > 1 for text in found) > 200
    joined = "\n".join(p for text in found for p in text.paragraphs)
    assert ">>>" not in joined
    assert "  " not in joined


def test_it_is_what_no_path_and_builtin_name() -> None:
    assert [d.paragraphs for d in read_documents("builtin")] == [
        d.paragraphs for d in read_documents(None)
    ]
    assert all(not document.whole for document in read_documents("builtin"))


def test_every_package_is_there() -> None:
    assert [
        name for name in (*corpus.PACKAGES, *corpus.MODULES) if not list(corpus._sources((name,)))
    ] == []


def test_paragraphs() -> None:
    text = (
        "Join *these*\nlines with ``code``.\n\n>>> no(1)\n1\n\n=====\n\n    Indented words,"
        " too::\n\n| a | b |\n"
    )
    assert extract_paragraphs(text) == ["Join these lines with code.", "Indented words, too:"]


def test_the_task() -> None:
    train, dev = list(load_labelled("train")), list(load_labelled("dev"))
    assert {row.label for row in train} == {row.label for row in dev} == set(corpus.LABELS)
    assert not {row.module for row in train} & {row.module for row in dev}
    assert not {row.text for row in train} & {row.text for row in dev}
    assert len(train) > 1000
    assert len(dev) > 200
    assert max(Counter(row.label for row in dev).values()) < 0.3 * len(dev)
    assert all(row.module.split(".")[0] == row.label for row in train)


def test_the_files_of_the_task(tmp_path: Path) -> None:
    files = corpus.write_task(tmp_path / "task")
    lines = files["dev"].read_text(encoding="utf-8").splitlines()
    assert lines[0] == "text\tlabel\tmodule"
    assert len(lines) == 1 + len(list(load_labelled("dev")))
    assert all(line.count("\t") == 2 for line in lines)


def test_it_imports_nothing_else() -> None:
    code = (
        "import sys; from plmctl.text import corpus; sum(1 for _ in corpus.load_labelled('dev'));"
    )
    code += (
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'torch', 'sentencepiece',"
        " 'asyncio', 'email')])"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert out.stdout.strip() == "[]"
