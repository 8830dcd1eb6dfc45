"""Google's checkpoints of BERT, ALBERT and ELECTRA in TensorFlow's format: a folder with `P.index`,
its data, the settings (`bert_config.json`) and the vocabulary.

Differs: `hidden_act: gelu` is the exact GELU, as in the converted files on the hub; the code of
BERT and ALBERT computes its tanh form, which differs by less than 0.001.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.core.terminal import remark
from plmctl.interop import hf
from plmctl.interop.names import Tensors
from plmctl.interop.sizes import guess_heads
from plmctl.interop.tensor_bundle import AGAIN, Bundle
from plmctl.storage.reading import read_json

SKIPPED = re.compile(r"adam_[mv]$|global_step$|^(beta[12]_power|Adam|training)|_CHECKPOINTABLE")
# variables of an ELECTRA's generator, and of the tables that it shares
_GENERATOR, _TABLES = "generator/encoder/", "electra/embeddings/"
EPS = 1e-12  # the constant in their layer norms
# ends of names, theirs -> ours
ENDS = {"gamma": "weight", "beta": "bias", "kernel": "weight", "bias": "bias"}
_BERT = (
    (r"^output_(weights|bias)$", r"classifier.\1"),
    (r"^cls\.squad\.output_", "qa_outputs."),
    (r"^cls\.predictions\.output_bias$", "cls.predictions.bias"),
    (r"^cls\.seq_relationship\.output_", "cls.seq_relationship."),
)
RULES: Mapping[str, Sequence[tuple[str, str]]] = {
    "bert": _BERT,
    "albert": (
        (r"^cls\.predictions\.(transform\.)?", "predictions."),
        (r"^predictions\.output_bias$", "predictions.bias"),
        (r"^cls\.seq_relationship\.output_", "sop_classifier.classifier."),
        (r"^bert\.pooler\.dense\.", "albert.pooler."),
        (r"^bert\.", "albert."),
        (
            r"\.transformer\.group_(\d+)\.inner_group_(\d+)\.",
            r".albert_layer_groups.\1.albert_layers.\2.",
        ),
        (r"\.attention_1\.(self|output)\.", ".attention."),
        (r"(albert_layers\.\d+)\.LayerNorm\.", r"\1.attention.LayerNorm."),
        (r"\.LayerNorm_1\.", ".full_layer_layer_norm."),
        (r"\.ffn_1\.intermediate\.output\.dense\.", ".ffn_output."),
        (r"\.ffn_1\.intermediate\.dense\.", ".ffn."),
        (r"^output_(weights|bias)$", r"classifier.\1"),
    ),
    "electra": (
        (r"^electra\.embeddings_project\.", "electra.embeddings_project."),
        (r"^discriminator_predictions\.dense_1\.", "discriminator_predictions.dense_prediction."),
        (r"^generator_predictions\.output_bias$", "generator_lm_head.bias"),
    ),
}


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder has a checkpoint of TensorFlow, its data or not, and no config.json."""
    found = _find_indices(folder) or [*folder.glob("*.ckpt*.index")]
    return bool(found) and not (folder / "config.json").is_file()


def read(folder: Path, *, generator: bool = False) -> hf.Imported:
    """The model of a folder.

    Args:
        generator: Read the generator of an ELECTRA, which shares the tables of the discriminator
            (google-research/electra, run_pretraining.py), and not the discriminator.

    Raises:
        DataError: The folder has several checkpoints, or one of another family, or no generator.
    """
    found = _find_indices(folder)
    if not found:
        index = min(folder.glob("*.ckpt*.index"))
        what = f"{index.stem}.data-00000-of-00001 is missing: {index.name} only lists its variables"
        raise DataError(what, file=folder, fix=f"put it there, or {AGAIN}")
    if len(found) > 1:
        shown = ", ".join(file.name for file in found[:3])
        fix = "leave one of them, with its data"
        raise DataError(f"there are several checkpoints: {shown}", file=folder, fix=fix)
    bundle = Bundle.open(found[0])
    family = _find_family(bundle, found[0])
    names = {name: name for name in bundle.variables if not SKIPPED.search(name)}
    whole = any(name.startswith(_GENERATOR) for name in names)
    if generator and not whole:
        what = "this checkpoint has no generator of an ELECTRA"
        raise DataError(what, file=found[0], fix="leave out --part generator")
    if generator:
        kept = (_TABLES, "generator/", "generator_predictions/")
        names = {
            re.sub("^generator/", "electra/", name): name for name in names if name.startswith(kept)
        }
    elif whole:
        names = {name: name for name in names if not name.startswith("generator")}
        command = f"plmctl convert {folder} --part generator --to plmctl --out <a folder>"
        remark(f"{folder}: the discriminator is read; its generator: {command}")
    shapes = {name: bundle.variables[own].shape for name, own in names.items()}
    settings = _read_settings(folder, family, shapes, alone=not generator)
    return hf.understand(settings, lambda: rename(bundle, family, names), folder)


