"""XLM (Conneau and Lample, 2019, arXiv:1901.07291) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import OURS, encoder_nodes, task_head
from plmctl.interop.family import Architecture, Family, Node, linear_class, lm_head, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Activation,
    Config,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    pad,
)

PAD = 2  # where a file names no other
ROWS = ("class", "score")
SUMMARY = {  # the published usual: a linear map of the first state
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}
LM = [
    same("heads.mlm.bias", "pred_layer.proj.bias"),
    same("heads.mlm.weight", "pred_layer.proj.weight", optional=True),
]
SETTINGS: Settings = (
    VOCAB,
    Key("emb_dim", "width", Count),
    Key("n_layers", "num_layers", Count),
    Key("n_heads", "num_heads", Count),
    Activation(
        "gelu_activation", "activation", bool, default=True, names={True: "gelu", False: "relu"}
    ),
    Key("dropout", "dropout", Rate, 0.1),
    Key("attention_dropout", "attention_dropout", Rate, 0.1),
    Key("summary_first_dropout", "row_dropout", Rate, 0.1),
    Key("max_position_embeddings", "max_length", Count, 512),
    Key("layer_norm_eps", "eps", Number, 1e-12),
    Key("n_langs", "all_languages", Count, 1),
    Key("use_lang_emb", "in_languages", bool, default=True),
    Key("lang_id", "usual_language", Whole, 0),
    Key("lang2id", "language_names", dict[str, Whole] | None, None, written=False),
    # whatever they began as, a file has the vectors of positions
    Written("sinusoidal_embeddings", value=False),
    TIED,
    replace(pad(written=True), default=PAD),
    Only("is_encoder", value=True),
    Only("causal", value=False, why=": tokens see both sides (causal models are not read)"),
    Only("asm", value=False, why=" (an adaptive softmax of outputs is not read)"),
    *(Only(key, value, written=True) for key, value in SUMMARY.items()),
)

# ids of special tokens, and settings of a search for answers
IGNORED = frozenset(
    {
        "id2lang",
        "n_words",
        "embed_init_std",
        "start_n_top",
        "end_n_top",
        *(f"{role}_index" for role in ("bos", "eos", "pad", "unk", "mask")),
    }
)


def summary_rules(head: str) -> list[NameRule]:
    """The rules of the linear map of the first state."""
    return linear(f"heads.{head}.linear", "sequence_summary.summary")


def layer_rules(norm: str) -> list[NameRule]:
    """The rules of the backbone; `norm` is our name of the norms of its layers."""
    qkv = "attentions.{i}.q_lin attentions.{i}.k_lin attentions.{i}.v_lin"
    return [
        same("backbone.embedding.token.weight", "embeddings.weight"),
        replace(
            same("backbone.embedding.language.weight", "lang_embeddings.weight", optional=True),
            note="transformers adds it only where the model gets langs=",
        ),
        same("backbone.position.table.weight", "position_embeddings.weight"),
        *linear("backbone.embedding.norm", "layer_norm_emb"),
        *linear(f"{OURS}.a.{{i}}.cell.qkv", *qkv.split()),
        *linear(f"{OURS}.a.{{i}}.cell.out", "attentions.{i}.out_lin"),
        *linear(f"{OURS}.a.{{i}}.{norm}", "layer_norm1.{i}"),
        *maps(f"{OURS}.f.{{i}}.cell", "ffns.{i}", {"up": "lin1", "down": "lin2"}),
        *linear(f"{OURS}.f.{{i}}.{norm}", "layer_norm2.{i}"),
    ]


def xlm_classes(prefix: str) -> list[Architecture]:
    """XLM's classes under names that begin with `prefix`."""
    return [
        *row_classes(f"{prefix}ForSequenceClassification", summary_rules),
        linear_class(f"{prefix}ForTokenClassification", "tag", "classifier"),
        linear_class(f"{prefix}ForQuestionAnsweringSimple", "span", "qa_outputs"),
        Architecture(f"{prefix}WithLMHeadModel", ("mlm",), LM),
        Architecture(f"{prefix}Model", bare=True),
    ]


