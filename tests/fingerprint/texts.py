"""The texts and labelled files that the cases of `fingerprints.py` read, made up here."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from knowledge import tables, tiny_wordnet


def lexicon(text: str) -> dict[str, str]:
    """{English: Chinese} of `text`: entries parted by commas, the Chinese behind the last space."""
    return dict(entry.strip().rsplit(" ", 1) for entry in text.split(","))


NOUNS = lexicon(
    "cat 猫, dog 狗, bird 鸟, horse 马, fish 鱼, child 孩子, teacher 老师, farmer 农民, "
    "doctor 医生, singer 歌手, river 河, mountain 山, garden 花园, bridge 桥, house 房子, "
    "letter 信, lamp 灯, window 窗户, boat 船, stone 石头"
)
ADJECTIVES = lexicon(
    "small 小, big 大, red 红, old 老, quiet 安静, bright 明亮, strange 奇怪, happy 快乐, cold 冷, "
    "green 绿"
)
VERBS = lexicon(
    "sees 看见, likes 喜欢, finds 找到, follows 跟着, remembers 记得, paints 画, leaves 离开, "
    "misses 想念"
)
TIMES = lexicon(
    "in the morning 早上, at night 夜里, today 今天, in winter 冬天, after lunch 午饭后, again 又"
)
SYLLABLES = lexicon(
    "ba 巴, bel 贝尔, cor 科, dan 丹, fir 菲, gol 戈, han 汉, ira 伊拉, kel 凯, lo 洛, mar 马尔, "
    "mi 米, nor 诺, oda 奥达, pel 佩, qui 奎, ros 罗斯, sun 孙, tam 塔姆, ur 乌尔, vin 文, "
    "wes 韦斯, yor 约, zan 赞"
)
STUDY = """\
# @package _global_
# two rates, two seeds and a task
title: Two rates
pretrain:
  recipe: roberta
  overrides: [size=tiny, size.width=32, size.inner_width=64, size.num_heads=2,
    tokenizer.vocab_size=400, format.max_length=32, schedule.warmup_steps=2, train.batch_size=8,
    train.precision=fp32, train.threads=1, train.log_every=4, train.eval_every=6]
arms: {slow: [optim.lr=1e-3], fast: [optim.lr=1e-2]}
baseline: slow
seeds: [0, 1]
budget: {steps: 12}
data: {path: inputs/text.txt, valid_share: 0.1}
finetune:
  tasks: {classes: {task: classification, path: inputs/classes}}
  overrides: [task.max_length=32, train.epochs=1, train.batch_size=8, optim.lr=5e-3,
    train.precision=fp32, train.threads=1]
metrics:
  perplexity: {of: pretrain, key: loss/mlm, exp: true, expect: {fast: lower}}
  classes: {of: classes, key: accuracy}
"""
GLAD, SAD = ("likes", "finds", "remembers", "paints"), ("leaves", "misses", "follows", "sees")


class Draw:
    """Choices that every Python makes alike: of a generator, only `random()` promises to stay."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def one(self, of: Sequence[str]) -> str:
        return of[int(self.random() * len(of))]


class Named:
    """A noun, or in two of five draws a name: rare words, for tokenizers."""

    def __init__(self, draw: Draw) -> None:
        named, long = draw.random() < 0.4, draw.random() < 0.5
        syllables = [draw.one(tuple(SYLLABLES)) for _ in range(2 + long)]
        noun = draw.one(tuple(NOUNS))
        self.english = "".join(syllables).capitalize() if named else noun
        self.chinese = "".join(SYLLABLES[each] for each in syllables) if named else NOUNS[noun]


class Sentence:
    """A drawn sentence in English and in Chinese: who does what to whom, and when."""

    def __init__(self, draw: Draw, verbs: Sequence[str] = tuple(VERBS)) -> None:
        self.first, self.second = draw.one(tuple(ADJECTIVES)), draw.one(tuple(ADJECTIVES))
        self.agent, self.patient = Named(draw), Named(draw)
        self.who, self.whom = self.agent.english, self.patient.english
        self.verb, self.when = draw.one(verbs), draw.one(tuple(TIMES))

    @property
    def words(self) -> list[str]:
        nouns = ["the", self.first, self.who], ["the", self.second, self.whom]
        return [*nouns[0], self.verb, *nouns[1], *self.when.split()]

    @property
    def english(self) -> str:
        return f"The {' '.join(self.words[1:])}."

    @property
    def chinese(self) -> str:
        agent = f"{ADJECTIVES[self.first]}{self.agent.chinese}"
        patient = f"{ADJECTIVES[self.second]}{self.patient.chinese}"
        return f"{TIMES[self.when]}{agent}{VERBS[self.verb]}{patient}。"

    @property
    def tags(self) -> list[str]:
        """IOB2 of `words`: both nouns with their adjectives."""
        return [
            "O",
            "B-WHO",
            "I-WHO",
            "O",
            "O",
            "B-WHOM",
            "I-WHOM",
            *("O" for _ in self.when.split()),
        ]


def documents(count: int, seed: int, chinese: float) -> str:
    """Documents of three to nine sentences, a share of them in Chinese, a blank line between."""
    draw, found = Draw(seed), []
    for _ in range(count):
        foreign, length = draw.random() < chinese, 3 + int(draw.random() * 7)
        sentences = [Sentence(draw) for _ in range(length)]
        found.append("\n".join(each.chinese if foreign else each.english for each in sentences))
    return "\n\n".join(found) + "\n"


