"""`plmctl tokenize` on annotated and parallel text, and with a plugin's segmenter, as the
command line gives it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plmctl.cli.app import main
from plmctl.data.shards import Shards
from plmctl.text.tokenizer import Tokenizer

ROWS = [
    {
        "text": f"Anna met Bo in 北京大学. Row {n}.",
        "entity": [
            {"start": 0, "end": 4, "id": n},
            {"start": 9, "end": 11},
            {"start": 15, "end": 19, "id": 7},
        ],
        "sense": [{"start": 5, "end": 8, "id": 3}],
    }
    for n in range(60)
]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["plmctl", "tokenize", "processes=1", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return file


def test_spans_and_tags(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = (
        "tokenizer=word",
        "data.spans=[entity]",
        "data.tags=[sense]",
        "data.valid_share=0",
        f"data.path={rows}",
        f"out={out}",
    )
    assert run(monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    assert "the tokenizer was trained on 120 sentences" in printed
    assert "spans of 'entity': 180" in printed
    shards, tokenizer = Shards.open(out), Tokenizer.load(out)
    track = shards.spans["entity"]
    mentions = [
        tokenizer.pieces(shards.ids[a : a + n])
        for a, n in zip(track.start, track.length, strict=True)
    ]
    assert mentions == [["Anna"], ["Bo"], ["北", "京", "大", "学"]] * 60
    assert track.id.tolist() == [i for n in range(60) for i in (n, 0, 7)]
    assert set(tokenizer.pieces(shards.ids[shards.tracks["sense"] == 3])) == {"met"}


def test_bad_offsets_end_with_3(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"text": "short", "entity": [{"start": 2, "end": 9}]}) + "\n")
    assert (
        run(
            monkeypatch,
            "tokenizer=word",
            "data.spans=[entity]",
            f"data.path={rows}",
            f"out={tmp_path / 'out'}",
        )
        == 3
    )
    assert (
        "rows.jsonl:61: 'entity'[0]: 2..9 lies outside the text, which has 5 characters"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_parallel_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, line in (("a.en", "Row {}. It is one."), ("a, 中文.zh", "第{}行。是一行。")):
        (tmp_path / name).write_text(
            "".join(line.format(n) + "\n" for n in range(50)) + "\nlast", encoding="utf-8"
        )
    (tmp_path / "a.tsv").write_text(
        "".join(f"Row {n}\t第{n}行\n" for n in range(50)), encoding="utf-8"
    )
    pair = [f"data.path={tmp_path / 'a.en'}", f"data.target_path={tmp_path / 'a, 中文.zh'}"]
    assert run(monkeypatch, "tokenizer=char", *pair, f"out={tmp_path / 'one'}") == 0
    assert "left out: 1 pairs with an empty side" in capsys.readouterr().out
    assert (
        run(
            monkeypatch,
            "tokenizer=char",
            "data.fields=[1,2]",
            f"data.path={tmp_path / 'a.tsv'}",
            f"out={tmp_path / 'two'}",
        )
        == 0
    )
    for folder in ("one", "two"):
        shards = Shards.open(tmp_path / folder)
        assert shards.pairs
        assert len(shards.sentences) - 1 == 2 * (len(shards.documents) - 1)
    for words, message in (
        (
            [*pair, f"data.valid_path={tmp_path / 'a.en'}"],
            "data.valid_target_path=null: must be given too",
        ),
        (
            [pair[0], f"data.valid_target_path={tmp_path / 'a.en'}"],
            "goes with data.valid_path, which is not set",
        ),
        ([*pair, "data.fields=[1,2]"], "either data.fields (one file) or data.target_path (two)"),
        ([*pair, "data.spans=[entity]"], "parallel text has no spans"),
    ):
        assert run(monkeypatch, "tokenizer=char", *words, f"out={tmp_path / 'bad'}") == 2
        assert message in capsys.readouterr().err


def test_a_segmenter_of_a_plugin(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "from plmctl.core.parts import part_of",
        '@part_of("segment")',
        "def cut(text):",
        "    return [(0, len(text))] if text else []",
    )
    (tmp_path / "own_words.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    words = (
        "tokenizer=char",
        "data.segment=own_words.cut",
        f"data.path={rows}",
        f"out={tmp_path / 'out'}",
    )
    assert run(monkeypatch, *words) == 2
    assert capsys.readouterr().err.endswith(" --plugin own_words\n")
    assert run(monkeypatch, *words, "--plugin", "own_words") == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"]["segment"] == "own_words.cut"
    assert run(monkeypatch, *words[:1], "data.segment=jeiba", *words[2:]) == 2
    assert "did you mean 'jieba'?" in capsys.readouterr().err


def test_a_whole_file_held_out_is_said_and_a_run_lends_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, word in (("a.txt", "red"), ("b.txt", "blue")):
        (tmp_path / name).write_text(f"the {word} house stands here\n" * 40, encoding="utf-8")
    words = [f"data.path={tmp_path}", "tokenizer=word", "data.lines=sentence"]
    assert run(monkeypatch, *words, f"out={tmp_path / 'out'}") == 0
    assert (
        "50% of the text is held out, because there are only 2 documents" in capsys.readouterr().out
    )
    saved = tmp_path / "run" / "checkpoints" / "step-7"
    saved.mkdir(parents=True)
    (tmp_path / "out" / "tokenizer").rename(saved / "tokenizer")
    assert (
        run(
            monkeypatch,
            *words,
            "data.valid_share=0",
            f"tokenizer.path={tmp_path / 'run'}",
            f"out={tmp_path / 'two'}",
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "is held out" not in printed
    assert (
        Tokenizer.load(tmp_path / "run").fingerprint == Tokenizer.load(tmp_path / "two").fingerprint
    )
