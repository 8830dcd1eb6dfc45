"""HotpotQA: files, rows by hand, the losses and the scores in loops, evidence by trying all."""

from __future__ import annotations

import itertools
import json
import math
import random
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.models.base import Hidden
from plmctl.tasks import batches, inference
from plmctl.tasks.answers.evidence import choose_evidence
from plmctl.tasks.capabilities import submit
from plmctl.tasks.hotpot import TERMS, Hotpot, find_best
from plmctl.tasks.layouts.hotpot import TITLE, PlacedText
from plmctl.tasks.readers.hotpot import HotpotFiles
from plmctl.tasks.record import Example
from plmctl.tasks.scores import hotpot as hotpot_score
from plmctl.tasks.scores.hotpot import NAMES
from plmctl.text.tokenizer import Tokenizer
from tests.tasks.conftest import SIZE
from tests.tasks.hotpot_questions import make_questions

LAYOUT = {"train": ["hotpot_train*.json", "train*.json*"], "dev": ["dev*.json*"]}
Q, Q_END, T, T_END, S = range(SIZE, SIZE + 5)  # the new tokens, behind those of the tokenizer


def make(**settings: Any) -> Hotpot:
    defaults = {"max_length": 400, "max_query": 12, "max_answer": 9, "most_spans": 4}
    own = {**defaults, "weights": {}, "metrics": ["joint_f1"], **settings}
    return Hotpot(name="toy", reader=HotpotFiles(splits=LAYOUT), **own)


def read(folder: Path, questions: list[dict[str, Any]]) -> list[Example]:
    (folder / "train.json").write_text(json.dumps(questions))
    return HotpotFiles(splits=LAYOUT).read(folder, "train", {})


CONTEXT = [
    ["Ed Wood (film)", ["Ed Wood is a film by Tim Burton.", " It stars Depp."]],
    ["Tim Burton", ["Tim Burton is American.", "", " He was born in Burbank, as Tim."]],
    ["Burbank", ["Burbank is a town."]],
]
QUESTION = {
    "_id": "5a8b",
    "question": "Where was the maker of Ed Wood born?",
    "answer": "Burbank",
    "type": "bridge",
    "level": "medium",
    "context": CONTEXT,
    "supporting_facts": [["Ed Wood (film)", 0], ["Tim Burton", 2]],
}


# files


def test_the_published_layout(tmp_path: Path) -> None:
    test = {name: QUESTION[name] for name in ("_id", "question", "context")}
    reader = HotpotFiles(splits=LAYOUT)
    (tmp_path / "hotpot_train_v1.1.json").write_text(json.dumps([QUESTION, {**test, "_id": "x"}]))
    first, second = reader.read(tmp_path, "train", {})
    assert first.id == "5a8b"
    assert first.label == (("Ed Wood (film)", 0), ("Tim Burton", 2))
    assert first.fields["answers"] == ["Burbank"]
    assert [list(paragraph) for paragraph in first.fields["context"]] == CONTEXT
    assert (second.label, second.fields["answers"]) == (None, [])
    assert first.place.endswith("hotpot_train_v1.1.json question 5a8b")
    (tmp_path / "dev.jsonl").write_text(
        f"{json.dumps(QUESTION)}\n\n{json.dumps(test | {'_id': 'y'})}"
    )
    assert [each.id for each in reader.read(tmp_path, "dev", {})] == ["5a8b", "y"]
    assert reader.has(tmp_path, "dev")
    assert not reader.has(tmp_path, "test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"question": None},
            r"train.json: not in HotpotQA's layout: 'questions.1.question' must be",
        ),
        ({"context": "x"}, r"'questions.1.context' must be a list"),
        ({"context": [["a"]]}, r"question b: .*: 'context.0' must be \[title, sentences\]"),
        ({"context": [["a", ["x"]], ["a", "x"]]}, r"'context.1.sentences' must be a list"),
        ({"context": [["a", []]]}, r"question b: no sentences in its context"),
        (
            {"supporting_facts": [["a", "x"]]},
            r"'supporting_facts.0.sentence' must be a whole number",
        ),
        ({"supporting_facts": [["a", 0, 1]]}, r"'supporting_facts.0' must be \[title, sentence\]"),
        ({"supporting_facts": None}, r"question b: an answer without supporting_facts"),
        ({"answer": None}, r"question b: no answer"),
        ({"_id": "5a8b"}, r"question 5a8b: another question has the same _id"),
    ],
)
def test_what_is_wrong_and_where(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, [QUESTION, {**QUESTION, "_id": "b", **change}])


