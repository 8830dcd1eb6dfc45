"""`plmctl data dedup`: which documents stay, however it runs, and the files it reads and writes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plmctl.cleaning import dedup
from plmctl.cleaning.clusters import group_texts
from plmctl.cleaning.parts import CleaningInput
from plmctl.text.inputs import describe_skipped
from plmctl.text.reader import read_documents
from tests.command import plmctl

Rows = Sequence[Mapping[str, Any]]


def write_rows(file: Path, rows: Rows) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def read_out(folder: Path) -> list[dict[str, Any]]:
    """The documents of a folder, in order."""
    files = sorted(folder.glob("*.jsonl.gz"))
    return [
        json.loads(line)
        for file in files
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Four files of 60 documents: originals, equal ones, near duplicates, an empty one."""
    draws, folder = random.Random(1), tmp_path / "corpus"
    words = ["".join(draws.choices("abcdefghij", k=5)) for _ in range(500)]
    originals = [draws.choices(words, k=120) for _ in range(20)]
    rows = []
    for number in range(60):
        text = list(originals[number % 20])
        if number >= 40:
            text[number % 7] = "other"
        joined = " ".join(text)
        rows.append({"text": joined.upper() if number % 2 else joined, "id": f"d{number}"})
    rows[13]["text"] = " "
    for number in range(4):
        write_rows(folder / f"{number}.jsonl", rows[number::4])
    return folder


def test_the_first_of_each_group_stays(corpus: Path, tmp_path: Path) -> None:
    shown = plmctl("data", "dedup", str(corpus), f"out={tmp_path}/out")
    kept = {row["id"] for row in read_out(tmp_path / "out")}
    rows = [json.loads(line) for f in sorted(corpus.glob("*")) for line in f.open()]
    wanted: dict[int, str] = {}
    for row in rows:
        if row["text"].strip():
            wanted.setdefault(int(row["id"][1:]) % 20, row["id"])
    assert kept == set(wanted.values())
    assert len(kept) == 20
    assert "kept" in shown
    assert "20 clusters, the largest has 3 of 60 documents (5.0%), of which 1 stays" in shown
    made = json.loads((tmp_path / "out" / "made.json").read_text())
    assert {k: v[0] for k, v in made["documents"].items()} == {
        "kept": 20,
        "empty": 1,
        "exact": 19,
        "near": 20,
    }
    assert made["clusters"] == {"2": 1, "3": 19}


def test_each_dropped_document_has_its_twin(corpus: Path, tmp_path: Path) -> None:
    plmctl("data", "dedup", str(corpus), f"out={tmp_path}/out")
    lines = (tmp_path / "out/dropped/00000.tsv").read_text().splitlines()
    head, *rows = (line.split("\t") for line in lines)
    assert head == list(dedup.COLUMNS)
    kept = {row["id"] for row in read_out(tmp_path / "out")}
    assert len(rows) == 40
    for identity, reason, twin, position, twin_position, _ in rows:
        assert (twin in kept) == (reason != "empty")
        assert identity not in kept
        if reason != "empty":
            assert int(identity[1:]) % 20 == int(twin[1:]) % 20
        file, _, line = position.partition(":")
        assert json.loads((corpus / file).read_text().splitlines()[int(line) - 1])["id"] == identity
        assert twin_position or reason == "empty"
    (example, *_) = json.loads((tmp_path / "out/clusters.json").read_text())
    assert example["documents"] == 3
    assert len(example["dropped"]) == 2
    assert all(each["similarity"] > 0.8 for each in example["dropped"])


def make_labelled(tmp_path: Path, labels: Sequence[str | None]) -> str:
    """A table with one text in all rows, in two files, each row with a label and a number."""
    rows = [{"text": "My card is lost.", "team": label, "n": n} for n, label in enumerate(labels)]
    write_rows(tmp_path / "in" / "0.jsonl", rows[::2])
    write_rows(tmp_path / "in" / "1.jsonl", rows[1::2])
    return str(tmp_path / "in")


def test_copies_with_other_labels_are_named(tmp_path: Path) -> None:
    folder = make_labelled(tmp_path, ["cards", "cards", "Cards", "topup", "cards"])
    shown = plmctl("data", "dedup", folder, f"out={tmp_path}/out")
    assert "1 dropped document had another team than the kept one" in shown
    assert "label=team" in shown
    assert "another n" not in shown  # a number of each row is no label
    assert json.loads((tmp_path / "out/made.json").read_text())["differing"] == {"team": 1}


