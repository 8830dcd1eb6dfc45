"""Passages for open-domain questions: BM25 against its formula as a loop, and files that the reader
and the ranker read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import DataError
from plmctl.tasks.readers.trivia import TriviaFiles
from plmctl.tasks.retrieval import (
    OpenQuestion,
    Retrieved,
    Retriever,
    cut_passages,
    measure_recall,
    read_questions,
    rerank,
    split_units,
)

pytest.importorskip("bm25s")

PASSAGES = [
    "Paris is the capital of France.",
    "The Seine flows through Paris, and Paris loves the Seine.",
    "London is the capital of the United Kingdom.",
    "北京是中国的首都。",
    "Nothing to see here.",
]
QUESTIONS = [
    OpenQuestion("1", "What is the capital of France?", ("Paris",)),
    OpenQuestion("2", "中国的首都是哪里？", ("北京",)),
    OpenQuestion("3", "Who painted it?", ("Nobody",)),
]


def literal(question: str, k1: float, b: float) -> list[float]:
    """Lucene's BM25, passage by passage and word by word."""
    texts = [split_units(text) for text in PASSAGES]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        total = 0.0
        for word in split_units(question):
            count = text.count(word)
            holding = sum(word in other for other in texts)
            rare = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            total += rare * count / (count + k1 * (1 - b + b * len(text) / mean))
        scores.append(total)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_scores_are_those_of_the_formula(k1: float, b: float) -> None:
    found = Retriever(PASSAGES, k1=k1, b=b).find(QUESTIONS, top=5)
    for each in found:
        wanted = literal(each.question.question, k1, b)
        order = sorted(range(5), key=lambda n: (-round(wanted[n], 6), n))
        assert each.scores == pytest.approx([wanted[n] for n in order], abs=2e-4)
        assert each.passages == [PASSAGES[n] for n in order]


def test_answers_are_found_in_passages() -> None:
    first, second, third = Retriever(PASSAGES).find(QUESTIONS, top=2)
    assert first.places == [True, False]
    assert second.passages[0] == PASSAGES[3]
    assert third.places == [False, False]
    found = [first, second, third]
    assert measure_recall(found, [1, 2]) == {"recall@1": 1 / 3, "recall@2": 1 / 3}
    later = Retrieved(QUESTIONS[0], PASSAGES[2::-1], [0.0] * 3)
    assert measure_recall([later], [1, 2]) == {"recall@1": 0.0, "recall@2": 1.0}


def test_a_ranker_and_the_retriever_are_mixed() -> None:
    each = Retrieved(QUESTIONS[0], ["a", "b", "c"], [2.0, 1.0, 0.0])
    chances = [0.1, 0.2, 0.9]
    total = sum(math.exp(score) for score in each.scores)
    mixed = {
        text: 0.25 * chance + 0.75 * math.exp(score) / total
        for text, chance, score in zip(each.passages, chances, each.scores, strict=True)
    }
    found = rerank(each, chances, weight=0.25, top=2)
    assert found.passages == sorted(mixed, key=lambda text: -mixed[text])[:2]
    assert found.scores == pytest.approx([mixed[text] for text in found.passages])
    assert rerank(each, chances, weight=0.0, top=3).passages == ["a", "b", "c"]
    assert rerank(each, chances, weight=1.0, top=3).passages == ["c", "b", "a"]