class XLMFamily(Family):
    """Post-norm encoder with learned positions and a vector for each language, `XLM...`.

    Rows without a language have the one of `lang_id`. Differs: the published code adds no vector of
    a language where its argument `langs` is left out; sinusoids of a file are learned further, as
    `transformers` 5 does (facebookresearch/XLM: fixed).
    """

    model_type = "xlm"
    systems: tuple[str, ...] = ("XLM",)
    recipes: tuple[str, ...] = ("xlm", "tlm")
    hub: tuple[tuple[str, int], ...] = (
        ("FacebookAI/xlm-mlm-en-2048", 667),
        ("FacebookAI/xlm-mlm-tlm-xnli15-1024", 250),
        ("FacebookAI/xlm-mlm-100-1280", 572),
    )
    stated: Settings = SETTINGS
    ignored: frozenset[str] = IGNORED
    prefix = "transformer."
    architectures = xlm_classes("XLM")
    ties = {"pred_layer.proj.weight": "embeddings.weight"}  # noqa: RUF012

    def numbers(self, settings: Config) -> Numbers:
        older = {"pad_token_id": settings["pad_index"]} if "pad_index" in settings else {}
        numbers = super().numbers({**older, **settings})
        languages = numbers.all_languages * (numbers.in_languages and numbers.all_languages > 1)
        usual = numbers.usual_language * (languages > 0)
        if usual and usual >= languages:
            allowed = f"a number below {languages}, that of its languages (n_langs)"
            raise ConfigError("config.json: lang_id", usual, allowed)
        return numbers.but(inner_width=4 * numbers.width, languages=languages, usual_language=usual)

    def settings(self, numbers: Numbers) -> Node:
        names = numbers.language_names or {}
        spelled = {"lang2id": names, "id2lang": {str(n): name for name, n in names.items()}}
        return super().settings(numbers) | (spelled if names else {})

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        return layer_rules("norm_sum")

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers.but(inner_width=4 * numbers.width, segments=0))
        nodes["model"]["embedding"] |= {
            "languages": numbers.languages * (numbers.languages > 1),
            "usual_language": numbers.usual_language,
        }
        nodes["model"]["classifier"] = {"pooler": False, "dense": False, "bias": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":
            return lm_head(numbers)
        own = {"dropout": numbers.row_dropout} if name in ROWS else {}
        return task_head(name, numbers, outputs) | own

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        heads, origin = config.get("heads") or {}, config.get("origin") or {}
        embedding = config["model"].get("embedding") or {}
        rates = [heads[name]["dropout"] for name in ROWS if "dropout" in (heads.get(name) or {})]
        languages = embedding.get("languages", 0)
        return (
            super()
            .measure(config, tensors, pad)
            .but(
                row_dropout=next(iter(rates), 0.1),
                languages=languages,
                usual_language=embedding.get("usual_language", 0),
                all_languages=languages or origin.get("all_languages", 1),
                in_languages=languages > 0 or origin.get("all_languages", 1) == 1,
                language_names=origin.get("language_names"),
            )
        )

    def remember(self, numbers: Numbers) -> Node:
        named = {"language_names": numbers.language_names} if numbers.language_names else {}
        return {"all_languages": numbers.all_languages, **named}

    def describe_reading(self, numbers: Numbers) -> str:
        if not numbers.languages:
            return ""
        names = {number: name for name, number in (numbers.language_names or {}).items()}
        usual = names.get(numbers.usual_language, "")
        shown = f"{numbers.usual_language}{f' ({usual})' if usual else ''}"
        return (
            f"text has the vector of language {shown} of {numbers.languages}, as lang_id in"
            " config.json says"
        )
