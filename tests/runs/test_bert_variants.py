"""BERT complete: its sizes, masking mixes, lengths, whole words, and the left-to-right variants
of Table 5 as compositions.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.config.recipes import recipes_dir
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import IGNORE
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_training_loader
from plmctl.nn.tables import count
from plmctl.runs import finetuning, pretraining
from plmctl.runs.contract.contract import check_contract
from plmctl.training.processes.world import World

HEADER = (recipes_dir() / "bert.yaml").read_text(encoding="utf-8").partition("defaults:")[0]
SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "train.batch_size=4",
    "train.precision=fp32",
    "train.threads=1",
]
SIZES = {  # the formulas of the paper with V = 30,522, 512 places, 2 segments and the pooler
    "tiny": 4_385_920,
    "mini": 11_170_560,
    "small": 28_763_648,
    "medium": 41_373_184,
    "base": 109_482_240,
    "large": 335_141_888,
}
NEEDS = frozenset({"text", "targets.mlm"})
# mask, same, random: appendix C.2
MIXES = [(80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100)]


def stated(variant: str) -> list[str]:
    """The words of a variant as the recipe's header says them."""
    line = rf"^#   {re.escape(variant)}\s+(.*(?:\n# {{8,}}.*)*)$"
    found = re.search(line, HEADER, re.MULTILINE)
    assert found is not None
    return shlex.split(re.sub(r"\n#\s+", " ", found[1]).partition(" (")[0])


def run(recipe: str, folder: Path, tokens: Path, *words: str) -> Path:
    words = (*SMALL, f"data.path={tokens}", f"run.dir={folder}", "train.log_every=1", *words)
    assert pretraining.pretrain(compose("pretrain", recipe, words)) == 0
    return folder


def losses(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if "loss" in record]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SIZES)
def test_six_sizes(size: str) -> None:
    cfg = compose("pretrain", "bert", [f"size={size}", "format.max_length=512"])
    with torch.device("meta"):
        model = build_model(
            cfg, vocab_size=30522, heads={"pooler": {"_target_": "plmctl.heads.pooler.Pooler"}}
        )
    assert count(model) == SIZES[size]


@pytest.mark.parametrize("mix", MIXES)
def test_masking_mixes(mix: tuple[int, int, int], tokens_of: Callable[..., Path]) -> None:
    mask, same, random = (share / 100 for share in mix)
    shares = [f"noise.mask_share={mask}", f"noise.random_share={random}"]
    cfg = compose(
        "pretrain",
        "bert",
        [*SMALL, "train.batch_size=64", f"data.path={tokens_of('wordpiece')}", *shares],
    )
    corpus = open_corpus(Texts.of(cfg))
    seen = torch.zeros(3)
    with open_training_loader(Feed.of(cfg, 0), corpus, World(), BatchFields(NEEDS)) as loader:
        for _ in range(2):
            batch = next(loader)[0]
            target = batch.targets["mlm"]
            index, ids = target.index[target.ids != IGNORE], target.ids[target.ids != IGNORE]
            shown = batch.text.ids.flatten()[index]
            seen += torch.tensor(
                [(shown == corpus.vocab.mask).sum(), (shown == ids).sum(), len(ids)]
            )
    masked, kept = (seen[:2] / seen[2]).tolist()
    assert masked == pytest.approx(mask + random / corpus.vocab.size, abs=0.04)
    assert kept == pytest.approx(same + random / corpus.vocab.size, abs=0.04)
    assert (masked > 0.01) == (mask > 0)
    assert (kept > 0.01) == (same > 0)


def test_whole_words_are_learnt_with_next_sentence(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    folder = run(
        "bert", tmp_path / "run", tokens_of("wordpiece"), *stated("whole words"), "train.steps=2"
    )
    assert {"loss/mlm", "loss/nsp"} <= set(losses(folder)[-1])


@pytest.mark.slow  # test_the_headers_lines_fit_together stays
def test_two_phases(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    stages = "train.stages=[{share:0.5,format.max_length:16},{share:0.5,format.max_length:32}]"
    folder = run(
        "bert",
        tmp_path / "run",
        tokens_of("wordpiece"),
        stages,
        "format.max_length=32",
        "train.steps=4",
    )
    records = losses(folder)
    assert [record["stage"] for record in records] == [0, 0, 1, 1]
    tokens = [record["tokens"] for record in records]
    assert tokens[1] <= 2 * 4 * 16 < tokens[3] - tokens[1] + 2 * 4 * 16
    assert plmctl.load(folder).model.backbone.max_length == 32


@pytest.mark.parametrize("variant", ["whole words", "masks", "no NSP", "left to right"])
def test_the_headers_lines_fit_together(variant: str) -> None:
    words = stated("masks (C.2)" if variant == "masks" else variant)
    cfg = compose("pretrain", "bert", words)
    check_contract(cfg)
    assert list(cfg.objective) == {"no NSP": ["mlm"], "left to right": ["clm"]}.get(
        variant, ["mlm", "nsp"]
    )


@pytest.mark.slow  # test_the_headers_lines_fit_together stays
def test_left_to_right_and_bilstm(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    """Table 5: every token asked, nothing masked, the pattern kept in fine-tuning, a BiLSTM on
    top of it.
    """
    ltr = run(
        "bert", tmp_path / "ltr", tokens_of("wordpiece"), *stated("left to right"), "train.steps=2"
    )
    assert set(losses(ltr)[-1]) >= {"loss/clm"}
    assert "loss/nsp" not in losses(ltr)[-1]
    rows = "".join(f"a {'good' if n % 2 else 'bad'} film\t{n % 2}\n" for n in range(8))
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + rows)
    words = [
        f"checkpoint={ltr}",
        "task=classification",
        f"task.path={tmp_path}",
        f"run.dir={tmp_path / 'tuned'}",
        "train.epochs=null",
        "train.steps=2",
        "train.batch_size=4",
        "train.threads=1",
        "heads.encoder.hidden_width=8",
    ]
    words += [word for word in stated("+ BiLSTM") if word.startswith("head_encoder=")]
    assert finetuning.finetune(compose("finetune", None, words)) == 0
    loaded = plmctl.load(tmp_path / "tuned")
    assert loaded.config["pattern"]["_target_"].endswith("Causal")
    assert loaded.model.heads["class"].linear.in_features == 16


def test_the_headers_feature_line_composes() -> None:
    command = re.sub(
        r"\n#\s+", " ", HEADER[HEADER.index("plmctl finetune task=conll2003") :]
    ).partition(" Cost:")[0]
    words = shlex.split(command)[2:]
    cfg = compose("finetune", None, words)
    assert cfg.heads.features._target_.endswith("Concat")
    assert list(cfg.heads.features.layers) == [-4, -3, -2, -1]
    assert list(cfg.train.frozen) == ["backbone"]
    assert cfg.task.context == "document"
    assert cfg.heads.encoder.num_layers == 2
    assert len(HEADER.splitlines()) <= 40
