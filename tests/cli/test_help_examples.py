"""The two examples at the end of each command's --help run, in one folder after those of the
commands that they need: narrower, shorter, and on less text.
"""

from __future__ import annotations

import bz2
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.command import list_commands, load_command
from plmctl.serve import running
from plmctl.text import corpus
from plmctl.text.corpus import CorpusDocument, extract_paragraphs, load_topics
from tests.knowledge.wiki import export, page

EXAMPLES = {
    name: load_command(listed.module).about.examples for name, listed in list_commands().items()
}
# whose examples make what those of a command read
NEEDS: dict[str, tuple[str, ...]] = {
    "tokenize": (),
    "data check": ("tokenize",),
    "data clean": (),
    "data dedup": (),
    "data filter": (),
    "pretrain": (),
    "finetune": ("tokenize", "pretrain"),
    "data link": (),
    "data retrieve": (),
    "data mine": (),
    "data contexts": (),
    "data polarity": ("pretrain",),
    "data triples": (),
    "data augment": ("pretrain",),
    "data rarify": ("finetune",),
    "data rewrite": ("tokenize",),
    "data label": ("finetune",),
    "data spans": (),
    "self-train": (),
    "distill": ("finetune",),
    "eval": ("finetune",),
    "predict": ("finetune",),
    "attack": ("finetune",),
    "compare": ("finetune",),
    "convert": ("pretrain",),
    "compress": ("finetune",),
    "embed": ("convert",),
    "inject": ("pretrain", "data contexts"),
    "extend": ("pretrain",),
    "vectors": ("pretrain",),
    "generate": ("pretrain",),
    "serve": ("finetune", "pretrain"),
    "average": ("pretrain",),
    "graph": (),
    "bases make": (),
    "bases ls": (),
    "ablate": (),
    "search": (),
    "report": ("finetune", "ablate"),
    "models ls": (),
    "recipes ls": (),
    "recipes show": ("tokenize",),
    "recipes cp": (),
    "recipes run": (),
    "help": (),
    "docs": (),
    "env": (),
}
MAKES = {
    "data triples": "true-or-false/dev.jsonl",
    "data contexts": "rare-words/words.tsv",
    "data polarity": "by-vectors.jsonl",
    "data rarify": "rarified/tested/dev.tsv",
    "data clean": "sst2-parts/dev.tsv",
    "data dedup": "different/00000.txt",
    "data filter": "filtered/samples.json",
    "tokenize": "tokens/manifest.json",
    "data check": "checked_files/lengths.svg",
    "data link": "linked-text/knowledge.json",
    "data retrieve": "found/pairs/train.tsv",
    "data mine": "mined/train.jsonl",
    "data label": "labelled-half/train.jsonl",
    "data spans": "brat/00000.ann",
    "convert": "exported/model.safetensors",
    "inject": "one-token/tokenizer/injected.json",
    "extend": "extended/model.safetensors",
    "vectors": "static.vec",
    "report": "compared.md",
    "predict": "labelled/train.jsonl",
}
# wherever a new model is trained
NARROW = ["size.width=32", "size.inner_width=64", "train.batch_size=4"]
TRANSLATOR = (
    "plmctl finetune task=translation task.path=en-de tokenizer.path=tokens task.metrics=[exact]"
    " checkpoint=null size=tiny"
)
TRANSLATOR += (
    " model=encoder_decoder task.columns.source=en task.columns.target=de train.epochs=1"
    " run.dir=runs/en-de"
)
REVIEWS = [
    ("a warm and funny film", 1),
    ("dull from start to finish", 0),
    ("great acting", 1),
    ("a waste of time", 0),
] * 20


def test_every_command_has_two() -> None:
    assert set(EXAMPLES) == set(NEEDS)
    assert all(len(lines) == 2 for lines in EXAMPLES.values())


class Workshop:
    """A folder with data, in which the examples of each command are run once."""

    def __init__(self) -> None:
        self.ran: set[str] = set()

    def run(self, command: str) -> None:
        """Run the examples of a command, after those that it needs."""
        if command in self.ran:
            return
        for needed in NEEDS[command]:
            self.run(needed)
        for line in [*([TRANSLATOR] if command == "data rewrite" else []), *EXAMPLES[command]]:
            words = shlex.split(line.replace("vocab_size=4096", "vocab_size=768"))[1:]
            words += NARROW if "size=tiny" in words else []
            words += ["train.steps=3"] if {"train.steps=50", "train.steps=20"} & {*words} else []
            words += ["train.epochs=1"] if command == "graph" else []
            own_tokens = command in ("pretrain", "recipes run", "bases make")
            words += ["tokenizer.vocab_size=768"] if own_tokens else []
            # its jobs in this process, one after the other
            words += ["hydra/launcher=basic"] if command == "ablate" else []
            words += ["port=0"] if command == "serve" else []
            words += ["to=onnx"] if command == "compress" else []  # one file of each model
            result = CliRunner().invoke(make_app(), words)
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
        self.ran.add(command)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    place = tmp_path_factory.mktemp("workshop")
    folder = place / "glue/SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{label}\n" for text, label in REVIEWS)
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    (place / "README.md").write_text(
        "Any text will do.\n\nIt has two documents, and more than one sentence.\n" * 9,
        encoding="utf-8",
    )
    question = {"question": "How many documents has it?", "answers": ["two"]}
    (place / "questions.jsonl").write_text(f"{json.dumps(question)}\n", encoding="utf-8")
    pages = [page("Any (word)", "See [[Text|text]]."), page("Text", "Any text.")]
    packed = bz2.compress(export(pages).encode())
    (place / "enwiki-pages-articles.xml.bz2").write_bytes(packed)
    senses = "n\t1\t0.5\t0\tdocument#1\twriting\nn\t2\t0\t0.1\ttext#1\tany words\n"
    (place / "SentiWordNet_3.0.0.txt").write_text(senses, encoding="utf-8")
    (place / "rare.tsv").write_text("film\tflick\nwarm\ttoasty\n", encoding="utf-8")
    (place / "rare.txt").write_text("sentence\nunicycle\n", encoding="utf-8")
    marked = {"text": "Anna saw Rome.", "entities": [[0, 4, "PER"], [9, 13, "LOC"]]}
    (place / "entities.jsonl").write_text(f"{json.dumps(marked)}\n")
    (place / "en-de").mkdir()
    for split, language in (("train", "en"), ("train", "de"), ("dev", "en"), ("dev", "de")):
        (place / f"en-de/{split}.{language}").write_text(
            "a red house\nold\n" * 4 if language == "en" else "ein rotes Haus\nalt\n" * 4
        )
    pages = (extract_paragraphs(text) for _, text in sorted(load_topics().items()))
    documents = tuple(CorpusDocument("a page", tuple(page)) for page in pages if page)[::6]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(corpus, "load_documents", lambda: documents)
        patch.setattr(running, "run", lambda *app, **grace: None)  # it would not end
        yield Workshop()


# other tests run these commands, in the same form
LONG = {
    "ablate",
    "search",
    "report",
    "distill",
    "data rewrite",
    "recipes run",
    "self-train",
    "graph",
    "compress",
}


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in NEEDS],
)
def test_they_run(command: str, workshop: Workshop) -> None:
    workshop.run(command)
    assert Path(MAKES.get(command, ".")).exists()
