"""From a resolved config to a model: the one way in which pretraining, fine-tuning, loading and
conversion make theirs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from plmctl.artifacts.places import TARGET, Places
from plmctl.config.build import build, class_of, entry, parameters_of, place_mistake, plain
from plmctl.config.injected import ToHeads, ToObjectives
from plmctl.core.errors import ConfigError
from plmctl.core.locate import parameters
from plmctl.heads.base import WORDS, about_of
from plmctl.heads.features import BEFORE_HEADS
from plmctl.models.base import Model
from plmctl.nn.peft.base import Method
from plmctl.objectives.costs import find_costs
from plmctl.objectives.mix import Entry, Mix
from plmctl.text.vocab import Vocab

# the parts of a config that a model is built from
NEEDED = ("size", "pattern", "position", "model")
NODES = (*NEEDED, "heads", "peft")  # and what may be there
LENGTHS = ("max_length", TARGET)  # the lengths of a format


# how torch says that a tensor cannot be, whatever memory there is
_NO_TENSOR = re.compile("overflow|negative dimension|out of range|too large", re.IGNORECASE)


class _NoDraws(TorchFunctionMode):
    """Weights that have no values are not drawn: on the meta device torch imports its compiler to
    draw normal ones.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            weights: Tensor = args[0] if args else kwargs["tensor"]
            if weights.is_meta:
                return weights
        return func(*args, **kwargs)


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Models that are built inside have parameters of a shape, but no memory and no values."""
    with torch.device("meta"), _NoDraws():
        yield


def build_model(
    config: Any,
    *,
    vocab_size: int,
    vocab: Vocab | None = None,
    heads: Mapping[str, Any] | None = None,
    seed: int | None = None,
    plugins: Sequence[str] = (),
) -> Model:
    """The model of `config`; `heads`, if not None, replace the config's own.

    `vocab`: which ids have a role; without it, a part whose config names a role can be looked at
    but not run. With `seed`, the backbone's `initializer` draws all first weights from a generator
    of its own; without, they are to be loaded. The state of torch's global generator is left as it
    was.
    """
    config = settle_lengths(config, plugins=plugins)
    nodes = (config.get("heads") or {}) if heads is None else plain(heads)
    given = {"vocab_size": vocab_size, **config["size"], "max_length": longest(config)}
    given |= {"vocab": vocab} if vocab else {}
    with torch.random.fork_rng(devices=[]), _blame_sizes(config, vocab_size):
        width = (config["model"].get("embedding") or {}).get("table_width") or given["width"]
        tables, slots = given | {"width": width}, {}
        for name in ("pattern", "position"):
            slots[name] = build(config[name], tables, plugins, path=name)
        if config.get("kernel"):
            slots["attention_kernel"] = build(config["kernel"], {}, plugins, path="kernel")
        backbone = build(config["model"], given | slots, plugins, path="model")
        known = ToHeads(
            width=backbone.width,
            state_width=backbone.width,
            num_layers=backbone.num_layers,
            token_embedding=backbone.token_embedding,
        )
        built: dict[str, nn.Module] = {}
        for name in dict.fromkeys([*BEFORE_HEADS, *nodes]):
            if nodes.get(name) is None:
                continue
            # heads over the vocabulary read the states that they were trained on
            words = _predicts_words(nodes[name], plugins)
            facts = replace(known, width=backbone.width) if words else known
            built[name] = build(nodes[name], given | facts.by_name(), plugins, path=f"heads.{name}")
            if name in BEFORE_HEADS:  # it decides how wide the next ones are
                known = replace(known, width=built[name].width)  # type: ignore[arg-type]
        model = Model(backbone=backbone, heads=built)
        topics = {about_of(head) for head in built.values()} - {"features"}
        backbone.serve(words=not topics.isdisjoint(WORDS), rows=topics == {"rows"})
        for name, node in (plain(config.get("peft")) or {}).items():
            add_method(model, node, name, plugins)
    if seed is not None:
        if backbone.initializer is None:
            allowed = "a rule for the first weights"
            raise ConfigError("model.initializer", None, allowed, fix="take one of plmctl.nn.init")
        backbone.initializer(model, generator=torch.Generator().manual_seed(seed))
    return model


@contextlib.contextmanager
def _blame_sizes(config: Mapping[str, Any], vocab_size: int) -> Iterator[None]:
    """ConfigError for the largest size, instead of torch's error about an impossible tensor."""
    try:
        yield
    except (RuntimeError, OverflowError) as error:
        if not _NO_TENSOR.search(str(error)):
            raise
        sizes = {f"size.{name}": number for name, number in config["size"].items()}
        sizes |= {"tokenizer.vocab_size": vocab_size, "position.max_length": longest(config)}
        sizes = {path: number for path, number in sizes.items() if type(number) is int}
        path = max(sizes, key=lambda path: (sizes[path] < 0, sizes[path]))
        problem = "no tensor of this size can be: " + str(error).splitlines()[0]
        raise ConfigError(path, sizes[path], problem, fix="size=tiny") from error


def _predicts_words(node: Any, plugins: Sequence[str]) -> bool:
    """Whether a node is a head over the vocabulary; its mistakes are reported when it is built."""
    try:
        return getattr(class_of(node, plugins), "about", None) in WORDS
    except (ValueError, KeyError, TypeError):
        return False


def add_method(model: Model, node: Any, name: str, plugins: Sequence[str] = ()) -> None:
    """Add the parts that a method of parameter-efficient fine-tuning trains; a mistake names its
    config path.
    """
    method: Method = build(node, {}, plugins, path=f"peft.{name}")
    try:
        method.add_to(model.backbone)
    except ConfigError as error:
        if error.path in node:
            raise place_mistake(error, f"peft.{name}", node) from None
        if error.path.startswith(f"peft.{name}."):
            raise
        raise ConfigError(f"peft.{name}", error.value, error.allowed, fix=error.fix) from None
    model.methods.append(method)


