"""Every YAML in recipes/ and conf/ composes, fits together, builds, and learns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.artifacts.cost import cost
from plmctl.artifacts.places import Places
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.config.headers import header
from plmctl.config.recipes import conf_dir, recipes_dir
from plmctl.config.texts import Feed, Texts
from plmctl.core.errors import UsageError
from plmctl.core.locate import locate
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out, open_training_loader
from plmctl.runs.contract.contract import check_contract, find_too_long
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.evaluation import measure
from plmctl.training.processes.world import World

RECIPES = sorted(path.stem for path in recipes_dir().glob("*.yaml"))
SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=48",
    "train.batch_size=8",
]
PRETRAIN_GROUPS = (
    "first_vectors",
    "regulariser",
    "format",
    "kernel",
    "model",
    "noise",
    "objective",
    "optim",
    "pattern",
    "position",
    "schedule",
    "size",
    "tokenizer",
)
# noises whose target it is
WHOLE_TEXT = ("autoencode", "document_rotate", "sentence_permute", "text_infill", "token_delete")
WHOLE_TEXT += ("word_blank", "word_drop", "word_shuffle")
FITTING = {
    **dict.fromkeys(("noise=source_text", "objective=tsdae"), "tsdae"),
    **dict.fromkeys(("noise=factorization_order", "objective=plm"), "xlnet"),
    **dict.fromkeys(
        ("model=mpnet", "noise=prediction_order", "objective=masked_permuted"), "mpnet"
    ),
    **dict.fromkeys(
        ("pattern=prefix", "pattern=unilm", "objective=nsp", "noise=target_mask"), "bert"
    ),
    **dict.fromkeys(
        ("objective=clm", "objective=clm_adaptive", "objective=auxiliary_clm", "pattern=causal"),
        "gpt",
    ),
    "model=memory_decoder": "adaptive_span",
    "model=compressive": "compressive_transformer",
    "objective=sop": "albert",
    **dict.fromkeys(("objective=lexical_relation", "noise=lexical_pairs"), "libert"),
    **dict.fromkeys(("objective=word_tags", "noise=sentiment_mask"), "sentilare"),
    **dict.fromkeys(("objective=sense", "noise=sense_mask", "noise=sense_words"), "sensebert"),
    **dict.fromkeys(
        (
            *("noise=relation_query", "noise=spare_spans"),
            *("objective=relation_contrast", "objective=entity_contrast"),
        ),
        "erica",
    ),
    **dict.fromkeys(("model=knowbert", "objective=entity_linking"), "knowbert"),
    **dict.fromkeys(
        ("model=knowbert_two", "noise=meaning_drop", "objective=meaning_linking"), "knowbert"
    ),
    **dict.fromkeys(
        ("model=entity_encoder", "noise=entity_drop", "objective=entity_denoise"), "ernie_thu"
    ),
    **dict.fromkeys(("noise=entity_replace", "objective=wklm"), "wklm"),
    **dict.fromkeys(("objective=bilm", "model=bilm"), "elmo"),
    **dict.fromkeys(("objective=word_structure", "objective=sentence_structure"), "structbert"),
    **dict.fromkeys(
        ("objective=seq2seq", "model=encoder_decoder", *(f"noise={name}" for name in WHOLE_TEXT)),
        "bart",
    ),
    "objective=back_translation": "mass_translation",
    "format=seq2seq": "transformer",
    "noise=random_positions": "gpt",
    "noise=sequence_span": "mass",
    "noise=gap_sentences": "pegasus",
    "noise=language_token": "mbart",
    **dict.fromkeys(("noise=span_sentinel", "noise=token_sentinel", "noise=prefix_split"), "t5"),
    "model=two_way": "bert",
    "model=mt_lstm": "cove",
    "model=zen": "zen",
    **dict.fromkeys(("format=word_contexts", "objective=mimic"), "bertram"),
    **dict.fromkeys(
        (
            *("objective=word_recovery", "objective=paraphrase"),
            *("format=paraphrase_pair", "format=cross_lingual"),
        ),
        "unicoder",
    ),
    **dict.fromkeys(
        ("objective=masked_next", "noise=causal_rows", "pattern=two_modes"), "babylm_hybrid"
    ),
    "objective=adaptive_mlm": "babylm_adaptive",
    **dict.fromkeys(("noise=mixed_vocabulary", "objective=mixed_vocabulary"), "mixed_vocabulary"),
    "first_vectors=small": "small_vocabulary",
    "model=mobilebert": "mobilebert",
    **dict.fromkeys(("model=luke", "noise=entity_tokens", "objective=entity_mlm"), "luke"),
}
KEPLER = [
    *("format=triples", "format.graph=builtin", "objective=[kepler]", "noise=[]"),
    *("objective.kepler.relations=4", "eval.noise=null"),
]
PARAPHRASES = [
    *("format=paraphrase_pair", "objective=[mlm,paraphrase]"),
    *("data.path=a.txt", "data.target_path=b.txt"),
]
TWO_BASES = [
    *("model=knowbert_two", "data.spans=[entity,meaning]"),
    "noise=[token_mask,entity_drop,meaning_drop]",
    "objective=[mlm,nsp,entity_linking,meaning_linking]",
]
TASKS = "model.embedding.tracks=[{_target_:plmctl.nn.track_vectors.TrackVectors,_partial_:true,"
TASKS += "name:task,count:3}]"
BESIDE = {  # what a part is used with
    "noise=source_text": ["noise=[word_drop,source_text]"],
    "schedule=slanted_triangular": ["schedule=slanted_triangular", "schedule.warmup_steps=0"],
    "model=xlnet": ["model=xlnet", "position=none"],
    "model=two_way": [
        "model=two_way",
        "objective=[bilm]",
        "format=blocks",
        "noise=[]",
        "eval.noise=null",
    ],
    "model=mt_lstm": ["model=mt_lstm", "data.path=a.txt", "data.target_path=b.txt"],
    "format=text_pair": ["format=text_pair", "data.path=a.txt", "data.target_path=b.txt"],
    "format=seq2seq": ["format=seq2seq", "data.path=a.txt", "data.target_path=b.txt"],
    "pattern=prefix": ["pattern=prefix", "objective=[mlm]"],
    "objective=nsp": ["objective=[mlm,nsp]"],
    "objective=clm_adaptive": [
        "objective=[clm_adaptive]",
        "model.embedding.table={_target_:plmctl.nn.adaptive.AdaptiveTable,cutoffs:[3]}",
    ],
    "objective=sop": ["objective=[mlm,sop]"],
    **dict.fromkeys(("format=triples", "objective=kepler"), KEPLER),
    "objective=word_structure": ["objective=[mlm,word_structure]"],
    "objective=sentence_structure": ["objective=[mlm,sentence_structure]"],
    "objective=sbo": ["objective=[mlm,sbo]", "noise=[span_mask]", "eval.noise=${noise}"],
    "objective=infoword": [
        "objective=[mlm,infoword]",
        "noise=[token_mask,ngram_hole]",
        "eval.noise=${noise}",
    ],
    "objective=lexical_relation": ["objective=[mlm,lexical_relation]"],
    "noise=lexical_pairs": ["noise=[token_mask,lexical_pairs]"],
    "objective=word_tags": ["objective=[mlm,word_tags]"],
    "objective=sense": ["objective=[mlm,sense]"],
    "noise=sense_words": ["noise=[sense_mask,sense_words]"],
    "noise=sense_mask": ["noise=[sense_mask,sense_words]"],
    "noise=relation_query": ["noise=[relation_query,token_mask]"],
    "noise=spare_spans": ["noise=[relation_query,token_mask,spare_spans]"],
    "objective=relation_contrast": [
        "objective=[mlm,relation_contrast]",
        "noise=[token_mask]",
        "eval.noise=${noise}",
    ],
    "objective=entity_contrast": ["objective=[mlm,entity_contrast,relation_contrast]"],
    "noise=entity_replace": ["noise=[entity_replace,token_mask]"],
    "objective=wklm": ["objective=[mlm,wklm]"],
    "noise=entity_tokens": ["noise=[token_mask,entity_tokens]"],
    **dict.fromkeys(("objective=paraphrase", "format=paraphrase_pair"), PARAPHRASES),
    "format=cross_lingual": [
        *("format=cross_lingual", "objective=[mlm]"),
        *("data.path=a.txt", "data.target_path=b.txt"),
    ],
    "objective=word_recovery": [
        *("objective=[mlm,word_recovery]", "data.path=a.txt", "data.target_path=b.txt")
    ],
    "objective=entity_mlm": ["objective=[mlm,entity_mlm]"],
    "objective=entity_linking": ["objective=[mlm,entity_linking]"],
    **dict.fromkeys(
        ("model=knowbert_two", "noise=meaning_drop", "objective=meaning_linking"), TWO_BASES
    ),
    "noise=entity_drop": ["noise=[token_mask,entity_drop]"],
    "objective=entity_denoise": ["objective=[mlm,entity_denoise]"],
    "objective=rtd": ["objective=[rtd]", "noise=[token_replace]"],
    "noise=random_positions": ["noise=[random_positions]", "position=sinusoidal"],
    "noise=prediction_order": ["noise=[token_mask,prediction_order]"],
    "noise=causal_rows": ["noise=[token_mask,causal_rows]"],
    "noise=task_number": ["noise=[token_mask,task_number]", TASKS],
    "noise=token_shuffle": ["noise=[token_mask,token_shuffle]"],
    "noise=token_replace": ["noise=[token_replace]", "noise.token_replace.ask_originals=true"],
}
SENTIMENT = Path(__file__).parent / "fixtures" / "sentiment.tsv"
UNREAD: set[str] = set()  # what no objective reads yet
# nothing is asked without a teacher: tests/distill/test_layers_alone.py
TAUGHT = ("minilm", "tinybert")


def tokenizer_of(recipe: str, tokens_of: Callable[..., Path]) -> list[str]:
    cfg = compose("pretrain", recipe)
    kind = locate(cfg.tokenizer._target_).kind  # type: ignore[attr-defined]
    parallel = locate(cfg.format._target_).parallel  # type: ignore[attr-defined]
    if "mimic" in (cfg.objective or ()):
        words = tokens_of.words()  # type: ignore[attr-defined]
        return [f"data.path={words}", "tokenizer.vocab_size=600"]
    extra = (
        [f"tokenizer.specials={cfg.tokenizer.specials}"]
        if cfg.tokenizer.get("specials") in ("gpt2", "xlnet")
        else []
    )
    extra += ["tokenizer.sentinels=100"] if cfg.tokenizer.get("sentinels") else []
    extra += ["tokenizer.unused=2"] if cfg.tokenizer.get("unused") else []
    spans = tuple(cfg.data.spans) or (("entity",) if "kepler" in (cfg.objective or ()) else ())
    home = tokens_of(kind, *extra, pairs=parallel, spans=spans)
    tokens = [f"data.path={home}"]
    tokens += [
        f"data.sources.{source}.mixture.{name}.path={tokens_of(kind, f'tokenizer.path={home}')}"
        for source, node in (cfg.data.sources or {}).items()
        for name in node.get("mixture") or {}
    ]
    if "sentiment_mask" in (cfg.noise or {}):
        tokens.append(f"noise.sentiment_mask.lexicon.path={SENTIMENT}")
    if "mixed_vocabulary" in (cfg.noise or {}):
        small = tokens_of(kind, "tokenizer.vocab_size=200")
        tokens.append(f"noise.mixed_vocabulary.path={small}")
    return tokens


def test_there_are_recipes() -> None:
    assert {"bert", "roberta", "gpt", "gpt2"} <= set(RECIPES)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe not in TAUGHT])
def test_the_loss_falls_on_one_repeated_batch(recipe: str, tokens_of: Callable[..., Path]) -> None:
    cfg = compose("pretrain", recipe, [*SMALL, *tokenizer_of(recipe, tokens_of)])
    check_contract(cfg)
    corpus = open_corpus(Texts.of(cfg))
    # no dropout
    model = build_model(cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=0).eval()
    objective = build_objective(cfg.objective, model, corpus.vocab, seed=cfg.seed)
    objective.eval()
    optimizer = build(cfg.optim, path="optim")(parameters=list(model.named_parameters()))
    with open_training_loader(
        Feed.of(cfg, 0), corpus, World(), BatchFields.by(model, objective)
    ) as loader:
        batch = next(loader)[0]
    losses = []
    for _ in range(60):
        counts = objective.counts(batch)
        terms = objective(model, batch).terms
        loss = torch.stack(
            [term.weight * term.total / counts[name] for name, term in terms.items()]
        ).sum()
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 5e-3
        optimizer.step()
        losses.append(loss.item())
        if losses[-1] < 0.7 * losses[0]:
            break
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.sampled(2)  # the published line of each is composed, below
@pytest.mark.parametrize("recipe", RECIPES)
def test_header(recipe: str) -> None:
    """Paper, launch line, what is scaled and what differs; the published launch line composes."""
    text = (recipes_dir() / f"{recipe}.yaml").read_text(encoding="utf-8")
    for word in ("# Launch:", "# Published:", "# Scaled:", "# Differs:"):
        assert word in text
    assert len(text.partition("\nbudgets:")[0].splitlines()) <= 68
    words = header(recipes_dir() / f"{recipe}.yaml").command("Published")
    assert words[:3] in (["plmctl", "pretrain", recipe], ["plmctl", "distill", recipe])
    check_contract(published(recipe))


LINES = [
    (recipe, number)
    for recipe in RECIPES
    for number, (field, text) in enumerate(header(recipes_dir() / f"{recipe}.yaml").fields)
    if text.startswith("plmctl ") and field != "Published"
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("recipe", "number"), LINES, ids=lambda value: str(value))
def test_every_command_of_a_header_composes(recipe: str, number: int) -> None:
    """What comes before, the launch, and what may come then; files and runs that a line names
    need not be there.
    """
    known = header(recipes_dir() / f"{recipe}.yaml")
    _, verb, *words = known.words(known.fields[number][1])
    if verb in ("pretrain", "distill") and "=" not in words[0]:
        check_contract(compose("pretrain", words[0], words[1:]))
    elif verb == "data":
        compose(words[0], None, words[1:])
    else:
        compose("finetune" if verb == "distill" else verb, None, words)


def variants(recipe: str) -> list[list[str]]:
    """The words of each indented line of a header that has a name and settings: `#   no NSP
    objective=[mlm]`.
    """
    known = header(recipes_dir() / f"{recipe}.yaml")
    found: list[str] = []
    inside = False
    for line in known.lines:
        new = re.fullmatch(r"#   \S.*?  +(['~+]?[a-z][\w.@]*(?:=.*)?)", line)
        if new:
            found.append(new[1])
        elif inside and re.match(r"# {8,}\S", line):
            found[-1] += f" {line.lstrip('# ')}"
        inside = bool(new) or (inside and line.startswith("#      "))
    return [known.words(line) for line in found]


VARIANTS = [(recipe, words) for recipe in RECIPES for words in variants(recipe)]


def test_recipes_have_variants() -> None:
    assert len(VARIANTS) >= 40
    told = [
        recipe
        for recipe in RECIPES
        if re.search(r"each added to the launch line", recipes_text(recipe))
    ]
    assert set(told) <= {recipe for recipe, _ in VARIANTS}


def recipes_text(recipe: str) -> str:
    return (recipes_dir() / f"{recipe}.yaml").read_text(encoding="utf-8")


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("recipe", "words"), VARIANTS, ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_every_variant_of_a_header_composes(recipe: str, words: list[str]) -> None:
    """`compose` raises for a setting that does not exist, `check_contract` for parts that do not
    fit.
    """
    launch = header(recipes_dir() / f"{recipe}.yaml").command()[3:]
    check_contract(compose("pretrain", recipe, [*launch, *words]))


@cache
def published(recipe: str, *more: str) -> DictConfig:
    """The config of a recipe's published launch line, without the remark behind it."""
    return compose(
        "pretrain",
        recipe,
        [*header(recipes_dir() / f"{recipe}.yaml").command("Published")[3:], *more],
    )


