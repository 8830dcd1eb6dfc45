"""Small files of every task, in the layouts in which they are published.

`find_samples(folder)` writes them. A task of a table has the columns that its settings name, one
whose reader has a case in tests/fuzz_readers.py has the file of that, the others are written below.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir
from plmctl.core.errors import UsageError
from tests import fuzz_readers
from tests.knowledge.tables import link_words
from tests.probes.test_wnlampro import LINES
from tests.tasks import clue_files
from tests.tasks.superglue_files import DIAGNOSTICS, XNLI
from tests.tasks.test_supersense import ROWS, tags

Row = dict[str, Any]
NOUNS = ("cat", "dog", "owl", "fox")
SPLITS = {"train": 0, "dev": 8}  # the number of the first example
TABLES = ("plmctl.tasks.readers.tables.Table", "plmctl.tasks.readers.choices.Choices")
# dev has the text of train with other words, as long: places of answers stay where they are
OTHERS = {"cat": "dog", "Ana": "Eva", "Mark": "Paul", "shadow": "circle", "likes": "hates",
          "Which": "Whose", "man": "boy", "Rain": "Snow"}  # fmt: skip
# tasks whose files have the layout of others
ALIKE = {
    "coqa_rationale": "coqa",
    **dict.fromkeys(("squad_v2", "cmrc2018", "xquad", "sketchy_reader", "retro_reader"), "squad"),
    **dict.fromkeys(("cross_encoder", "sentence_triplets", "sparse_encoder"), "bi_encoder"),
}
WRITING = ("task.max_length=32", "task.max_target=12", "search@task.search=greedy")


@dataclass(frozen=True)
class Sample:
    """What a command needs to try a task."""

    words: tuple[str, ...]  # that name its files
    verb: str = "finetune"
    after: str | None = None  # of eval: the task that the model was fine-tuned on; null: none


def list_tasks() -> list[str]:
    """The names of all tasks."""
    return sorted(file.stem for file in (conf_dir() / "task").glob("*.yaml"))


def find_samples(folder: Path, tasks: Sequence[str] | None = None) -> dict[str, Sample]:
    """Write files of the tasks that have some, and say how a command names them."""
    samples: dict[str, Sample] = {}
    for task in list_tasks() if tasks is None else tasks:
        place = folder / task
        place.mkdir(parents=True, exist_ok=True)
        if sample := _write(task, place):
            samples[task] = sample
    return samples


def say(n: int) -> str:
    """The text of example n."""
    return f"the {NOUNS[n % 4]} number {n} sat on one mat and ran home"


def _write(task: str, folder: Path) -> Sample | None:
    if task in WRITERS:
        return WRITERS[task](folder)
    node = read_settings(task)
    if (node.get("reader") or {}).get("_target_") in TABLES and node["columns"]:
        return _name(*(_write_table(folder, split, node) for split in SPLITS))
    asked = ALIKE.get(task, task)
    cases = [case for case in fuzz_readers.CASES if getattr(case.read, "task", None) == asked]
    if not cases:
        return None
    cases[0].make(folder)
    train = folder / cases[0].read.file  # type: ignore[attr-defined]
    text = train.read_text(encoding="utf-8")
    for word, other in OTHERS.items():
        text = text.replace(word, other)
    dev = train.with_name(f"dev-{train.name}")
    dev.write_text(text, encoding="utf-8")
    return _name(train, dev)


@functools.cache
def read_settings(task: str) -> Mapping[str, Any]:
    """The settings of a task; none of one that is not fine-tuned."""
    try:
        words = [f"task={task}", "task.path=x", "checkpoint=null"]
        node: Mapping[str, Any] = plain(compose("finetune", None, words).task)
    except UsageError:
        return {}
    return node


def _name(train: Path, dev: Path, *words: str) -> Sample:
    return Sample((f"task.path={{train:{train},dev:{dev}}}", *words))


def _write_table(folder: Path, split: str, node: Mapping[str, Any]) -> Path:
    """JSON lines, or TSV where columns have numbers: eight rows."""
    columns = {key: at for key, at in node["columns"].items() if at is not None}
    for key in ("id", "bundle"):
        columns.pop(key, None)
    first = SPLITS[split]
    rows = [_spread({key: _fill(key, n, node) for key in columns}, columns)
            for n in range(first, first + 8)]  # fmt: skip
    if not any(isinstance(at, int) for at in rows[0]):
        return _write_lines(folder / f"{split}.jsonl", rows)
    width = 1 + max(max(rows[0]), 1) + (min(rows[0]) < 0)
    lines = [[str(row.get(at, row.get(at - width, "x"))) for at in range(width)] for row in rows]
    if node["reader"].get("header"):
        lines.insert(0, [f"column{at}" for at in range(width)])
    file = folder / f"{split}.tsv"
    file.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    return file


def _fill(key: str, n: int, node: Mapping[str, Any]) -> Any:
    """What field `key` has in example n."""
    if key == "choices":
        return [f"a {noun} slept" for noun in NOUNS]
    if key == "slice":
        return "zeroshot"  # as HellaSwag has it
    if key != "label":
        return say(n) if key == "text" else say(2 * n + 1)
    if names := node.get("label_names"):
        return names[n % len(names)]
    if "first_label" in node:
        return node["first_label"] + n % 4
    return n / 4 if "pearson" in node["metrics"] else "ab"[n % 2]


def _spread(row: Row, columns: Mapping[str, Any]) -> dict[Any, Any]:
    """The cells of a row, by column: a list of columns takes a list apart."""
    cells: dict[Any, Any] = {}
    for key, value in row.items():
        if isinstance(columns[key], list):
            cells |= dict(zip(columns[key], value, strict=True))
        else:
            cells[columns[key]] = value
    return cells


def _write_lines(file: Path, rows: Sequence[Mapping[Any, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def _by_row(make: Callable[[int], Row], *words: str) -> Callable[[Path], Sample]:
    """What writes JSON lines, one row an example."""

    def write(folder: Path) -> Sample:
        train, dev = (
            _write_lines(folder / f"{split}.jsonl", [make(n) for n in range(first, first + 8)])
            for split, first in SPLITS.items()
        )
        return _name(train, dev, *words)

    return write


def mark_entities(n: int) -> Row:
    """OpenNRE's layout: a head and a tail in a text."""
    text = say(n)
    head, tail = text.index(NOUNS[n % 4]), text.index("mat")
    return {"text": text, "relation": f"P{n % 2}",
            "h": {"name": NOUNS[n % 4], "id": "Q1", "pos": [head, head + 3]},
            "t": {"name": "mat", "id": "Q2", "pos": [tail, tail + 3]}}  # fmt: skip


