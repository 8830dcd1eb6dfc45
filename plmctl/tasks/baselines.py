"""The scores of models without pretraining on a task: the most frequent label, a linear model of
words, one of words and pairs of neighbours; the most frequent tag of each word; the sliding window
over a passage; the first sentences of a source.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

import numpy as np
import torch

from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.linear_model import LinearModel, fit_models, make_rows, make_set_rows, sides_of
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.sliding_window import SearchedPassage, cut
from plmctl.tasks.squad import Squad
from plmctl.tasks.task import Task
from plmctl.text import sentences

# the answer itself is of training; `majority` among scores is of the answers that are scored
CONSTANT = "most frequent in train"
SHOWN = {CONSTANT: "always the answer that is most frequent in train"}
LEAST_CUT = 0.01  # the least share of cut tokens that is shown
EXAMPLES = 10_000  # training examples that are read at most
LETTERS = 10_000_000  # and of their texts together
PASSAGE = 4000  # letters of a passage that are searched, the first ones
ASKED = 1000  # training questions that choose the threshold of an answer
LEAD = 3  # sentences of a summary (See et al., 2017, arXiv:1704.04368, sec. 5: lead-3)
OFTEN = 0.05  # the least share of a written answer that counts as a label
Row = dict[str, Any]
Guess = Callable[[Examples], list[Row]]  # predictions as the task's own


@dataclass(frozen=True)
class Baselines:
    """The scores of models without pretraining, {split: {model: {metric: value}}}, their
    predictions, {split: {model: rows}}, and the linear ones among them.
    """

    scores: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    remark: str = ""
    predictions: Mapping[str, Mapping[str, list[Row]]] = field(default_factory=dict)
    linear: Mapping[str, LinearModel] = field(default_factory=dict)
    read: int = 0  # training examples

    def describe(self, metric: str, cut: float = 0.0) -> str:
        """One line with the values of `metric`, or "".

        Args:
            cut: The share of the tokens that the fine-tuned model does not read.
        """
        lines = [
            f"{split} "
            + ", ".join(f"{SHOWN.get(name, name)} {of[metric]:.4f}" for name, of in models.items())
            for split, models in self.scores.items()
        ]
        words = any({*models} - {CONSTANT} for models in self.scores.values())
        whole = (
            f"; simple models read whole texts; {cut:.0%} of the tokens are cut off what the"
            " fine-tuned one reads (task.max_length)"
        )
        said = whole if words and cut >= LEAST_CUT else ""
        return f"{metric}: {'; '.join(lines)}{self.remark}{said}" if lines else ""


def score_baselines(task: Task, train: Examples, devs: Mapping[str, Examples]) -> Baselines:
    """The scores on each split of models that learn from `train` in seconds; empty for tasks that
    state no kind of answer.
    """
    find = KINDS.get(task.facts.answer)
    devs = {
        name: examples
        for name, examples in devs.items()
        if examples and all(example.is_labelled for example in examples)
    }
    if find is None or not devs:
        return Baselines()
    taken = take(train)
    linear = fit_models(task, taken)
    guesses = {name: partial(model.answer, task) for name, model in linear.items()}
    models: dict[str, Guess] = {**find(task, taken), **guesses}
    remark = f" (of {len(taken):,} of {len(train):,} examples)" if len(taken) < len(train) else ""
    if {*models} == {CONSTANT} and any(map(sides_of, taken)):
        remark += "; no model of words: there is no room for one of so many labels"
    predictions = {
        split: {name: guess(examples) for name, guess in models.items()}
        for split, examples in devs.items()
    }
    scores = {
        split: {name: _score(task, rows) for name, rows in of.items()}
        for split, of in predictions.items()
    }
    if any(task.metrics[0] not in of for models in scores.values() for of in models.values()):
        return Baselines()  # the likelihood of texts, which needs a model of them
    return Baselines(scores, remark, predictions, linear, len(taken))


def take(examples: Examples) -> list[Example]:
    """As many examples as are read, chosen at random."""
    order = np.random.default_rng(0).permutation(len(examples))[:EXAMPLES].tolist()
    lengths = np.cumsum([sum(map(len, sides_of(examples[index]))) for index in order])
    kept = max(1, int(np.searchsorted(lengths, LETTERS, side="right")))
    return [examples[index] for index in sorted(order[:kept])]


def _score(task: Task, rows: list[Row]) -> dict[str, float]:
    scores = task.score(rows)
    return {name: scores[name] for name in task.metrics if name in scores}


def _find_class(task: Task, train: Examples) -> dict[str, Guess]:
    counts = Counter(str(task.gold_of(each)) for each in train)
    top = max(sorted(counts), key=counts.__getitem__)
    return {CONSTANT: lambda asked: make_rows(task, asked, [top] * len(asked))}


def _find_set(task: Task, train: Examples) -> dict[str, Guess]:
    """Any number of labels each."""
    often = Counter(name for each in train for name in set(each.label))
    names = sorted(often)
    top = max(names, key=often.__getitem__)
    sure = torch.tensor([name == top for name in names]).double()
    return {CONSTANT: lambda asked: make_set_rows(task, asked, names, sure.expand(len(asked), -1))}


def _find_choice(task: Task, train: Examples) -> dict[str, Guess]:
    """The most frequent number of the right choice, and the sliding window."""
    top = Counter(int(task.gold_of(each)) for each in train).most_common(1)[0][0]

    def slide(examples: Sequence[Example]) -> list[Row]:
        guesses = []
        for each in examples:
            passage = SearchedPassage(each.fields["text"][:PASSAGE])
            choices = each.fields["choices"]
            rates = [passage.rate(choice) for choice in choices]
            guesses.append(rates.index(max(rates)))
        return make_rows(task, examples, guesses)

    constant = {CONSTANT: lambda asked: make_rows(task, asked, [top] * len(asked))}
    return {**constant, "sliding window": slide}


def _fit_tags(task: Task, train: Examples) -> dict[str, Guess]:
    """Each word has the tag that it has most often in training, an unknown one the tag of most
    words that occur once.
    """
    counts = defaultdict[str, Counter[str]](Counter)
    for each in train:
        for word, tag in zip(each.fields["words"], each.label, strict=True):
            counts[word][tag] += 1
    total, once = Counter[str](), Counter[str]()
    for own in counts.values():
        total += own
        once += own if own.total() == 1 else Counter()
    top = total.most_common(1)[0][0]
    unknown = (once or total).most_common(1)[0][0]
    best = {word: own.most_common(1)[0][0] for word, own in counts.items()}

    def by_word(examples: Examples) -> list[Row]:
        return [
            {**row, "guess": [best.get(word, unknown) for word in row["words"]]}
            for row in always(examples)
        ]

    def always(examples: Examples) -> list[Row]:
        describe = cast(TagAnswer, task.answer).describe
        return [{**describe(each), "guess": [top] * len(each.label)} for each in examples]

    return {CONSTANT: always, "tag of the word": by_word}


def _fit_spans(task: Task, train: Examples) -> dict[str, Guess]:
    """The most frequent answer, the usual position, and the sliding window. The answer of a window
    with few words of the question is empty, by the best threshold on training questions.
    """
    read = cache(SearchedPassage)  # questions share passages

    def search(each: Example) -> tuple[str, float]:
        """Its odds are 1 to 2, so that the threshold 0 admits no answer."""
        text, shared = read(each.fields["context"][:PASSAGE]).answer(each.fields["question"])
        return text, 2.0 - shared

    def slide(examples: Examples) -> list[Row]:
        found = map(search, examples)
        return [
            _answer(task, each, text, odds - best)
            for each, (text, odds) in zip(examples, found, strict=True)
        ]

    def stand(examples: Examples) -> list[Row]:
        return [_answer(task, each, _take_place(each, *usual)) for each in examples]

    often = Counter(next(iter(each.fields["answers"]), "") for each in train)
    top = often.most_common(1)[0][0]
    spans = [(each.label, len(each.fields["context"])) for each in train]
    found = [(own[0] / n, own[1] - own[0]) for own, n in spans if isinstance(own, tuple)]
    usual = np.median(np.array(found or [(0.0, 0)]), axis=0).tolist()
    tried = []
    for each in train[:: max(1, len(train) // ASKED)]:
        text, odds = search(each)
        tried.append({**_answer(task, each, text), "null_odds": odds})
    best = task.score(tried).get("best_f1_threshold", 2.0)
    return {
        CONSTANT: lambda rows: [_answer(task, each, top, 1.0 - 2 * bool(top)) for each in rows],
        **({"usual position": stand} if found else {}),
        "sliding window": slide,
    }


def _answer(task: Task, each: Example, text: str, odds: float = -1.0) -> Row:
    """A prediction of a span; its answer is empty where `odds` are over 0."""
    odds += cast(Squad, task).null_threshold
    return {"id": each.id, "golds": [*each.fields["answers"]], "guess": text, "null_odds": odds}


def _take_place(each: Example, share: float, length: float) -> str:
    """The words from a share of the passage on, with about as many characters as `length`."""
    context = each.fields["context"]
    first = share * len(context)
    units = [unit for unit in cut(context) if unit.end > first and unit.start < first + length]
    return context[units[0].start : units[-1].end] if units else ""


def _fit_texts(task: Task, train: Examples) -> dict[str, Guess]:
    """The first sentences of the source, which is all of a short one, as a correction has it; and a
    frequent target.
    """

    def begin(examples: Examples) -> list[Row]:
        return _write(examples, [_take_lead(each.fields["source"]) for each in examples])

    top, count = Counter(each.label[0] for each in train).most_common(1)[0]
    long = any(_take_lead(each.fields["source"]) != each.fields["source"] for each in train)
    frequent = {CONSTANT: lambda rows: _write(rows, [top] * len(rows))}
    name = f"first {LEAD} sentences" if long else "the source itself"
    return {**(frequent if count >= OFTEN * len(train) else {}), name: begin}


def _take_lead(source: str) -> str:
    found = sentences.split(source)
    return "\n".join(found[:LEAD]) if len(found) > LEAD else source


def _write(examples: Examples, texts: Sequence[str]) -> list[Row]:
    return [
        {"id": e.id, "source": e.fields["source"], "golds": [*e.label], "guess": text}
        for e, text in zip(examples, texts, strict=True)
    ]


# by what a task says of its answers
KINDS: dict[str, Callable[[Task, Examples], dict[str, Guess]]] = {
    "class": _find_class,
    "number": lambda task, train: {},  # a constant has no correlation
    "types": _find_set,
    "choice": _find_choice,
    "tags": _fit_tags,
    "span": _fit_spans,
    "text": _fit_texts,
}