def layers(*, encoder: int, decoder: int = 0, width: int, inner: int) -> float:
    """Millions of parameters, by hand: attention of 4 maps, 2 of the feed-forward, a norm behind
    each; all with biases.
    """
    attention, feed_forward, norm = (
        4 * (width * width + width),
        2 * width * inner + inner + width,
        2 * width,
    )
    return (
        encoder * (attention + feed_forward + 2 * norm)
        + decoder * (2 * attention + feed_forward + 3 * norm)
    ) / 1e6


MASS = layers(encoder=6, decoder=6, width=1024, inner=4096) + 1024 * (60_000 + 2 * 100) / 1e6
# of BERT-base
STUDENT = [
    "init=null",
    "kept_layers=null",
    "size=base",
    "size.num_layers=6",
    "tokenizer.vocab_size=30522",
]
# millions, and what a folder named in the line would decide
PARAMETERS: dict[str, tuple[float, list[str]]] = {
    "adaptive_span": (38, []),  # facebookresearch/adaptive-span, README: enwik8, 12 layers
    "albert": (12, []),  # table 1, base
    "al_rfou_char": (219, []),  # T64 without what only training needs
    "bart": (400, []),  # facebookresearch/fairseq, examples/bart: 12 + 12 layers
    # a table of its own
    "bart_translation": (400 + layers(encoder=6, width=1024, inner=4096) + 50.265 * 1.024, []),
    "bert": (110, []),  # sec. 3, base
    "bertje": (110, []),  # BERT-base
    "big_bird": (128, []),  # google/bigbird-roberta-base, whose pooler is not trained here
    "camembert": (110, []),  # camembert-model.fr, base
    "deberta": (100 + 50_265 * 768 / 1e6, []),  # microsoft/DeBERTa, README, base
    "deberta_v3": (86 + 128_100 * 768 / 1e6, []),  # microsoft/DeBERTa, README, base
    "distilbert": (66, STUDENT),  # table 3
    "electra": (14, []),  # table 1, small
    "erica": (110, []),  # BERT-base
    # sec. 4.2: as BERT-base, with a vocabulary of characters
    "ernie_baidu": (110 - (30_522 - 17_964) * 768 / 1e6, []),
    "ernie_thu": (114, []),  # sec. 4.1
    "elmo": (93.6, []),  # allennlp.org/elmo, original; without the softmax
    "fnet": (83, []),  # table 1, base; recalled
    "funnel": (131, []),  # huggingface.co/funnel-transformer/small
    "evolved_transformer": (64.1, []),  # base; recalled, not checked in the paper
    "gpt": (117, []),  # Radford et al., 2019, table 2
    "gpt2": (124, []),  # openai/gpt-2, README: not 117, as the paper says
    "gpt3": (125, []),  # table 2.1, Small
    "infoword": (110, []),  # BERT-base
    "libert": (110, []),  # BERT-base
    "longformer_char": (41, []),  # sec. 4.2.2, small
    # 17.3 (recalled, not checked in the paper) beside a table of 40,000 tokens
    "lite_transformer": (17.3 + 40_000 * 496 / 1e6, []),
    "mass": (MASS, []),  # not published
    "mass_translation": (MASS, []),
    "mbert": (110 + (119_547 - 30_522) * 768 / 1e6, []),  # BERT-base
    "minilm": (66, ["tokenizer.vocab_size=30522"]),  # table 2, 6 layers of 768
    "modern_encoder": (110, []),  # BERT-base: a gated feed-forward of the same size
    # table 1, and the columns of its output table that are no token vectors
    "mobilebert": (25.3 + 30_522 * (512 - 128) / 1e6, []),
    "modernbert": (149, []),  # table 3, base
    # BERT-base with fewer tokens, and no table of positions
    "mpnet": (110, []),  # BERT-base
    "nezha": (110 - (30_522 - 21_128 + 512) * 768 / 1e6, []),
    "roberta": (125, []),  # facebookresearch/fairseq, examples/roberta, base
    "roformer": (110, []),  # BERT-base without a table of positions
    "sandwich": (247, []),  # sec. 3: Baevski and Auli's model of 16 layers
    "sentilare": (125, []),  # RoBERTa-base
    "scibert": (110, []),  # BERT-base
    "simcse": (110, ["init=null", "size=base", "tokenizer.vocab_size=30522"]),  # BERT-base
    "spanbert": (340, []),  # BERT-large
    # sec. 3.4: 23 million more than BERT-base, which has 30,522 tokens
    "sensebert": (110 + 23, []),
    "sparse_transformer": (95, []),  # table 2, enwik8; recalled, not checked in the paper
    "structbert": (110, []),  # sec. 3.1, base
    "t5": (220, []),  # sec. 3.1.1
    "tinybert": (14.5, ["tokenizer.vocab_size=30522"]),  # table 1
    "tlm": (250, []),  # Conneau et al., 2020, arXiv:1911.02116, table 5: XLM of 15 languages
    "transformer": (65, []),  # table 3, base
    "transformer_xl": (151, []),  # table 1, standard
    "transformer_xl_char": (41, []),  # table 2, 12 layers
    "tsdae": (110, ["init=null", "size=base", "tokenizer.vocab_size=30522"]),  # BERT-base
    "unilm": (340, []),  # sec. 2.4, large
    # as BERT-large (sec. 3.1), and in each layer a map of distances
    "universal_transformer": (65, []),  # table 7: as many as the Transformer, base
    "wklm": (110, ["init=null"]),  # BERT-base
    "xlm": (250, []),  # as tlm
    "zen": (224, []),  # IDEA-CCNL/Erlangshen-ZEN1-224M-Chinese
    "xlnet": (340 + 24 * 1.024**2, []),
}


