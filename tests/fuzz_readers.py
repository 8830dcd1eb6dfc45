"""Damaged files through every reader: `python -m tests.fuzz_readers --seed 0 --files 200 [--only
checkpoint]`.

Each reader gets so many damaged copies of small files that are made here, in a process with 1 GB of
memory beyond what its libraries take and 60 s for a file. A copy is read, or refused with a
sentence (a PlmctlError); everything else has FAILED.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import gzip
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from plmctl.core.errors import PlmctlError
from tests.tasks import aspect_sentences as aspects
from tests.tasks import clue_files, conversations
from tests.tasks import coreference_documents as documents
from tests.tasks import superglue_files as exams

SECONDS, MEMORY = 60, 1 << 30  # of one file
NONSENSE: list[Any] = [
    -1,
    0,
    3,
    10**9,
    10**30,
    0.5,
    1e308,
    float("nan"),
    "text",
    "",
    "\ud800",
    None,
    True,
    [],
    [[1]],
    {},
]
NONSENSE += [{"a": 1}, ["a", "a"]]
YAML = [
    "\tx: 1",
    "x: ${nope:1}",
    "x: ${y}",
    "a: &a [*a]",
    "a: !!python/object:os.system x",
    "x: !!set {a}",
    "- 1",
    "x: 2020-99-99",
]
YAML += [
    "[" * 600,
    "? [a]\n: 1",
    "x: {",
    "x: ???",
    "1: 2",
    "train: [1]",
    "train: 3",
    "model: x",
    "heads: [x]",
    "size: []",
]
TEXTS = ("a.txt", "a.jsonl", "a.csv", "a.txt.gz", "a.jsonl.gz", "a.txt.zst", "a.parquet")
TABLES = ("train.tsv", "train.jsonl", "train.csv", "train.tsv.gz")
NEWEST = "run/checkpoints/step-2"


# --- damage
# --------------------------------------------------------------------------------------------------


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, cut off, put in, taken out, or written twice."""
    data, at = bytearray(data), draw.randrange(len(data) + 1)
    length = draw.choice([1, 2, 8, 64])
    kind = draw.randrange(7)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        data[at:at] = draw.randbytes(length)
    elif kind == 2:
        del data[at : at + length]
    elif kind == 3:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == 4:
        data[at:at] = data[at : at + 8 * length]
    else:
        for _ in range(length if kind == 5 else 1):
            if data:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def changed(value: Any, draw: random.Random) -> Any:
    """A value of JSON in which one thing, at any depth, is nonsense, missing, or called
    otherwise.
    """
    places = list(_places(value))
    owner, key = draw.choice(places) if places else (None, None)
    if owner is None:
        return draw.choice(NONSENSE)
    kind = draw.randrange(8)
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
    elif kind == 2 and isinstance(owner[key], int | float) and not isinstance(owner[key], bool):
        owner[key] = draw.choice([-owner[key], 2 * owner[key], owner[key] + 1, owner[key] * 1000])
    else:
        owner[key] = draw.choice(NONSENSE)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    ):
        yield value, key
        yield from _places(value[key])


def damaged(file: Path, draw: random.Random) -> None:
    """`file` with one damage of its own kind, or of its bytes."""
    data, kind = file.read_bytes(), file.name.rpartition(".")[2]
    if draw.random() < 0.05:
        file.write_bytes(
            draw.choice(
                [b"", b"\x00" * 64, b"null", b"[" * 100_000, b"\xff\xfe\xff", draw.randbytes(200)]
            )
        )
        return
    if file.name.endswith(".gz") and draw.random() < 0.6:
        file.write_bytes(
            gzip.compress(
                _damage(
                    gzip.decompress(data), file.name.removesuffix(".gz").rpartition(".")[2], draw
                )
            )
        )
        return
    file.write_bytes(_damage(data, kind, draw))