def known_to_objectives(
    model: Model, vocab: Vocab | None = None, *, vocab_size: int | None = None
) -> dict[str, Any]:
    """The values that an objective and its own parts may take, by these names.

    Args:
        vocab: Without one, nothing may ask for it.
        vocab_size: Default: the size of `vocab`.
    """
    backbone = model.backbone
    table: Any = getattr(backbone.token_embedding, "weight", None)
    size = vocab.size if vocab and vocab_size is None else vocab_size
    known = ToObjectives(
        model=model,
        width=backbone.width,
        vocab_size=size or 0,
        max_length=backbone.max_length,
        table_width=backbone.width if table is None else int(table.shape[1]),
    ).by_name()
    return known | ({"vocab": vocab} if vocab else {})


def build_objective(
    nodes: Any,
    model: Model,
    vocab: Vocab | None = None,
    *,
    seed: int,
    vocab_size: int | None = None,
    plugins: Sequence[str] = (),
) -> Mix:
    """The mix of all objectives of `model`, each with its weight and the data source it looks at;
    [] has no objective.

    `seed` fixes the first weights that objectives own; the state of torch's global generator is
    left as it was.

    Args:
        nodes: {name: part}, those under `objective`.
    """
    given, entries = known_to_objectives(model, vocab, vocab_size=vocab_size), {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, node in (plain(nodes) or {}).items():
            part, weight, source = entry(node, f"objective.{name}")
            entries[name] = Entry(
                build(part, given, plugins, path=f"objective.{name}"), weight, source
            )
    return Mix(entries, find_costs(model))


def settle_lengths(config: Any, *, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """`config` as plain data whose position part states its own `max_length`, so that the model
    stands without the format. Where positions have no bound, the parts of its model that need a
    length state it.
    """
    config = dict(plain(config))
    missing = [name for name in NEEDED if not config.get(name)]
    if missing:
        fix = "use the config.yaml of a run or checkpoint"
        raise ConfigError(missing[0], None, f"a model needs {', '.join(NEEDED)}", fix=fix)
    position = dict(config["position"])
    try:
        takes = parameters(class_of(position, plugins))
    except ValueError as error:
        raise ConfigError("position._target_", position.get("_target_"), str(error)) from error
    if position.get("max_length") is None and "max_length" in takes:
        texts = texts_in_rows(config, plugins)
        needed = [-(-rows // texts[path]) for path, rows in row_lengths(config).items()]
        position["max_length"] = max(needed, default=None)
    if "max_length" not in takes and (length := longest(config)) is not None:
        config["model"] = _state_length(config["model"], length, plugins)
    return config | {"position": position}


def _state_length(node: Any, length: int, plugins: Sequence[str]) -> Any:
    """`node` in which every part that needs a `max_length` states one."""
    if not isinstance(node, dict):
        return node
    stated = {key: _state_length(part, length, plugins) for key, part in node.items()}
    needed = (parameters_of(node, plugins) or {}).get("max_length")
    if needed is not None and needed.default is needed.empty:
        stated.setdefault("max_length", length)
    return stated


def longest(config: Mapping[str, Any]) -> int | None:
    """The longest row that `config` ever makes: of its position, its format, its sources'
    formats, and those of all stages.
    """
    positions = (config.get("position") or {}).get("max_length")
    lengths = list(row_lengths(config).values())
    return max([*lengths, *([] if positions is None else [int(positions)])], default=None)


def texts_in_rows(config: Mapping[str, Any], plugins: Sequence[str] = ()) -> dict[str, int]:
    """{config path of a length of rows: the texts that stand side by side in such a row, each with
    positions of its own}.
    """
    return {path: _texts_at(config, path, plugins) for path in row_lengths(config)}


def _texts_at(config: Mapping[str, Any], path: str, plugins: Sequence[str]) -> int:
    node: Any = config
    for key in re.sub(r"^train\.stages\.\d+\.", "", path).split(".")[:-1]:
        node = (node or {}).get(key)
    try:
        return int(getattr(class_of((node or {}), plugins), "texts_in_row", 1))
    except ValueError:
        return 1  # a part that does not exist is reported where it is built


def find_long_rows(
    lengths: Mapping[str, int], places: Places, which: str, texts: Mapping[str, int] = {}
) -> list[ConfigError]:
    """Every length of rows, {config path: tokens}, beyond the positions of a model. `which` names
    these positions, and `texts` is the result of `texts_in_rows`.
    """
    return [
        ConfigError(path, length, f"at most {most}, {which}", fix=f"{path}={most}")
        for path, length in lengths.items()
        if (place := places.at(path)) is not None and length > (most := place * texts.get(path, 1))
    ]


def row_lengths(config: Mapping[str, Any]) -> dict[str, int]:
    """{config path: tokens} of every length that a format of `config` is given, for a source or
    a target, in any stage.
    """
    train, data = config.get("train") or {}, config.get("data") or {}
    formats = {"format": config.get("format")}
    for name, node in (data.get("sources") or {}).items():
        formats[f"data.sources.{name}.format"] = (node or {}).get("format")
    lengths = {
        f"{path}.{name}": (node or {}).get(name)
        for path, node in formats.items()
        for name in LENGTHS
    }
    for number, stage in enumerate(train.get("stages") or []):
        for key, value in stage.items():
            if key.endswith(tuple(f"format.{name}" for name in LENGTHS)):
                lengths[f"train.stages.{number}.{key}"] = value
    return {path: int(length) for path, length in lengths.items() if length is not None}
