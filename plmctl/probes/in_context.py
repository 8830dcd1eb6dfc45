"""Tasks by prompts: examples with their answers stand before a text, and a language model finds one
of its answers the likeliest. No weight changes (eval only; Brown et al., 2020).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.core.progress import ProgressLine
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.core.values import Whole
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.tasks.answers.choice import ChoiceAnswer
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.intervals import bootstrap
from plmctl.tasks.predictions import write_rows
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example, Reader
from plmctl.tasks.scores import labels as label_score
from plmctl.tasks.splits import Splits
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.likelihood import Likelihood, Scoring, Way, choose_way, find_ways, make_scoring
from plmctl.use.predict import ScoreTable, Told

ANSWER = "{answer}"


@dataclass(frozen=True)
class ShownPrompt:
    """The text that stands before the answers of an example.

    Args:
        answers: The tokens of each answer.
        examples: The examples that it shows.
        cut: The number of tokens that were cut at its beginning.
        text: Its words, before any were cut.
    """

    ids: list[int]
    answers: list[list[int]]
    examples: Sequence[Example]
    cut: int
    text: str

    @property
    def shown(self) -> int:
        """The number of examples that it shows."""
        return len(self.examples)


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class InContext(Probe):
    """K-shot evaluation without training: a prompt shows K training examples with their answers,
    and the answer with the best score is the prediction (Brown et al., 2020, arXiv:2005.14165, sec.
    2.4).

        prompt = instruction, x_1 a_1, ..., x_K a_K, x
        score(a) = sum_t log p(a_t | prompt, a_<t) / n      n: the tokens of a, normalise="tokens"

    "sum" does not divide, and "context" divides p(a | prompt) by p(a | `answer_context`) instead.
    The K examples are drawn anew for each text, with `seed`; none of them is the text itself.
    If the longest row is full, the first ones are left out.

    Args:
        path: A folder, a file, or the files of the splits.
        reader: The layout of the files.
        columns: Columns to read.
        template: A text with {text}, of a pair {text2}, and at its end {answer}.
        label_words: {label: its answer}; None: the labels themselves, or the choices of an example.
        shots: The number of examples that are shown.
        instruction: The words before all examples.
        separator: The text between two examples.
        answer_context: The words before an answer that is scored without its text.
        examples: The most examples of the split, drawn with `seed`; None: all.
        dev_share: The share of the training examples that is dev where no file is; None: as in
            fine-tuning.
        metrics: The metrics, as of `task=classification`.
        first_label: The number of the first choice.
        score: The way to score, as of `task=minimal_pairs`.
        seed: The seed of the draws.
        seeds: Several seeds of the shown examples, each with scores of its own; none: `seed`.
    """

    path: Any
    reader: Reader
    columns: Mapping[str, Any] = field(default_factory=dict)
    template: str
    label_words: Mapping[str, str] | None = None
    shots: Whole = 0
    instruction: str = ""
    separator: str = "\n\n"
    normalise: Literal["tokens", "sum", "context"] = "tokens"
    answer_context: str = "Answer:"
    examples: Whole | None = None
    dev_share: float | None = None
    metrics: Sequence[str] = ("accuracy",)
    first_label: int = 0
    score: Way | None = None
    seed: Whole = 0
    seeds: Sequence[Whole] = ()

    def __post_init__(self) -> None:
        names = [name for name in TEXTS if self.columns.get(name) is not None]
        fix = spell_setting("task.template", f"{' '.join(f'{{{n}}}' for n in names)} {ANSWER}")
        if self.template.count(ANSWER) != 1 or not self.template.endswith(ANSWER):
            allowed = f"with {ANSWER} once, at its end"
            raise ConfigError("task.template", self.template, allowed, fix=fix)
        for name in re.findall(r"\{(\w+)\}", self.template.removesuffix(ANSWER)):
            if name not in names:
                known = ", ".join(f"{{{each}}}" for each in names)
                allowed = f"with {known} and {ANSWER}{nearest(name, names)}"
                raise ConfigError("task.template", self.template, allowed, fix=fix)
        label_score.LabelScores().check(self.metrics)

    def list_answers(self, example: Example, names: Sequence[str]) -> list[str]:
        """The possible answers of an example, in words."""
        if "choices" in example.fields:
            return list(example.fields["choices"])
        words = {str(name): word for name, word in (self.label_words or {}).items()}
        return [words.get(name, name) for name in names]

    def find_gold(self, example: Example, names: Sequence[str]) -> int:
        """The number of the right answer among those of an example."""
        if "choices" in example.fields:
            return ChoiceAnswer(first_label=self.first_label).gold(example)
        return names.index(str(example.label))

    def write(self, example: Example) -> tuple[str, str]:
        """(the words of an example before its answer, the space before the answer)."""
        words = self.template.removesuffix(ANSWER)
        space = words[len(words.rstrip()) :]
        for name in TEXTS:
            words = words.replace(f"{{{name}}}", str(example.fields.get(name, "")))
        return words.rstrip(), space

    def show(self, example: Example, names: Sequence[str]) -> str:
        """An example with its right answer."""
        words, space = self.write(example)
        answer = self.list_answers(example, names)[self.find_gold(example, names)]
        return f"{words}{space}{answer}"

    def draw(
        self, examples: Sequence[Example], pool: Sequence[Example], seed: int
    ) -> list[list[Example]]:
        """The `shots` examples of `pool` that are shown before each of `examples`, none of them
        with the texts of the example itself.

        Raises:
            DataError: The pool has too few others.
        """
        if not self.shots:
            return [[] for _ in examples]
        same = Counter(example.unit for example in pool)
        drawn = []
        for number, example in enumerate(examples):
            own = same[example.unit]
            if len(pool) - own < self.shots:
                what = f"{len(pool) - own} other training examples, and task.shots={self.shots}"
                raise DataError(what, file=self.path, fix=f"task.shots={len(pool) - own}")
            order = np.random.default_rng([seed, number]).choice(
                len(pool), min(len(pool), self.shots + own), replace=False
            )
            others = [pool[each] for each in order if pool[each].unit != example.unit]
            drawn.append(others[: self.shots])
        return drawn

    def make_prompt(
        self,
        example: Example,
        shown: Sequence[Example],
        names: Sequence[str],
        tokenizer: Tokenizer,
        room: int | None,
    ) -> ShownPrompt:
        """The prompt of an example, of at most `room` tokens with its longest answer.

        Raises:
            ConfigError: An answer has no token of its own.
        """
        words, space = self.write(example)
        answers = self.list_answers(example, names)
        ids = [tokenizer.encode(f"{space}{answer}") for answer in answers]
        for answer, own in zip(answers, ids, strict=True):
            if not own:
                raise ConfigError("task.label_words", answer, "answers with tokens of this model")
        left = None if room is None else max(0, room - max(map(len, ids)))
        texts = [self.show(each, names) for each in shown]
        for first in range(len(texts) + 1):
            parts = [self.instruction, *texts[first:], words]
            joined = self.separator.join(part for part in parts if part)
            text = tokenizer.encode(joined)
            if left is None or len(text) <= left:
                return ShownPrompt(text, ids, shown[first:], 0, joined)
        cut = len(text) - (left or 0)
        return ShownPrompt(text[cut:], ids, [], cut, joined)

    def score_answers(
        self, prompts: Sequence[ShownPrompt], likelihood: Likelihood, context: Sequence[int]
    ) -> list[np.ndarray]:
        """[A] the score of each answer of each prompt; `context`: the tokens of the answer
        context.
        """
        numbers = np.cumsum([len(prompt.answers) for prompt in prompts])[:-1]
        answers = [answer for prompt in prompts for answer in prompt.answers]
        before = [prompt.ids for prompt in prompts for _ in prompt.answers]
        sums = _score_behind(before, answers, likelihood)
        if self.normalise == "tokens":
            sums /= np.array([len(answer) for answer in answers])
        elif self.normalise == "context":
            sums -= _score_behind([list(context)] * len(answers), answers, likelihood)
        return np.split(sums, numbers)

    def read_all(self, split: str) -> tuple[list[Example], list[Example], list[str]]:
        """(the examples of a split, the training examples to show, the names of the labels)."""
        splits = Splits(
            self.reader,
            self.path,
            lambda example: example.unit,
            lambda example: (),
            dict(self.columns),
            dev_share=self.dev_share,
        )
        examples = splits.read(split)
        pool = splits.read("train") if self.shots else []
        names = self.name_labels([*pool, *examples])
        if self.examples is not None and self.examples < len(examples):
            rng = np.random.default_rng(self.seed)
            chosen = np.sort(rng.choice(len(examples), self.examples, replace=False))
            examples = [examples[number] for number in chosen]
        return examples, pool, names

    def name_labels(self, examples: Sequence[Example]) -> list[str]:
        """The names of the labels, in their order; none where each example has its own choices.

        Raises:
            ConfigError: Choices have no label words.
            DataError: There is one label only, or a label without a word.
        """
        words = self.label_words
        if "choices" in examples[0].fields:
            if words is not None:
                allowed = "null: the choices of an example are its answers"
                raise ConfigError("task.label_words", dict(words), allowed)
            return []
        stated = None if words is None else [str(name) for name in words]
        return ClassAnswer().fit(examples, stated, stated=stated is not None)

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of a checkpoint, for several draws also their mean and spread."""
        loaded, device = opened.loaded, opened.precision.device
        out = opened.claim_file("predictions.jsonl")
        examples, pool, names = self.read_all(opened.split)
        model, tokenizer = loaded.model.to(device).eval(), loaded.tokenizer
        way, head = choose_way(find_ways(model, tokenizer.vocab), self.score)
        scoring = make_scoring(way, model, head, tokenizer)
        room = measure_room(scoring, model.backbone.max_length)
        seeds = list(dict.fromkeys(self.seeds or [self.seed]))
        drawn = {
            seed: [
                self.make_prompt(example, own, names, tokenizer, room)
                for example, own in zip(examples, self.draw(examples, pool, seed), strict=True)
            ]
            for seed in seeds
        }
        prompts = [prompt for own in drawn.values() for prompt in own]
        read = (n for each in prompts for own in (each.ids, *each.answers) for n in own)
        unknown = tell_unknown(read, tokenizer.vocab, self.path)
        done = ProgressLine("answers", sum(len(prompt.answers) for prompt in prompts))
        likelihood = Likelihood(model, scoring, device, done=done)
        with torch.no_grad(), opened.precision.autocast():
            context = tokenizer.encode(self.answer_context)
            scores = iter(self.score_answers(prompts, likelihood, context))
        rows = {
            f"{opened.split}, seed {seed}" if len(seeds) > 1 else opened.split: [
                self.predict(*each, next(scores), names)
                | ({"seed": seed} if len(seeds) > 1 else {})
                for each in zip(examples, own, strict=True)
            ]
            for seed, own in drawn.items()
        }
        extra: dict[str, Any] = {"checkpoint": opened.folder, "score": way, "shots": self.shots}
        extra |= self._count_cut(prompts) | unknown
        if out is not None:
            written = write_rows(out, [row for own in rows.values() for row in own])
            extra["predictions"] = str(written)
        return self._tabulate(rows, prompts, extra)

    def _count_cut(self, prompts: Sequence[ShownPrompt]) -> dict[str, Told]:
        """Remarks on prompts that did not fit."""
        said = {}
        if fewer := sum(prompt.shown < self.shots for prompt in prompts):
            why = f"{counted(fewer, 'prompt')} with fewer examples, since the longest row is full"
            said["fewer shots"] = Told(why, fewer)
        if cut := sum(prompt.cut > 0 for prompt in prompts):
            said["cut"] = Told(f"{counted(cut, 'text')} cut at the beginning", cut)
        return said

    def _tabulate(
        self,
        rows: Mapping[str, list[dict[str, Any]]],
        prompts: Sequence[ShownPrompt],
        extra: Mapping[str, Any],
    ) -> ScoreTable:
        """The scores of each draw, and the mean and standard deviation of several.

        Args:
            rows: {draw: predictions}.
            extra: Remarks.
        """
        measure = partial(label_score.score_labels, names=list(self.metrics))
        chance = float(np.mean([1 / len(prompt.answers) for prompt in prompts]))
        found = {name: {**measure(own), "chance": chance} for name, own in rows.items()}
        intervals = {
            name: bootstrap(own, measure, self.metrics, seed=self.seed)
            for name, own in rows.items()
        }
        counts = {name: len(own) for name, own in rows.items()}
        if len(found) > 1:
            draws = {name: [each[name] for each in found.values()] for name in self.metrics}
            found["mean"] = {name: float(np.mean(own)) for name, own in draws.items()}
            found["spread"] = {name: float(np.std(own, ddof=1)) for name, own in draws.items()}
        return ScoreTable("prompts", found, extra, intervals, counts)

    def predict(
        self, example: Example, prompt: ShownPrompt, scores: np.ndarray, names: Sequence[str]
    ) -> dict[str, Any]:
        """The prediction of an example: its label, the guess, and the probability of each answer,
        the softmax of the scores.
        """
        gold, guess = self.find_gold(example, names), int(scores.argmax())
        shares = torch.from_numpy(scores).softmax(0).tolist()
        named = {"gold": names[gold], "guess": names[guess]} if names else {}
        return {
            "id": example.id,
            "gold": gold,
            "guess": guess,
            **named,
            "probabilities": dict(zip(names, shares, strict=True)) if names else shares,
            "shots": prompt.shown,
            "shown": [each.id for each in prompt.examples],
            "prompt": prompt.text,
            **label_score.name_sets(example),
        }


def measure_room(scoring: Scoring, longest: int | None) -> int | None:
    """The tokens of a text that fit into a row of `longest` with the tokens around it."""
    if longest is None:
        return None
    around = max((len(row.ids) for row in scoring.rows([0, 0])), default=2) - 2
    return longest - around


def _score_behind(
    before: Sequence[list[int]], answers: Sequence[list[int]], likelihood: Likelihood
) -> np.ndarray:
    """[A] the log-likelihood of each answer behind its text."""
    joined = [[*ids, *own] for ids, own in zip(before, answers, strict=True)]
    tokens = likelihood.score_tokens(joined, [len(ids) for ids in before])
    return np.array([own.sum() for own in tokens])
