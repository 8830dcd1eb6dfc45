"""The texts and labelled files that the cases of `fingerprints.py` read: made up here, the same bytes everywhere."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

NOUNS = {
    "cat": "猫", "dog": "狗", "bird": "鸟", "horse": "马", "fish": "鱼", "child": "孩子", "teacher": "老师", "farmer": "农民",
    "doctor": "医生", "singer": "歌手", "river": "河", "mountain": "山", "garden": "花园", "bridge": "桥", "house": "房子",
    "letter": "信", "lamp": "灯", "window": "窗户", "boat": "船", "stone": "石头",
}  # fmt: skip
ADJECTIVES = {
    "small": "小", "big": "大", "red": "红", "old": "老", "quiet": "安静", "bright": "明亮", "strange": "奇怪", "happy": "快乐",
    "cold": "冷", "green": "绿",
}  # fmt: skip
VERBS = {
    "sees": "看见", "likes": "喜欢", "finds": "找到", "follows": "跟着", "remembers": "记得", "paints": "画", "leaves": "离开",
    "misses": "想念",
}  # fmt: skip
TIMES = {
    "in the morning": "早上", "at night": "夜里", "today": "今天", "in winter": "冬天", "after lunch": "午饭后", "again": "又",
}  # fmt: skip
SYLLABLES = {
    "ba": "巴", "bel": "贝尔", "cor": "科", "dan": "丹", "fir": "菲", "gol": "戈", "han": "汉", "ira": "伊拉", "kel": "凯",
    "lo": "洛", "mar": "马尔", "mi": "米", "nor": "诺", "oda": "奥达", "pel": "佩", "qui": "奎", "ros": "罗斯", "sun": "孙",
    "tam": "塔姆", "ur": "乌尔", "vin": "文", "wes": "韦斯", "yor": "约", "zan": "赞",
}  # fmt: skip
GLAD, SAD = ("likes", "finds", "remembers", "paints"), ("leaves", "misses", "follows", "sees")


class Draw:
    """Choices that every Python makes alike: `random()` is the one method whose numbers are promised to stay."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def one(self, of: Sequence[str]) -> str:
        return of[int(self.random() * len(of))]


class Named:
    """A noun, or in two of five draws a name of two or three syllables: rare words, for tokenizers."""

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
        self.agent, self.object = Named(draw), Named(draw)
        self.who, self.whom = self.agent.english, self.object.english
        self.verb, self.when = draw.one(verbs), draw.one(tuple(TIMES))

    @property
    def words(self) -> list[str]:
        return ["the", self.first, self.who, self.verb, "the", self.second, self.whom, *self.when.split()]

    @property
    def english(self) -> str:
        return f"The {' '.join(self.words[1:])}."

    @property
    def chinese(self) -> str:
        agent = f"{ADJECTIVES[self.first]}{self.agent.chinese}"
        object_ = f"{ADJECTIVES[self.second]}{self.object.chinese}"
        return f"{TIMES[self.when]}{agent}{VERBS[self.verb]}{object_}。"

    @property
    def tags(self) -> list[str]:
        """IOB2: both nouns with their adjectives."""
        return ["O", "B-WHO", "I-WHO", "O", "O", "B-WHOM", "I-WHOM", *["O" for _ in self.when.split()]]


def documents(count: int, seed: int, chinese: float) -> str:
    """`count` documents of three to nine sentences, a share of them in Chinese, a blank line between two."""
    draw, found = Draw(seed), []
    for _ in range(count):
        foreign, length = draw.random() < chinese, 3 + int(draw.random() * 7)
        sentences = [Sentence(draw) for _ in range(length)]
        found.append("\n".join(each.chinese if foreign else each.english for each in sentences))
    return "\n\n".join(found) + "\n"


def write(file: Path, lines: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tasks(folder: Path, split: str, count: int, draw: Draw) -> None:
    """One folder for each kind of labelled file, `count` examples each."""
    glad = [draw.random() < 0.5 for _ in range(count)]
    told = [Sentence(draw, GLAD if good else SAD) for good in glad]
    asked = [Sentence(draw) for _ in range(count)]
    labels = ["glad" if good else "sad" for good in glad]
    texts, others = [each.english for each in told], [each.english for each in asked]
    write(
        folder / f"classes/{split}.tsv",
        ["text\tlabel", *(f"{text}\t{label}" for text, label in zip(texts, labels, strict=True))],
    )
    pairs = [f"{text}\t{texts[n] if n % 2 else others[n]}\t{'same' if n % 2 else 'other'}" for n, text in enumerate(texts)]
    write(folder / f"pairs/{split}.tsv", ["text\ttext2\tlabel", *pairs])
    write(folder / f"scores/{split}.tsv", ["text\tlabel", *(f"{text}\t{len(text) / 10}" for text in texts)])
    write(
        folder / f"tags/{split}.txt",
        ["\n".join(f"{word} {tag}" for word, tag in zip(each.words, each.tags, strict=True)) + "\n" for each in told],
    )
    choices = [
        {"text": f"The {each.first} {each.who}", "choices": [each.whom, each.who, each.verb], "label": n % 3}
        for n, each in enumerate(told)
    ]
    write(folder / f"choices/{split}.jsonl", [json.dumps(each) for each in choices])
    write(folder / f"texts/{split}.tsv", ["source\ttarget", *(f"{each.english}\t{each.chinese}" for each in told)])
    turns = [[one.english, other.english, f"{one.who} and {other.who}"] for one, other in zip(told, asked, strict=True)]
    write(folder / f"turns/{split}.jsonl", [json.dumps({"turns": each}) for each in turns])
    passages = []
    for n, each in enumerate(told):
        context = f"{others[n]} {each.english}"
        answer = {"text": each.whom, "answer_start": context.rindex(f" {each.whom} ") + 1}
        question = {"id": f"{split}-{n}", "question": f"What does the {each.who} see?", "answers": [answer]}
        passages.append({"title": str(n), "paragraphs": [{"context": context, "qas": [question]}]})
    write(folder / f"spans/{split}-v1.1.json", [json.dumps({"version": "1.1", "data": passages})])


def write_inputs(folder: Path) -> None:
    """Everything that a case reads, in `folder`.

    Args:
        folder: is made; gets text.txt (English and Chinese), other.txt (Chinese), pairs.en with pairs.zh line by line,
            lines.txt, study.yaml and a folder for each kind of task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(documents(160, seed=1, chinese=0.2), encoding="utf-8")
    (folder / "other.txt").write_text(documents(120, seed=2, chinese=1.0), encoding="utf-8")
    draw = Draw(3)
    parallel = [Sentence(draw) for _ in range(400)]
    write(folder / "pairs.en", [each.english for each in parallel])
    write(folder / "pairs.zh", [each.chinese for each in parallel])
    write(folder / "lines.txt", [Sentence(draw).english for _ in range(6)])
    write_tasks(folder, "train", 64, draw)
    write_tasks(folder, "dev", 16, draw)