def test_no_questions_and_no_id(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no questions"):
        read(tmp_path, [])
    with pytest.raises(DataError, match=r"'questions.0' must have '_id'"):
        read(tmp_path, [{"question": "x", "context": CONTEXT}])


def test_facts_without_their_sentence_are_said(tmp_path: Path) -> None:
    """As some of the published files have them."""
    facts = [["Tim Burton", 2], ["Tim Burton", 7], ["Elsewhere", 0]]
    (tmp_path / "train.json").write_text(json.dumps([{**QUESTION, "supporting_facts": facts}]))
    task = make(path=tmp_path)
    (found,) = task.read("train")
    assert found.label == tuple(map(tuple, facts))
    assert "2 supporting facts name a sentence that is not in the context" in task.remarks[0]


# two stages


def predictions_of(folder: Path, **scores: list[float | None]) -> HotpotFiles:
    """A reader after a first model with these scores of paragraphs."""
    folder.mkdir()
    for number, (name, own) in enumerate(scores.items()):
        line = json.dumps({"id": name, "paragraphs": own, "guess": "x"})
        (folder / f"{number}.jsonl").write_text(line + "\n")
    return HotpotFiles(splits=LAYOUT, first_stage=str(folder), keep=3)


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([5.0, -2.0, -4.0, 1.0, 0.0], [0, 3, 4]),  # at most three
        ([-3.0, -2.9, -9.0, 1.0, -9.0], [1, 3]),  # above the threshold
        ([-8.0, -5.0, -9.0, None, -7.0], [1, 4]),  # but two in any case
        ([5.0, -9.0, 4.0, None, -9.0], [0, 2]),
    ],
)
def test_a_second_model_reads_what_the_first_found(
    tmp_path: Path, scores: list[float | None], kept: list[int]
) -> None:
    context = [[name, [f"{name} is."]] for name in "abcde"]
    question = {**QUESTION, "context": context, "supporting_facts": [["c", 0], ["a", 0]]}
    (tmp_path / "train.json").write_text(json.dumps([question]))
    reader = predictions_of(tmp_path / "stage", other=[1.0], **{"5a8b": scores})
    (found,) = reader.read(tmp_path, "train", {})
    assert [title for title, _ in found.fields["context"]] == ["abcde"[n] for n in kept]
    assert found.label == (("c", 0), ("a", 0))  # what was lost on the way costs recall
    assert list(reader.bereft.values()) == [int(kept != [0, 2])]


def test_predictions_of_other_questions(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([QUESTION]))
    for name, scores, message in (
        (
            "a",
            {"x": [1.0]},
            r"question 5a8b: \S+ has no scores of its 3 paragraphs\n  fix: plmctl eval",
        ),
        ("b", {"5a8b": [1.0]}, "has 1 scores of its 3 paragraphs"),
        ("c", {"5a8b": "x"}, r"0.jsonl:1: no prediction of task=hotpotqa: 'paragraphs' must be"),
        ("d", {}, r"d: no predictions are there"),
    ):
        reader = predictions_of(tmp_path / name, **scores)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=message):
            reader.read(tmp_path, "train", {})


# rows