def _damage(data: bytes, kind: str, draw: random.Random) -> bytes:
    structured = draw.random() < 0.75
    if structured and kind == "json":
        return json.dumps(changed(json.loads(data), draw)).encode()
    if structured and kind == "jsonl":
        lines = data.splitlines()
        at = draw.randrange(len(lines))
        lines[at] = json.dumps(changed(json.loads(lines[at]), draw)).encode()
        return b"\n".join(lines)
    if structured and kind == "yaml":
        if draw.random() < 0.3:
            return (data + b"\n" if draw.random() < 0.5 else b"") + draw.choice(YAML).encode()
        return yaml.safe_dump(changed(yaml.safe_load(data), draw), sort_keys=False).encode(
            "utf-8", "replace"
        )
    if structured and kind == "safetensors":
        size = int.from_bytes(data[:8], "little")
        head = json.dumps(changed(json.loads(data[8 : 8 + size]), draw)).encode()
        return len(head).to_bytes(8, "little") + head + data[8 + size :]
    if structured and kind == "npy":
        array, stream = np.load(io.BytesIO(data)), io.BytesIO()
        at = slice(draw.randrange(len(array)), None) if len(array) else slice(None)
        low, high = draw.choice([(-9, 9), (0, 1 << 15), (0, 1 << 31)])
        if draw.random() < 0.6:
            array = array.copy()
            array[at] = (
                np.random.default_rng(draw.randrange(99))
                .integers(low, high, len(array[at]))
                .astype(array.dtype)
            )
        else:
            array = draw.choice(
                [
                    array[:-1],
                    array.astype("f8"),
                    array.reshape(1, -1),
                    np.array(3),
                    array.astype("O"),
                ]
            )
        np.save(stream, array, allow_pickle=True)
        return stream.getvalue()
    return flipped(data, draw)


# --- samples and their readers
# ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A folder of small files, some of which are damaged, and what reads it."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]
    files: tuple[str, ...]  # patterns
    seal: Callable[[Path], None] = lambda folder: None  # so that no hash tells of the damage
    keys: bool = False  # every key of its config.json is set to every nonsense once, instead


TEXT = [
    f"The cat number {n} sat on mat {n % 7}; 猫坐在垫子上。 It ran home, and slept."
    for n in range(60)
]
SIZES = {"wordpiece": 80, "unigram": 50, "byte_bpe": 280, "word": 40}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "sat", "on", "mat", "##s", "dog", "ran", ".", ","]
TINY = [
    "size=tiny",
    "size.width=16",
    "size.num_layers=1",
    "size.num_heads=2",
    "size.inner_width=16",
    "format.max_length=16",
]
TINY += [
    "train.batch_size=2",
    "train.processes=1",
    "data.valid_share=0.2",
    "tokenizer.vocab_size=80",
    "train.save_every=1",
]


def cli(*words: object) -> None:
    """A command of plmctl in this process; what it refuses is raised."""
    import typer

    from plmctl.cli import app as cli
    from plmctl.cli import mistakes

    @contextlib.contextmanager
    def bare() -> Iterator[None]:
        yield

    mistakes.report_mistakes = bare
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.make_app()([str(word) for word in words], standalone_mode=False)
        except (typer.Exit, SystemExit) as end:
            if code := getattr(end, "exit_code", getattr(end, "code", 0)):
                raise RuntimeError(f"ended with code {code}, and no error of plmctl") from end


