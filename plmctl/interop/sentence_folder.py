"""Models of sentences in the layout of the library `sentence-transformers`: modules.json, a
Hugging Face folder, and a folder for each layer behind it. The types are names of a list; nothing
is imported for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.heads.sentences import SENTENCE
from plmctl.interop import hf, weights
from plmctl.interop.names import Weights
from plmctl.interop.settings import Config
from plmctl.interop.weights import AGAIN
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.storage.paths import inside
from plmctl.storage.reading import read_json
from plmctl.text.hugging_face import LIMITS, find_limits

MODULES = "modules.json"
TYPES = "sentence_transformers.models."  # the prefix of types that all versions of it read
LAYERS = "plmctl.heads.sentence_layers."
# names of poolings, theirs -> ours, in the order in which the old flags are joined
POOLINGS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt",
    "weightedmean": "weighted",
    "lasttoken": "last",
}
FLAGS = {
    f"pooling_mode_{end}": POOLINGS[name]
    for end, name in {
        "cls_token": "cls",
        "max_tokens": "max",
        "mean_tokens": "mean",
        "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
        "weightedmean_tokens": "weightedmean",
        "lasttoken": "lasttoken",
    }.items()
}
ACTIVATIONS: Mapping[str, str | None] = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.LeakyReLU": "leaky_relu",
}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
UNBOUNDED = 10**9  # a limit of tokens that is none
WHOLE = "config_sentence_transformers.json"
KIND, SPARSE = "SentenceTransformer", "SparseEncoder"
# a sparse encoder: the network with its masked language model, and the weights of the vocabulary
SPARSE_TYPES = "sentence_transformers.sparse_encoder.models."
NETWORKS = ("Transformer", "MLMTransformer")
SPLADE = "SpladePooling"
SPLADE_SETTINGS = {"pooling_strategy": "max", "activation_function": "relu"}
USE = "use it with sentence-transformers"
ORDER = f"Transformer first, then Pooling, then layers of vectors; or {NETWORKS[-1]}, {SPLADE}"


class _Module(TypedDict):
    path: str
    type: str


class _Pooling(TypedDict):
    word_embedding_dimension: NotRequired[int]
    embedding_dimension: NotRequired[int]
    pooling_mode: NotRequired[str | list[str]]
    include_prompt: NotRequired[bool]


class _Splade(TypedDict):
    pooling_strategy: NotRequired[str]
    activation_function: NotRequired[str]


class _Dense(TypedDict):
    in_features: int
    out_features: int
    bias: NotRequired[bool]
    activation_function: NotRequired[str]
    module_input_name: NotRequired[str | None]
    module_output_name: NotRequired[str | None]
    use_residual: NotRequired[bool]


class _Limit(TypedDict):
    max_seq_length: NotRequired[int | None]
    model_max_length: NotRequired[float | None]
    do_lower_case: NotRequired[bool | None]


class _Whole(TypedDict):
    prompts: NotRequired[dict[str, str] | None]
    default_prompt_name: NotRequired[str | None]
    similarity_fn_name: NotRequired[str | None]
    truncate_dim: NotRequired[int | None]
    model_type: NotRequired[str | None]
    max_active_dims: NotRequired[int | None]


@dataclass(frozen=True)
class SentenceSettings:
    """The settings of a model of sentences, apart from its layers.

    Args:
        pooling: Names of poolings (heads/sentences.py), joined by "+" where their vectors are.
        include_prompt: Whether the tokens of a prompt are pooled too.
        prompts: {name: text before each text}.
        default_prompt: The name of the usual prompt; None: none.
        similarity: The likeness of two vectors.
        max_length: Tokens of a text at most; None: as many as the model reads.
        lower: Whether its tokenizer brings texts to lower case first.
    """

    pooling: str = "mean"
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"
    max_length: int | None = None
    lower: bool = False

    @classmethod
    def of(cls, config: Config) -> Self | None:
        """Those of a model's config; None where it is no such model."""
        stated = config.get("sentence")
        return None if stated is None else cls(**stated)

    def find_prompt(self, *names: str) -> str:
        """The text of the first prompt of these names that there is, else of the default; ""."""
        known = next((name for name in names if name in self.prompts), self.default_prompt)
        return self.prompts.get(known or "", "")

    def state(self) -> dict[str, Any]:
        """The settings other than the default, as a config has them."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: dict(v) if isinstance(v, Mapping) else v for name, v in own.items()}
        return {name: v for name, v in plain.items() if v != getattr(type(self)(), name)}


@dataclass(frozen=True)
class _Layer:
    """A layer behind the pooling: its node and its tensors."""

    node: dict[str, Any]
    tensors: Weights


def is_sentence_folder(folder: Path) -> bool:
    """Whether the library has written this folder."""
    return (folder / MODULES).is_file()


def read(folder: Path) -> tuple[hf.Imported, Path]:
    """The model with its pooling and the layers behind it, and the folder of its tokenizer.

    Raises:
        DataError: A type of layer, a pooling or an activation that plmctl has not.
    """
    modules = _list_modules(folder)
    (_, path), *behind = modules
    root = _place(folder, path)
    imported = hf.read(root)
    whole = _read(folder / WHOLE, _Whole)
    kind = SPARSE if SPLADE in dict(modules) else KIND
    settings = SentenceSettings(
        prompts=whole.get("prompts") or {},
        default_prompt=whole.get("default_prompt_name"),
        similarity=_read_similarity(whole, folder / WHOLE, kind),
        **_read_limits(root),
    )
    layers: list[_Layer] = []
    for name, path in behind:
        if name in POOLERS:
            settings = POOLERS[name](_place(folder, path), settings)
        elif name in READERS:
            layers.append(READERS[name](_place(folder, path)))
    if columns := whole.get("truncate_dim"):
        layers.append(_Layer({"_target_": f"{LAYERS}FirstColumns", "columns": columns}, {}))
    heads, tensors = dict(imported.config["heads"]), dict(imported.tensors)
    if layers:
        nodes = [layer.node for layer in layers]
        heads[SENTENCE] = {"_target_": f"{LAYERS}SentenceLayers", "layers": nodes}
    for number, layer in enumerate(layers):
        place = f"heads.{SENTENCE}.layers.{number}."
        tensors |= {f"{place}{name}": tensor for name, tensor in layer.tensors.items()}
    config = {**imported.config, "heads": heads, "sentence": settings.state()}
    return replace(imported, config=config, tensors=tensors), root


def _list_modules(folder: Path) -> list[tuple[str, str]]:
    """(the last word of its type, its folder) of each module; DataError for others than ours."""
    file = folder / MODULES
    modules = [
        (each["type"].rpartition(".")[2], each["path"])
        for each in read_json(file, list[_Module], fix=AGAIN)
    ]
    names = [name for name, _ in modules]
    unknown = next((name for name in names if name not in KNOWN), None)
    if unknown is not None:
        what = f"the module {unknown} is none that plmctl reads{nearest(unknown, KNOWN)}"
        raise DataError(f"{what}: {', '.join(KNOWN)}", file=file, fix=USE)
    first, rest = names[:1], names[2:] if {*names[1:2]} & {*POOLERS} else names[1:]
    wrong = {*NETWORKS, *POOLERS} & {*rest} or (SPLADE in names and rest)
    if not {*first} & {*NETWORKS} or wrong or (first == [NETWORKS[-1]] and SPLADE not in names):
        what = f"its modules are {', '.join(names) or 'none'}"
        raise DataError(f"{what}; plmctl reads {ORDER}", file=file, fix=USE)
    return modules


def _place(folder: Path, path: str) -> Path:
    """The folder of a module, which stays inside of `folder`."""
    if not path:
        return folder

    def refuse(why: str) -> DataError:
        return DataError(f"the path {path!r} {why}", file=folder / MODULES, fix=AGAIN)

    return inside(folder, path, refuse)


def _read(file: Path, kind: Any) -> Any:
    return read_json(file, kind, fix=AGAIN) if file.is_file() else {}


def _read_similarity(whole: Config, file: Path, kind: str) -> str:
    """The likeness of vectors; DataError for a kind of model other than that of its modules, or a
    likeness that is unknown.
    """
    if (stated := whole.get("model_type") or kind) != kind:
        what = f"model_type {stated}: plmctl reads {KIND} with Pooling, {SPARSE} with {SPLADE}"
        raise DataError(what, file=file, fix=USE)
    if kind == SPARSE and whole.get("max_active_dims"):
        what = "max_active_dims, of which plmctl has no limit"
        raise DataError(what, file=file, fix=f"set it to null in {WHOLE}")
    name = whole.get("similarity_fn_name") or (
        SIMILARITIES[1] if kind == SPARSE else SIMILARITIES[0]
    )
    if name not in SIMILARITIES:
        allowed = f"one of {', '.join(SIMILARITIES)}{nearest(name, SIMILARITIES)}"
        raise DataError(f"similarity_fn_name {name}: {allowed}", file=file, fix=AGAIN)
    return str(name)


def _read_limits(root: Path) -> dict[str, Any]:
    """The longest text, and lower case: of the folder of the network, else of its tokenizer."""
    own, tokenizer = _read(find_limits(root), _Limit), _read(root / "tokenizer_config.json", _Limit)
    length = own.get("max_seq_length") or tokenizer.get("model_max_length") or UNBOUNDED
    bounded = int(length) if length < UNBOUNDED else None
    return {"max_length": bounded, "lower": bool(own.get("do_lower_case"))}


def _read_pooling(folder: Path, settings: SentenceSettings) -> SentenceSettings:
    """The settings with the poolings of a folder: new files name them, old ones mark them."""
    file = folder / "config.json"
    stated = read_json(file, _Pooling, fix=AGAIN)
    named = stated.get("pooling_mode")
    if named is None:
        marked: Mapping[str, Any] = read_json(file, fix=AGAIN)
        ours = [name for flag, name in FLAGS.items() if marked.get(flag)]
    else:
        names = [named] if isinstance(named, str) else named
        if unknown := [name for name in names if name not in POOLINGS]:
            allowed = f"one of {', '.join(POOLINGS)}{nearest(unknown[0], POOLINGS)}"
            raise DataError(f"pooling_mode {unknown[0]}: {allowed}", file=file, fix=AGAIN)
        ours = [POOLINGS[name] for name in names]
    pooling = "+".join(ours) or settings.pooling
    return replace(settings, pooling=pooling, include_prompt=stated.get("include_prompt", True))


def _read_splade(folder: Path, settings: SentenceSettings) -> SentenceSettings:
    """The settings with weights of the vocabulary; DataError for a sum, or two logarithms."""
    file = folder / "config.json"
    stated = {**SPLADE_SETTINGS, **read_json(file, _Splade, fix=AGAIN)}
    for key, ours in SPLADE_SETTINGS.items():
        if stated[key] != ours:
            what = f"{key}={stated[key]} is a variant that plmctl has not: {ours}"
            raise DataError(what, file=file, fix=USE)
    return replace(settings, pooling="splade")


def _read_dense(folder: Path) -> _Layer:
    """A linear map; DataError for one of tokens, with a residual sum, or an unknown function."""
    file = folder / "config.json"
    stated = read_json(file, _Dense, fix=AGAIN)
    for key in ("module_input_name", "module_output_name", "use_residual"):
        if (value := stated.get(key)) not in (None, False, "sentence_embedding"):
            raise DataError(f"{key}={value} is a variant that plmctl has not", file=file, fix=USE)
    function = stated.get("activation_function", next(iter(ACTIVATIONS)))
    if function not in ACTIVATIONS:
        allowed = f"one of {', '.join(ACTIVATIONS)}{nearest(function, ACTIVATIONS)}"
        raise DataError(f"activation_function {function}: {allowed}", file=file, fix=USE)
    node = {
        "_target_": f"{LAYERS}SentenceDense",
        "inputs": stated["in_features"],
        "columns": stated["out_features"],
        "bias": stated.get("bias", True),
        "activation": ACTIVATIONS[function],
    }
    return _Layer(node, weights.read(folder))


def _read_norm(folder: Path) -> _Layer:
    tensors = weights.read(folder)
    node = {"_target_": f"{LAYERS}Norm", "columns": len(tensors["norm.weight"])}
    return _Layer(node, tensors)


READERS: Mapping[str, Callable[[Path], _Layer]] = {
    "Dense": _read_dense,
    "LayerNorm": _read_norm,
    "Normalize": lambda _: _Layer({"_target_": f"{LAYERS}UnitLength"}, {}),
}
POOLERS: Mapping[str, Callable[[Path, SentenceSettings], SentenceSettings]] = {
    "Pooling": _read_pooling,
    SPLADE: _read_splade,
}
KNOWN = (*NETWORKS, *POOLERS, *READERS, "Dropout")


def write(
    folder: Path,
    settings: SentenceSettings,
    layers: Sequence[tuple[Config, Weights]],
    *,
    width: int,
) -> None:
    """Write all but the network, which is in `folder`.

    Args:
        settings: The settings of the model.
        layers: The node and the tensors of each layer behind the pooling.
    """
    whole = {
        "model_type": KIND,
        "prompts": dict(settings.prompts),
        "default_prompt_name": settings.default_prompt,
        "similarity_fn_name": settings.similarity,
    }
    flags = {flag: name in settings.pooling.split("+") for flag, name in FLAGS.items()}
    own = {"word_embedding_dimension": width, **flags, "include_prompt": settings.include_prompt}
    modules: list[tuple[str, dict[str, Any], Weights]] = [("Pooling", own, {})]
    for node, tensors in layers:
        name = node["_target_"].removeprefix(LAYERS)
        if name == "FirstColumns":
            whole["truncate_dim"] = node["columns"]
        else:
            modules.append((*WRITERS[name](node), tensors))
    _write_modules(folder, settings, whole, modules, types=TYPES)


def write_sparse(folder: Path, settings: SentenceSettings, *, vocab_size: int) -> None:
    """Write all of a sparse encoder but the network and its masked language model, which are in
    `folder`.

    Args:
        vocab_size: Columns of a vector.
    """
    whole = {
        "model_type": SPARSE,
        "prompts": dict(settings.prompts),
        "default_prompt_name": settings.default_prompt,
        "similarity_fn_name": SIMILARITIES[1],
    }
    own = {**SPLADE_SETTINGS, "word_embedding_dimension": vocab_size}
    _write_modules(folder, settings, whole, [(SPLADE, own, {})], types=SPARSE_TYPES)


def _write_modules(
    folder: Path,
    settings: SentenceSettings,
    whole: Config,
    modules: Sequence[tuple[str, dict[str, Any], Weights]],
    *,
    types: str,
) -> None:
    """Write the settings, and a folder for each module behind the network, which is `NETWORKS[0]`,
    or `NETWORKS[1]` of a sparse encoder.
    """
    limits = {"max_seq_length": settings.max_length, "do_lower_case": settings.lower}
    _write(folder / LIMITS[0], limits)
    _write(folder / WHOLE, whole)
    network = NETWORKS[types == SPARSE_TYPES]
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{types}{network}"}]
    for number, (name, config, tensors) in enumerate(modules, 1):
        place = f"{number}_{name}"
        admit(folder / place).mkdir()
        _write(folder / place / "config.json", config)
        if tensors:
            weights.write(folder / place, tensors)
        listed.append({"idx": number, "name": str(number), "path": place, "type": types + name})
    _write(folder / MODULES, listed)


def _state_dense(node: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    functions = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    if (function := node.get("activation")) not in functions:
        allowed = f"one of {', '.join(filter(None, functions))}: sentence-transformers has no other"
        raise ConfigError(f"heads.{SENTENCE}.activation", function, allowed, fix="--to plmctl")
    return "Dense", {
        "in_features": node["inputs"],
        "out_features": node["columns"],
        "bias": node.get("bias", True),
        "activation_function": functions[function],
    }


WRITERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]] = {
    "SentenceDense": _state_dense,
    "Norm": lambda node: ("LayerNorm", {"dimension": node["columns"]}),
    "UnitLength": lambda _: ("Normalize", {}),
}


def _write(file: Path, content: Any) -> None:
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