def test_a_fine_tuned_ranker_orders_passages(given: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(make_app(), [*words])
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    text = [f"text={given / 'text.txt'}", f"train_questions={given / 'q.jsonl'}"]
    run("data", "retrieve", *text, f"out={given / 'first'}", "top=4")
    model = ["size=tiny", "size.width=32", "size.inner_width=64", "tokenizer.vocab_size=120"]
    model += [f"data.path={given / 'text.txt'}", "tokenizer=char", "checkpoint=null"]
    pairs = ["task=pair_classification", f"task.path={given / 'first/pairs'}"]
    pairs += ["task.dev_share=0.3", "task.max_length=64", "train.epochs=1"]
    run("finetune", *pairs, *model[:3], *model[4:], f"run.dir={given / 'ranker'}")
    words = ["data", "retrieve", *text, "top=2", "pool=4", "ranker_weight=1", "--json"]
    told = json.loads(run(*words, f"ranker={given / 'ranker'}", f"out={given / 'second'}"))
    assert told["train"]["questions"] == 3
    lines = (given / "second/train.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["document"]) for line in lines] == [2, 2, 2]
    done = CliRunner().invoke(
        make_app(), ["data", "retrieve", *text, f"ranker={given}", f"out={given / 'third'}"]
    )
    assert done.exit_code != 0


def test_passages_hold_so_many_words() -> None:
    paragraphs = ["a b", "c d e", "f g h i j k l m n", "o"]
    assert list(cut_passages(paragraphs, 5)) == ["a b c d e", "f g h i j", "k l m n o"]
    words = " ".join(" ".join(paragraphs).split())
    assert " ".join(cut_passages(paragraphs, 4)) == words
    assert all(len(text.split()) <= 4 for text in cut_passages(paragraphs, 4))


def test_units_are_words_and_chinese_characters() -> None:
    assert split_units("U.S. GDP, 中国ab!") == ["u", "s", "gdp", "中", "国", "ab"]
    assert split_units("!") == [""]


def test_questions_of_both_layouts(tmp_path: Path) -> None:
    lines = tmp_path / "q.jsonl"
    lines.write_text('{"question": "Who?", "answers": ["Ada"]}\n\n{"question": "Who?"}\n')
    assert read_questions(lines) == [OpenQuestion("1", "Who?", ("Ada",))]
    squad = tmp_path / "q.json"
    answer = {"text": "Ada", "answer_start": 0}
    qa = {"id": "x", "question": "Who?", "answers": [answer, answer]}
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ada", "qas": [qa]}]}]}))
    assert read_questions(squad) == [OpenQuestion("x", "Who?", ("Ada",))]
    lines.write_text('{"question": "Who?"}\n{"query": "Who?"}\n')
    with pytest.raises(DataError, match=r"q\.jsonl:2: no question"):
        read_questions(lines)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n\n".join(PASSAGES) + "\n")
    lines = [json.dumps({**q._asdict(), "answers": list(q.answers)}) for q in QUESTIONS]
    (tmp_path / "q.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_files_are_those_of_reader_and_ranker(given: Path) -> None:
    words = [
        f"text={given / 'text.txt'}",
        f"train_questions={given / 'q.jsonl'}",
        f"dev_questions={given / 'q.jsonl'}",
    ]
    out = given / "out"
    done = CliRunner().invoke(
        make_app(), ["data", "retrieve", *words, f"out={out}", "top=2", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["passages"] == 5
    assert told["dev"] == {"questions": 3, "recall@1": 1 / 3, "recall@2": 1 / 3}
    reader = TriviaFiles(splits={"train": ["train*.json*"], "dev": ["dev*.json*"]})
    assert len(reader.read(str(out), "dev", {})) == 3
    (example,) = reader.read(str(out), "train", {})  # whose answer is in a passage
    context, places = example.fields["context"], example.fields["passages"]
    assert context[places[1][0] :].startswith(json.loads((out / "train.jsonl").read_text()
        .splitlines()[0])["document"][1])  # fmt: skip
    assert places[0][1] == pytest.approx(literal(QUESTIONS[0].question, 0.9, 0.4)[0], abs=1e-3)
    assert [context[start:end] for start, end in example.label] == ["Paris"]
    pairs = (out / "pairs/dev.tsv").read_text().splitlines()
    assert pairs[0] == "text\ttext2\tlabel"
    assert pairs[1] == f"What is the capital of France?\t{PASSAGES[0]}\t1"
    assert len(pairs) == 1 + 3 * 2


def test_questions_are_needed(given: Path) -> None:
    words = ["data", "retrieve", f"text={given / 'text.txt'}", f"out={given / 'out'}"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert "questions are needed\n  fix: train_questions=QUESTIONS_JSONL" in done.output