def texts(folder: Path) -> None:
    documents = "\n\n".join("\n".join(TEXT[at : at + 5]) for at in range(0, 60, 5))
    rows = "".join(
        json.dumps({"text": text, "lang": "en"}, ensure_ascii=False) + "\n" for text in TEXT
    )
    table = "text,id\n" + "".join(f'"{text}",{n}\n' for n, text in enumerate(TEXT))
    for name, content in {"a.txt": documents, "a.jsonl": rows, "a.csv": table}.items():
        (folder / name).write_text(content, encoding="utf-8")
        (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    with contextlib.suppress(ImportError):
        import zstandard

        (folder / "a.txt.zst").write_bytes(zstandard.compress(documents.encode()))
    with contextlib.suppress(ImportError):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": TEXT}), folder / "a.parquet")


def read_texts(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from plmctl.data.survey import TextSource

        return list(TextSource(str(folder / name)).documents())

    return read


def own_tokenizer(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from plmctl.text.tokenizer import Tokenizer

        Tokenizer.train(TEXT, kind=kind, vocab_size=SIZES[kind]).save(folder)

    return make


def published_tokenizer(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from plmctl.text.tokenizer import Tokenizer

        if kind == "unigram":
            Tokenizer.train(TEXT, kind=kind, vocab_size=SIZES[kind]).save(folder)
            (folder / "plmctl_tokenizer.json").unlink()
            (folder / "sentencepiece.model").rename(folder / "spiece.model")
            (folder / "tokenizer_config.json").write_text(
                json.dumps({"pad_token": "<pad>", "additional_special_tokens": ["<e>"]})
            )
            return
        Tokenizer.train(TEXT, kind=kind, vocab_size=SIZES[kind]).export_hf(
            folder, model_max_length=16
        )

    return make


def without(make: Callable[[Path], None], name: str) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        make(folder)
        (folder / name).unlink()

    return made


def read_tokenizer(folder: Path) -> object:
    from plmctl.text.tokenizer import Tokenizer

    made = Tokenizer.load(folder)
    ids = made.encode(TEXT[0] + " naïve [MASK] \ud800")
    made.encode_offsets(TEXT[1])
    return made.vocab, made.decode(ids), made.fingerprint


def tokens(folder: Path) -> None:
    (folder / "text").mkdir()
    texts(folder / "text")
    cli(
        "tokenize",
        f"data.path={folder}/text/a.txt",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=80",
        "data.valid_share=0.2",
        "processes=1",
        f"out={folder}/tokens",
    )


def read_tokens(folder: Path) -> object:
    from plmctl.data.formats.blocks import Blocks
    from plmctl.data.reader import RowReader
    from plmctl.data.shards import Shards

    for split in ("train", "valid"):
        shards = Shards.open(folder / "tokens", split)
        rows = Blocks(vocab=_vocab(folder / "tokens"), max_length=16, crossing=False, specials=True)
        reader = RowReader(shards, rows, seed=0, batch_size=8, allow_short=True)
        picks, _ = reader.take(reader.position)
        list(reader.parts(picks))
    return None


def _vocab(folder: Path) -> Any:
    from plmctl.text.tokenizer import Tokenizer

    return Tokenizer.load(folder).vocab


def run(folder: Path) -> None:
    tokens(folder)
    cli(
        "pretrain",
        "bert",
        *TINY,
        f"data.path={folder}/tokens",
        "train.steps=2",
        f"run.dir={folder}/run",
    )


def seal(folder: Path) -> None:
    """The manifests of all checkpoints say what their files are now."""
    from plmctl.training.checkpoint import seal as seal_checkpoint

    for file in folder.rglob("step-*/manifest.json"):
        with contextlib.suppress(OSError):
            file.unlink()
            seal_checkpoint(file.parent)


def use(model: Path) -> object:
    import torch

    import plmctl
    from plmctl.use.embedding_lines import EmbeddingLine
    from plmctl.use.vectors import make_batch

    loaded = plmctl.load(model)
    if not loaded.source.has_tokenizer or loaded.source.spelling is None:
        with torch.inference_mode():
            return (
                loaded.model(make_batch([EmbeddingLine([1, 2, 3])]))
                if "encoder" not in (loaded.config["model"])
                else None
            )
    return loaded


def resume(folder: Path) -> object:
    words = ["pretrain", "--resume", f"run.dir={folder}/run", "train.steps=3"]
    return cli(*words)


def report(folder: Path) -> object:
    return cli("report", folder / "run", "--out", folder / "page.html")


def metrics(folder: Path) -> object:
    from plmctl.analysis.runs import RunLog, find_standing, read_predictions, read_result
    from plmctl.training.log import cut_back

    log = RunLog.read(folder / "run")
    cut_back(folder / "run", 1)
    return find_standing(log), read_result(folder / "run"), read_predictions(folder / "run")


PUBLISHED = (
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "RobertaForMaskedLM",
    "AlbertForMaskedLM",
    "ElectraForPreTraining",
    "OpenAIGPTLMHeadModel",
    "GPT2LMHeadModel",
    "XLNetLMHeadModel",
    "BartForConditionalGeneration",
    "MarianMTModel",
    "T5ForConditionalGeneration",
)


@functools.cache
def published(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from tests.interop.publishing import VOCAB, publish

        if name.startswith("XLNet"):
            import transformers

            sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
            getattr(transformers, name)(
                transformers.XLNetConfig(vocab_size=VOCAB, **sizes)
            ).save_pretrained(folder)
        else:
            publish(folder, name)
        spare = [f"[unused{n}]" for n in range(VOCAB - len(SPECIAL + WORDS))]
        (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, *spare]))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({f"{token[1:-1].lower()}_token": token for token in SPECIAL})
        )

    return make


def elmo(folder: Path) -> None:
    from tests.interop.test_elmo_weights import arrays, write

    write(folder, arrays())


def exam_files(folder: Path) -> None:
    """A file of each task that has rows in tests/tasks/superglue_files.py."""
    for name, row in exams.ROWS.items():
        exams.write(folder / f"{name}.jsonl", row)
    (folder / "xnli.tsv").write_text(exams.XNLI, encoding="utf-8")
    (folder / "ax.tsv").write_text(exams.DIAGNOSTICS, encoding="utf-8")


def chinese_files(folder: Path) -> None:
    """The published files of C3, ChID and CLUEWSC2020."""
    for name in ("c3", "chid", "cluewsc2020"):
        (folder / name).mkdir()
        clue_files.write(name, folder / name)
    for name in ("chid", "cluewsc2020"):
        (folder / name / "train.json").rename(folder / name / "train.jsonl")


def document_files(folder: Path) -> None:
    """Files of the tasks that write, other than plain pairs."""
    rows = [{"source": TEXT[n : n + 4], "target": [TEXT[n], "The cat."]} for n in range(0, 40, 4)]
    named = [{"article": text, "highlights": "The cat.", "id": "x"} for text in TEXT]
    persona = [
        f"1 your persona: i am {n}.\n2 {text}\tYes.\t\tno|yes\n3 Oh.\tNo."
        for n, text in enumerate(TEXT)
    ]
    segments = "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(TEXT))
    document = f'<doc docid="a" sysid="ref">\n{segments}</doc>\n'
    written = {
        "documents.jsonl": "\n".join(map(json.dumps, rows)),
        "news.jsonl": "\n".join(map(json.dumps, named)),
        "persona.txt": "\n".join(persona) + "\n",
        "wmt/train-src.de.sgm": f'<srcset setid="t">\n{document}</srcset>\n',
        "wmt/train-ref.en.sgm": f'<refset setid="t">\n{document}</refset>\n',
        "nqg/src-train.txt": "\n".join(TEXT),
        "nqg/tgt-train.txt": "\n".join(f"who is {n} ?" for n in range(len(TEXT))),
        "giga/train.article.txt": "\n".join(TEXT),
        "giga/train.title.txt": "\n".join("the cat" for _ in TEXT),
        "sgd/train/dialogues_001.json": json.dumps(
            [
                {
                    "dialogue_id": str(n),
                    "services": ["R"],
                    "turns": [
                        {"speaker": "USER", "utterance": text, "frames": []},
                        {"speaker": "SYSTEM", "utterance": "Yes.", "frames": []},
                    ],
                }
                for n, text in enumerate(TEXT)
            ]
        ),
    }
    for name, content in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def task_files(folder: Path) -> None:
    table = "".join(
        f"{json.dumps({'sentence': text, 'label': str(n % 2)})}\n" for n, text in enumerate(TEXT)
    )
    tabs = "sentence\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(TEXT))
    qas = [
        {"id": str(n), "question": "Who sat?", "answers": [{"text": "cat", "answer_start": 4}]}
        for n in range(5)
    ]
    squad = {
        "version": "1",
        "data": [{"paragraphs": [{"context": text, "qas": qas}]} for text in TEXT[:3]],
    }
    hotpot = [
        {
            "_id": str(n),
            "question": "Who?",
            "answer": "the cat",
            "context": [[f"Title {m}", [text, " Yes."]] for m in range(3)],
            "supporting_facts": [["Title 0", 0], ["Title 2", 1]],
        }
        for n, text in enumerate(TEXT[:4])
    ]
    column = "\n".join(
        "\n".join(f"{word} x {'B-A' if word == 'cat' else 'O'}" for word in text.split()) + "\n"
        for text in TEXT
    )
    lists = [
        {"tokens": text.split(), "tags": ["O" for _ in text.split()], "document": n // 3}
        for n, text in enumerate(TEXT)
    ]
    choice = [{"text": text, "choices": ["a", "b"], "label": n % 2} for n, text in enumerate(TEXT)]
    talk = [
        {"turns": [{"utterance": text, "speaker": "A"}, {"utterance": "Yes.", "speaker": "B"}]}
        for text in TEXT
    ]
    sets = [{"text": text, "labels": ["a", "b"][: n % 3]} for n, text in enumerate(TEXT)]
    written = {
        "coref.v4_gold_conll": documents.CONLL,
        "coref.jsonl": documents.write_stories(8, 0),
        "aspects.xml": aspects.XML,
        "aspects.csv": aspects.CSV,
        "sets.jsonl": "\n".join(map(json.dumps, sets)),
        "sets.csv": "text,labels\n" + "".join(f'"{text}","a,b"\n' for text in TEXT),
        "train.jsonl": table,
        "train.tsv": tabs,
        "train.csv": tabs.replace(",", ";").replace("\t", ","),
        "squad.json": json.dumps(squad),
        "trivia.jsonl": "\n".join(
            json.dumps({"question": "Who?", "document": text, "answers": ["the cat"]})
            for text in TEXT
        ),
        "hotpot.json": json.dumps(hotpot),
        "coqa.json": json.dumps(conversations.make_coqa(TEXT[:3])),
        "quac.json": json.dumps(conversations.make_quac(TEXT[:3])),
        "train.conll": column,
        "bank.mrg": "\n".join(
            f"( (S (NP-SBJ (NN it)) (VP {' '.join(f'(VB {word})' for word in text.split())})))"
            for text in TEXT
        ),
        "older.json": json.dumps(
            [
                {
                    "context_text": text,
                    "qas": [{"query_id": "1", "query_text": "what?", "answers": [text[2:7]]}],
                }
                for text in TEXT
            ]
        ),
        "props.txt": "\n".join(
            "".join(
                f"{word} {'be' if n == 2 else '-'} {('(A0*', '*)', '(V*)')[n] if n < 3 else '*'}\n"
                for n, word in enumerate(text.split())
            )
            for text in TEXT
        ),
        "bank.conllu": "\n".join(
            "".join(
                f"{n}\t{word}\t_\tX\t_\t_\t{n - 1}\t{'dep' if n > 1 else 'root'}\t_\t_\n"
                for n, word in enumerate(text.split(), 1)
            )
            for text in TEXT
        ),
        "tagged.jsonl": "\n".join(map(json.dumps, lists)),
        "choice.jsonl": "\n".join(map(json.dumps, choice)),
        "talk.jsonl": "\n".join(map(json.dumps, talk)),
        "ranking.jsonl": "\n".join(
            json.dumps({"query": text, "positive": [text], "negatives": [text[::-1], "No."]})
            for text in TEXT
        ),
        "sts.tsv": "\n".join(
            [
                "sentence1\tsentence2\tscore",
                *(f"{text}\tYes.\t{n % 6}" for n, text in enumerate(TEXT)),
            ]
        ),
        "talk.json": json.dumps(talk),
        "train.tsv.gz": tabs,
        "pairs.jsonl": "\n".join(
            json.dumps({"source": text, "target": text[::-1]}) for text in TEXT
        ),
        "vectors.txt": "\n".join(f"word{n} {n} 0.5 -{n}" for n in range(40)),
    }
    for name, content in written.items():
        (folder / name).write_bytes(
            gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
        )


def corpus_files(folder: Path) -> None:
    (folder / "qrels").mkdir()
    texts = [{"_id": f"d{n}", "title": "T", "text": text} for n, text in enumerate(TEXT)]
    asked = [{"_id": f"q{n}", "text": text} for n, text in enumerate(TEXT)]
    for name, rows in {"corpus": texts, "queries": asked}.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    grades = [f"q{n}\td{m}\t{n % 2}" for n in range(len(TEXT)) for m in (n, 0)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *grades]))


def read_corpus(folder: Path) -> object:
    task = _task_of("bi_encoder", folder)
    return task.read("train"), task.read_corpus("train")


def read_scored_pairs(folder: Path) -> object:
    from plmctl.probes.sentence_similarity import SentenceSimilarity

    return SentenceSimilarity(path=str(folder / "sts.tsv")).read("dev")


@functools.cache
def _task(name: str) -> Any:
    from plmctl.config.build import build
    from plmctl.config.compose import compose

    return build(
        compose("check", None, [f"task={name}", "task.path=x"]).task,
        {"pooling": "first"},
        path="task",
    )


def _task_of(name: str, path: Path) -> Any:
    """A task with its own reader for the files at a path."""
    task = copy.copy(_task(name))
    reader = copy.deepcopy(task.splits.reader)
    task.splits = replace(task.splits, path=str(path), reader=reader)
    return task


@functools.cache
def _tokenizer() -> Any:
    from plmctl.text.tokenizer import Tokenizer

    return Tokenizer.train(TEXT, kind="wordpiece", vocab_size=SIZES["wordpiece"])


@dataclass(frozen=True)
class TaskReader:
    """Every example of a task's file, read, looked at and encoded."""

    file: str
    task: str

    def __call__(self, folder: Path) -> object:
        from plmctl.data.check import labels

        task = _task_of(self.task, folder / self.file)
        train = task.read("train")
        task.fit_labels(train)
        return labels.check(
            task.splits.path, {"train": train}, classes=task.facts.has_classes
        ), task.encode(train, _tokenizer())


def read_task(name: str, kind: str) -> TaskReader:
    """What reads the file `name` as the task `kind` does."""
    return TaskReader(name, kind)


def vectors(folder: Path) -> object:
    from plmctl.knowledge.word_vectors import Neighbours

    return Neighbours.read(folder / "vectors.txt").find_nearest(["word3", "word5"], 4)


VECTOR_FILES = ("v.txt", "v.vec", "v.bin", "v.safetensors", "v.txt.gz")


def vector_files(folder: Path) -> None:
    from plmctl.knowledge.static_vectors import StaticVectors
    from plmctl.knowledge.subwords import Ngrams, Subwords
    from plmctl.knowledge.vector_files import write_static
    from tests.knowledge.test_vector_files import fasttext_bytes

    table = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    subwords = Subwords(Ngrams(3, 4, 20), table)
    given = StaticVectors([f"word{n}" for n in range(20)], table, subwords)
    for name in VECTOR_FILES[:-1]:
        write_static(given, folder / name)
    (folder / "v.txt.gz").write_bytes(gzip.compress((folder / "v.txt").read_bytes()))
    (folder / "fasttext.bin").write_bytes(fasttext_bytes())


def read_vectors(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from plmctl.knowledge.vector_files import read_static

        return read_static(folder / name).choose(["word3", "unseen"])

    return read


def answers(folder: Path) -> None:
    import torch

    from plmctl.distill.cache import Store

    store = Store(folder / "answers")
    for n in range(8):
        store.add(
            bytes([n] * 16), {"logits/class": torch.randn(3), "hidden/0": torch.randn(n + 1, 4)}
        )
    store.flush()


def read_answers(folder: Path) -> object:
    from plmctl.distill.cache import Store

    store = Store(folder / "answers")
    return [store[key] for n in range(8) if (key := bytes([n] * 16)) in store]


def recipe(folder: Path) -> None:
    from plmctl.config.recipes import recipes_dir

    shutil.copy(recipes_dir() / "bert.yaml", folder / "mine.yaml")
    shutil.copy(recipes_dir() / "studies/bert_masks.yaml", folder / "study.yaml")


CASES = [
    *(Case(f"text {name}", texts, read_texts(name), (name,)) for name in TEXTS),
    *(
        Case(f"tokenizer, own {kind}", own_tokenizer(kind), read_tokenizer, ("*",))
        for kind in SIZES
    ),
    Case(
        "tokenizer vocab.txt",
        without(published_tokenizer("wordpiece"), "tokenizer.json"),
        read_tokenizer,
        ("*",),
    ),
    Case(
        "tokenizer merges.txt",
        without(published_tokenizer("byte_bpe"), "tokenizer.json"),
        read_tokenizer,
        ("*",),
    ),
    Case("tokenizer.json", published_tokenizer("wordpiece"), read_tokenizer, ("tokenizer*.json",)),
    Case("tokenizer sentencepiece", published_tokenizer("unigram"), read_tokenizer, ("*",)),
    Case("token directory", tokens, read_tokens, ("tokens/*.npy", "tokens/manifest.json")),
    Case(
        "checkpoint, sealed anew", run, lambda folder: use(folder / NEWEST), (f"{NEWEST}/*",), seal
    ),
    Case(
        "checkpoint manifest", run, lambda folder: use(folder / "run"), (f"{NEWEST}/manifest.json",)
    ),
    Case("resume, sealed anew", run, resume, (f"{NEWEST}/*",), seal),
    Case("resume, files of the run", run, resume, ("run/*.*", f"{NEWEST}/manifest.json")),
    Case("report", run, report, ("run/*.*",)),
    Case("metrics", run, metrics, ("run/metrics.jsonl",)),
    *(
        Case(
            f"published {name}",
            published(name),
            use,
            ("config.json", "model.safetensors", "*.json", "vocab.txt"),
        )
        for name in PUBLISHED
    ),
    Case("published ELMo", elmo, use, ("*",)),
    *(
        Case(f"config keys, {name}", published(name), use, ("config.json",), keys=True)
        for name in PUBLISHED
    ),
    Case("config keys, ELMo", elmo, use, ("*_options.json",), keys=True),
    *(Case(f"task table {name}", task_files, read_task(name, "sst2"), (name,)) for name in TABLES),
    *(
        Case(f"task {name}", task_files, read_task(name, "multilabel"), (name,))
        for name in ("sets.jsonl", "sets.csv")
    ),
    *(
        Case(f"task {name}", task_files, read_task(name, "coreference"), (name,))
        for name in ("coref.jsonl", "coref.v4_gold_conll")
    ),
    Case("task aspects", task_files, read_task("aspects.xml", "aspect_sentiment"), ("*.xml",)),
    Case(
        "task aspects.csv", task_files, read_task("aspects.csv", "aspect_sentiment"), ("asp*.csv",)
    ),
    Case("task aspect terms", task_files, read_task("aspects.xml", "aspect_terms"), ("*.xml",)),
    Case("task SQuAD", task_files, read_task("squad.json", "squad"), ("squad.json",)),
    Case(
        "task questions of SQuAD",
        task_files,
        read_task("squad.json", "question_generation"),
        ("squad.json",),
    ),
    Case("task CMRC", task_files, read_task("older.json", "cmrc2018"), ("older.json",)),
    Case("task TriviaQA", task_files, read_task("trivia.jsonl", "triviaqa"), ("trivia.jsonl",)),
    Case("task HotpotQA", task_files, read_task("hotpot.json", "hotpotqa"), ("hotpot.json",)),
    Case("task CoQA", task_files, read_task("coqa.json", "coqa"), ("coqa.json",)),
    Case("task QuAC", task_files, read_task("quac.json", "quac"), ("quac.json",)),
    Case("task CoNLL", task_files, read_task("train.conll", "conll2003"), ("train.conll",)),
    Case("task dependency", task_files, read_task("bank.conllu", "dependency"), ("bank.conllu",)),
    Case("task srl", task_files, read_task("props.txt", "srl"), ("props.txt",)),
    Case("task constituency", task_files, read_task("bank.mrg", "constituency"), ("bank.mrg",)),
    Case("task tree writing", task_files, read_task("bank.mrg", "tree_writing"), ("bank.mrg",)),
    Case("task pos", task_files, read_task("bank.conllu", "pos"), ("bank.conllu",)),
    Case(
        "task tagged.jsonl", task_files, read_task("tagged.jsonl", "conll2003"), ("tagged.jsonl",)
    ),
    Case("task choice", task_files, read_task("choice.jsonl", "choice"), ("choice.jsonl",)),
    Case("task dialogue.jsonl", task_files, read_task("talk.jsonl", "dialogue"), ("talk.jsonl",)),
    Case("task dialogue.json", task_files, read_task("talk.json", "dialogue"), ("talk.json",)),
    Case("task ranking", task_files, read_task("ranking.jsonl", "bi_encoder"), ("ranking.jsonl",)),
    Case("task sts", task_files, read_scored_pairs, ("sts.tsv",)),
    Case("ranking folder", corpus_files, read_corpus, ("*.jsonl", "qrels/*.tsv")),
    Case("task pairs", task_files, read_task("pairs.jsonl", "seq2seq"), ("pairs.jsonl",)),
    *(
        Case(f"task {name}", document_files, read_task(path, kind), files)
        for name, path, kind, files in (
            (
                "documents.jsonl",
                "documents.jsonl",
                "extractive_summarization",
                ("documents.jsonl",),
            ),
            ("news.jsonl", "news.jsonl", "summarization", ("news.jsonl",)),
            ("Gigaword", "giga", "summarization", ("giga/*",)),
            ("Persona-Chat", "persona.txt", "dialogue", ("persona.txt",)),
            ("Schema-Guided Dialogue", "sgd", "dialogue", ("sgd/train/*",)),
            ("WMT", "wmt", "translation", ("wmt/*",)),
            ("questions as lines", "nqg", "question_generation", ("nqg/*",)),
        )
    ),
    *(
        Case(f"task {name}", exam_files, read_task(f"{name}.jsonl", name), (f"{name}.jsonl",))
        for name in exams.ROWS
    ),
    *(
        Case(
            f"task {name}", chinese_files, read_task(f"{name}/{file}", name), (f"{name}/{all_of}",)
        )
        for name, file, all_of in (
            ("c3", "c3-d-train.json", "c3-d-train.json"),
            ("chid", "train.jsonl", "train*.json*"),
            ("cluewsc2020", "train.jsonl", "train.jsonl"),
        )
    ),
    Case("task xnli", exam_files, read_task("xnli.tsv", "xnli"), ("xnli.tsv",)),
    Case("task ax", exam_files, read_task("ax.tsv", "ax"), ("ax.tsv",)),
    Case(
        "recipe",
        recipe,
        lambda folder: cli("pretrain", folder / "mine.yaml", "--print-config"),
        ("mine.yaml",),
    ),
    Case(
        "study",
        recipe,
        lambda folder: cli("ablate", folder / "study.yaml", "--print-config"),
        ("study.yaml",),
    ),
    Case("teacher cache", answers, read_answers, ("answers/*",)),
    Case("vectors", task_files, vectors, ("vectors.txt",)),
    *(
        Case(f"vectors {name}", vector_files, read_vectors(name), (name,))
        for name in (*VECTOR_FILES, "fasttext.bin")
    ),
]


# --- the runner
# --------------------------------------------------------------------------------------------------


@dataclass
class Score:
    read: int = 0
    refused: int = 0
    failed: int = 0


def trial(case: Case, sample: Path, seed: str) -> str:
    """ "" for a copy that is read, "refused", or what happened instead; without a seed nothing
    is damaged.
    """
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="plmctl-fuzz-") as name:
        folder = Path(name) / "f"
        shutil.copytree(sample, folder)
        chosen = sorted(
            {file for pattern in case.files for file in folder.glob(pattern) if file.is_file()}
        )
        if seed:
            _spoil(case, draw.choice(chosen), draw, seed)
        if draw.random() < 0.9:
            case.seal(folder)
        return outcome(lambda: case.read(folder))


def _spoil(case: Case, file: Path, draw: random.Random, seed: str) -> None:
    if not case.keys:
        damaged(file, draw)
        return
    content, number = json.loads(file.read_bytes()), int(seed.rpartition(" ")[2])
    places = list(_places(content))
    owner, key = places[number // len(NONSENSE) % len(places)]
    owner[key] = NONSENSE[number % len(NONSENSE)]
    file.write_text(json.dumps(content))


def outcome(read: Callable[[], object]) -> str:
    try:
        read()
    except PlmctlError as error:
        if os.environ.get("FUZZ_SHOW"):
            print(f"refused: {error}", file=sys.stderr)
        chain: BaseException | None = error
        while chain is not None:
            if isinstance(chain, MemoryError) or "allocate memory" in str(chain):
                return f"memory: {error}"
            chain = chain.__cause__ or chain.__context__
        return "refused"
    except BaseException:  # whatever else there is
        return traceback.format_exc()
    return ""


def _worker(case: Case, sample: Path, seeds: list[str], told: Any) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ.update(OMP_NUM_THREADS="1")
    # imports and caches, before memory is counted
    if seeds[0].endswith(" 0") and (wrong := trial(case, sample, "")):
        print(f"{case.name}: not damaged, and yet: {wrong}", flush=True)
        os._exit(1)
    told.send("ready")
    with open("/proc/self/status") as status:
        own = next(int(line.split()[1]) for line in status if line.startswith("VmData")) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (own + MEMORY, own + MEMORY))
    for seed in seeds:
        told.send(trial(case, sample, seed))
    told.close()


def fuzz(case: Case, sample: Path, seeds: list[str], say: Callable[[str], None]) -> Score:
    """All trials of a case; a process that ends or hangs is a failure, and another one goes on
    behind it.
    """
    score, context = Score(), multiprocessing.get_context("fork")
    while seeds:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_worker, args=(case, sample, seeds, theirs))
        process.start()
        theirs.close()
        if not ours.poll(10 * SECONDS) or not _received(ours):
            raise RuntimeError(f"{case.name}: the files that are not damaged could not be read")
        while seeds:
            try:
                found = ours.recv() if ours.poll(SECONDS) else f"no answer in {SECONDS} s"
            except EOFError:
                process.join()
                found = f"the process ended with code {process.exitcode}"
            seed, seeds = seeds[0], seeds[1:]
            score.read, score.refused = (
                score.read + (found == ""),
                score.refused + (found == "refused"),
            )
            if found not in ("", "refused"):
                score.failed += 1
                say(f"FAILED {case.name}, seed '{seed}':\n{found}")
            if found.startswith(("no answer", "the process ended")):
                break
        process.kill()
        process.join()
    return score


