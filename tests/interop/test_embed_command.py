"""`plmctl embed`: shapes, values against `transformers`, independence of batching, and its
messages.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import plmctl
from plmctl.config.make_spec import spec_of
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.use.embedding_lines import read
from plmctl.use.semantic_search import VectorFile


def run(folder: Path, file: Path, **changes) -> dict[str, np.ndarray]:
    numbers = {
        "layers": "all",
        "logits": True,
        "batch_size": 4,
        "device": "cpu",
        "precision": "fp32",
    }
    numbers |= {"field": "text", "pooling": "none", "overwrite": True} | changes
    out = file.with_name("out.npz")
    words = {"checkpoint": str(folder), "input": str(file), "out": str(out), **numbers}
    spec_of("embed", words).perform()
    assert [path.name for path in out.parent.glob(".*")] == []
    with np.load(out) as found:
        return dict(found)


def json_lines(file: Path, lines: list[dict]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" if line else "\n" for line in lines))
    return file


def test_text_lines_agree_with_transformers(
    published, with_tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, folder = published("BertForMaskedLM")
    with_tokenizer(folder)
    file = tmp_path / "lines.txt"
    file.write_text("the cat sat on the mat .\n\nthe dogs ran\n", encoding="utf-8")
    found = run(folder, file)
    assert any("1 of 3 lines are blank; their vectors: zeros" in line for line in caplog.messages)
    assert sorted(found) == [f"{name}_{i}" for name in ("hidden", "ids") for i in range(3)] + [
        "logits_0",
        "logits_2",
    ]
    assert found["ids_2"].tolist() == [2, 5, 11, 10, 12, 3]
    assert found["hidden_1"].shape == (3, 0, 16)
    for i in (0, 2):
        with torch.no_grad():
            wanted = model(torch.from_numpy(found[f"ids_{i}"])[None], output_hidden_states=True)
        assert_close(
            torch.from_numpy(found[f"hidden_{i}"]),
            torch.cat(wanted.hidden_states),
            atol=1e-5,
            rtol=1e-5,
        )
        assert_close(torch.from_numpy(found[f"logits_{i}"]), wanted.logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["BertForPreTraining", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_ids_need_no_tokenizer_and_padding_changes_nothing(
    name: str, published, tmp_path: Path
) -> None:
    model, folder = published(name)
    segments = {"segment_ids": [0, 0, 0, 1, 1]} if name.startswith("Bert") else {}
    lines = [
        {"input_ids": [5, 6, 7, 8, 9], **segments},
        {"input_ids": [5, 6, 7, 8, 9, 1, 1], "padding": [0, 0, 0, 0, 0, 1, 1]},
        {"input_ids": [5, 6, 7, 8, 9, 1, 1], "attention_mask": [1, 1, 1, 1, 1, 0, 0]},
        {},
        {"input_ids": [5, 6, 7, 8, 9], "padding": [False] * 5},
    ]
    found = run(folder, json_lines(tmp_path / "in.jsonl", lines))
    assert [found[f"hidden_{i}"].shape for i in range(5)] == [
        (3, 5, 16),
        (3, 7, 16),
        (3, 7, 16),
        (3, 0, 16),
        (3, 5, 16),
    ]
    for i in (1, 2):
        assert_close(found[f"hidden_{i}"][:, :5], found["hidden_4"], atol=1e-5, rtol=1e-5)
    ids = torch.tensor([lines[1]["input_ids"]])
    with torch.no_grad():
        wanted = model(
            ids,
            attention_mask=torch.tensor([lines[2]["attention_mask"]]),
            output_hidden_states=True,
        )
        extra = {"token_type_ids": torch.tensor([segments["segment_ids"]])} if segments else {}
        first = model(ids[:, :5], output_hidden_states=True, **extra)
    assert_close(
        torch.from_numpy(found["hidden_1"])[:, :5],
        torch.cat(wanted.hidden_states)[:, :5],
        atol=1e-5,
        rtol=1e-5,
    )
    assert_close(
        torch.from_numpy(found["hidden_0"]), torch.cat(first.hidden_states), atol=1e-5, rtol=1e-5
    )
    logits = first.prediction_logits if name == "BertForPreTraining" else first.logits
    assert_close(torch.from_numpy(found["logits_0"]), logits[0], atol=1e-5, rtol=1e-5)
    if name == "BertForPreTraining":
        assert_close(
            torch.from_numpy(found["logits_nsp_0"]),
            first.seq_relationship_logits[0],
            atol=1e-5,
            rtol=1e-5,
        )


def test_values_do_not_depend_on_batching(published, tmp_path: Path) -> None:
    _, folder = published("BertForPreTraining")
    generator = np.random.default_rng(0)
    lines = [
        {"input_ids": generator.integers(2, 40, size).tolist()}
        for size in (3, 12, 1, 7, 7, 5, 12, 2)
    ]
    file = json_lines(tmp_path / "in.jsonl", lines)
    alone = run(folder, file, batch_size=1)
    for size in (3, 8):
        together = run(folder, file, batch_size=size)
        assert alone.keys() == together.keys()
        for name in alone:
            assert_close(together[name], alone[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "max", "last"])
def test_pooling_is_over_all_tokens_but_padding(pooling: str, published, tmp_path: Path) -> None:
    _, folder = published("BertModel")
    lines = [
        {"input_ids": [5, 6, 7, 8]},
        {"input_ids": [1, 5, 6, 7, 9, 1], "attention_mask": [0, 1, 1, 1, 0, 0]},
        {},
        {"input_ids": [9]},
    ]
    file = json_lines(tmp_path / "in.jsonl", lines)
    whole, found = (run(folder, file, logits=False, pooling=name) for name in ("none", pooling))
    for i, real in ((0, slice(0, 4)), (1, slice(1, 4)), (3, slice(0, 1))):
        states = whole[f"hidden_{i}"][:, real]
        ways = {
            "mean": states.mean(1),
            "max": states.max(1),
            "first": states[:, 0],
            "last": states[:, -1],
        }
        assert found[f"hidden_{i}"].shape == (3, 16)
        np.testing.assert_allclose(found[f"hidden_{i}"], ways[pooling], atol=1e-6)
        assert (found[f"ids_{i}"] == whole[f"ids_{i}"]).all()
    assert (found["hidden_2"] == np.zeros((3, 16))).all()


def test_poolings_of_a_whole_line(published, tmp_path: Path) -> None:
    model, folder = published("BertForPreTraining")
    file = json_lines(tmp_path / "in.jsonl", [{"input_ids": [5, 6, 7, 8]}, {}, {"input_ids": [9]}])
    found = {
        name: run(folder, file, logits=False, pooling=name) for name in ("first_last", "pooler")
    }
    unit = run(folder, file, logits=False, pooling="first_last", normalize=True)
    for i, ids in ((0, [5, 6, 7, 8]), (2, [9])):
        with torch.no_grad():
            wanted = model.bert(torch.tensor([ids]), output_hidden_states=True)
        first_last = (wanted.hidden_states[1] + wanted.hidden_states[-1]).mean(1) / 2
        np.testing.assert_allclose(found["first_last"][f"hidden_{i}"], first_last, atol=1e-5)
        np.testing.assert_allclose(found["pooler"][f"hidden_{i}"], wanted.pooler_output, atol=1e-5)
        length = np.linalg.norm(first_last)
        np.testing.assert_allclose(unit[f"hidden_{i}"], first_last / length, atol=1e-5)
    assert (found["pooler"]["hidden_1"] == np.zeros((1, 16))).all()


def test_poolings_that_cannot_be(published, tmp_path: Path) -> None:
    _, folder = published("RobertaForMaskedLM")
    file = json_lines(tmp_path / "in.jsonl", [{"input_ids": [5]}])
    with pytest.raises(ConfigError, match="this model has no pooler\n  fix: pooling=first"):
        run(folder, file, logits=False, pooling="pooler")
    with pytest.raises(ConfigError, match="was not trained on whole texts"):
        run(folder, file, logits=False, pooling="trained")
    with pytest.raises(ConfigError, match="pooling=first_last chooses the layers itself"):
        run(folder, file, logits=False, pooling="first_last", layers=-1)
    with pytest.raises(ConfigError, match="normalize=True"):
        run(folder, file, logits=False, normalize=True)


TEXTS = ["the cat, sat", "the dogs ran"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", 'label,review\n1,"the cat, sat"\n0,the dogs ran\n'),
        ("in.tsv", "label\treview\n1\tthe cat, sat\n0\tthe dogs ran\n"),
        (
            "in.jsonl",
            '{"label": 1, "review": "the cat, sat"}\n{"label": 0, "review": "the dogs ran"}\n',
        ),
        ("in.txt", "the cat, sat\nthe dogs ran\n"),
    ],
)
def test_a_column_is_read_and_not_the_lines_of_the_file(
    name: str, content: str, published, with_tokenizer, tmp_path: Path
) -> None:
    folder = with_tokenizer(published("BertModel")[1])
    (tmp_path / name).write_text(content)
    found = run(folder, tmp_path / name, logits=False, field="review")
    tokenizer = plmctl.load(folder).tokenizer
    assert [found[f"ids_{i}"].tolist() for i in range(2)] == [
        [2, *tokenizer.encode(text), 3] for text in TEXTS
    ]
    assert "ids_2" not in found


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl"])
def test_a_column_that_is_not_there_is_named(
    name: str, published, with_tokenizer, tmp_path: Path
) -> None:
    folder = with_tokenizer(published("BertModel")[1])
    rows = {"in.csv": "label,review\n1,the cat\n", "in.tsv": "label\treview\n1\tthe cat\n"}
    (tmp_path / name).write_text(rows.get(name, '{"label": "1", "review": "the cat"}\n'))
    told = r"no text in a field 'text' \(this line has 'label', 'review'\)\n  fix: field=review$"
    with pytest.raises(DataError, match=told):
        run(folder, tmp_path / name, logits=False)


def test_a_file_that_is_there_is_not_written_over(published, tmp_path: Path) -> None:
    _, folder = published("BertModel")
    file = json_lines(tmp_path / "in.jsonl", [{"input_ids": [5]}])
    (tmp_path / "out.npz").write_text("mine")
    with pytest.raises(
        UsageError, match=r"out\.npz exists\n  fix: overwrite=true  # or give another out="
    ):
        run(folder, file, logits=False, overwrite=False)
    assert (tmp_path / "out.npz").read_text() == "mine"
    assert "hidden_0" in run(folder, file, logits=False, overwrite=True)


def test_bf16_is_there_for_the_asking(published, tmp_path: Path) -> None:
    _, folder = published("BertModel")
    file = json_lines(tmp_path / "in.jsonl", [{"input_ids": [5, 6, 7]}])
    exact, rough = (
        run(folder, file, logits=False, precision=name)["hidden_0"] for name in ("fp32", "bf16")
    )
    assert 0 < abs(exact - rough).max() < 0.1
    assert rough.dtype == np.float32


def test_layers_and_row_logits(published, tmp_path: Path) -> None:
    model, folder = published("RobertaForSequenceClassification", num_labels=3)
    file = json_lines(tmp_path / "in.jsonl", [{"input_ids": [5, 6, 7]}])
    whole = run(folder, file)["hidden_0"]
    found = run(folder, file, layers=-1)
    assert found["hidden_0"].shape == (1, 3, 16)
    assert (found["hidden_0"][0] == whole[-1]).all()
    assert (run(folder, file, layers=[0, -1])["hidden_0"] == whole[[0, 2]]).all()
    with torch.no_grad():
        assert_close(
            torch.from_numpy(found["logits_0"]),
            model(torch.tensor([[5, 6, 7]])).logits[0],
            atol=1e-5,
            rtol=1e-5,
        )
    with pytest.raises(ConfigError, match="from -3 to 2"):
        run(folder, file, layers=3)


def test_a_causal_classifier_reads_the_last_token(published, tmp_path: Path) -> None:
    model, folder = published("GPT2ForSequenceClassification", num_labels=3)
    file = json_lines(
        tmp_path / "in.jsonl", [{"input_ids": [5, 6, 7, 0, 0], "padding": [0, 0, 0, 1, 1]}]
    )
    with torch.no_grad():
        wanted = model(torch.tensor([[5, 6, 7]])).logits[0]
    assert_close(torch.from_numpy(run(folder, file)["logits_0"]), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"input_ids": [5, 6', "not JSON"),
        ('{"input_ids": [5, 40]}', r"input_ids has 40, but the model knows 0\.\.39"),
        (
            '{"input_ids": [5, 6], "segment_ids": [0, 2]}',
            r"segment_ids has 2, but the model knows 0\.\.1",
        ),
        ('{"input_ids": [5, 6], "padding": [0]}', "padding has 1 values, but input_ids 2"),
        ('{"input_ids": [5, 6], "padding": [1, 1]}', "every token is padding"),
        ('{"input_ids": [5, 6], "pading": [0, 0]}', r"no 'pading' \(did you mean 'padding'\?\)"),
        ('{"input_ids": [5, 6], "padding": [0, 0], "attention_mask": [1, 1]}', "not both"),
        ('{"input_ids": "56"}', "list of whole numbers"),
        (json.dumps({"input_ids": [5] * 13}), "13 tokens, but the model reads at most 12"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, published, tmp_path: Path) -> None:
    _, folder = published("BertModel")
    file = tmp_path / "in.jsonl"
    file.write_text('{"input_ids": [5]}\n' + line + "\n")
    with pytest.raises(DataError, match=rf"in\.jsonl:2: .*{message}"):
        run(folder, file, logits=False)


def test_padding_that_looks_like_a_mask_is_pointed_out(published, tmp_path: Path, capsys) -> None:
    _, folder = published("BertModel")
    run(
        folder,
        json_lines(tmp_path / "in.jsonl", [{"input_ids": [5, 6, 0], "padding": [1, 1, 0]}]),
        logits=False,
    )
    assert "line 1: `padding` says that the first token is padding" in capsys.readouterr().err


def test_other_bad_input(published, with_tokenizer, tmp_path: Path, capsys) -> None:
    _, folder = published("BertModel")
    file = tmp_path / "lines.txt"
    file.write_text("the cat\n")
    with pytest.raises(DataError, match="no tokenizer"):
        run(folder, file, logits=False)
    with pytest.raises(ConfigError, match="logits=True"):
        run(folder, json_lines(tmp_path / "in.jsonl", [{"input_ids": [5]}]))
    with pytest.raises(DataError, match="cannot be read"):
        run(folder, tmp_path / "nothing.txt")
    with_tokenizer(folder)
    file.write_bytes(b"the cat\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"lines\.txt:2: not UTF-8"):
        run(folder, file, logits=False)
    file.write_text("the " * 50)
    assert len(read(file, plmctl.load(folder))[0].ids) == 12
    assert "1 of 1 lines are longer than 12 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"), [("lines.txt", ""), ("lines.txt", "\n \n"), ("lines.tsv", "id\ttext\n")]
)
def test_a_file_without_a_text(
    name: str, text: str, published, with_tokenizer, tmp_path: Path
) -> None:
    _, folder = published("BertModel")
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(
        DataError, match=rf"{name}: there is no text in it\n  fix: # a text on each"
    ):
        run(with_tokenizer(folder), file)
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("numbers", ["int8", "binary"])
def test_a_file_of_short_vectors_is_searched(
    numbers: str, published, with_tokenizer, tmp_path: Path
) -> None:
    _, folder = published("BertModel")
    with_tokenizer(folder)
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sat on the mat .\n\nthe dogs ran\n", encoding="utf-8")
    how = {"layers": -1, "pooling": "mean", "logits": False}
    whole = np.concatenate([run(folder, lines, **how)[f"hidden_{n}"] for n in range(3)])
    found = run(folder, lines, numbers=numbers, **how)
    assert found["hidden_0"].dtype == (np.int8 if numbers == "int8" else np.uint8)
    short = VectorFile.read(tmp_path / "out.npz")
    assert short.manner.numbers == numbers
    assert not short.vectors[1].any()
    near = whole if numbers == "int8" else np.where(whole > 0, 1, -1) / whole.shape[1] ** 0.5
    assert_close(short.vectors[[0, 2]], near[[0, 2]].astype(np.float32), atol=0.02, rtol=0)
    (tmp_path / "out.npz").rename(tmp_path / "short.npz")
    words = {"checkpoint": str(folder), "input": str(lines), "device": "cpu", "top": 1}
    words |= {"out": str(tmp_path / "found.jsonl"), "among": str(tmp_path / "short.npz")}
    spec_of("embed", words).perform()
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [row["query"] for row in rows] == [row["found"][0]["text"] for row in rows]
    with pytest.raises(ConfigError, match="one vector a line have short numbers"):
        run(folder, lines, numbers=numbers)
