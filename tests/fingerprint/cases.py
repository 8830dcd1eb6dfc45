"""The command lines that `fingerprints.py` runs: recipes, and every command on what these make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fingerprint.case import LENGTH, SIZE, TRAIN, VOCABULARY, Case
from fingerprint.recipes import recipe_cases

TEXT = ("data.path=inputs/text.txt", "data.valid_share=0.1")
TOKENIZERS = ("bpe", "byte_bpe", "char", "unigram", "word", "wordpiece")

VARIANTS = {  # what no recipe has, each beside SIZE and so on
    "adagrad": "bert optim=adagrad schedule=wsd",
    "adversarial": "electra objective=[adversarial]",
    "alibi": "gpt position=alibi",
    "all_tokens": "electra objective=[all_tokens_mlm]",
    "bart_noises": "bart noise=[token_delete,document_rotate]",
    "bidirectional_lm": "bert model=two_way objective=[bilm] format=blocks noise=[]"
    " eval.noise=null",
    "buckets": "gpt position=relative_buckets",
    "cells": "bert model.stack.layout=kfrf",
    "decoder": "gpt2 train.steps=60 optim.lr=1e-2 schedule=constant",
    "detected": "roberta objective=[rtd] noise=[token_replace]",
    "dilated": "roberta pattern=dilated pattern.reach=4",
    "documents": "roberta format=doc_sentences schedule=bert",
    "general_scores": "bert model.stack.cells.a.scores=general",
    "kept": "bert train.save_every=3 train.keep_last=3",
    "lstm": "bert model.stack.layout=lf*2",
    "micro_batches": "bert train.micro_batch_size=2",
    "mixture": "roberta data.path=null data.mixture.en.path=inputs/text.txt"
    " data.mixture.zh.path=inputs/other.txt data.temperature=2",
    "prefix": "bert pattern=prefix objective=[mlm] format=prefix format.target_length=32",
    "processes": "bert train.processes=2",
    "replaced": "electra objective=[replace_mlm]",
    "rotary": "gpt2 position=rotary",
    "shared_groups": "albert model.stack.share={a:2,f:2}",
    "shared_maps": "bert model.stack.cells.a.projections=shared",
    "stages": "bert"
    " train.stages=[{share:0.5,format.max_length:32,train.batch_size:16},{share:0.5}]",
    "static": "bert noise.static=2 format.copies=2 format=sentence_pair_single objective=[mlm]",
    "two_stages": "electra objective=[two_stage]",
    "whole_words": "roberta noise=[whole_word_mask]",
    "window": "roberta pattern=window pattern.reach=8",
    "word_noises": "bart noise=[autoencode,word_shuffle,word_blank]",
    "xlnet_masked": "xlnet objective=[mlm] noise=[token_mask] model.memory=0",
}

FINETUNED = {
    "choices": "task=choice task.path=inputs/choices checkpoint=recipe/xlnet",
    "classes": "task=classification task.path=inputs/classes checkpoint=recipe/bert",
    "decayed": "task=tagging task.path=inputs/tags checkpoint=recipe/electra optim.layer_decay=0.8"
    " features=concat heads.features.layers=[-2,-1]",
    "frozen": "task=tagging task.path=inputs/tags checkpoint=recipe/elmo train.frozen=[backbone]"
    " features=mix head_encoder=bilstm heads.encoder.hidden_width=8 output_features=mix",
    "pairs": "task=pair_classification task.path=inputs/pairs checkpoint=recipe/albert",
    "scores": "task=regression task.path=inputs/scores checkpoint=recipe/roberta",
    "scratch": "task=classification task.path=inputs/classes checkpoint=null tokenizer=char",
    "self_distilled": "task=classification task.path=inputs/classes checkpoint=recipe/bert"
    " distill=self_distillation distill.teacher.window=3",
    "spans": "task=squad task.path=inputs/spans checkpoint=recipe/spanbert task.stride=16",
    "tags": "task=tagging task.path=inputs/tags checkpoint=recipe/unilm",
    "transformed": "task=classification task.path=inputs/classes checkpoint=recipe/gpt"
    " transform@task.transform=gpt",
}
WRITERS = {
    "hidden_targets": "task=seq2seq task.path=inputs/texts checkpoint=recipe/unilm task.masked=0.7",
    "prefixed": "task=seq2seq task.path=inputs/texts checkpoint=recipe/t5 task.prefix=say:",
    "texts": "task=seq2seq task.path=inputs/texts checkpoint=recipe/bart train.steps=60"
    " optim.lr=1e-2",
    "turns": "task=dialogue task.path=inputs/turns checkpoint=recipe/gpt2"
    " task.metrics=[distinct1,perplexity]",
}
DISTILLED = {
    "kd": "task=classification task.path=inputs/classes teacher=finetune/classes"
    " kept_layers=spread",
    "mse": "task=regression task.path=inputs/scores teacher=finetune/scores distill=mse"
    " kept_layers=first",
    "patient": "task=classification task.path=inputs/classes teacher=finetune/classes"
    " distill=patient checkpoint=recipe/bert",
    "theseus": "task=classification task.path=inputs/classes teacher=finetune/classes"
    " distill=theseus kept_layers=[0]",
    "tinybert": "task=classification task.path=inputs/classes teacher=finetune/classes"
    " distill=tinybert checkpoint=recipe/tinybert",
    "two_teachers": "task=classification task.path=inputs/classes"
    " teacher=[finetune/classes,finetune/self_distilled] checkpoint=recipe/bert distill=kd",
}
EVALUATED = {
    "classes": "checkpoint=finetune/classes out=eval/classes/rows",
    "held_out": "checkpoint=recipe/structbert task=held_out task.rows=32",
    "memory": "checkpoint=recipe/transformer_xl task=lm data.path=inputs/text.txt"
    " task.stream=true task.window=16 task.memory=64",
    "next_tokens": "checkpoint=recipe/gpt task=lm data.path=inputs/other.txt",
    "pseudo": "checkpoint=recipe/bert task=lm data.path=inputs/other.txt task.pseudo_tokens=200",
    "spans": "checkpoint=finetune/spans out=eval/spans/rows",
    "tags": "checkpoint=finetune/tags out=eval/tags/rows",
}
GENERATED = {
    "beams": "checkpoint=finetune/texts search=beam search.width=3 search.count=2"
    " search.no_repeat_ngram=3",
    "greedy": "checkpoint=variant/decoder",
    "memory": "checkpoint=recipe/transformer_xl search=sample search.seed=3 search.top_p=0.9"
    " search.count=2",
    "prefix": "checkpoint=recipe/unilm search=beam search.width=2",
    "sampled": "checkpoint=variant/decoder search=sample search.temperature=0.8 search.top_k=20",
}
EMBEDDED = {
    "all": "checkpoint=recipe/bert",
    "logits": "checkpoint=finetune/tags logits=true layers=[0,-1]",
    "pooled": "checkpoint=recipe/elmo layers=-1 pooling=mean",
    "two_streams": "checkpoint=recipe/xlnet layers=-1 pooling=last",
}


def tokenizing() -> Iterator[Case]:
    for kind in TOKENIZERS:
        name = f"tokenize/{kind}"
        words = ("tokenize", f"tokenizer={kind}", *VOCABULARY, *TEXT, "processes=1", f"out={name}")
        yield Case(name, words, outputs=("*.npy", "tokenizer/*"))


def pretraining() -> Iterator[Case]:
    """Variants of recipes, a sweep, and a student of layers alone."""
    updates = ("train.steps=10", "train.eval_every=5", "eval.rows=16")
    small = (*SIZE, *LENGTH, *VOCABULARY, *TRAIN, *TEXT, *updates)
    for what, text in VARIANTS.items():
        recipe, *words = text.split()
        yield Case(
            f"variant/{what}", ("pretrain", recipe, *small, *words, f"run.dir=variant/{what}")
        )
    varied = ("optim.lr=1e-3,1e-2", "seed=0,1", "run.dir=sweep/rates")
    yield Case("sweep/rates", ("pretrain", "gpt", "-m", *small, *varied), ("sweep.csv",))
    student = ("teacher=recipe/bert", "distill=minilmv2", *SIZE, *LENGTH, *TRAIN, *TEXT, *updates)
    yield Case("distill/minilmv2", ("distill", "bert", *student, "run.dir=distill/minilmv2"))


def tuning() -> Iterator[Case]:
    """Fine-tunings and distillations on tasks."""
    train = (*TRAIN, "train.epochs=null", "train.steps=8", "train.eval_every=4", "optim.lr=5e-3")
    row, pair = ("task.max_length=64",), ("task.max_length=32", "task.max_target=32")
    outputs = ("result.json", "predictions/*")
    kinds = [("finetune", FINETUNED, row), ("finetune", WRITERS, pair), ("distill", DISTILLED, row)]
    for verb, table, lengths in kinds:
        for what, text in table.items():
            name = f"{verb}/{what}"
            size = (*SIZE, *VOCABULARY) if "checkpoint=null" in text else ()
            words = (verb, *train, *lengths, *size, *text.split(), f"run.dir={name}")
            yield Case(name, words, outputs)
    texts = ("task=seq2seq", "task.path=inputs/texts", "teacher=finetune/texts")
    method = ("distill=sequence", "kept_layers={decoder:spread}", "run.dir=distill/sequence")
    yield Case("distill/sequence", ("distill", *train, *pair, *texts, *method), outputs)


def using() -> Iterator[Case]:
    """Evaluation, generation, embeddings: what trained models are asked."""
    for what, text in EVALUATED.items():
        words = ("eval", *text.split(), "--json")
        yield Case(f"eval/{what}", words, ("printed.json", "rows/*"), prints="printed.json")
    lines = ("input=inputs/lines.txt",)
    for what, text in GENERATED.items():
        name = f"generate/{what}"
        words = ("generate", *text.split(), *lines, "max_new=16", f"out={name}/texts.jsonl")
        yield Case(name, words, ("texts.jsonl",))
    prompt = "prompt=The [MASK] cat sees the old [MASK]."
    words = ("generate", "checkpoint=recipe/bert", prompt, "--json")
    yield Case("generate/masks", words, ("printed.json",), prints="printed.json")
    for what, text in EMBEDDED.items():
        name = f"embed/{what}"
        words = ("embed", *text.split(), *lines, f"out={name}/vectors.npz")
        yield Case(name, words, ("vectors.npz",))


def making() -> Iterator[Case]:
    """What makes one checkpoint of others, and one training set of another."""
    export = ("convert", "recipe/bert", "convert/hf", "--to", "hf")
    yield Case("convert/hf", export, ("config.json",))
    yield Case("convert/back", ("convert", "convert/hf", "convert/back", "--to", "plmctl"))
    words = ("average", "variant/kept", "--last", "2", "--out", "average/last")
    yield Case("average/last", words)
    task = ("task=classification", "task.path=inputs/classes", "checkpoint=recipe/bert", "copies=2")
    yield Case("data/augment", ("data", "augment", *task, "out=data/augment"), ("*.tsv",))
    task = ("task=seq2seq", "task.path=inputs/texts", "checkpoint=finetune/texts", "max_new=12")
    yield Case("data/rewrite", ("data", "rewrite", *task, "out=data/rewrite"), ("*.jsonl",))


def chaining() -> Iterator[Case]:
    """A study, and a recipe with all that comes before and after it."""
    text = "data.valid_path=inputs/held_out.txt"
    study = ("ablate", "./inputs/study.yaml", text, "out=ablate/study")
    yield Case("ablate/study", study, ("table.json",))
    train = ("train.steps=4", "train.batch_size=8", "train.precision=fp32")
    before = ("wiki.train.steps=4", "wiki.train.precision=fp32")
    task = ("finetune.train.steps=2", "finetune.train.precision=fp32")
    words = (
        *TEXT,
        *SIZE,
        *VOCABULARY,
        *train,
        *before,
        *task,
        "tasks.classification=inputs/classes",
    )
    chain = ("recipes", "run", "simcse", *words, "out=chain/simcse")
    yield Case("chain/simcse", chain, ("**/dev.jsonl",))


def cases(recipes: Path) -> list[Case]:
    """All of them.

    Args:
        recipes: the folder of the recipes' YAML files.
    """
    runs = [*tokenizing(), *recipe_cases(recipes), *pretraining(), *tuning()]
    return [*runs, *using(), *making(), *chaining()]
