"""A tiny encyclopedia with every kind of page, and what `plmctl data link` makes of it."""

from __future__ import annotations

import bz2
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.commands import data_link as command
from plmctl.config.make_spec import spec_of
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.dictionary import Mention
from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.knowledge.encyclopedia import merge
from plmctl.knowledge.kinds import find_head, strip_qualifier
from plmctl.knowledge.linking import link
from plmctl.knowledge.tables import Problems, read_aliases
from plmctl.storage.resumable import new_folder
from tests.knowledge.wiki import export, page

SHARED = Path(__file__).parents[3] / "shared/data/wiki_links/enwiki-pages-articles-106.xml.bz2"
PAGES = [
    page("USA", "", redirect="United States"),
    page("United States", "The '''US''' is in [[Americas|America]]. [[Category:Countries]]"),
    page("U.S.A.", "#REDIRECT [[USA#Old]]"),
    page("Loop A", "#REDIRECT [[Loop B]]"),
    page("Loop B", "#REDIRECT [[Loop A]]"),
    page(
        "Ada (poet)",
        "Ada lived in the [[USA|States]].\nAda saw the United States and [[Loop A|loops]]."
        "\n[[Category:English poets]][[Category:1950 births]]",
    ),
    page("Mercury", "{{disambig}}\n* [[Mercury (planet)]], near the [[Sun]]\n* [[Ada (poet)]]"),
    page("Mercury (planet)", "It is a [[planet]]. Planets of [[Rome]]."),
    page("List of planets", "* [[Mercury (planet)]]"),
    page("Talk:Ada", "[[USA]]", number=1),
    page("File:A.jpg", "x", number=6),
]


def make_job(path: Path, **settings: Any) -> Any:
    return spec_of("link", {"path": str(path), "out": ".", **settings}, None).make_job()


def run(tmp_path: Path, pages: list[str] = PAGES, **settings: Any) -> dict[str, Any]:
    file = tmp_path / "wiki.xml"
    file.write_text(export(pages))
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    return link(
        make_job(file, **settings), tmp_path / "out", say=lambda *_: None, tell=lambda _: None
    )


