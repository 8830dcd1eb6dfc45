"""Every YAML in recipes/ and conf/ composes, fits together, builds, and learns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from plmctl.assembly import build_model, known_to_objectives
from plmctl.commands.common import build_objective
from plmctl.commands.corpus import open_corpus, training_loader
from plmctl.config.build import build
from plmctl.config.compose import compose, conf_dir, recipes_dir
from plmctl.config.contract import check_contract
from plmctl.errors import UsageError
from plmctl.training.distributed import World

RECIPES = sorted(path.stem for path in recipes_dir().glob("*.yaml"))
SMALL = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48", "train.batch_size=8"]
PRETRAIN_GROUPS = ("format", "model", "noise", "objective", "optim", "pattern", "position", "schedule", "size", "tokenizer")
WHOLE_TEXT = ("autoencode", "document_rotate", "sentence_permute", "text_infill", "token_delete")  # noises whose target it is
WHOLE_TEXT += ("word_blank", "word_drop", "word_shuffle")
PARALLEL = ("TextPair", "Seq2Seq")  # formats
FITTING = {
    **dict.fromkeys(("noise=factorization_order", "objective=plm"), "xlnet"),
    **dict.fromkeys(("pattern=prefix", "pattern=unilm", "objective=nsp", "noise=target_mask"), "bert"),
    **dict.fromkeys(("objective=clm", "pattern=causal"), "gpt"),
    "objective=sop": "albert",
    **dict.fromkeys(("objective=bilm", "model=bilm"), "elmo"),
    **dict.fromkeys(("objective=word_structure", "objective=sentence_structure"), "structbert"),
    **dict.fromkeys(("objective=seq2seq", "model=encoder_decoder", *(f"noise={name}" for name in WHOLE_TEXT)), "bart"),
    "objective=back_translation": "mass_translation",
    "format=seq2seq": "transformer",
    "noise=sequence_span": "mass",
    "noise=span_sentinel": "t5",
    "model=two_way": "bert",
}
BESIDE = {  # what a part is used with
    "model=xlnet": ["model=xlnet", "position=none"],
    "model=two_way": ["model=two_way", "objective=[bilm]", "format=blocks", "noise=[]", "eval.noise=null"],
    "format=text_pair": ["format=text_pair", "data.path=a.txt", "data.target_path=b.txt"],
    "format=seq2seq": ["format=seq2seq", "data.path=a.txt", "data.target_path=b.txt"],
    "pattern=prefix": ["pattern=prefix", "objective=[mlm]"],
    "objective=nsp": ["objective=[mlm,nsp]"],
    "objective=sop": ["objective=[mlm,sop]"],
    "objective=word_structure": ["objective=[mlm,word_structure]"],
    "objective=sentence_structure": ["objective=[mlm,sentence_structure]"],
    "objective=sbo": ["objective=[mlm,sbo]", "noise=[span_mask]", "eval.noise=${noise}"],
    "objective=infoword": ["objective=[mlm,infoword]", "noise=[token_mask,ngram_hole]", "eval.noise=${noise}"],
    "objective=rtd": ["objective=[rtd]", "noise=[token_replace]"],
    "noise=token_shuffle": ["noise=[token_mask,token_shuffle]"],
    "noise=token_replace": ["noise=[token_replace]", "noise.token_replace.ask_originals=true"],
}
UNREAD: set[str] = set()  # what no objective reads yet
TAUGHT = ("minilm", "tinybert")  # nothing is asked without a teacher: tests/distill/test_layers_alone.py


def tokenizer_of(recipe: str, tokens_of: Callable[..., Path]) -> list[str]:
    cfg = compose("pretrain", recipe)
    kinds = {"WordPiece": "wordpiece", "ByteBPE": "byte_bpe", "Unigram": "unigram", "BPE": "bpe", "Word": "word"}
    kind = kinds[cfg.tokenizer._target_.rpartition(".")[2]]
    extra = [f"tokenizer.specials={cfg.tokenizer.specials}"] if cfg.tokenizer.get("specials") in ("gpt2", "xlnet") else []
    extra += ["tokenizer.sentinels=100"] if cfg.tokenizer.get("sentinels") else []
    return [f"data.path={tokens_of(kind, *extra, pairs=cfg.format._target_.endswith(PARALLEL))}"]


def test_there_are_recipes() -> None:
    assert {"bert", "roberta", "gpt", "gpt2"} <= set(RECIPES)


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe not in TAUGHT])
def test_the_loss_falls_on_one_repeated_batch(recipe: str, tokens_of: Callable[..., Path]) -> None:
    cfg = compose("pretrain", recipe, [*SMALL, *tokenizer_of(recipe, tokens_of)])
    check_contract(cfg)
    corpus = open_corpus(cfg)
    model = build_model(cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=0).eval()  # no dropout
    objective = build_objective(cfg, {"vocab": corpus.vocab, **known_to_objectives(model, vocab_size=corpus.vocab.size)})
    objective.eval()
    optimizer = build(cfg.optim)(parameters=list(model.named_parameters()))
    needs = model.backbone.needs | objective.needs
    with training_loader(cfg, corpus, World(), stage=0, labels=objective.labels, needs=needs, plugins=()) as loader:
        batch = next(loader)[0]
    losses = []
    for _ in range(60):
        counts = objective.counts(batch)
        terms = objective(model, batch).terms
        loss = torch.stack([term.weight * term.total / counts[name] for name, term in terms.items()]).sum()
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 5e-3
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_header(recipe: str) -> None:
    """Paper, launch line, what is scaled and what differs; the published launch line composes."""
    text = (recipes_dir() / f"{recipe}.yaml").read_text(encoding="utf-8")
    for word in ("# Launch:", "# Published:", "# Scaled:", "# Differs:"):
        assert word in text
    assert len(text.splitlines()) <= 64
    comment = re.sub(r"\n#\s+", " ", text[text.index("# Published:") : text.index("# Scaled:")])
    command = comment.removeprefix("# Published:").split(" (")[0].strip()
    words = shlex.split(command)
    assert words[:3] in (["plmctl", "pretrain", recipe], ["plmctl", "distill", recipe])
    check_contract(compose("pretrain", recipe, words[3:]))


def options() -> list[str]:
    return sorted(f"{group}={path.stem}" for group in PRETRAIN_GROUPS for path in (conf_dir() / group).glob("*.yaml"))


def test_no_group_is_forgotten() -> None:
    """A new folder in conf/ must be added to the lists here or in the tests of tasks."""
    others = {"task", "features", "head_encoder", "output_features", "search", "transform", "distill"}
    assert {path.name for path in conf_dir().iterdir() if path.is_dir()} == {*PRETRAIN_GROUPS, *others}


@pytest.mark.parametrize("option", options())
def test_every_part_composes_and_fits(option: str) -> None:
    group, name = option.split("=")
    choice = f"{group}=[{name}]" if group in ("noise", "objective") else option
    recipe = FITTING.get(option, "gpt2" if group == "schedule" else "roberta")
    cfg = compose("pretrain", recipe, [*BESIDE.get(option, [choice]), *(["size=tiny"] if group != "size" else [])])
    if option in UNREAD:
        with pytest.raises(UsageError, match="needs ") as refused:
            check_contract(cfg)
        assert not str(refused.value).startswith(("format", "noise"))  # the part itself is sound
    else:
        check_contract(cfg)
    text = (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if not line.startswith("# @package"))
    assert first.startswith("# "), "the first line says in one sentence what the part is"
