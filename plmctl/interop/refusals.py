"""Published folders that are not read: code of their own, weights in few bits, unknown families.
Each is named, with the nearest family and the first setting that differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import ConfigError, DataError
from plmctl.interop.family import Family
from plmctl.interop.names import Weights
from plmctl.interop.settings import REQUIRED, Config, Key

LISTED = "plmctl models ls lists the families that are read"
LIST = "plmctl models ls  # the families that are read"
FULL = "take the model in full precision, from which it was made"
# classes of a config.json that `auto_map` gives code to, and of which plmctl makes models
MODELS = ("AutoConfig", "AutoModel")
# ends of the names of tensors in few bits
QUANTISED = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".SCB": "bitsandbytes, 8 bits",
    ".absmax": "bitsandbytes, 4 bits",
    ".quant_map": "bitsandbytes, 4 bits",
    ".weight_packed": "compressed-tensors",
    ".weight_scale": "8-bit numbers with scales",
    ".weight_scale_inv": "8-bit numbers with scales",
}
NARROW = (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2)
# settings that say nothing about the structure, as every family has them
_FREE = """
architectures,model_type,transformers_version,torch_dtype,dtype,auto_map,_name_or_path,id2label
label2id,num_labels,problem_type,finetuning_task,use_cache,initializer_range
gradient_checkpointing,output_past,task_specific_params,tokenizer_class,language,prefix
bos_token_id,eos_token_id,pad_token_id,sep_token_id,cls_token_id,mask_token_id,unk_token_id
return_dict,output_hidden_states,output_attentions,torchscript,use_return_dict
chunk_size_feed_forward,reference_compile,attn_implementation,_attn_implementation
quantization_config,compression_config
"""
FREE = frozenset(re.findall(r"\w+", _FREE))
# settings of writing, which a search of ours states itself
_WRITING = """
max_length,min_length,max_new_tokens,do_sample,early_stopping,num_beams,num_beam_groups
diversity_penalty,temperature,top_k,top_p,typical_p,repetition_penalty,length_penalty
no_repeat_ngram_size,encoder_no_repeat_ngram_size,bad_words_ids,num_return_sequences,output_scores
return_dict_in_generate,forced_eos_token_id,remove_invalid_values,exponential_decay_length_penalty
suppress_tokens,begin_suppress_tokens
"""
WRITING = frozenset(re.findall(r"\w+", _WRITING))
UNNAMED = "bert"  # its first files, and SpanBERT's, are older than model_type
_OF_TRAINING = re.compile(r"dropout|layerdrop|^init|^summary_")  # and of heads that are not read


def refuse_code(settings: Config, file: Path, family: Family | None) -> None:
    """DataError for a model that is computed by code of its own, if its family does not state that
    it computes the same.
    """
    named = settings.get("auto_map") or {}
    code = [str(value) for key, value in named.items() if str(key).startswith(MODELS)]
    if code and not (family and family.rebuilds_code):
        what = f"auto_map names code of its own ({code[0]}), which plmctl never runs"
        raise DataError(what, file=file, fix=f"take a model without it: {LISTED}")


def refuse_quantised(settings: Config, file: Path) -> None:
    """DataError for a config.json whose weights have few bits; the method is named."""
    stated = settings.get("quantization_config") or settings.get("compression_config")
    if not stated:
        return
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    if method is None:
        loads = [key for key in stated if str(key).startswith("load_in_")]
        method = "bitsandbytes" if loads else "unknown method"
    bits = stated.get("bits") or stated.get("w_bit") if isinstance(stated, Mapping) else None
    what = f"its weights are quantised ({method}{f', {bits} bits' if bits else ''})"
    raise DataError(f"{what}, and plmctl reads none", file=file, fix=FULL)


def refuse_narrow(tensors: Weights, file: Path) -> None:
    """DataError for tensors in few bits, which would be read as other numbers."""
    for name, tensor in tensors.items():
        kind = next((kind for end, kind in QUANTISED.items() if name.endswith(end)), "")
        if not kind and name.endswith(".weight") and tensor.dtype in NARROW:
            kind = str(tensor.dtype).removeprefix("torch.")
        if kind:
            what = f"{name}: its weights are quantised ({kind}), and plmctl reads none"
            raise DataError(what, file=file, fix=FULL)


def is_complete(settings: Config, family: Family) -> bool:
    """Whether a config.json has all settings that a family needs, and no others."""
    return _likeness(settings, family)[0] == 1 and not find_unread(settings, family)


def find_nearest(settings: Config, families: Sequence[Family]) -> Family:
    """The family whose settings these are most alike."""
    return max(families, key=lambda family: _likeness(settings, family))


def find_unread(settings: Config, family: Family) -> dict[str, Any]:
    """The settings of a config.json that its family does not read, where they say something."""
    known = {each.key for each in family.stated} | family.ignored | FREE | WRITING
    return {
        key: value
        for key, value in settings.items()
        if value and key not in known and not _OF_TRAINING.search(key)
    }


def describe_nearest(settings: Config, families: Sequence[Family]) -> str:
    """The family whose settings these are most alike, and the first setting that differs."""
    family = find_nearest(settings, families)
    return f"the nearest family is {family.model_type}; {_find_difference(settings, family)}"


def _likeness(settings: Config, family: Family) -> tuple[float, int]:
    """(the share of the needed settings that it has, the number of known ones)."""
    keys = list(_keys(family))
    needed = [each.key for each in keys if each.default is REQUIRED]
    there = sum(key in settings for key in needed)
    return there / max(1, len(needed)), sum(each.key in settings for each in keys)


def _keys(family: Family) -> Iterable[Key]:
    return (each for each in family.stated if isinstance(each, Key) and each.key)


def _find_difference(settings: Config, family: Family) -> str:
    for each in _keys(family):
        if each.default is REQUIRED and each.key not in settings:
            return f"its setting {each.key} is missing here"
    for stated in family.stated:
        try:
            stated.check(settings)
            stated.take(settings)
        except ConfigError as error:
            return f"the first setting that differs is {stated.key}={error.value!r}"
        except (TypeError, ValueError, LookupError, AttributeError):
            return f"the first setting that differs is {stated.key}={settings.get(stated.key)!r}"
    known = {each.key for each in family.stated} | family.ignored | FREE | WRITING
    other = next((key for key in settings if key not in known), None)
    if other is None:
        return "no setting differs but its name"
    return f"the first setting that differs is {other}={settings[other]!r}"
