"""Sequence-level distillation: what is picked of a teacher's texts, and the training set that
the command writes.
"""

import json
import math
import shlex
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.cli.app import make_app
from plmctl.config import compose as config
from plmctl.config.build import build, plain
from plmctl.config.command import perform
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.datasets import rewrite
from plmctl.distill.sequence import Nearest, pick_likeliest, sequence
from plmctl.distill.teachers import Frozen
from plmctl.runs import finetuning
from plmctl.storage import resumable

PAIRS = [
    ("red new", "rot neu"),
    ("small", "klein"),
    ("old cold blue", "alt kalt blau"),
    ("big", "gross"),
    ("cold", "kalt"),
] * 6
SIDES = ["task.columns.source=en", "task.columns.target=de"]
SHORT = ["task.max_length=16", "task.max_target=8"]
SMALL = [
    "size=tiny",
    "size.num_layers=1",
    "tokenizer.vocab_size=34",
    "train.precision=fp32",
    "train.steps=30",
    "optim.lr=2e-3",
]
SMALL += [
    "train.epochs=null",
    "task.max_length=16",
    "task.max_target=8",
    "task.metrics=[perplexity]",
]
SMALL += [
    "search@task.search=greedy",
    "train.eval_every=0",
    "train.batch_size=8",
    "schedule=constant",
]