def rename(bundle: Bundle, family: str, names: Mapping[str, str]) -> Tensors:
    """The tensors of variables, by the names of transformers.

    Args:
        family: The family of the model.
        names: {the name in a model that is alone: the name in the checkpoint}.
    """
    tensors: dict[str, Tensor] = {}
    for name, own in names.items():
        tensor, parts = bundle.read(own), name.split("/")
        if parts[-1] == "kernel":  # [in, out]
            tensor = tensor.T.contiguous()
        end = ENDS.get(parts[-1])
        spelled = ".".join([*parts[:-1], end or parts[-1]])
        spelled = re.sub(r"\blayer_(\d+)\b", r"layer.\1", spelled)
        for pattern, new in RULES[family]:
            spelled = re.sub(pattern, new, spelled)
        spelled = re.sub(r"\.weights$", ".weight", spelled)
        if spelled.endswith("_embeddings"):
            spelled += ".weight"
        floats = tensor.is_floating_point()
        tensors[spelled] = tensor.to(torch.float32) if floats else tensor
    return tensors


def _find_indices(folder: Path) -> list[Path]:
    return [
        file
        for file in sorted(folder.glob("*.index"))
        if any(folder.glob(f"{file.stem}.data-*-of-*"))
    ]


def _find_family(bundle: Bundle, file: Path) -> str:
    """The family, by its variables."""
    names = bundle.variables
    if "electra/embeddings/word_embeddings" in names:
        return "electra"
    if "bert/embeddings/word_embeddings" not in names:
        shown = ", ".join(list(names)[:3])
        what = f"its variables are none of BERT, ALBERT or ELECTRA: {shown}"
        raise DataError(what, file=file, fix=f"give a checkpoint of one of them, or {AGAIN}")
    return "albert" if any("/group_0/" in name for name in names) else "bert"


def _read_settings(
    folder: Path, family: str, shapes: Mapping[str, tuple[int, ...]], *, alone: bool
) -> dict[str, Any]:
    """The settings of a file, or of the shapes of the variables.

    Args:
        family: The family of the model.
        alone: The file states the sizes of this model, and not of the discriminator.
    """
    measured = _measure(family, shapes)
    files = sorted(folder.glob("*config*.json"))
    own = next((file for file in files if file.stem in (f"{family}_config", "model_config")), None)
    own = own or next(iter(files), None)
    stated = {} if own is None else read_json(own, fix=AGAIN)
    others = _UNREAD if alone else (*_UNREAD, *measured)
    kept = {key: value for key, value in stated.items() if key not in others}
    if not (alone and kept.get(HEADS)):
        name = "model_config.json" if family == "electra" else f"{family}_config.json"
        kept[HEADS] = guess_heads(measured["hidden_size"], folder, name)
    return {**measured, **kept, "model_type": family}


HEADS = "num_attention_heads"
_UNREAD = ("architectures", "ln_type", "net_structure_type", "directionality")


def _measure(family: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The settings that shapes say."""
    home = "electra" if family == "electra" else "bert"

    def shape(end: str) -> tuple[int, ...]:
        return next((shapes[name] for name in shapes if name.endswith(end)), (0, 0))

    tokens = shapes[f"{home}/embeddings/word_embeddings"]
    width = shape("/self/query/kernel")[0]
    pattern = re.compile(rf"{home}/encoder/layer_(\d+)/")
    layers = {match[1] for name in shapes if (match := pattern.match(name))}
    measured = {
        "vocab_size": tokens[0],
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "intermediate_size": shape("/intermediate/dense/kernel")[1],
        "max_position_embeddings": shape("/position_embeddings")[0],
        "type_vocab_size": shape("/token_type_embeddings")[0],
        "layer_norm_eps": EPS,
    }
    return measured | ({} if family == "bert" else {"embedding_size": tokens[1]})