@pytest.mark.parametrize("recipe", PARAMETERS)
def test_the_published_line_makes_a_model_of_the_published_size(recipe: str) -> None:
    total, more = PARAMETERS[recipe]
    cfg = published(recipe, *more)
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=int(cfg.tokenizer.vocab_size), vocab=TINY)
    left_out = "heads.bilm" if recipe == "elmo" else "objective"
    counted = sum(
        p.numel() for name, p in model.named_parameters() if not name.startswith(left_out)
    )
    assert counted / 1e6 == pytest.approx(total, rel=0.04)


@pytest.mark.parametrize(("width", "published_macs"), [(200, 90), (408, 360), (496, 527)])
def test_multiply_adds_of_the_lite_transformers_sizes(width: int, published_macs: float) -> None:
    """mit-han-lab/lite-transformer, README: for a sentence of 30 tokens, without tables and
    softmax.
    """
    cfg = published("lite_transformer", f"size.width={width}")
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=100, vocab=TINY)
    counted = cost(model, length=30, target_length=30, predicted={})
    macs = 60 * sum(counted.macs_per_token.values()) / 1e6
    assert macs == pytest.approx(published_macs, rel=0.04)


@pytest.mark.parametrize(
    ("recipe", "key", "value"),
    [
        # facebookresearch/adaptive-span, experiments/enwik8.sh
        ("adaptive_span", "model.stack.cells.a.penalty", 5e-7),
        ("adaptive_span", "model.stack.cells.f.dropout", 0.3),
        ("adaptive_span", "model.embedding.dropout", 0.0),
        ("adaptive_span", "position.longest", 8192),
        ("adaptive_span", "optim.clip", 0.03),
        # mit-han-lab/lite-transformer, configs/wmt16.en-de: four heads of convolution
        ("lite_transformer", "model.encoder.stack.cells.d.num_heads", 4),
        ("lite_transformer", "model.decoder.stack.cells.f.inner_width", 496),
        ("lite_transformer", "optim.lr", 1e-3),
        # tensor2tensor, evolved_transformer.py: 3 cells and 4 cells, 16 heads at most
        ("evolved_transformer", "model.encoder.stack.layout", "uvaf*3"),
        ("evolved_transformer", "model.decoder.stack.layout", "m|cxacg*4"),
        ("evolved_transformer", "model.decoder.stack.cells.m.num_heads", 16),
        # sec. 2.1: positions and layers are counted from 1; tensor2tensor, transformer.py
        ("universal_transformer", "position.first", 1),
        ("universal_transformer", "objective.seq2seq.smoothing", 0.1),
        ("sandwich", "model.stack.sandwich", 6),  # sec. 4: the best on WikiText-103
        ("sparse_transformer", "pattern.columns", 32),  # sec. 7.2: stride 128, 32 columns, merged
        ("sparse_transformer", "pattern.factors", "merged"),
        ("longformer_char", "train.clip", 0.25),  # table 12
        ("longformer_char", "optim.weight_decay", 0.01),
        ("longformer_char", "pattern.gaps", 3),
        ("big_bird", "pattern.random", 3),  # appendix E: 3 random blocks, a window of 3, 2 global
        ("big_bird", "pattern.window", 3),
        # cgraywang/transformer-on-diet, README: kernel_size, d_base
        ("diet", "pattern.first", 3),
        ("diet", "pattern.base", 2),
        ("gpt", "schedule.min_ratio", 0),  # sec. 4.1: cosine to 0
        # kimiyoung/transformer-xl, train.py: eta_min, and Adam's own eps
        ("transformer_xl", "schedule.min_ratio", 0),
        ("transformer_xl", "optim.eps", 1e-8),
        ("transformer_xl_char", "schedule.min_ratio", 0),
        ("elmo", "schedule.warmup_steps", 0),  # allenai/bilm-tf, training.py: Adagrad at one rate
        ("mass", "format.max_length", 100),  # microsoft/MASS, train.py: max_len; README: min_len
        ("mass", "format.min_tokens", 5),
        ("mass_translation", "format.max_length", 100),
        ("unilm", "model.embedding.norm.eps", 1e-5),  # microsoft/unilm, modeling.py
        ("unilm", "model.stack.residual.norm.eps", 1e-5),
        ("unilm", "heads.mlm.eps", 1e-5),
        # facebookresearch/XLM, transformer.py: PredLayer is one linear map
        *((recipe, "heads.mlm.transform", False) for recipe in ("tlm", "xlm")),
        # facebookresearch/XLM, README: epochs of 200,000 sentences in batches of 32, patience 10
        *((recipe, "train.eval_every", 6250) for recipe in ("tlm", "xlm", "unicoder")),
        *((recipe, "train.patience", 10) for recipe in ("tlm", "xlm", "unicoder")),
        *((recipe, "schedule.warmup_steps", 30_000) for recipe in ("tlm", "xlm")),
        ("unicoder", "optim.lr", 1e-5),
        # sec. 2.1: the rates of BERT
        ("libert", "optim.lr", 1e-4),
        ("libert", "schedule.warmup_steps", 10_000),
        ("libert", "train.steps", 2_000_000),
        ("compressive_transformer", "optim.lr", 3e-4),
        ("compressive_transformer", "model.compressed", 1152),
        # THU-KEG/KEPLER, README: 3 rows, 784 / 16 times, on each of 16 x 4 GPUs
        ("kepler", "train.batch_size", 3 * (784 // 16) * 16 * 4),
        ("kepler", "optim.lr", 6e-4),
        ("kepler", "schedule.warmup_steps", 10_000),
        ("kepler", "train.clip", 0),
        ("knowbert", "train.batch_size", 32),  # allenai/kb, README
        ("knowbert", "model.entities.entity_width", 300),
        ("sentilare", "train.batch_size", 400),  # thu-coai/SentiLARE, pretrain
        ("sentilare", "format.max_length", 128),
        ("sentilare", "schedule.warmup_share", 0.1),
        ("nezha", "model.stack.cells.o.clip", 64),
        ("nezha", "train.batch_size", 180 * 80),
        ("cove", "optim.lr", 1.0),  # SGD that begins at rate 1
        ("cove", "optim.momentum", 0.0),
        ("wklm", "schedule.warmup_steps", 0),  # xwhan/fairseq-wklm: a constant rate
        ("gpt2", "optim.lr", 6e-4),  # Brown et al., 2020, table 2.1: GPT-3 Small
        ("gpt3", "train.steps", round(300e9 / 2**19)),  # table 2.1: 300 billion tokens
        ("mass_translation", "train.steps", 30 * 200_000 // 32),  # microsoft/MASS, README
        ("sparse_transformer", "schedule.warmup_steps", 5000),
        ("lite_transformer", "schedule.warmup_steps", 10_000),
        ("t5", "train.clip", 0),  # mesh-tensorflow clips updates, not gradients
        ("t5", "train.steps", 2**19),
        ("t5", "train.batch_size", 128),
        ("t5", "optim.factored_from", 128),
        # sec. 3.1 and 3.5: exponents 0.5 of the vocabulary and 0.7 of the languages
        ("xlm", "data.vocab_temperature", 2.0),
        ("xlm", "data.temperature", 1.43),
    ],
)
def test_what_papers_and_released_code_say_is_set(recipe: str, key: str, value: object) -> None:
    assert published(recipe).select(key) == value


LENGTHS = ("train.steps", "train.epochs", "train.tokens", "train.words", "train.minutes")
SCALE = (
    *("train.batch_size", "optim.lr", "format.max_length"),
    *("schedule.warmup_steps", "schedule.warmup_share"),
)
KEPT = {  # what the published run has, too
    "bertram": ["schedule.warmup_steps", "schedule.warmup_share"],
    "distilbert": ["schedule.warmup_steps", "schedule.warmup_share"],
    "simcse": ["format.max_length", "schedule.warmup_steps"],
    "tinybert": ["schedule.warmup_steps", "schedule.warmup_share"],
    "tsdae": ["schedule.warmup_steps"],
}
# conf/format has 128 tokens, as published: sheets of BERT's first stage, ELECTRA-Small, ZEN
AS_THE_FORMAT = {"electra", "tinybert", "bertram"}


def find_toy(recipe: str) -> set[str]:
    """The numbers of scale of a small run that the published line of a recipe leaves as they are:
    those of the recipe's file, and the length of rows of the format.
    """
    file = recipes_dir() / f"{recipe}.yaml"
    own, words = OmegaConf.load(file), header(file).command("Published")[3:]
    named = {word.partition("=")[0].lstrip("+") for word in words}
    stages = next((word for word in words if word.startswith("train.stages=")), "")
    toy = {key for key in SCALE if OmegaConf.select(own, key) is not None and key not in named}
    if recipe not in AS_THE_FORMAT and not {"format.max_length"} & named:
        toy |= {"format.max_length"}
    toy |= set() if named & set(LENGTHS) else {"train.steps"}
    if {"schedule.warmup_steps", "schedule.warmup_share"} & named:
        toy -= {"schedule.warmup_steps", "schedule.warmup_share"}
    toy -= {"train.batch_size"} if "train.batch_tokens" in named else set()
    return toy - ({"format.max_length"} if "format.max_length" in stages else set())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_published_line_keeps_no_number_of_the_small_run(recipe: str) -> None:
    assert find_toy(recipe) == set(KEPT.get(recipe, ()))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_published_warm_up_is_not_cut(recipe: str) -> None:
    cfg = published(recipe)
    steps, asked = cfg.select("train.steps"), cfg.select("schedule.warmup_steps")
    if steps and asked:
        assert build(cfg.schedule, path="schedule").warmup(steps) == asked


def test_kepler_has_positions_for_a_description_not_for_a_row_of_four() -> None:
    """Its checkpoint is a RoBERTa, of 512 positions, and descriptions are cut at 512 tokens."""
    cfg = published("kepler")
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=1000, vocab=TINY)
    assert model.backbone.position.table.num_embeddings == 512
    places = Places(512, None)
    assert not list(find_too_long(cfg, places))
    longer = published("kepler", "data.sources.triples.format.max_length=2052")
    (refused,) = find_too_long(longer, places)
    assert refused.value == 2052
    assert "at most 2048" in str(refused)


def test_the_published_line_of_t5() -> None:
    """A row of 568 tokens is read as 512 and written as 114 with the end of each (google-research/
    text-to-text-transfer-transformer, random_spans_helper); the rate is `1 / sqrt(max(t, 1e4))`.
    """
    cfg = published("t5")
    raw, noise = cfg.format.max_length, 85
    spans = round(noise / 3)
    assert (raw - noise + spans + 1, noise + spans + 1) == (512, 114)
    schedule = build(cfg.schedule, path="schedule")
    for t in (1, 10_000, 10_001, 40_001, 524_288):
        expected = max(t - 1, 10_000) ** -0.5
        assert cfg.optim.lr * schedule(t, cfg.train.steps) == pytest.approx(expected, rel=1e-12)
    weight = torch.nn.Parameter(torch.full((128, 128), 0.05))
    weight.grad = torch.ones_like(weight)
    build(cfg.optim, path="optim")(parameters=[("w", weight)]).step()
    moved = torch.full_like(weight, 0.05 - 0.01 * 0.05)  # a step of the relative size 0.01
    torch.testing.assert_close(weight.detach(), moved)


@pytest.mark.parametrize("recipe", ["elmo", "transformer_xl"])
def test_validation_goes_on_where_the_row_before_ended(
    recipe: str, tokens_of: Callable[..., Path]
) -> None:
    cfg = compose(
        "pretrain",
        recipe,
        [*SMALL, "format.max_length=8", "eval.batch_size=2", *tokenizer_of(recipe, tokens_of)],
    )
    corpus = open_corpus(Texts.of(cfg))
    model = build_model(cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=0).eval()
    objective = build_objective(cfg.objective, model, corpus.vocab, seed=cfg.seed)
    held_out = open_held_out(Feed.of(cfg), corpus, World(), BatchFields.by(model, objective))
    batches = next(iter(held_out.values()))
    kept = list(islice(batches, 3))
    assert [batch.values["continues"].tolist() for batch in kept] == [
        [False] * 2,
        [True] * 2,
        [True] * 2,
    ]
    alone = [
        replace(batch, values={"continues": torch.zeros(2, dtype=torch.bool)}) for batch in kept
    ]
    with torch.no_grad():
        found, without = (
            measure(model, objective, each, world=World()).means()["loss"] for each in (kept, alone)
        )
    assert found != without


def options() -> list[str]:
    return sorted(
        f"{group}={path.stem}"
        for group in PRETRAIN_GROUPS
        for path in (conf_dir() / group).glob("*.yaml")
    )


def test_no_group_is_forgotten() -> None:
    """A new folder in conf/ must be added to the lists here or in the tests of tasks."""
    others = {
        "task",
        "tuning",
        "pair_loss",
        "features",
        "head_encoder",
        "output_features",
        "mixing",
        "peft",
        "attack_candidates",
        "constraint",
        "rule",
        "perturb",
        "runtime",
        "attack_search",
        "search",
        "stabiliser",
        "pruning",
        "transform",
        "distill",
        "graph_loss",
        "graph_penalty",
        "graph_score",
        "method",
        "word_vectors",
        "space",
        "strategy",
    }
    assert {path.name for path in conf_dir().iterdir() if path.is_dir()} == {
        *PRETRAIN_GROUPS,
        *others,
    }


def check_fit(recipe: str, words: list[str]) -> None:
    """Check a recipe with a part, and with what the refusals say that the part needs."""
    for _ in range(3):  # its noise, its objective, and the noise of validation
        try:
            check_contract(compose("pretrain", recipe, words))
            return
        except UsageError as refused:
            fix = getattr(refused, "fix", "").partition(" or ")[0].replace("'", "")
            if not fix:
                raise
            key, _, value = fix.partition("=")
            chosen = [word for word in words if word.startswith(f"{key}=[")]
            beside = [f"{key}=[{value[1:-1]},{chosen[0].partition('[')[2]}"] if chosen else []
            words = [word for word in words if word not in chosen] + (beside or [f"{key}={value}"])
    check_contract(compose("pretrain", recipe, words))


@pytest.mark.parametrize("option", options())
def test_every_part_composes_and_fits(option: str) -> None:
    """A part that fits no recipe as it is has its words in FITTING and BESIDE, or a refusal that
    says what it needs.
    """
    group, name = option.split("=")
    choice = f"{group}=[{name}]" if group in ("noise", "objective") else option
    recipe = FITTING.get(option, "gpt2" if group == "schedule" else "roberta")
    words = [*BESIDE.get(option, [choice]), *(["size=tiny"] if group != "size" else [])]
    if option in UNREAD:
        cfg = compose("pretrain", recipe, words)
        with pytest.raises(UsageError, match="needs ") as refused:
            check_contract(cfg)
        assert not str(refused.value).startswith(("format", "noise"))  # the part itself is sound
    else:
        check_fit(recipe, words)
    text = (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if not line.startswith("# @package"))
    assert first.startswith("# "), "the first line says in one sentence what the part is"