def test_rows_by_hand(toy: Any, tmp_path: Path) -> None:
    rows = make().encode(read(tmp_path, [QUESTION]), toy)
    ids = [2, Q, *toy.encode(QUESTION["question"])[:12], Q_END]
    begin, titles, marks = len(ids), [], []
    supporting = {("Ed Wood (film)", 0), ("Tim Burton", 2)}
    places: dict[str, int] = {}
    relevant, evidence = [], []
    for title, sentences in CONTEXT:
        titles.append(len(ids))
        relevant.append(int(title in {name for name, _ in supporting}))
        ids += [T, *toy.encode(title), T_END]
        for number, sentence in enumerate(sentences):
            places[f"{title} {number}"] = len(ids)
            ids += toy.encode(sentence)
            marks.append(len(ids))
            evidence.append(int((title, number) in supporting))
            ids.append(S)
    ids.append(3)
    text = rows.seqs["text"]
    assert text.ids[0].tolist() == ids
    assert rows.values["paragraphs"][0].tolist() == titles
    assert rows.values["sentences"][0].tolist() == marks
    assert rows.labels["paragraph"][0].tolist() == relevant == [1, 1, 0]
    assert rows.labels["sentence"][0].tolist() == evidence
    assert rows.labels["question_type"].tolist() == [2]
    wanted = {*range(begin), *titles, *marks}
    assert set(np.flatnonzero(text.tracks["global"][0]).tolist()) == wanted
    assert text.tracks["segment"][0].tolist() == [int(place >= begin) for place in range(len(ids))]
    # of three places of "Burbank", that in a supporting sentence: He was born in | Bur ban k
    before = len(toy.encode(" He was born in"))
    place = places["Tim Burton 2"] + before
    assert rows.labels["span"][0].tolist() == [[place, place + 2], *[[IGNORE] * 2] * 3]
    assert make().requires.new_tokens == 5


@pytest.mark.parametrize(
    ("answer", "kind", "found"),
    [
        ("yes", 0, []),
        ("No.", 1, []),
        ("Tim", 2, ["Tim", "Tim"]),  # in both supporting sentences
        ("Depp", 2, ["Depp"]),  # in another sentence of a supporting paragraph
        ("a town", 2, ["town"]),  # in a paragraph that does not support
        ("ed wood film", 2, ["EdWoo", "d(film"]),  # only a title has these words in a row
        ("Paris", 2, []),
    ],
)
def test_types_and_places(
    toy: Any, tmp_path: Path, answer: str, kind: int, found: list[str]
) -> None:
    rows = make().encode(read(tmp_path, [{**QUESTION, "answer": answer}]), toy)
    assert rows.labels["question_type"].tolist() == [kind]
    ids, spans = rows.seqs["text"].ids[0], rows.labels["span"][0]
    marked = [ids[a : b + 1].tolist() for a, b in spans.tolist() if a != IGNORE]
    if answer == "ed wood film":
        assert marked == [toy.encode("Ed Wood (film")]
    else:
        assert marked == [toy.encode(each) for each in found]


def test_what_is_cut_is_counted_and_neither_asked_nor_found(toy: Any, tmp_path: Path) -> None:
    """A plain encoder has rows that are too short: the end of the last paragraphs is lost."""
    whole = make().encode(read(tmp_path, [QUESTION]), toy)
    length = int(whole.seqs["text"].length[0])
    third = int(whole.values["paragraphs"][0, 2])
    lost = length - third
    for max_length, sentences, paragraphs in (
        (length, 6, 3),
        (length - 1, 5, 3),  # the last mark is cut off
        (third + 1, 5, 2),
        (third, 4, 2),
    ):
        task = make(max_length=max_length)
        rows = task.encode(read(tmp_path, [QUESTION]), toy)
        assert int(rows.seqs["text"].length[0]) == max_length
        assert int(rows.values["cut"][0]) == length - max_length
        assert (rows.values["sentences"][0] >= 0).sum() == sentences
        assert (rows.values["paragraphs"][0] >= 0).sum() == paragraphs
    assert inference.describe_truncation(rows).startswith("1 of 1 rows are cut")
    assert (rows.labels["span"] == IGNORE).all()  # its sentence has lost its mark
    assert lost > 1


def test_a_real_tokenizer_reads_the_same(tmp_path: Path) -> None:
    """The texts between the marks are those of the file, also with the spaces before them."""
    words = [
        text for question in make_questions(20) for _, of in question["context"] for text in of
    ]
    tokenizer = Tokenizer.train(words * 3, kind="byte_bpe", vocab_size=300)
    examples = read(tmp_path, make_questions(4))
    rows = make().encode(examples, tokenizer)
    assert {*rows.seqs["text"].ids.ravel().tolist()} & {*range(300, 400)} == {
        *range(tokenizer.vocab.size, tokenizer.vocab.size + 5)
    }
    for row, start, length, paragraph, sentence in rows.spans["text"].tolist():
        title, sentences = examples[row].fields["context"][paragraph]
        ids = rows.seqs["text"].ids[row, start : start + length].tolist()
        assert tokenizer.decode(ids) == (title if sentence == TITLE else sentences[sentence])


