"""The options of `plmctl report` as its command line states them, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from plmctl.core.errors import UsageError
from plmctl.report.subject import Labels, Wishes

Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="FILE", help="A .html file; a .md file: that, and the .html beside it."
    ),
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Also Markdown, with the pictures in a folder beside it.")
]
Heads = Annotated[
    str | None,
    typer.Option(
        "--attention",
        metavar="L.H,...",
        help="Draw what these heads attend to: layer.head, from 0.",
    ),
]
Sentences = Annotated[
    list[str] | None,
    typer.Option("--sentence", metavar="TEXT", help="... on this sentence; may be repeated."),
]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="NAME=FILE[:TOKENS,TAGS]",
        help=(
            "Probe every layer for the labels of a column file (by default in columns 0 and 1)"
            " or of WiC's JSON lines."
        ),
    ),
]
Card = Annotated[
    str | None,
    typer.Option("--card", metavar="FILE", help="Also a model card of the run, for Hugging Face."),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact", metavar="KEY=VALUE", help="... that says this: license=, language=, name=."
    ),
]


def parse_wishes(heads: str | None, sentences: Sequence[str], probes: Sequence[str]) -> Wishes:
    """What is asked for, parsed; UsageError for what cannot be."""
    chosen = [_head(word) for word in (heads or "").split(",") if word.strip()]
    if sentences and not chosen:
        raise UsageError("--sentence: of which heads?\n  fix: --attention 0.0 before it")
    return Wishes(chosen, list(sentences), dict(_probe(word) for word in probes))


def parse_facts(given: Sequence[str]) -> Mapping[str, str]:
    """{key: value}."""
    from plmctl.report.card import FACTS

    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if key not in FACTS or not equals or not value:
            raise UsageError(f"--fact {word}: KEY=VALUE, where KEY is one of {', '.join(FACTS)}")
        found[key] = value
    return found


def _head(word: str) -> tuple[int, int]:
    layer, _, head = word.strip().partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise UsageError(
            f"--attention {word}: layer.head, both counted from 0\n  fix: --attention 0.0,1.3"
        )
    return int(layer), int(head)


def _probe(word: str) -> tuple[str, Labels]:
    name, equals, where = word.partition("=")
    file, colon, columns = where.rpartition(":")
    if not colon or Path(where).is_file():
        file, columns = where, "0,1"
    numbers = columns.split(",")
    if (
        not (name and equals and file)
        or len(numbers) != 2
        or not all(n.lstrip("-").isdecimal() for n in numbers)
    ):
        fix = "--probe pos=conll/eng.testa or --probe sense=train.tags:1,7"
        raise UsageError(
            f"--probe {word}: NAME=FILE, or NAME=FILE:TOKENS,TAGS with the numbers of two columns\n"
            f"  fix: {fix}"
        )
    return name, Labels(Path(os.path.expanduser(file)), int(numbers[0]), int(numbers[1]))
