"""Small files of CLUE and its kin in the layouts in which they are published."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
NEWS = ("news_story", "news_game")
APPS = ("打车", "地图导航", "免费WIFI")
ANIMALS = ("猫", "狗", "鹰", "狐")
IDIOMS = ["百尺竿头", "随波逐流", "方兴未艾", "一日千里"]
NLI = ("entailment", "neutral", "contradiction", "-")
SPLITS = {"train": 0, "dev": 8}  # the number of the first example


def say(n: int) -> str:
    return f"第{n}只{ANIMALS[n % 4]}坐在垫子上，然后跑回家。"


def infer(n: int) -> Row:
    return {"sentence1": say(n), "sentence2": say(n + 1), "label": NLI[n % 4], "genre": "news",
            "label0": None, "level": "hard", "prem_id": f"news_{n}", "id": n}  # fmt: skip


def resolve(n: int) -> Row:
    """Whether 它 stands for an animal."""
    text = f"“{say(n)}”它很高兴。"
    noun = ANIMALS[n % 4]
    target = {"span1_text": noun, "span1_index": text.index(noun),
              "span2_text": "它", "span2_index": text.index("它")}  # fmt: skip
    return {"target": target, "idx": n, "label": ["true", "false"][n % 2], "text": text}


LINES: Mapping[str, Callable[[int], Row]] = {
    "tnews": lambda n: {"label": ["100", "116"][n % 2], "label_desc": NEWS[n % 2],
                        "sentence": say(n), "keywords": "", "id": n},
    "iflytek": lambda n: {"label": str(n % 3), "label_des": APPS[n % 3], "sentence": say(n)},
    "afqmc": lambda n: {"sentence1": say(n), "sentence2": say(n + 1), "label": str(n % 2)},
    "csl": lambda n: {"id": n, "abst": say(n), "keyword": [ANIMALS[n % 4], "垫子"],
                      "label": str(n % 2)},
    "ocnli": infer,
    "cmnli": lambda n: {key: infer(n)[key] for key in ("sentence1", "sentence2", "label")},
    "cluewsc2020": resolve,
}  # fmt: skip
TABLES: Mapping[str, tuple[str, Callable[[int], Sequence[Any]]]] = {
    "chnsenticorp": ("label\ttext_a", lambda n: (n % 2, say(n))),
    "lcqmc": ("text_a\ttext_b\tlabel", lambda n: (say(n), say(n + 1), n % 2)),
    "dbqa": (
        "qid\ttext_a\ttext_b\tlabel",
        lambda n: (n // 4, f"第{n // 4}只在哪里？", say(n), int(n % 4 == 1)),
    ),
}


def ask(n: int, kind: str) -> list[Any]:
    """A text of C3 with a question; of even ones two."""
    choices = [f"{animal}坐着" for animal in ANIMALS[: 2 + n % 3]]
    question = {"question": "谁坐着？", "choice": choices, "answer": choices[n % len(choices)]}
    return [[f"男：{say(n)}", "女：是的。"], [question] * (2 - n % 2), f"{kind}-{n}"]


def fill(n: int) -> tuple[Row, dict[str, int]]:
    """A line of ChID with two passages, and the answers to its three gaps."""
    gaps = [f"#idiom{3 * n + m:06}#" for m in range(3)]
    content = [f"{say(n)}他{gaps[0]}，又{gaps[1]}。", f"{gaps[2]}的人{say(n)}"]
    row = {"content": content, "candidates": IDIOMS}
    return row, {gap: (n + m) % 4 for m, gap in enumerate(gaps)}


def find(n: int) -> Row:
    """A paragraph of DRCD."""
    text = f"第{n}隻貓住在倫敦，後來去了羅馬。"
    answer = {"id": "1", "text": "倫敦", "answer_start": text.index("倫敦")}
    qas = [{"id": f"{n}-1-1", "question": "貓住在哪裡？", "answers": [answer]}]
    return {"title": "貓", "id": str(n), "paragraphs": [{"context": text, "id": f"{n}-1",
                                                         "qas": qas}]}  # fmt: skip


def dump(file: Path, *values: Any) -> None:
    """A line for each value."""
    lines = [json.dumps(value, ensure_ascii=False) for value in values]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write(task: str, folder: Path) -> Path:
    """The files of eight training and eight dev examples, named as they are published."""
    for split, first in SPLITS.items():
        numbers = range(first, first + 8)
        if task in LINES:
            dump(folder / f"{split}.json", *map(LINES[task], numbers))
        elif task in TABLES:
            header, row = TABLES[task]
            rows = ["\t".join(map(str, row(n))) for n in numbers]
            (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n", "utf-8")
        elif task == "c3":
            for kind in "dm":
                dump(folder / f"c3-{kind}-{split}.json", [ask(n, kind) for n in numbers])
        elif task == "chid":
            rows_of, answers = zip(*map(fill, numbers), strict=True)
            dump(folder / f"{split}.json", *rows_of)
            together = {gap: answer for own in answers for gap, answer in own.items()}
            dump(folder / f"{split}_answer.json", together)
        else:
            dump(folder / f"{split}.json", {"version": "1.3", "data": list(map(find, numbers))})
    return folder


TASKS = (*LINES, *TABLES, "c3", "chid", "drcd")


FEW: Mapping[str, Callable[[int], Row]] = {  # FewCLUE: the task that reads each folder
    "eprstmt": lambda n: {"id": n, "sentence": say(n), "label": ["Positive", "Negative"][n % 2]},
    "csldcp": lambda n: {"content": say(n), "label": f"学科{n % 4}", "id": n},
    "bustm": lambda n: {"id": n, "sentence1": say(n), "sentence2": say(n + 1),
                        "label": str(n % 2)},
    "chid": lambda n: {"id": n, "candidates": IDIOMS, "content": f"{say(n)}他#idiom#。",
                       "answer": n % 4},
    "cluewsc2020": resolve,
    **{name: LINES[name] for name in ("tnews", "csl")},
    "iflytek": lambda n: {"label": n % 3, "label_des": APPS[n % 3], "sentence": say(n), "id": n},
    "ocnli": lambda n: infer(n) | {"label": NLI[n % 3]},
}  # fmt: skip


def write_few(task: str, folder: Path) -> Path:
    """Five training sets of four examples with their dev sets, all of them, and both tests."""
    numbers = {"few_all": range(20), **{str(k): range(4 * k, 4 * k + 4) for k in range(5)}}
    for name, own in numbers.items():
        for split, first in {"train": 0, "dev": 20}.items():
            dump(folder / f"{split}_{name}.json", *(FEW[task](first + n) for n in own))
    dump(folder / "test_public.json", *map(FEW[task], range(40, 46)))
    bare = [FEW[task](n) for n in range(50, 53)]
    dump(folder / "test.json", *({k: v for k, v in row.items() if k not in ("label", "answer")}
                                 for row in bare))  # fmt: skip
    dump(folder / "unlabeled.json", *({"sentence": say(n)} for n in range(3)))
    return folder