def mentions(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """{title: [(what stands in the text, the entity's name)]}."""
    known = KnowledgeDirectory(folder)
    return {
        row["title"]: [
            (row["text"][mark["start"] : mark["end"]], known.names[mark["id"]])
            for mark in row["entity"]
        ]
        for row in known.documents()
    }


def test_links_lead_through_redirects_to_entities(tmp_path: Path) -> None:
    about = run(tmp_path, repeated=False)
    assert mentions(tmp_path / "out") == {
        "United States": [("America", "Americas")],
        "Ada (poet)": [("States", "United States")],
        "Mercury (planet)": [("planet", "Planet"), ("Rome", "Rome")],
    }
    known = KnowledgeDirectory(tmp_path / "out")
    assert known.names == [
        *("United States", "Ada (poet)", "Mercury (planet)"),
        *("Americas", "Planet", "Rome"),
    ]
    assert dict(known[0].aliases) == {"United States": 0, "USA": 0, "U.S.A.": 0, "States": 1}
    assert known[0].aliases[0] == ("States", 1)
    assert dict(known[1].aliases) == {"Ada (poet)": 0, "Ada": 0, "Mercury": 0}
    assert known.types[:3] == [("countries",), ("poets", "poet"), ("planet",)]
    assert known[1].text == "Ada lived in the States."
    circle = f"{tmp_path}/wiki.xml: Loop A -> Loop B -> Loop A"
    assert about["problems"] == [f"1 redirect in a circle: {circle}"]
    counted = about["source"]["counted"]
    assert counted == {
        "redirects": 4,
        "articles": 3,
        "disambiguation pages": 1,
        "lists": 1,
        "pages of other namespaces": 2,
    }


def test_repeated_names_are_marked_where_no_link_is(tmp_path: Path) -> None:
    about = run(tmp_path)
    ada = mentions(tmp_path / "out")["Ada (poet)"]
    assert ada == [
        ("Ada", "Ada (poet)"),
        ("States", "United States"),
        ("Ada", "Ada (poet)"),
        ("United States", "United States"),
    ]
    assert (about["coverage"]["links"], about["coverage"]["repeated"]) == (4, 3)


def test_coverage_counts_what_is_there(tmp_path: Path) -> None:
    coverage = run(tmp_path, repeated=False)["coverage"]
    texts = [json.loads(line) for line in (tmp_path / "out/text.jsonl").read_text().splitlines()]
    assert coverage["documents"] == coverage["documents with a mention"] == len(texts) == 3
    assert coverage["characters"] == sum(len(row["text"]) for row in texts)
    assert coverage["characters in mentions"] == len("America" + "States" + "planet" + "Rome")
    assert coverage["mentions by type"] == {"countries": 1}
    assert coverage["mentions without a type"] == 3


def test_titles_without_a_page_are_entities_if_asked(tmp_path: Path) -> None:
    run(tmp_path, outside=False)
    assert KnowledgeDirectory(tmp_path / "out").names == [
        "United States",
        "Ada (poet)",
        "Mercury (planet)",
    ]
    run(tmp_path, least_mentions=2)
    assert "Rome" not in KnowledgeDirectory(tmp_path / "out").names


def test_tables_bring_types_and_triples(tmp_path: Path) -> None:
    (tmp_path / "types.tsv").write_text("Q1\tcity\nRome\tcapital\nAtlantis\tisland\n")
    (tmp_path / "ids.tsv").write_text("Q1\tRome\nQ2\tUnited States\n")
    (tmp_path / "triples.tsv").write_text("Q1\tnear\tQ2\nQ1\tnear\tQ9\nRome\tfar\tQ2\n")
    given = {name: str(tmp_path / f"{name}.tsv") for name in ("ids", "triples")}
    about = run(tmp_path, type_table=str(tmp_path / "types.tsv"), **given)
    known = KnowledgeDirectory(tmp_path / "out")
    assert known.types[known.ids["Rome"]] == ("city", "capital")
    assert known.relations == ["near", "far"]
    rome, states = known.ids["Rome"], known.ids["United States"]
    assert known.triples.tolist() == [[rome, 0, states], [rome, 1, states]]
    assert about["counts"]["triples"] == 2
    assert f"1 type without members: {tmp_path}/types.tsv:3: island" in about["problems"]
    assert f"{tmp_path}/triples.tsv:2 (Q9)" in about["problems"][-1]


def test_a_cut_export_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "wiki.xml"
    text = export(PAGES)
    file.write_text(text[: text.index("<title>Mercury (pl")])
    about = link(make_job(file), tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    assert about["source"]["counted"]["articles"] == 2
    assert "1 file cut off" in about["problems"][0]
    assert "line" in about["problems"][0]


def test_a_stopped_reading_goes_on_and_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmctl.knowledge import collect

    run(tmp_path)
    whole = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(collect, "_COMMIT", -1.0)
    read, seen = collect.read_page, []

    def stop(page: Any, *given: Any) -> Any:
        seen.append(page.title)
        if seen.count("Mercury (planet)") == 1 and page.title == "Mercury (planet)":
            raise KeyboardInterrupt
        return read(page, *given)

    monkeypatch.setattr(collect, "read_page", stop)
    job, told = make_job(tmp_path / "wiki.xml"), []
    with pytest.raises(KeyboardInterrupt):
        link(job, tmp_path / "out", say=lambda *_: None, tell=told.append)
    assert not (tmp_path / "out").exists()
    link(job, tmp_path / "out", say=lambda *_: None, tell=told.append)
    assert "going on from there" in told[0]
    assert seen.count("United States") == 1
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == whole


def test_plain_text_is_linked_with_the_names_of_a_directory(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "plain.txt").write_text("Rome is not in the USA.\n\nAda saw a planet.\n")
    job = make_job(tmp_path / "plain.txt", dictionary=str(tmp_path / "out"))
    link(job, tmp_path / "two", say=lambda *_: None, tell=lambda _: None)
    one, two = (KnowledgeDirectory(tmp_path / name) for name in ("out", "two"))
    assert one.fingerprint == two.fingerprint
    marks = [pair for pairs in mentions(tmp_path / "two").values() for pair in pairs]
    assert marks == [("Rome", "Rome"), ("USA", "United States"), ("Ada", "Ada (poet)")]
    # the aliases are still those of the dictionary, the counts are of this text
    found = {two.names[n] for n in two.mentions.nonzero()[0]}
    assert found == {name for _, name in marks}
    assert two.mentions.sum() == len(marks)
    seen = [mark["id"] for row in one.documents() for mark in row["entity"]]
    assert one.mentions.tolist() == [seen.count(n) for n in range(len(one))]


def test_plain_text_is_linked_with_a_table(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("Big Apple and NYC.\n")
    (tmp_path / "names.tsv").write_text("Big Apple\tNew York\nNYC\tNew York\t7\n\tNo\n")
    (tmp_path / "types.tsv").write_text("New York\tcity\n")
    words = {"dictionary": str(tmp_path / "names.tsv"), "type_table": str(tmp_path / "types.tsv")}
    (tmp_path / "sizes.tsv").write_text("big\tlarge\napple\tsmall\n")
    job = make_job(tmp_path / "plain.txt", **words, lexicons=[f"size:{tmp_path}/sizes.tsv"])
    about = link(job, tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    known = KnowledgeDirectory(tmp_path / "out")
    row = next(known.documents())
    assert [mark["id"] for mark in row["entity"]] == [0, 0]
    assert row["size"] == [{"start": 0, "end": 3, "id": 1}, {"start": 4, "end": 9, "id": 2}]
    assert (tmp_path / "out/size.txt").read_text() == "\nlarge\nsmall\n"
    assert known[0] == ("New York", (("NYC", 7), ("Big Apple", 1)), ("city",), "")
    assert about["problems"] == [f"1 line without an alias or a name: {tmp_path}/names.tsv:3"]


def test_the_entities_of_a_second_directory_are_marked_too(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "plain.txt").write_text("Rome and the USA have banks.\n")
    (tmp_path / "words.tsv").write_text("banks\triver.bank\t2\nbanks\tmoney.bank\t7\nRome\trome\n")
    words = make_job(tmp_path / "plain.txt", dictionary=str(tmp_path / "words.tsv"))
    link(words, tmp_path / "words", say=lambda *_: None, tell=lambda _: None)
    given = {"dictionary": str(tmp_path / "out"), "lexicons": [f"sense:{tmp_path}/words"]}
    job = make_job(tmp_path / "plain.txt", **given)
    about = link(job, tmp_path / "two", say=lambda *_: None, tell=lambda _: None)
    assert about["layers"]["sense"] == f"{tmp_path}/words/entities.jsonl"
    row = json.loads((tmp_path / "two/text.jsonl").read_text())
    names = KnowledgeDirectory(tmp_path / "words").names
    senses = [(row["text"][m["start"] : m["end"]], names[m["id"]]) for m in row["sense"]]
    assert senses == [("Rome", "rome"), ("banks", "money.bank")]
    assert len(row["entity"]) == 2


def test_tables_of_another_language_are_told(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("Big Apple and NYC.\n")
    (tmp_path / "names.tsv").write_text("大苹果\t纽约\n")
    (tmp_path / "sizes.tsv").write_text("大\tlarge\n")
    given = {"dictionary": str(tmp_path / "names.tsv"), "lexicons": [f"size:{tmp_path}/sizes.tsv"]}
    job = make_job(tmp_path / "plain.txt", **given)
    about = link(job, tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    assert about["problems"] == [
        f"1 dictionary with no name that the text has: {tmp_path}/names.tsv",
        f"1 lexicon with no word that the text has: size:{tmp_path}/sizes.tsv",
    ]
    assert about["coverage"]["mentions"] == about["coverage"]["marks of size"] == 0
    assert "  other marks: size 0" in command.describe_links(about, "out")


def test_wordnet_and_a_folder_of_this_name_are_not_mistaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("a bank\n")
    (tmp_path / "wordnet").mkdir()
    (tmp_path / "names.tsv").write_text("bank\tbank\n")
    words = {"dictionary": str(tmp_path / "names.tsv")}
    with pytest.raises(ConfigError, match=r"(?s)means WordNet here.*lexicons=\[m:./wordnet\]"):
        make_job(tmp_path / "plain.txt", **words, lexicons=["m:wordnet"])
    made = make_job(tmp_path / "plain.txt", **words, lexicons=["m:./wordnet"])
    assert made.lexicons["m"] == Path("wordnet")


def test_a_folder_of_texts_is_linked(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in (("a", "NYC.\n"), ("b", "Not there.\n"), ("c", "In NYC.\n")):
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    (tmp_path / "names.tsv").write_text("NYC\tNew York\t7\n")
    job = make_job(tmp_path / "texts", dictionary=str(tmp_path / "names.tsv"))
    link(job, tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    found = [
        (row["text"], len(row["entity"]))
        for row in KnowledgeDirectory(tmp_path / "out").documents()
    ]
    assert found == [("NYC.", 1), ("Not there.", 0), ("In NYC.", 1)]
    before = job.identity()
    (tmp_path / "texts" / "d.txt").write_text("NYC.\n")
    assert job.identity() != before


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("one\n", "names.tsv:1: 1 column, not 2: alias, name, count"),
        ("a\tb\tc\n", "names.tsv:1: 'c' is no number"),
    ],
)
def test_a_broken_table_is_named_by_line(tmp_path: Path, table: str, what: str) -> None:
    (tmp_path / "plain.txt").write_text("x\n")
    (tmp_path / "names.tsv").write_text(table)
    job = make_job(tmp_path / "plain.txt", dictionary=str(tmp_path / "names.tsv"))
    with pytest.raises(DataError, match=what):
        link(job, tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("names.csv", 'Big Apple,"New York, NY"\nNYC,"New York, NY",7\n'),
        ("names.csv", 'name,count,alias\n"New York, NY",,Big Apple\n"New York, NY",7,NYC\n'),
        ("names.csv", "\ufeffname;alias\r\nNew York, NY;Big Apple\r\nNew York, NY;NYC\r\n"),
        ("names.csv", "alias|name\nBig Apple|New York, NY\nNYC|New York, NY\n"),
        ("names.tsv", "Alias\tName\tCount\nBig Apple\tNew York, NY\t\nNYC\tNew York, NY\t7\n"),
        ("names.tsv", "name\talias\nNew York, NY\tBig Apple\nNew York, NY\tNYC\n"),
    ],
)
def test_a_table_of_names_has_tabs_or_commas_and_maybe_a_header(
    tmp_path: Path, name: str, table: str
) -> None:
    (tmp_path / name).write_text(table, encoding="utf-8")
    found = {(alias, name) for alias, name, _ in read_aliases(tmp_path / name, Problems())}
    assert found == {("Big Apple", "New York, NY"), ("NYC", "New York, NY")}


def test_an_open_quote_in_a_table_of_names_is_told(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text('NYC,"New York, NY\nBig Apple,New York\n')
    told = r"names\.csv:1: the quote that opens here is not closed in 2 lines\n  fix: [^;]*$"
    with pytest.raises(DataError, match=told):
        list(read_aliases(tmp_path / "names.csv", Problems()))


def test_the_folder_of_an_export_and_an_export_with_a_dictionary(tmp_path: Path) -> None:
    (tmp_path / "wiki").mkdir()
    for name in ("en.xml.bz2", "a.txt.bz2"):
        (tmp_path / "wiki" / name).write_bytes(b"BZh")
    (tmp_path / "names.tsv").write_text("NYC\tNew York\n")
    with pytest.raises(ConfigError, match=r"fix: path=.*/wiki/en\.xml\.bz2$"):
        make_job(tmp_path / "wiki")
    with pytest.raises(ConfigError, match="fix: dictionary=null"):
        make_job(tmp_path / "wiki/en.xml.bz2", dictionary=str(tmp_path / "names.tsv"))
    with pytest.raises(ConfigError, match=r"there is no such file\n  fix: # check the path$"):
        make_job(tmp_path / "wiki/others.xml.bz2")


def test_a_packed_table_is_named_with_what_unpacks_it(tmp_path: Path) -> None:
    file = tmp_path / "names.tsv.bz2"
    file.write_bytes(bz2.compress(b"NYC\tNew York\n" * 50))
    with pytest.raises(DataError, match=r"this is bzip2 data\n  fix: bunzip2 -k .*names\.tsv\.bz2"):
        list(read_aliases(file, Problems()))


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(ConfigError, match=r"^out='': the name of a new folder"):
        new_folder("")


def test_a_stop_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "plain.txt").write_text("x\n")
    monkeypatch.setattr("plmctl.knowledge.linking.link", stop)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.tsv").write_text("NYC\tNew York\n")
    words = ["data", "link", "plain.txt", "dictionary=names.tsv", "out=linked"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 130
    assert "linking was stopped" in done.output
    assert "  plmctl data link path=plain.txt dictionary=names.tsv out=linked\n" in done.output


def test_text_needs_a_dictionary_and_an_export_articles(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("x\n")
    with pytest.raises(ConfigError, match="dictionary=KNOWLEDGE_DIRECTORY"):
        make_job(tmp_path / "plain.txt")
    with pytest.raises(ConfigError, match=r"no such file\n  fix: path=.*plain.txt"):
        make_job(tmp_path / "plan.txt")
    with pytest.raises(DataError, match="no articles"):
        run(tmp_path, [page("A", "#REDIRECT [[B]]")])


def test_marks_of_links_come_first() -> None:
    links = [Mention(5, 9, 1), Mention(20, 30, 2)]
    others = [(0, 5, 3), (4, 6, 4), (9, 12, 5), (25, 26, 6), (30, 31, 7)]
    others = [Mention(*each) for each in others]
    assert merge(links, others) == [(0, 5, 3), (5, 9, 1), (9, 12, 5), (20, 30, 2), (30, 31, 7)]
    assert merge([], others[:1]) == others[:1]


@pytest.mark.parametrize(
    ("category", "head"),
    [
        ("Capitals in Europe", "capitals"),
        ("American football players", "players"),
        ("Living people", "people"),
        ("French Republicans", "republicans"),
        ("1950 births", ""),
        ("Physics", ""),
        ("Anarchism", ""),
        ("Articles with example code", ""),
        ("Works by Plato", "works"),
    ],
)
def test_categories_are_about_their_plural_noun(category: str, head: str) -> None:
    assert find_head(category) == head


def test_titles_as_texts_write_them() -> None:
    assert strip_qualifier("Mercury (planet)") == "Mercury"
    assert strip_qualifier("水星（行星）") == "水星"
    assert strip_qualifier("(x)") == "(x)"


@pytest.mark.parametrize("kind", ["pages", "text"])
def test_a_stopped_writing_goes_on_and_writes_the_same(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmctl.knowledge import writing

    run(tmp_path)
    job = make_job(tmp_path / "wiki.xml")
    if kind == "text":
        text = "".join(f"Rome {n} is in the USA.\n\nAda saw {n}.\n\n" for n in range(9))
        (tmp_path / "plain.txt").write_text(text)
        job = make_job(tmp_path / "plain.txt", dictionary=str(tmp_path / "out"))
    quiet = {"say": lambda *_: None, "tell": lambda _: None}
    link(job, tmp_path / "whole", **quiet)
    monkeypatch.setattr(writing, "_COMMIT", -1.0)
    add, seen = writing.Coverage.add, []

    def stop(coverage: Any, row: Any) -> None:
        seen.append(row["text"])
        if len(seen) == 3:
            raise KeyboardInterrupt
        add(coverage, row)

    monkeypatch.setattr(writing.Coverage, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        link(job, tmp_path / "again", **quiet)
    link(job, tmp_path / "again", **quiet)
    assert seen.count(seen[0]) == seen.count(seen[1]) == 1
    files = {
        name: {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for name in ("whole", "again")
    }
    assert files["whole"] == files["again"]


@pytest.mark.slow  # exports written here stay
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="no ../shared")
def test_a_real_export(tmp_path: Path) -> None:
    about = link(make_job(SHARED), tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    assert about["problems"] == []
    counted = about["source"]["counted"]
    assert sum(counted.values()) == 206
    assert counted["redirects"] == 99  # and one of another namespace
    coverage = about["coverage"]
    assert coverage["documents"] == coverage["documents with a mention"] == 96
    assert coverage["links"] > 21_000
    assert coverage["repeated"] > 10_000
    known = KnowledgeDirectory(tmp_path / "out")
    lincoln = known[known.ids["Abraham Lincoln"]]
    assert {"presidents", "lawyers"} <= {kind.rpartition(" ")[2] for kind in lincoln.types}
    assert lincoln.text.startswith("Abraham Lincoln (")
    assert known[known.ids["Aristotle"]].aliases[0] == ("Aristotle", 8)
    assert sum(1 for _ in known.documents()) == 96


def test_every_table_is_part_of_what_decides_the_links(tmp_path: Path) -> None:
    """A changed file is another job, so that nothing half-written goes on with it."""
    (tmp_path / "plain.txt").write_text("NYC.\n")
    tables = {"dictionary": "a\tb\t1\n", "type_table": "b\tcity\n", "ids": "1\tb\n"}
    tables |= {"triples": "1\tin\t2\n", "words": "a\tgood\n"}
    files = {name: tmp_path / f"{name}.tsv" for name in tables}
    for name, text in tables.items():
        files[name].write_text(text)
    named = {name: str(files[name]) for name in ("dictionary", "type_table", "ids", "triples")}
    job = make_job(tmp_path / "plain.txt", **named, lexicons=[f"mood:{files['words']}"])
    for file in (tmp_path / "plain.txt", *files.values()):
        before = job.identity()
        file.write_text(f"{file.read_text()}more\tof\t1\n")
        assert job.identity() != before, file.name
