"""The two examples at the end of each command's --help run, one after the other in one folder:
narrower, and on less text.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import commands, declared, make_app
from plmctl.text import corpus
from plmctl.text.corpus import load_documents

EXAMPLES = {name: declared(function).examples for name, function in commands().items()}
ORDER = (
    "tokenize",
    "data check",
    "pretrain",
    "finetune",
    "data augment",
    "data rewrite",
    "distill",
    "eval",
    "convert",
    "embed",
    "generate",
    "average",
    "ablate",
    "report",
    "recipes ls",
    "recipes show",
    "recipes cp",
    "recipes run",
    "help",
)
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
    assert set(EXAMPLES) == set(ORDER)
    assert all(len(lines) == 2 for lines in EXAMPLES.values())


def test_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "glue/SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{label}\n" for text, label in REVIEWS)
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    Path("README.md").write_text(
        "Any text will do.\n\nIt has two documents, and more than one sentence.\n" * 9,
        encoding="utf-8",
    )
    Path("en-de").mkdir()
    for split, language in (("train", "en"), ("train", "de"), ("dev", "en"), ("dev", "de")):
        Path(f"en-de/{split}.{language}").write_text(
            "a red house\nold\n" * 4 if language == "en" else "ein rotes Haus\nalt\n" * 4
        )
    documents = load_documents()[::4]
    monkeypatch.setattr(corpus, "load_documents", lambda: documents)
    for line in (
        line
        for verb in ORDER
        for line in [*([TRANSLATOR] if verb == "data rewrite" else []), *EXAMPLES[verb]]
    ):
        words = shlex.split(line)[1:]
        words += NARROW if "size=tiny" in words else []
        words += (
            ["tokenizer.vocab_size=2048"]
            if words[0] == "pretrain" or words[:2] == ["recipes", "run"]
            else []
        )
        # its jobs in this process, one after the other
        words += ["hydra/launcher=basic"] if words[0] == "ablate" else []
        result = CliRunner().invoke(make_app(), words)
        assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
    assert Path("tokens/manifest.json").exists()
    assert Path("exported/model.safetensors").exists()
    assert Path("compared.md").exists()
    assert Path("checked_files/lengths.svg").exists()