def mark_types(n: int) -> Row:
    """ERNIE's layout: a mention and its types."""
    return {"sent": say(n), "start": 4, "end": 7, "labels": [["a", "b"], ["a"]][n % 2]}


def compare_words(n: int) -> Row:
    """WiC's layout: a word in two sentences."""
    texts = say(n), say(2 * n + 1)
    (first, second) = (text.index("mat") for text in texts)
    return {"word": "mat", "sentence1": texts[0], "sentence2": texts[1], "idx": n,
            "label": bool(n % 2), "start1": first, "end1": first + 3, "start2": second,
            "end2": second + 3, "version": 1.1}  # fmt: skip


def choose_candidate(n: int) -> Row:
    """WikiHop's layout: a question, candidates and documents."""
    documents = [say(n), say(n + 20)]
    return {"id": str(n), "query": f"which animal is number {n}", "candidates": list(NOUNS),
            "supports": documents, "answer": NOUNS[n % 4]}  # fmt: skip


def tag_words(n: int) -> Row:
    """A sentence with a tag for each word."""
    words = say(n).split()
    return {"tokens": words, "tags": ["B-A" if word in NOUNS else "O" for word in words]}


def write_talk(n: int) -> Row:
    """A dialogue of two turns."""
    turns = [("A", say(n)), ("B", f"yes, {n}")]
    return {"turns": [{"speaker": who, "utterance": text} for who, text in turns]}


def write_senses(folder: Path) -> Sample:
    """STREUSLE's tags."""
    (folder / "train.tags").write_text(tags([ROWS, ROWS[:3]]), encoding="utf-8")
    (folder / "dev.tags").write_text(tags([ROWS[1:]]), encoding="utf-8")
    return _name(folder / "train.tags", folder / "dev.tags")


def write_bank(folder: Path) -> Sample:
    """Chains of words in CoNLL-U."""
    for split, first in SPLITS.items():
        blocks = [
            "".join(
                f"{at}\t{word}\t_\tX\t_\t_\t{at - 1}\t{'dep' if at > 1 else 'root'}\t_\t_\n"
                for at, word in enumerate(say(n).split(), 1)
            )
            for n in range(first, first + 8)
        ]
        (folder / f"{split}.conllu").write_text("\n".join(blocks), encoding="utf-8")
    return _name(folder / "train.conllu", folder / "dev.conllu")


def write_propositions(folder: Path) -> Sample:
    """The second word of a sentence as predicate, the first as its argument."""
    for split, first in SPLITS.items():
        cells = (("-", "(A0*)"), ("be", "(V*)"))
        blocks = [
            "".join(
                f"{word} {' '.join(cells[at]) if at < 2 else '- *'}\n"
                for at, word in enumerate(say(n).split())
            )
            for n in range(first, first + 8)
        ]
        (folder / f"{split}.txt").write_text("\n".join(blocks), encoding="utf-8")
    return _name(folder / "train.txt", folder / "dev.txt")