def _received(ours: Any) -> bool:
    with contextlib.suppress(EOFError):
        return bool(ours.recv() == "ready")
    return False


def table(scores: dict[str, Score]) -> str:
    lines = [f"{'reader':<44} {'files':>6} {'read':>6} {'refused':>8} {'FAILED':>7}"]
    for name, s in scores.items():
        lines.append(
            f"{name:<44} {s.read + s.refused + s.failed:>6} {s.read:>6} {s.refused:>8}"
            f" {s.failed:>7}"
        )
    total = [sum(getattr(s, key) for s in scores.values()) for key in ("read", "refused", "failed")]
    return "\n".join(
        [*lines, f"{'all':<44} {sum(total):>6} {total[0]:>6} {total[1]:>8} {total[2]:>7}"]
    )


def available(case: Case) -> bool:
    needs = {
        ".zst": "zstandard",
        ".parquet": "pyarrow",
        "ELMo": "h5py",
        "published": "transformers",
        "config": "transformers",
    }
    import importlib.util

    return all(
        importlib.util.find_spec(module) for word, module in needs.items() if word in case.name
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=200, help="damaged copies for each reader")
    parser.add_argument("--only", default="", help="readers whose name has this")
    given = parser.parse_args()
    scores: dict[str, Score] = {}
    samples: dict[Callable[[Path], None], Path] = {}
    with tempfile.TemporaryDirectory(prefix="plmctl-fuzz-") as name:
        os.environ["PLMCTL_CACHE"] = f"{name}/cache"
        for number, case in enumerate(case for case in CASES if given.only in case.name):
            if not available(case):
                print(f"left out, its library is not installed: {case.name}", flush=True)
                continue
            if case.make not in samples:
                samples[case.make] = Path(name) / str(number)
                samples[case.make].mkdir()
                case.make(samples[case.make])
            sample = samples[case.make]
            count = max(given.files, _keys(case, sample)) if case.keys else given.files
            seeds = [f"{given.seed} {case.name} {n}" for n in range(count)]
            scores[case.name] = fuzz(case, sample, seeds, lambda words: print(words, flush=True))
    print(table(scores))
    return int(any(score.failed for score in scores.values()))


def _keys(case: Case, sample: Path) -> int:
    """One trial for each key and each nonsense."""
    (file,) = sample.glob(case.files[0])
    return len(list(_places(json.loads(file.read_bytes())))) * len(NONSENSE)


if __name__ == "__main__":
    sys.exit(main())