def test_one_document_of_each_label_stays(tmp_path: Path) -> None:
    folder = make_labelled(tmp_path, ["cards", "topup", "Cards", "topup", None])
    shown = plmctl("data", "dedup", folder, "label=team", f"out={tmp_path}/out")
    kept = [(row["team"], row["n"]) for row in read_out(tmp_path / "out")]
    assert kept == [("cards", 0), (None, 4), ("topup", 1)]
    assert "1 group with several labels" in shown
    assert "has other frequencies than the rows as they came" in shown
    made = f"{tmp_path / 'out' / '00000.jsonl.gz'} task=classification task.columns.label=team"
    assert f"next: plmctl data clean {made} " in shown
    first, *others = [f"{label}: My card is lost. (" for label in ("cards", "no label", "topup")]
    (line,) = [line for line in shown.splitlines() if line.startswith(f"  {first}0.jsonl/0)")]
    assert all(other in line for other in others)
    assert describe_skipped([tmp_path / "out"])[0] == 0, "its own records are no text"
    lines = (tmp_path / "out/conflicts.tsv").read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines[1:]] == [
        ["0.jsonl/0", "cards"],
        ["0.jsonl/0", ""],
        ["0.jsonl/0", "topup"],
    ]


def test_a_label_that_no_row_has_is_refused(tmp_path: Path) -> None:
    folder = make_labelled(tmp_path, ["cards", "topup"])
    shown = plmctl("data", "dedup", folder, "label=tem", f"out={tmp_path}/out", code=2)
    assert "team, n" in shown


def test_neither_order_nor_processes_nor_parts_change_what_stays(
    corpus: Path, tmp_path: Path
) -> None:
    files = [str(file) for file in sorted(corpus.glob("*"))]
    words = {
        "one": [str(corpus), "processes=1"],
        "turned": [*files[::-1], "processes=1"],
        "two": [str(corpus), "processes=2", "part_mb=0.01"],
        "small": [str(corpus), "processes=1", "part_mb=0.01"],
    }
    for name, given in words.items():
        plmctl("data", "dedup", *given, f"out={tmp_path}/{name}")
    rows = {name: read_out(tmp_path / name) for name in words}
    assert all(rows[name] == rows["one"] for name in words)
    assert len(list((tmp_path / "two").glob("*.gz"))) > 2
    assert contents(tmp_path / "two") == contents(tmp_path / "small")
    assert contents(tmp_path / "turned") == contents(tmp_path / "one")


@pytest.mark.parametrize("step", ["Signing", "Comparing", "Writing"])
def test_a_stopped_start_goes_on_with_unfinished_parts_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    words = ["data", "dedup", str(corpus), "part_mb=0.01", "processes=1"]
    plmctl(*words, f"out={tmp_path}/whole")
    kind, calls = getattr(dedup, step), 0
    real = kind.__call__

    def stopped(self: Any, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(kind, "__call__", stopped)
    plmctl(*words, f"out={tmp_path}/out", code=130)
    assert not (tmp_path / "out").exists()
    done: dict[str, int] = {"Signing": 0, "Comparing": 0, "Writing": 0}
    for name in done:
        original = real if name == step else getattr(dedup, name).__call__

        def counted(self: Any, *args: Any, real: Any = original, name: str = name) -> Any:
            done[name] += 1
            return real(self, *args)

        monkeypatch.setattr(getattr(dedup, name), "__call__", counted)
    plmctl(*words, f"out={tmp_path}/out")
    parts = len(list((tmp_path / "whole/dropped").glob("*.tsv")))
    total = {"Signing": parts, "Comparing": 15, "Writing": parts}
    order = list(done)
    for name in done:
        before = order.index(name) < order.index(step)
        assert done[name] == (0 if before else total[name] - 2 * (name == step))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_preferred_files_and_a_priority_stay(tmp_path: Path) -> None:
    text = "one and the same text of a few words, which stands in three files"
    for name, score in (("a", 3), ("b", 1), ("c", 2)):
        row = {"text": text, "id": name, "metadata": {"score": score}}
        write_rows(tmp_path / f"in/{name}.jsonl", [row])
    for number, (words, kept) in enumerate(
        [
            ([], "a"),
            (["priority=score"], "b"),
            ([f"prefer=[{tmp_path}/in/c.jsonl]", "priority=score"], "c"),
        ]
    ):
        out = tmp_path / f"out{number}"
        plmctl("data", "dedup", str(tmp_path / "in"), f"out={out}", *words)
        assert [row["id"] for row in read_out(out)] == [kept]


def test_exact_alone_and_near_alone(corpus: Path, tmp_path: Path) -> None:
    for word, count in (("near=false", 40), ("exact=false", 20)):
        plmctl("data", "dedup", str(corpus), word, f"out={tmp_path}/{word}")
        assert len(read_out(tmp_path / word)) == count
    told = plmctl("data", "dedup", str(corpus), "near=false", "exact=false", "out=x", code=2)
    assert "fix: near=true" in told


def test_datatrove_rows_keep_all_their_fields(tmp_path: Path) -> None:
    """`text`, `id`, `metadata` as its JsonlWriter writes them, in its file names, and others."""
    lines = [
        '{"text":"Ünï \\"code\\" 北京\\nline","id":"<urn:1>","metadata":{"url":"http://a","n":1.5}}',
        '{"text":"another text","id":"2","metadata":{"list":[1,null,true]},"more":{"a":"b"}}',
        '{"text":"no id here","title":"t"}',
    ]
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in/00000.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    plmctl("data", "dedup", f"{tmp_path}/in", f"out={tmp_path}/out")
    written = gzip.decompress((tmp_path / "out/00000.jsonl.gz").read_bytes()).decode()
    assert written.splitlines()[:2] == lines[:2]
    assert json.loads(written.splitlines()[2]) == {
        "text": "no id here",
        "id": "00000.jsonl.gz/2",
        "title": "t",
    }
    plmctl("tokenize", f"{tmp_path}/out", "tokenizer=char", f"out={tmp_path}/tokens")


def test_plain_text_in_and_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "One line.\nTwo lines.\n\nOther text.\n\nOne line.\nTwo lines.\n"
    )
    how = ("write=text", "compression=none", f"out={tmp_path}/o")
    plmctl("data", "dedup", f"{tmp_path}/a.txt", *how)
    assert (tmp_path / "o/00000.txt").read_text() == "One line.\nTwo lines.\n\nOther text.\n\n"
    again = [document.paragraphs for document in read_documents(f"{tmp_path}/o")]
    assert again == [("One line.", "Two lines."), ("Other text.",)]