def write_phrases(folder: Path) -> Sample:
    """The first word of a sentence in a phrase, the others in another one."""
    for split, first in SPLITS.items():
        trees = []
        for n in range(first, first + 8):
            head, *rest = say(n).split()
            inside = " ".join(f"(VB {word})" for word in rest)
            trees.append(f"(S (NP (NN {head})) (VP {inside}))\n")
        (folder / f"{split}.mrg").write_text("".join(trees), encoding="utf-8")
    return _name(folder / "train.mrg", folder / "dev.mrg")


def write_phrases_in_words(folder: Path) -> Sample:
    """The same, for models that write trees."""
    sample = write_phrases(folder)
    return replace(sample, words=(*sample.words, *WRITING))


def write_trees(folder: Path) -> Sample:
    """A labelled table beside a lexicon of triples."""
    (folder / "animals.spo").write_text("cat\tis\tpet\ndog\tis\tpet\n", encoding="utf-8")
    table = _by_row(lambda n: {"text": say(n), "label": "ab"[n % 2]})(folder)
    return Sample((*table.words, f"task.lexicon.path={folder / 'animals.spo'}"))


def write_languages(folder: Path) -> Sample:
    """XNLI's dev set beside its training set, translated MNLI."""
    place = folder / "XNLI-MT-1.0" / "multinli"
    place.mkdir(parents=True, exist_ok=True)
    lines = [f"{say(n)}\t{say(n + 1)}\t{('neutral', 'entailment')[n % 2]}\n" for n in range(8)]
    text = "premise\thypo\tlabel\n" + "".join(lines)
    (place / "multinli.train.en.tsv").write_text(text, encoding="utf-8")
    (folder / "xnli.dev.tsv").write_text(XNLI, encoding="utf-8")
    return Sample((f"task.path={folder}",))


def write_clue(task: str, folder: Path) -> Sample:
    """The published files of CLUE and its kin."""
    return Sample((f"task.path={clue_files.write(task, folder)}",))


def evaluate_text(folder: Path) -> Sample:
    """Held-out text."""
    file = folder / "text.txt"
    documents = ["\n".join(say(n + 8 * m) for n in range(8)) for m in range(8)]
    file.write_text("\n\n".join(documents), encoding="utf-8")
    return Sample((f"data.path={file}",), verb="eval")


def evaluate_rare(folder: Path) -> Sample:
    """WNLaMPro's file."""
    (folder / "WNLaMPro.txt").write_text("\n".join(LINES), encoding="utf-8")
    return Sample((f"task.path={folder / 'WNLaMPro.txt'}",), verb="eval")


def evaluate_pairs(folder: Path) -> Sample:
    (folder / "pairs.tsv").write_text("good\tbad\nshe reads\treads she\n", encoding="utf-8")
    return Sample((f"task.path={folder / 'pairs.tsv'}",), verb="eval")


def evaluate_words(folder: Path) -> Sample:
    (folder / "words.tsv").write_text("word\tsentence\nshe\ta\nreads\ta\n", encoding="utf-8")
    return Sample((f"task.path={folder / 'words.tsv'}",), verb="eval")


def evaluate_analogies(folder: Path) -> Sample:
    (folder / "questions.txt").write_text(": all\na cat no dog\n", encoding="utf-8")
    return Sample((f"task.path={folder / 'questions.txt'}",), verb="eval")


def evaluate_similar(folder: Path) -> Sample:
    """A list of pairs of words with scores."""
    words = ("string", "list", "value", "object", "class", "name")
    pairs = [(a, b) for a in words for b in words if a < b]
    lines = [f"{a}\t{b}\t{n}\n" for n, (a, b) in enumerate(pairs)]
    (folder / "EN-A.txt").write_text("".join(lines), encoding="utf-8")
    return Sample((f"task.path={folder}",), verb="eval")


def evaluate_sentences(folder: Path) -> Sample:
    """Pairs of sentences with scores."""
    lines = [f"{say(n)}\t{say(2 * n + 1)}\t{n}\n" for n in range(8)]
    file = folder / "sts.tsv"
    file.write_text("".join(["text\ttext2\tlabel\n", *lines]), encoding="utf-8")
    return Sample((f"task.path={file}",), verb="eval")


def evaluate_retrieval(folder: Path) -> Sample:
    """A corpus with a question for each text."""
    texts = [{"_id": f"d{n}", "text": say(n)} for n in range(8)]
    _write_lines(folder / "corpus.jsonl", texts)
    asked = [{"_id": f"q{n}", "text": say(n)[:20]} for n in range(8)]
    _write_lines(folder / "queries.jsonl", asked)
    grades = "".join(f"q{n}\td{n}\t1\n" for n in range(8))
    (folder / "qrels.dev.tsv").write_text(grades, encoding="utf-8")
    return Sample((f"task.path={folder}",), verb="eval")


