"""Kinds of input files and of data sets: the same documents from each, bounded memory, and what
is said of bad ones.
"""

from __future__ import annotations

import csv
import json
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.core.errors import DataError, UsageError
from plmctl.data.survey import TextSource
from plmctl.text import inputs
from plmctl.text.hub import DataSet
from plmctl.text.reader import read_documents
from plmctl.text.tabular import read_rows
from tests.storage.test_hub import COMMIT, fill

ROWS: list[dict[str, Any]] = [
    {
        "id": n,
        "text": f"Row {n} begins. 第{n}行🙂。\n\nIt ends.",
        "entity": [{"start": 0, "end": 3, "id": n}],
    }
    for n in range(600)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def found(path: object, **how: Any) -> list[tuple[list[str], dict[str, list[list[int]]]]]:
    made = read_documents(path, spans=["entity"], **how)  # type: ignore[arg-type]
    return [
        (document.sentences, {name: table.tolist() for name, table in document.marks.items()})
        for document in made
    ]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    file = tmp_path / "plain/a.jsonl"
    file.parent.mkdir()
    file.write_text(LINES, encoding="utf-8")
    return file


def test_zstandard(tmp_path: Path, plain: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = [
        zstandard.ZstdCompressor().compress(part.encode()) for part in (LINES[:1000], LINES[1000:])
    ]
    # two frames, as `cat a.zst b.zst` makes
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(packed))
    assert found(tmp_path / "a.jsonl.zst") == found(plain)
    (tmp_path / "a.txt.zst").write_bytes(
        zstandard.ZstdCompressor().compress("One.\n\n二。".encode())
    )
    assert [document.sentences for document in read_documents(tmp_path / "a.txt.zst")] == [
        ["One."],
        ["二。"],
    ]
    assert tmp_path / "a.txt.zst" in inputs.find_files(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "between", "nonsense", "name"])
