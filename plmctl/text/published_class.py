"""The class of `transformers` that computes a tokenizer, where one has exactly its stages.

Such a class builds its stages itself, and takes the vocabulary alone from tokenizer.json (from
version 5 on). Another tokenizer than its own must not carry its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plmctl.text import roles
from plmctl.text.languages import FAMILIES, list_languages
from plmctl.text.roles import Roles

ANY = "PreTrainedTokenizerFast"  # whose stages are those of tokenizer.json
Spec = Mapping[str, Any]
_DOUBLE = ("cls", "A", "sep", "sep", "B", "sep")
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE]}
_V2_SPACES = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "NFC"},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]

# the first tokens of Pegasus, and its rules, without the table of characters that may come first
_PEGASUS = [
    "<pad>",
    "</s>",
    "<mask_1>",
    "<mask_2>",
    *(f"<unk_{n}>" for n in range(2, 103)),
    "<unk>",
]
_FNET = ["<unk>", "<s>", "</s>", "<pad>"]  # and of FNet
_PEGASUS_SPACES = [
    {"type": "Replace", "pattern": {"Regex": "\n"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
]


@dataclass(frozen=True)
class _Stages:
    """The stages of a tokenizer in short.

    Args:
        model: WordPiece, ByteLevel, BPE, or Unigram and how its words begin: "words" or "spaces".
        unknown: The id of the unknown piece, where it is stated.
        text: The rules that change a text first.
        first: Its first token.
    """

    model: str
    unknown: int | None
    text: Any
    first: str


def name_class(spec: Spec, special: Roles, tokens: list[str]) -> dict[str, Any]:
    """The settings of a tokenizer_config.json that name the class of a tokenizer, and what that
    class needs.

    Args:
        special: The roles of its special tokens.
        tokens: Its tokens by id.
    """
    unknown = spec["model"].get("unk_id")
    stages = _Stages(_name_model(spec), unknown, spec.get("normalizer"), tokens[0])
    named = _name_multilingual(stages, special, tokens) or _name_usual(stages, special)
    if not named and tokens[: len(_PEGASUS)] == _PEGASUS and _is_pegasus(spec, stages, special):
        named = {"tokenizer_class": "PegasusTokenizer"}
    if not named and tokens[:4] == _FNET and stages.model == "spaces" and _is_fnet(special):
        named = {"tokenizer_class": "FNetTokenizer"}  # its class takes all stages from the file
    if not named:
        return {"tokenizer_class": ANY}
    kept = ("content", "lstrip", "rstrip", "normalized", "single_word", "special")
    added = {str(token["id"]): {key: token[key] for key in kept} for token in spec["added_tokens"]}
    return {**named, "added_tokens_decoder": added}


def _name_model(spec: Spec) -> str:
    """The kind of a model with its pre-tokenizer; "" for others than those of known classes."""
    model, pre = spec["model"], spec.get("pre_tokenizer") or {}
    plain = not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))
    plain = plain and not model.get("ignore_merges") and not model.get("byte_fallback")
    if model["type"] == "WordPiece":
        usual = (model["continuing_subword_prefix"], model["max_input_chars_per_word"])
        right = usual == ("##", 100) and pre == {"type": "BertPreTokenizer"}
        return "WordPiece" if right else ""
    if model["type"] == "BPE" and pre.get("type") == "ByteLevel":
        right = plain and pre.get("use_regex", True) and model["unk_token"] is None
        return "ByteLevel" if right else ""
    if model["type"] == "BPE":
        return "BPE" if plain and pre == _METASPACE else ""
    if model["type"] != "Unigram" or not plain:
        return ""
    if pre in (_METASPACE, {"type": "Sequence", "pretokenizers": [_METASPACE]}):
        return "spaces"
    return "words" if pre == _WORDS else ""


def _name_usual(stages: _Stages, special: Roles) -> dict[str, Any]:
    """The class of a tokenizer without languages."""
    frame, bert, roberta = map(_frame, (special, roles.BERT, roles.ROBERTA))
    rules = stages.text or {}
    table = rules.get("type") in (None, "Precompiled")
    if stages.model == "WordPiece" and frame == bert:
        right = rules.get("type") == "BertNormalizer" and rules["clean_text"]
        return {"tokenizer_class": "BertTokenizer"} if right else {}
    if stages.model == "ByteLevel" and not rules:
        names = {roberta: "RobertaTokenizer", (*bert[:-1], _DOUBLE): "DebertaTokenizer"}
        one = {special.bos, special.eos, special.unk} == {roles.GPT2.bos} and not special.cls
        name = "GPT2Tokenizer" if one else names.get(frame)
        return {"tokenizer_class": name} if name else {}
    unigram = (stages.model, stages.unknown)
    if unigram == ("words", 3) and table and frame == roberta:
        name = "Camembert" if stages.first.endswith("NOTUSED") else "XLMRoberta"
        return {"tokenizer_class": f"{name}Tokenizer"}
    if unigram == ("words", 2) and table and special.single == ("A", "eos"):
        right = (special.pad, special.eos, special.unk) == ("<pad>", "</s>", "<unk>")
        right = right and not special.unused and stages.first == "<pad>"
        extra = {"tokenizer_class": "T5Tokenizer", "extra_ids": len(special.sentinels)}
        return extra if right else {}
    if stages.model == "spaces" and frame == bert and rules.get("normalizers") == _V2_SPACES:
        return {"tokenizer_class": "DebertaV2Tokenizer", "unk_id": stages.unknown}
    return {}


def _frame(special: Roles) -> tuple[Any, ...]:
    """The special tokens that a class adds where they are missing, and its templates."""
    named = (special.pad, special.unk, special.cls, special.sep, special.mask)
    return (*named, special.single, special.pair)


def _is_fnet(special: Roles) -> bool:
    """Whether the frame is BERT's, with the padding and the unknown token of sentencepiece."""
    pad, unknown, *rest = _frame(special)
    return (pad, unknown) == ("<pad>", "<unk>") and tuple(rest) == _frame(roles.BERT)[2:]