def evaluate_candidates(folder: Path) -> Sample:
    """Questions with candidates."""
    rows = [{"query": say(n)[:20], "candidates": [say(n), say(n + 1)], "labels": [1, 0]}
            for n in range(8)]  # fmt: skip
    return Sample((f"task.path={_write_lines(folder / 'dev.jsonl', rows)}",), verb="eval")


def entail(n: int) -> Row:
    """A premise, what it entails and what it contradicts, on two lines."""
    label = ("entailment", "contradiction")[n % 2]
    return {"text": say(n // 2), "text2": f"{'a' if n % 2 else 'no'} cat sat", "label": label}


def evaluate_facts(folder: Path) -> Sample:
    """A knowledge directory with triples."""
    text = "\n\n".join(say(n) for n in range(40))
    place = link_words(folder / "linked", text)
    return Sample((f"task.path={place}", "task.scorer=masks", "task.queries=2"), verb="eval")


def diagnose(after: str, file: str) -> Callable[[Path], Sample]:
    """GLUE's and SuperGLUE's diagnostics, for a model that was fine-tuned on `after`."""

    def explain(n: int) -> Row:
        texts = {"sentence1": say(n), "sentence2": say(n + 1)}
        label = ("entailment", "not_entailment")[n % 2]
        return {**texts, "premise": say(n), "hypothesis": say(n + 1), "label": label, "idx": n,
                "pair_id": str(n // 2), "logic": "Negation"}  # fmt: skip

    def write(folder: Path) -> Sample:
        if file.endswith("tsv"):
            (folder / file).write_text(DIAGNOSTICS, encoding="utf-8")
        else:
            _write_lines(folder / file, [explain(n) for n in range(8)])
        return Sample((f"task.path={folder}",), verb="eval", after=after)

    return write


MARKS = "task.marks=tokens"  # a small vocabulary may lack the symbols
EPISODES = ("task.ways=2", "task.shots=1", "task.episodes={train:2,dev:2}")
PAIRS = _by_row(lambda n: {"source": say(n), "target": say(n).split()[1]}, *WRITING)
WRITERS: dict[str, Callable[[Path], Sample]] = {
    **dict.fromkeys(
        ("relation", "fewrel", "tacred", "semeval2010_task8"), _by_row(mark_entities, MARKS)
    ),
    "fewrel_few_shot": _by_row(mark_entities, MARKS, *EPISODES),
    "prototypes": _by_row(
        lambda n: {"text": say(n), "label": "ab"[n % 2]}, *EPISODES, "task.queries=1"
    ),
    **dict.fromkeys(("entity_typing", "figer", "open_entity"), _by_row(mark_types, MARKS)),
    **dict.fromkeys(("translation", "summarization", "seq2seq", "comet"), PAIRS),
    **dict.fromkeys(("abstractive_summarization", "question_generation"), PAIRS),
    "extractive_summarization": _by_row(
        lambda n: {"source": [say(n), say(n + 1)], "target": say(n)}, "task.max_length=32"
    ),
    "sentence_translations": _by_row(lambda n: {"source": say(n), "target": say(2 * n + 1)}),
    "dialogue": _by_row(write_talk, *WRITING),
    **dict.fromkeys(("tagging", "conll2003", "conll2000", "chunking"), _by_row(tag_words)),
    **dict.fromkeys(("pos", "dependency"), write_bank),
    "srl": write_propositions,
    "constituency": write_phrases,
    "tree_writing": write_phrases_in_words,
    "supersense": write_senses,
    "tree_classification": write_trees,
    "wikihop": _by_row(choose_candidate),
    "wic": _by_row(compare_words),
    "xnli": write_languages,
    **{task: functools.partial(write_clue, task) for task in clue_files.TASKS},
    "ax": diagnose("mnli", "diagnostic-full.tsv"),
    "ax_b": diagnose("superglue_rte", "AX-b.jsonl"),
    "ax_g": diagnose("superglue_rte", "AX-g.jsonl"),
    **dict.fromkeys(("lm", "held_out", "context_length"), evaluate_text),
    "wnlampro": evaluate_rare,
    "minimal_pairs": evaluate_pairs,
    "surprisal": evaluate_words,
    "word_similarity": evaluate_similar,
    "word_analogies": evaluate_analogies,
    "sts": evaluate_sentences,
    "retrieval": evaluate_retrieval,
    "reranking": evaluate_candidates,
    "simcse_nli": _by_row(entail),
    "fact_completion": evaluate_facts,
}