def test_damaged_zstandard(tmp_path: Path, damage: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(LINES.encode())
    content = {
        "cut": packed[:-9],
        "between": packed + packed[:5],
        "nonsense": b"text " * 100,
        "name": packed,
    }[damage]
    file = tmp_path / ("a.txt" if damage == "name" else "a.txt.zst")
    file.write_bytes(content)
    message = (
        r"this is zstandard data(.|\n)*name it a\.txt\.zst"
        if damage == "name"
        else "damaged zstandard file"
    )
    with pytest.raises(DataError, match=message):
        list(read_documents(file))


def test_csv(tmp_path: Path, plain: Path) -> None:
    """What a spreadsheet writes: commas, quotes and line ends inside of cells."""
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerows(
            [
                ["id", "body, with a comma"],
                *([row["id"], row["text"]] for row in ROWS),
                ["last", "x " * 100_000],
            ]
        )
    made = [
        document.sentences
        for document in read_documents(tmp_path / "a.csv", field="body, with a comma")
    ]
    assert made[:-1] == [sentences for sentences, _ in found(plain)]
    assert " ".join(made[-1]) == ("x " * 100_000).strip()  # cut, since no sentence ends
    (tmp_path / "b.csv").write_text("body,label\nGood.,1\n", encoding="utf-8")
    with pytest.raises(
        DataError,
        match=r"b.csv:2: no text in a field 'text' \(this line has 'body'.*\)\n  fix: .*=body",
    ):
        list(read_documents(tmp_path / "b.csv"))
    (tmp_path / "c.csv").write_text('text\nGood.\n"never "closed\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"c\.csv:3: not a table with commas"):
        list(read_documents(tmp_path / "c.csv"))


def test_parquet(tmp_path: Path, plain: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=100)
    assert found(tmp_path / "a.parquet") == found(plain)
    assert found(tmp_path / "a.parquet")[7][1] == {"entity": [[0, 3, 7]]}
    with pytest.raises(
        DataError,
        match=r"a\.parquet:1: no text in a field 'txt' .*'id', 'text', 'entity'.*mean 'text'",
    ):
        list(read_documents(tmp_path / "a.parquet", field="txt"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match=r"b\.parquet: not a parquet file, or a damaged one"):
        list(read_documents(tmp_path / "b.parquet"))


def test_parquet_is_not_held_in_memory(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"text": f"{n} " * 2000} for n in range(4000)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=200)
    del rows
    before = pyarrow.total_allocated_bytes()
    tracemalloc.start()
    count = largest = 0
    for _ in read_rows(tmp_path / "a.parquet", ["text"]):
        count += 1
        largest = max(largest, pyarrow.total_allocated_bytes() - before)
    assert count == 4000
    assert largest + tracemalloc.get_traced_memory()[1] < 12e6  # of 38 MB
    tracemalloc.stop()


def test_data_sets(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    (plain.parent / "a.jsonl").rename(plain.parent / "train.jsonl")
    (plain.parent / "validation.jsonl").write_text(LINES[: LINES.index("\n")], encoding="utf-8")
    folder = plain.parent
    wanted = found(folder / "train.jsonl")
    assert (
        found(f"hf:{folder}")
        == found(f"hf:{folder}:train")
        == found(f"hf:{folder}:default:train")
        == wanted
    )
    assert found(f"hf:{folder}:default") == wanted
    assert found(f"hf:{folder}:validation") == wanted[:1]
    before = TextSource(f"hf:{folder}").content()
    assert before == TextSource(f"hf:{folder}").content()
    with (folder / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(LINES)
    assert before != TextSource(f"hf:{folder}").content()
    wrongs = {
        ":trian": "Bad split: trian",
        ":a:b:c": r"hf:<name>\[@revision\]\[:config\]",
        ":x:train": "cannot be read",
    }
    for wrong, message in wrongs.items():
        with pytest.raises(DataError, match=message):
            list(read_documents(f"hf:{folder}{wrong}"))
    with pytest.raises(DataError, match=r"hf:/nowhere/at/all: there is no such folder"):
        list(read_documents("hf:/nowhere/at/all"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder.parent / "hub"))
    fill(folder.parent / "hub", "some/set", folder, ref="v1", kind="dataset")
    for name in ("hf:some/set@v1", "hf:some/set@v1:default:train", f"hf:some/set@{COMMIT}:train"):
        assert found(name) == found(folder / "train.jsonl")


@pytest.mark.parametrize(
    ("name", "said", "fix"),
    [
        ("some/set", "it is not in the local cache.*", "some/set --repo-type dataset"),
        ("a/b@v2:x", "no revision v2; it has v1", "a/b --repo-type dataset --revision v2"),
    ],
)
def test_a_data_set_that_was_not_downloaded_names_the_command(
    name: str, said: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SimpleNamespace(get_dataset_config_names=lambda name, **more: [*more.values()])
    reader.load_dataset_builder = lambda name, config, **more: (name, more)
    monkeypatch.setitem(sys.modules, "datasets", reader)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    fill(tmp_path / "hub", "a/b", tmp_path, ref="v1", kind="dataset")
    for asked in (None, "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", asked) if asked else None
        with pytest.raises(DataError, match=f"{said}\n  fix: hf download {fix}  # or export HF"):
            list(DataSet(f"hf:{name}").rows())
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    named, _, revision = name.partition(":")[0].partition("@")
    (opened, more), _ = DataSet(f"hf:{name}")._builder
    assert (opened, more) == (named, {"revision": revision or "main"})


@pytest.mark.parametrize(
    ("name", "module", "installed"),
    [
        ("a.txt.zst", "zstandard", "zstandard>=0.23"),
        ("a.parquet", "pyarrow.parquet", "pyarrow>=17"),
        ("hf:x", "datasets", "datasets>=3"),
    ],
)
def test_a_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, installed: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    (tmp_path / "a.parquet").write_bytes(b"x")
    path = name if name.startswith("hf:") else tmp_path / name
    with pytest.raises(
        UsageError,
        match=rf"{name}.* needs {module.partition('.')[0]}\n  fix: pip install '{installed}'$",
    ):
        list(read_documents(path))


def test_in_a_checkout_that_nobody_installed_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from importlib import metadata

    from plmctl.core import extras
    from plmctl.core.extras import install_command

    assert install_command("chinese") == "pip install 'jieba>=0.42'"
    with monkeypatch.context() as older:  # an installation that did not know it yet
        older.setattr(metadata, "requires", lambda name: ["torch>=2.11"])
        assert install_command("wandb") == "pip install wandb"

    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert (
        install_command("chinese")
        == f"pip install -e '{Path(extras.__file__).parents[2]}[chinese]'"
    )


def test_held_out_files_of_a_folder_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("01-speech.txt", "valid.txt", "validity.txt"):
        (tmp_path / name).write_text("a text\n")
    assert len(inputs.find_files(tmp_path)) == 3
    (said,) = [record.message for record in caplog.records if "for training" in record.message]
    assert ": valid.txt is read for training" in said
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "test.txt").write_text("a text\n")
    caplog.clear()
    inputs.find_files(alone)
    assert not caplog.records