def _is_pegasus(spec: Spec, stages: _Stages, special: Roles) -> bool:
    """Whether a tokenizer with the first tokens of Pegasus has its stages."""
    first, *rest = (stages.text or {}).get("normalizers") or [None]
    text = first and (first, *rest) == (_PEGASUS_SPACES[0], _PEGASUS_SPACES[1])
    text = text or (first and first["type"] == "Precompiled" and rest == _PEGASUS_SPACES[1:])
    names = (special.pad, special.eos, special.unk, special.mask)
    right = stages.model == "spaces" and names == ("<pad>", "</s>", "<unk>", "<mask_2>")
    right = right and (special.single, special.pair) == (("A", "eos"), ("A", "B", "eos"))
    # its piece of unknown text, which the class looks for by its number, too
    return bool(right and text and spec["model"]["vocab"][stages.unknown] == ["<unk>", 0.0])


def _name_multilingual(stages: _Stages, special: Roles, tokens: list[str]) -> dict[str, Any]:
    """The class of a tokenizer with languages."""
    source = next(iter(list_languages(special.single)), None)
    if source is None or stages.first != "<s>":
        return {}
    before = special.single == (source, "A", "eos")
    if not before and special.single != ("A", "eos", source):
        return {}
    target = next(iter(list_languages(special.target)), None)
    named = {"src_lang": source, **({"tgt_lang": target} if target else {})}
    if stages.model == "BPE":
        spoken = [token for token in FAMILIES["Nllb"].codes if token in tokens]
        return {
            "tokenizer_class": "NllbTokenizer",
            "additional_special_tokens": spoken,
            "legacy_behaviour": not before,
            **named,
        }
    family = "MBart50" if before else "MBart"
    whole = set(FAMILIES[family].codes) <= set(tokens)
    right = whole and stages.model in ("words", "spaces") and stages.unknown == 3
    return {"tokenizer_class": f"{family}Tokenizer", **named} if right else {}