def write(file: Path, lines: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


Examples = list[tuple[Sentence, Sentence]]  # what is told, and another one


def classes(examples: Examples) -> list[str]:
    found = [f"{one.english}\t{'glad' if one.verb in GLAD else 'sad'}" for one, _ in examples]
    return ["text\tlabel", *found]


def pairs(examples: Examples) -> list[str]:
    found = [
        f"{one.english}\t{one.english}\tsame" if n % 2 else f"{one.english}\t{other.english}\tother"
        for n, (one, other) in enumerate(examples)
    ]
    return ["text\ttext2\tlabel", *found]


def scores(examples: Examples) -> list[str]:
    return ["text\tlabel", *(f"{one.english}\t{len(one.english) / 10}" for one, _ in examples)]


def tags(examples: Examples) -> list[str]:
    lines: list[str] = []
    for one, _ in examples:
        lines += [f"{word} {tag}" for word, tag in zip(one.words, one.tags, strict=True)] + [""]
    return lines


def choices(examples: Examples) -> list[str]:
    found = [
        {
            "text": f"The {one.first} {one.who}",
            "choices": [one.whom, one.who, one.verb],
            "label": n % 3,
        }
        for n, (one, _) in enumerate(examples)
    ]
    return [json.dumps(each) for each in found]


def texts(examples: Examples) -> list[str]:
    found = [f"{one.english}\tthe {one.second} {one.whom}" for one, _ in examples]
    return ["source\ttarget", *found]


def turns(examples: Examples) -> list[str]:
    said = [[one.english, other.english, f"{one.who} and {other.who}"] for one, other in examples]
    return [json.dumps({"turns": each}) for each in said]


def spans(examples: Examples) -> list[str]:
    passages = []
    for n, (one, other) in enumerate(examples):
        context = f"{other.english} {one.english}"
        start = (
            context.index(f" the {one.second} {one.whom} ", len(other.english))
            + len(one.second)
            + 6
        )
        question = {
            "id": f"question-{n}",
            "question": f"What does the {one.who} see?",
            "answers": [{"text": one.whom, "answer_start": start}],
        }
        passages.append({"title": str(n), "paragraphs": [{"context": context, "qas": [question]}]})
    return [json.dumps({"version": "1.1", "data": passages})]


TASKS: dict[str, Callable[[Examples], list[str]]] = {
    "classes/{}.tsv": classes,
    "pairs/{}.tsv": pairs,
    "scores/{}.tsv": scores,
    "tags/{}.txt": tags,
    "choices/{}.jsonl": choices,
    "texts/{}.tsv": texts,
    "turns/{}.jsonl": turns,
    "spans/{}-v1.1.json": spans,
}


def mark_words(folder: Path, sentences: Sequence[str]) -> None:
    """What `plmctl data contexts` would write: words that stand often, and sentences with them."""
    folder.mkdir(parents=True, exist_ok=True)
    places: dict[str, list[tuple[str, int]]] = {}
    for sentence in sentences:
        for match in re.finditer("[a-z]+", sentence):
            places.setdefault(match[0], []).append((sentence, match.start()))
    often = sorted(word for word, own in places.items() if len(own) >= 8)
    write(folder / "words.tsv", [f"{word}\t{len(places[word])}" for word in often])
    lines = []
    for number, word in enumerate(often):
        begin, marks = 0, []
        for sentence, start in places[word][:20]:
            end = begin + start + len(word)
            marks.append({"start": begin + start, "end": end, "id": number})
            begin += len(sentence) + 1
        text = "\n".join(sentence for sentence, _ in places[word][:20])
        lines.append(json.dumps({"text": text, "word": marks}))
    write(folder / "contexts.jsonl", lines)


def write_inputs(folder: Path) -> None:
    """Everything that a case reads.

    Args:
        folder: is made; gets text.txt (English and Chinese), other.txt (Chinese), held_out.txt,
            pairs.en with pairs.zh line by line, lines.txt, study.yaml, wordnet, linked, words, a
            folder for each kind of task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tiny_wordnet.write(folder / "wordnet")
    write(
        folder / "sentiment.tsv", ["happy\t2", "bright\t1", "cold\t-1", "strange\t-0.5", "big\t0"]
    )
    tables.link_words(folder / "linked", documents(160, seed=1, chinese=0.2))
    (folder / "text.txt").write_text(documents(160, seed=1, chinese=0.2), encoding="utf-8")
    (folder / "other.txt").write_text(documents(120, seed=2, chinese=1.0), encoding="utf-8")
    # as much held-out text as a study needs
    (folder / "held_out.txt").write_text(documents(600, seed=4, chinese=0.2), encoding="utf-8")
    (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
    draw = Draw(3)
    parallel = [Sentence(draw) for _ in range(400)]
    write(folder / "pairs.en", [each.english for each in parallel])
    mark_words(folder / "words", [each.english.lower() for each in parallel])
    write(folder / "pairs.zh", [each.chinese for each in parallel])
    write(folder / "lines.txt", [Sentence(draw).english for _ in range(6)])
    for split, count in (("train", 64), ("dev", 16)):
        examples = []
        for _ in range(count):
            examples.append((Sentence(draw, GLAD if draw.random() < 0.5 else SAD), Sentence(draw)))
        for file, lines in TASKS.items():
            write(folder / file.format(split), lines(examples))