def parallel(folder: Path) -> Path:
    folder.mkdir()
    for split, pairs in (("train", PAIRS), ("dev", PAIRS[:3])):
        for side, name in enumerate(("en", "de")):
            (folder / f"{split}.{name}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    return folder


def command(*words: str) -> None:
    perform(config.compose("rewrite", None, list(words)))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("teacher")
    words = [
        "task=translation",
        f"task.path={parallel(folder / 'data')}",
        "checkpoint=null",
        "model=encoder_decoder",
    ]
    words += [*SIDES, *SMALL, f"run.dir={folder / 'run'}"]
    assert finetuning.finetune(config.compose("finetune", None, words)) == 0
    return str(folder / "run")


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_targets_are_what_the_teacher_writes(teacher, tmp_path, capsys):
    """The likeliest text of a beam of five, as `plmctl generate` gives it for the same sources."""
    out = tmp_path / "out"
    command(f"checkpoint={teacher}", f"out={out}", "batch_size=4")
    said = capsys.readouterr().out
    # the command that it names works as it stands
    following = shlex.split(said.partition("next: plmctl ")[2], comments=True)
    done = CliRunner().invoke(make_app(), [*following, "--dry-run"])
    assert done.exit_code == 0, done.output
    found = lines(out / "train.jsonl")
    assert [row["en"] for row in found] == [source for source, _ in PAIRS]
    (tmp_path / "sources").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    told = [
        "search=beam",
        "search.width=5",
        f"input={tmp_path / 'sources'}",
        f"out={tmp_path / 'texts.jsonl'}",
        "max_new=8",
    ]
    done = CliRunner().invoke(make_app(), ["generate", f"checkpoint={teacher}", *told])
    assert done.exit_code == 0, done.output
    written = [row["texts"][0]["text"] for row in lines(tmp_path / "texts.jsonl")]
    assert [row["de"] for row in found] == [
        text or gold for text, (_, gold) in zip(written, PAIRS, strict=True)
    ]
    assert lines(out / "dev.jsonl") == [
        {"en": source, "de": target} for source, target in PAIRS[:3]
    ]
    record = json.loads((out / "made.json").read_text())
    assert record["search"]["width"] == 5
    assert record["counted"]["empty, so the reference"] == sum(not text for text in written)
    assert f"task.path={out} task.columns.source=en task.columns.target=de" in said
    command(f"checkpoint={teacher}", f"out={tmp_path / 'again'}", "batch_size=32")
    assert (tmp_path / "again" / "train.jsonl").read_bytes() == (out / "train.jsonl").read_bytes()
    cfg = config.compose(
        "finetune", None, ["task=translation", f"task.path={out}", *SIDES, "checkpoint=null"]
    )
    task = build({**plain(cfg.task), "metrics": []}, {"pooling": "first"}, path="task")
    assert [example.label for example in task.read("train")] == [(row["de"],) for row in found]
    assert len(task.read("dev")) == 3


def sentence_bleu(text: str, reference: str) -> float:
    """`100 min(1, e^(1 - r/c)) (prod p_n)^(1/N)`, N the n-grams that the text is long enough
    for; of p_n without a match the k-th is 1 / (2^k c_n) (Chen and Cherry, 2014, method 3).
    """
    words, gold = text.split(), reference.split()
    logs, misses = [], 0
    for n in range(1, min(4, len(words)) + 1):
        grams = Counter(zip(*(words[i:] for i in range(n)), strict=False))
        golds = Counter(zip(*(gold[i:] for i in range(n)), strict=False))
        match, total = sum((grams & golds).values()), sum(grams.values())
        misses += match == 0
        logs.append(math.log(match / total if match else 1 / (2**misses * total)))
    short = min(0.0, 1 - len(gold) / len(words))
    return 100 * math.exp(short + sum(logs) / len(logs)) if set(words) & set(gold) else 0.0


def test_nearest_has_the_highest_sentence_bleu():
    gold = "the cat sat on the red mat"
    texts = [
        "the dog ran",
        "on the red mat",
        "the cat sat on a mat",
        "the cat sat on the mat today",
        "",
    ]
    pick = Nearest(tokenize="none", lowercase=False)
    for text in texts[:-1]:
        assert pick.bleu.sentence_score(text, [gold]).score == pytest.approx(
            sentence_bleu(text, gold), abs=1e-9
        )
    best = max(texts[:-1], key=lambda text: sentence_bleu(text, gold))
    assert pick(texts, [gold]) == best == "the cat sat on the mat today"
    assert pick(["", ""], [gold]) is None
    assert pick(["a b", "a b", "c"], ["x"]) == "a b"  # none is near: the likeliest
    assert pick_likeliest(["", "b", "c"], ["c"]) == "b"


def test_nearest_chooses_among_the_beam(teacher, tmp_path):
    command(f"checkpoint={teacher}", f"out={tmp_path / 'near'}", "pick=nearest")
    command(f"checkpoint={teacher}", f"out={tmp_path / 'best'}")
    pick = Nearest(tokenize="13a", lowercase=False)
    near, best = (lines(tmp_path / name / "train.jsonl") for name in ("near", "best"))
    score = [
        [
            pick.bleu.sentence_score(row["de"], [gold]).score
            for row, (_, gold) in zip(rows, PAIRS, strict=True)
        ]
        for rows in (near, best)
    ]
    assert all(one >= other for one, other in zip(*score, strict=True))
    assert sum(score[0]) > sum(score[1])


@pytest.mark.slow  # test_one_command stays, and test_distill_command.py resumes
def test_goes_on_where_it_was_stopped(teacher, tmp_path, monkeypatch):
    command(f"checkpoint={teacher}", f"out={tmp_path / 'whole'}", "batch_size=1")
    monkeypatch.setattr(resumable, "_COMMIT", 0.0)
    whole, calls = rewrite.generate, []

    def stopped(*args, **how):
        calls.append(how["keys"])
        if len(calls) == 20:
            raise KeyboardInterrupt
        return whole(*args, **how)

    monkeypatch.setattr(rewrite, "generate", stopped)
    with pytest.raises(KeyboardInterrupt):
        command(f"checkpoint={teacher}", f"out={tmp_path / 'parts'}", "batch_size=1")
    monkeypatch.setattr(rewrite, "generate", whole)
    assert not (tmp_path / "parts").exists()
    command(f"checkpoint={teacher}", f"out={tmp_path / 'parts'}", "batch_size=1")
    for name in ("train.jsonl", "made.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow  # test_refused_before_work stays
def test_refusals_come_before_work(teacher, tokens_of, tmp_path):
    out = f"out={tmp_path / 'out'}"
    with pytest.raises(ConfigError, match="at least 2: pick=nearest"):
        command(f"checkpoint={teacher}", out, "pick=nearest", "search.count=1")
    with pytest.raises(DataError, match="no such file"):
        command(
            f"checkpoint={teacher}", out, "task=translation", f"task.path={tmp_path / 'nowhere'}"
        )
    with pytest.raises(ConfigError, match="a task whose targets are texts"):
        command(f"checkpoint={teacher}", out, "task=sst2", f"task.path={tmp_path}")
    small = [
        "size=tiny",
        "size.width=32",
        "size.inner_width=48",
        "format.max_length=32",
        "train.steps=1",
        "train.batch_size=2",
    ]
    kinds = {
        "bert": ("an encoder", ["wordpiece"]),
        "gpt": ("a decoder that was", ["byte_bpe", "tokenizer.specials=gpt2"]),
    }
    for recipe, (what, tokens) in kinds.items():
        words = [
            "pretrain",
            recipe,
            *small,
            f"data.path={tokens_of(*tokens)}",
            f"run.dir={tmp_path / recipe}",
        ]
        assert CliRunner().invoke(make_app(), words).exit_code == 0
        with pytest.raises(ConfigError, match="whose sources are they"):
            command(f"checkpoint={tmp_path / recipe}", out)
        data = [f"task.path={Path(teacher).parent / 'data'}", *SIDES]
        with pytest.raises(
            ConfigError, match=f"this is {what}|needs a model that writes"
        ) as refused:
            command(f"checkpoint={tmp_path / recipe}", out, "task=translation", *data)
        assert "an encoder-decoder" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow  # test_targets_are_what_the_teacher_writes stays
def test_one_command(teacher, tmp_path, monkeypatch, capsys):
    """`distill=sequence` trains on the very texts that `plmctl data rewrite` writes, which are
    written once.
    """
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "cache"))
    data = Path(teacher).parent / "data"
    words = [
        "task=translation",
        f"task.path={data}",
        *SIDES,
        f"teacher={teacher}",
        "distill=sequence",
        "checkpoint=null",
    ]
    words += [
        "model=encoder_decoder",
        *[word for word in SMALL if "vocab_size" not in word and "steps" not in word],
        "train.steps=2",
    ]
    for run in ("a", "b"):
        told = [*words, f"run.dir={tmp_path / run}"]
        assert finetuning.finetune(config.compose("finetune", None, told)) == 0
    [folder] = (tmp_path / "cache").glob("by-teacher-*")
    command(f"checkpoint={teacher}", f"out={tmp_path / 'by hand'}")
    assert (folder / "train.jsonl").read_bytes() == (
        tmp_path / "by hand" / "train.jsonl"
    ).read_bytes()
    assert (folder / "dev.jsonl").read_bytes() == (tmp_path / "by hand" / "dev.jsonl").read_bytes()
    saved = OmegaConf.load(tmp_path / "a" / "config.yaml")
    assert saved.task.path == str(folder)
    assert saved.distill.rewrite is None
    assert (tmp_path / "a/checkpoints/step-2/model.safetensors").read_bytes() == (
        tmp_path / "b/checkpoints/step-2/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            [
                "task=classification",
                "task.columns.text=en",
                "task.columns.label=de",
                "task.max_length=16",
            ],
            "a task whose targets are texts",
        ),
        (
            [
                "task=translation",
                *SIDES,
                *SHORT,
                "distill.rewrite.pick=nearest",
                "distill.rewrite.search.count=1",
            ],
            "at least 2",
        ),
    ],
)
def test_refused_before_work(teacher, tmp_path, words, wrong):
    (tmp_path / "train.tsv").write_text("en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS))
    told = [
        *words,
        f"task.path={tmp_path}",
        f"teacher={teacher}",
        "distill=sequence",
        "checkpoint=null",
        "size=tiny",
    ]
    told += [
        "model=encoder_decoder",
        f"run.dir={tmp_path / 'run'}",
        f"data.cache_dir={tmp_path / 'cache'}",
    ]
    with pytest.raises(UsageError, match=wrong):
        finetuning.finetune(config.compose("finetune", None, told))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("pattern", "writes"), [("prefix", True), ("causal", True), ("full", False)]
)
def test_a_teacher_that_writes(pattern, writes):
    """As `plmctl generate` says: what is written sees nothing behind it, though a source may be
    seen whole.
    """
    words = [
        "task=translation",
        "task.path=none",
        "checkpoint=null",
        "model=encoder",
        f"pattern={pattern}",
        "task.metrics=[]",
    ]
    cfg = config.compose("finetune", None, [*words, "size=tiny", "position.max_length=16"])
    task = build(
        plain(cfg.task),
        {"writes": "text", "directed": True, "kind": "Encoder", "segments": (0, 1)},
        path="task",
    )
    heads = {
        "clm": {
            "_target_": "plmctl.heads.lm.LMHead",
            "about": "next",
            "transform": False,
            "bias": False,
            "tied": True,
        }
    }
    cfg = cfg.replace({"heads": heads})
    teacher = Frozen(model=build_model(cfg, vocab_size=9), name="the teacher")
    with nullcontext() if writes else pytest.raises(UsageError, match="cannot write"):
        assert sequence(objective=task, teacher=teacher, rewrite=None) is task