def test_parts_of_a_file_have_the_documents_of_the_whole(tmp_path: Path) -> None:
    draws = random.Random(0)
    texts = [
        "\n".join(f"Sentence {draws.random()}." for _ in range(draws.randint(1, 6)))
        for _ in range(300)
    ]
    blocks = (
        f'<doc id="{n}" title="T">\nT\n\n{text}\n\nMore.\n</doc>\n' for n, text in enumerate(texts)
    )
    (tmp_path / "plain.txt").write_text("\r\n\r\n".join(texts) + "\n\n\n \n")
    (tmp_path / "wiki.txt").write_text("".join(blocks))
    write_rows(tmp_path / "rows.jsonl", [{"text": text} for text in texts])
    for name in ("plain.txt", "wiki.txt", "rows.jsonl"):
        source = CleaningInput((str(tmp_path / name),), lines="paragraph")
        whole, parts = ([*source.divide(size)] for size in (1 << 30, 1000))
        read = [[t for part in given for _, t in source.read(part)] for given in (whole, parts)]
        assert len(whole) == 1
        assert len(parts) > 10
        assert read[0] == read[1]
        assert len(read[0]) == 300


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [
        (b'{"body": "x", "title": "a title"}\n', 3, "this line has 'body', 'title'"),
        (b'{"body": "x", "title": "a title"}\n', 3, "fix: field=title"),
        (b"[1]\n", 3, "0.jsonl:1: a JSON object is needed"),
        (b'{"text": "caf\xe9 au lait"}\n', 3, "0.jsonl:1: not UTF-8: byte 0xe9"),
        (b"", 3, "the file is empty"),
        (b"\n\n", 3, "there are no documents"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, content: bytes, code: int, told: str) -> None:
    (tmp_path / "0.jsonl").write_bytes(content)
    said = plmctl("data", "dedup", f"{tmp_path}/0.jsonl", f"out={tmp_path}/out", code=code)
    assert told in said
    assert [file.name for file in tmp_path.iterdir()] == ["0.jsonl"]


def test_an_existing_folder_and_a_full_disk(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not empty" in plmctl("data", "dedup", str(corpus), f"out={corpus}", code=2)

    def full(self: Any, *args: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dedup.Writing, "__call__", full)
    said = plmctl("data", "dedup", str(corpus), f"out={tmp_path}/out", code=3)
    assert "No space left on device" in said
    assert "the same command goes on from there" in said
    monkeypatch.undo()
    plmctl("data", "dedup", str(corpus), f"out={tmp_path}/out")
    assert len(read_out(tmp_path / "out")) == 20


def test_texts_in_memory_have_the_groups_of_the_command() -> None:
    words = "a b c d e f g h i j k l m n o p"
    texts = [words, "", words.upper(), f"{words} 7", f"{words} 8", "a b", "", words[::-1], "A  b"]
    assert group_texts(texts).tolist() == [0, 1, 0, 0, 0, 5, 6, 7, 5]
    units = ["u", "v", "w", "x", "y", "z", "u", "z", "s"]
    assert group_texts(texts, units).tolist() == [0, 1, 0, 0, 0, 5, 0, 5, 5]