def test_what_is_refused(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.max_length=14: more than max_query=12 plus 4"):
        make(max_length=14).encode(read(tmp_path, [QUESTION]), toy)
    with pytest.raises(ConfigError, match="titles stand before their paragraphs"):
        make(sees_later=False)
    with pytest.raises(ConfigError, match=r"task.weights='spam': weights of .*did you mean 'span'"):
        make(weights={"spam": 1.0})
    with pytest.raises(DataError, match="no answer"):
        make().fit_labels([Example("0", {}, None, "x question 0")])
    with pytest.raises(ValueError, match="found 2 columns"):
        make().parse("why\ttitle", 1)


def test_typed_questions(toy: Any) -> None:
    example = make().parse("who?\tEd\tEd is here. He is old.\tTim\tTim went.", 1)
    assert example.fields["context"] == [
        ("Ed", ["Ed is here.", " He is old."]),
        ("Tim", ["Tim went."]),
    ]
    assert not make().encode([example], toy).labels


# losses


class Drawn(torch.nn.Module):
    """A model whose state at a token is a fixed function of the token and its place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"span": 2, "question_type": 3, "sentence": 1, "paragraph": 1}
        heads = {name: torch.nn.Linear(4, size).double() for name, size in sizes.items()}
        self.heads = torch.nn.ModuleDict(heads)

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        ids = batch.text.ids.double()
        place = torch.arange(ids.shape[1]).double()
        parts = [(ids * (k + 1) + place * (k + 2)).sin() for k in range(4)]
        return Hidden(torch.stack(parts, -1))


def losses_in_loops(task: Hotpot, rows: Any, model: Drawn) -> dict[str, float]:
    """The four losses by their definitions, summed over rows."""
    total = dict.fromkeys(TERMS, 0.0)
    for row in range(len(rows.key)):
        length = int(rows.seqs["text"].length[row])
        batch = batches.collate(rows, np.array([row]))
        states = model(batch).last[0, :length]
        scores = model.heads["span"](states)
        places = [span for span in rows.labels["span"][row].tolist() if span[0] != IGNORE]
        for side in range(2):
            e = [math.exp(float(x)) for x in scores[:, side]]
            if places:
                right = sum(e[t] for t in {span[side] for span in places})
                total["span"] -= math.log(right / sum(e)) / 2
        e = [math.exp(float(x)) for x in model.heads["question_type"](states[0])]
        total["question_type"] -= math.log(e[rows.labels["question_type"][row]] / sum(e))
        for name in ("sentence", "paragraph"):
            own = []
            for place, gold in zip(
                rows.values[f"{name}s"][row], rows.labels[name][row], strict=True
            ):
                if place >= 0:
                    p = 1 / (1 + math.exp(-float(model.heads[name](states[place]))))
                    own.append(-math.log(p if gold else 1 - p))
            total[name] += sum(own) / len(own)
    return total


def test_the_losses_are_their_definitions_in_any_batching(toy: Any, tmp_path: Path) -> None:
    task, model = make(weights={"paragraph": 0.5}), Drawn().requires_grad_(False)
    rows = task.encode(read(tmp_path, [QUESTION, *make_questions(4)]), toy)
    wanted = losses_in_loops(task, rows, model)
    for parts in ([[0, 1, 2, 3, 4]], [[4, 0], [1], [3, 2]]):
        made = [batches.collate(rows, np.array(part)) for part in parts]
        outputs = [task(model, batch) for batch in made]  # type: ignore[arg-type]
        for name in TERMS:
            total = sum(float(output.terms[name].total) for output in outputs)
            assert total == pytest.approx(wanted[name], rel=1e-5)
            weights = {output.terms[name].weight for output in outputs}
            assert weights == {0.5 if name == "paragraph" else 1.0}
        counts = [task.counts(batch) for batch in made]
        assert sum(each["span"] for each in counts) == 4  # one of five is answered by yes or no
        assert sum(each["sentence"] for each in counts) == 5
    with torch.no_grad():
        given: Any = model
        _, loss = inference.run(given, task, rows, batch_size=2, device=torch.device("cpu"))
    means = {name: wanted[name] / (4 if name == "span" else 5) for name in TERMS}
    assert loss == pytest.approx(sum(means.values()) - means["paragraph"] / 2, rel=1e-5)


# decoding


Scores = dict[int, dict[int, float]]


def try_all(paragraphs: dict[int, float], sentences: Scores) -> list[tuple[int, int]]:
    """The choice of sentences from exactly two paragraphs with the largest probability."""
    places = [(p, s) for p, own in sentences.items() for s in own]

    def log_probability(chosen: tuple[tuple[int, int], ...]) -> float:
        used = {p for p, _ in chosen}
        zs = [(z, p in used) for p, z in paragraphs.items()]
        zs += [(sentences[p][s], (p, s) in chosen) for p, s in places]
        return sum(-math.log1p(math.exp(-z if yes else z)) for z, yes in zs)

    choices = [
        chosen
        for size in range(2, len(places) + 1)
        for chosen in itertools.combinations(places, size)
        if len({p for p, _ in chosen}) == 2
    ]
    return sorted(max(choices, key=log_probability))


def test_evidence_is_the_most_probable_of_all_choices() -> None:
    draw = random.Random(0)
    for _ in range(500):
        paragraphs = {p: draw.gauss(0, 2) for p in range(4)}
        counts = [draw.randint(0, 2), 2, 1, draw.randint(0, 2)]
        sentences = {p: {s: draw.gauss(-1, 2) for s in range(counts[p])} for p in paragraphs}
        assert choose_evidence(paragraphs, sentences) == try_all(paragraphs, sentences)


def test_evidence_of_a_row_that_was_cut() -> None:
    assert choose_evidence({3: 1.0, 4: 9.0}, {3: {0: -2.0, 1: -1.0}, 4: {}}) == [(3, 1)]
    assert choose_evidence({}, {}) == []


def test_the_best_span_inside_one_text() -> None:
    draw = np.random.default_rng(0)
    texts = [
        PlacedText(2, 3, 0, TITLE),
        PlacedText(5, 0, 0, 0),
        PlacedText(6, 6, 0, 1),
        PlacedText(13, 1, 1, TITLE),
    ]
    for most in (1, 2, 4, 9):
        for _ in range(20):
            start, end = draw.normal(size=(2, 15))
            spans = [
                (start[text.start + a] + end[text.start + b], text, a, b)
                for text in texts
                for a in range(text.length)
                for b in range(a, min(text.length, a + most))
            ]
            assert find_best(start, end, texts, most) == max(spans, key=lambda span: span[0])[1:]
    assert find_best(start, end, [], 3) is None


def test_predictions(toy: Any, tmp_path: Path) -> None:
    """Right logits give what is right, in the layout of the leader board."""
    task = make()
    examples = read(tmp_path, [QUESTION, {**QUESTION, "_id": "b", "answer": "no"}])
    rows = task.encode(examples, toy)
    size = rows.seqs["text"].ids.shape
    logits = {name: np.zeros(size, np.float32) for name in ("start", "end")}
    first, last = rows.labels["span"][0, 0]
    logits["start"][:, first] = logits["end"][:, last] = 5.0
    logits["start"][:, 1] = logits["end"][:, 2] = 9.0  # of the question: never an answer
    logits["question_type"] = np.eye(3, dtype=np.float32)[[2, 1]]
    for name in ("sentence", "paragraph"):
        logits[name] = np.where(rows.labels[name] == 1, 4.0, -4.0).astype(np.float32)
    span, no = task.predict(logits, rows, examples)
    assert (span["guess"], span["question_type"], no["guess"]) == ("Burbank", "span", "no")
    assert span["facts"] == span["gold_facts"] == [["Ed Wood (film)", 0], ["Tim Burton", 2]]
    assert span["paragraphs"] == [4.0, 4.0, -4.0]
    assert task.score([span, no]) == {"joint_f1": 100.0}
    assert set(hotpot_score.score([span, no]).values()) == {100.0}
    assert json.loads(submit(task, [span, no])) == {
        "answer": {"5a8b": "Burbank", "b": "no"},
        "sp": {name: QUESTION["supporting_facts"] for name in ("5a8b", "b")},
    }


# scores


def words_of(text: str) -> list[str]:
    """Lower case, no punctuation, no articles."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def scores_in_loops(gold: dict[str, Any], guess: dict[str, Any]) -> dict[str, float]:
    """The published definition, question by question: `gold` and `guess` are {id: (answer,
    facts)}; what a guess lacks counts 0.
    """
    total = dict.fromkeys(NAMES, 0.0)

    def add(part: str, em: float, precision: float, recall: float) -> None:
        total[f"{part}em"] += em
        total[f"{part}prec"] += precision
        total[f"{part}recall"] += recall
        if precision + recall > 0:
            total[f"{part}f1"] += 2 * precision * recall / (precision + recall)

    for name, (answer, facts) in gold.items():
        said, shown = guess[name]
        em = p = r = sp_em = sp_p = sp_r = 0.0
        if said is not None:
            em, p, r = answers_in_loops(answer, said)
        if shown is not None:
            shown = [fact for n, fact in enumerate(shown) if fact not in shown[:n]]
            true = sum(fact in facts for fact in shown)
            sp_p = true / len(shown) if shown else 0.0
            sp_r = true / len(facts) if facts else 0.0
            sp_em = float(true == len(shown) == len(facts))
        add("", em, p, r)
        add("sp_", sp_em, sp_p, sp_r)
        add("joint_", em * sp_em, p * sp_p, r * sp_r)
    return {name: 100 * value / len(gold) for name, value in total.items()}


def answers_in_loops(gold: str, guess: str) -> tuple[float, float, float]:
    """(exact match, precision, recall)"""
    right, given = words_of(gold), words_of(guess)
    rest, same = list(right), 0
    for word in given:
        if word in rest:
            rest.remove(word)
            same += 1
    for one, other in ((right, given), (given, right)):
        if one in (["yes"], ["no"], ["noanswer"]) and one != other:
            same = 0
    shares = (same / len(given), same / len(right)) if same else (0.0, 0.0)
    return float(right == given), *shares


ANSWERS = [
    "yes",
    "No",
    "noanswer",
    "The Who",
    "who",
    "the",
    "",
    "U.S. Army",
    "us army men",
    "yes sir",
    "北京 city",
    "北京",
]


def score_pairs(gold: dict[str, Any], guess: dict[str, Any]) -> dict[str, float]:
    """Ours, of the same {id: (answer, facts)}."""
    return hotpot_score.score(
        [
            {
                "golds": [gold[n][0]],
                "guess": guess[n][0],
                "gold_facts": [list(fact) for fact in gold[n][1]],
                "facts": None if guess[n][1] is None else [list(fact) for fact in guess[n][1]],
            }
            for n in gold
        ]
    )


def test_scores_in_loops() -> None:
    draw = random.Random(0)
    facts = [("A", 0), ("A", 1), ("B", 0), ("C", 3)]
    for _ in range(500):
        names = [str(n) for n in range(draw.randint(1, 5))]
        gold = {n: (draw.choice(ANSWERS), draw.sample(facts, draw.randint(1, 3))) for n in names}
        guess: dict[str, Any] = {}
        for n in names:
            shown = draw.choices(facts, k=draw.randint(0, 4))  # one may be said twice
            said = draw.choice(ANSWERS)
            guess[n] = draw.choice([(said, shown)] * 8 + [(None, shown), (said, None)])
        assert score_pairs(gold, guess) == pytest.approx(scores_in_loops(gold, guess), rel=1e-12)


# gold, guess, exact match, tokens that both have, tokens of the guess, of gold
BY_HAND: list[tuple[str, str, int, int, int, int]] = [
    ("yes", "yes", 1, 1, 1, 1),
    ("yes", "Yes.", 1, 1, 1, 1),
    ("no", "No!", 1, 1, 1, 1),
    ("the yes", "yes", 1, 1, 1, 1),
    ("yes", "no", 0, 0, 1, 1),
    ("yes", "yes sir", 0, 0, 2, 1),  # plain F1: 2/3
    ("yes sir", "yes", 0, 0, 1, 2),
    ("no one", "no", 0, 0, 1, 2),
    ("no", "no one", 0, 0, 2, 1),
    ("yes yes", "yes", 0, 0, 1, 2),
    ("yes and no", "no and yes", 0, 3, 3, 3),  # only as the whole answer
    ("No. 1", "no 1", 1, 2, 2, 2),
    ("noanswer", "noanswer", 1, 1, 1, 1),
    ("noanswer", "none", 0, 0, 1, 1),
    ("none", "NoAnswer", 0, 0, 1, 1),
    ("yes", "", 0, 0, 0, 1),
    ("", "yes", 0, 0, 1, 0),
    ("", "", 1, 0, 0, 0),  # nothing is shared: the script gives no F1
    ("the", "a", 1, 0, 0, 0),
    ("the", "cat", 0, 0, 1, 0),
    ("cat", "the", 0, 0, 0, 1),
    ("Chief of Protocol", "the chief of protocol", 1, 3, 3, 3),
    ("Animorphs series", "Animorphs", 0, 1, 1, 2),
    ("Animorphs", "Animorphs series", 0, 1, 2, 1),
    ("cat cat", "cat", 0, 1, 1, 2),
    ("cat", "cat cat cat", 0, 1, 3, 1),
    ("black cat", "cat black", 0, 2, 2, 2),
    ("U.S. Army", "US army", 1, 2, 2, 2),
    ("U.S. Army", "U S army", 0, 1, 3, 2),
    ("5,000", "5000", 1, 1, 1, 1),
    ("$5.00", "500", 1, 1, 1, 1),
    ("5–7", "57", 0, 0, 1, 1),  # only ASCII punctuation is deleted
    ("“X”", "X", 0, 0, 1, 1),
    ("Beyoncé", "beyonce", 0, 0, 1, 1),
    ("北京", "北京", 1, 1, 1, 1),
    ("北京", "京", 0, 0, 1, 1),
    ("x\u00a0y", "x y", 1, 2, 2, 2),
    ("a-b", "ab", 1, 1, 1, 1),
    ("another", "other", 0, 0, 1, 1),
]
# facts of gold, of the guess, exact match, precision, recall
FACTS_BY_HAND: list[tuple[str, str, int, float, float]] = [
    ("A0 B1", "A0 B1", 1, 1, 1),
    ("A0 B1", "B1 A0", 1, 1, 1),
    ("A0 B1", "A0 A0 B1", 1, 1, 1),  # one that is said twice counts once
    ("A0 A0", "A0", 1, 1, 1),
    ("A0 B1", "", 0, 0, 0),
    ("", "", 1, 0, 0),
    ("", "A0", 0, 0, 0),
    ("A0 B1", "A0", 0, 1, 1 / 2),
    ("A0", "A0 B1", 0, 1 / 2, 1),
    ("A0 B1", "A1 B0", 0, 0, 0),  # the paragraphs are right, the sentences are not
    ("A0 B1", "A0 B0", 0, 1 / 2, 1 / 2),
    ("A0 B1 C2", "A0 B1 C3", 0, 2 / 3, 2 / 3),
    ("A0", "A1 A0 A2 A3", 0, 1 / 4, 1),
]


def test_answers_and_facts_by_hand() -> None:
    """Each answer with each set of facts: of both, exact match, precision and recall multiply."""
    assert len(BY_HAND) + len(FACTS_BY_HAND) >= 50
    for (right, said, em, same, of_guess, of_gold), known in itertools.product(
        BY_HAND, FACTS_BY_HAND
    ):
        p, r = (same / max(1, of_guess), same / max(1, of_gold))
        there, shown = ([(f[0], int(f[1])) for f in text.split()] for text in known[:2])
        found = score_pairs({"x": (right, there)}, {"x": (said, shown)})
        sides = {"": (em, p, r), "sp_": known[2:]}
        sides["joint_"] = tuple(x * y for x, y in zip(*sides.values(), strict=True))
        for part, (exact, precision, recall) in sides.items():
            both = precision + recall
            wanted = (exact, precision, recall, 2 * precision * recall / both if both else 0.0)
            ours = tuple(found[f"{part}{name}"] for name in ("em", "prec", "recall", "f1"))
            assert ours == pytest.approx([100 * each for each in wanted]), (right, said, part)


def test_missing_and_unlabelled() -> None:
    """A missing answer or missing facts count 0, and a question without an answer is left out."""
    facts = [["A", 0]]
    known = {"golds": ["x"], "gold_facts": facts}
    found = hotpot_score.score(
        [
            {**known, "guess": None, "facts": facts},
            {**known, "guess": "x", "facts": None},
            {"golds": [], "gold_facts": [], "guess": "x", "facts": facts},
        ]
    )
    assert (found["em"], found["sp_em"], found["joint_em"], found["joint_f1"]) == (50, 50, 0, 0)
    assert set(hotpot_score.score([]).values()) == {0.0}
