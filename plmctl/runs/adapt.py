"""The settings of a spec that trained weights decide: the model, its positions and its
tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from plmctl.artifacts.adapter_base import refuse_methods
from plmctl.artifacts.assemble import find_long_rows, row_lengths, texts_in_rows
from plmctl.artifacts.loading import Source, open_source
from plmctl.artifacts.model_facts import framing, networks
from plmctl.artifacts.places import Places
from plmctl.config.asked import is_asked
from plmctl.config.build import MISSING, class_of
from plmctl.config.make_spec import spec_of
from plmctl.config.references import UnresolvedReference, work_out
from plmctl.config.schema import OF_THE_MODEL, Finetune, Pretrain
from plmctl.config.spec import key_of, thaw
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, nearest, raise_all
from plmctl.core.terminal import remark_once
from plmctl.core.used_cells import drop_unused_cells
from plmctl.heads.sentences import SENTENCE
from plmctl.interop.sentence_folder import SentenceSettings
from plmctl.runs.row_heads import find_classifier, fit_row_heads, take_layers
from plmctl.runs.trained_adapters import find_adapters

Training = TypeVar("Training", Pretrain, Finetune)
LENGTH = "task.max_length"
WHOLE_DROPOUT = "model.embedding.dropout"  # those of a checkpoint follow it
WHOLE = ("initializer", "classifier")  # settings of a whole model, not of a part


def adapt(spec: Pretrain) -> Pretrain:
    """The spec with all that the model of `init` decides of it; as it is without one."""
    if not spec.init:
        return spec
    return (graft if spec.init_into else adopt)(spec)


def adopt(spec: Pretrain) -> Pretrain:
    """The spec with size, model and position of the model that `init` names, its heads where both
    have them, and its tokenizer.

    The pattern, the objective and the data stay those of the run: that is what further training may
    change. So do the new parts of the model that `own` names. A system whose model has more takes a
    plain model, where `own` has `_target_`, its kind.
    """
    kept = tuple(f"model.{name}" for name in spec.own)
    words = [
        word
        for word in spec.provenance.overrides
        if not any(f"{key_of(word)}.".startswith(f"{path}.") for path in kept)
    ]
    decided = [word for word in words if not _is_dropout(key_of(word))]
    refuse_another_model(decided, ("size", "position", "model", "tokenizer"), key="init")
    assert spec.init
    source = open_source(spec.init, thaw(spec.kept_layers), plugins=spec.plugins)
    refuse_methods(source, "init")
    nodes = {name: source.config[name] for name in ("size", "model", "position")}
    if kept:
        _check_kind(spec, nodes["model"])
    _refuse_longer_rows(spec, Places.of(nodes))
    heads = dict(spec.heads or {})
    heads |= {
        name: node for name, node in (source.config.get("heads") or {}).items() if name in heads
    }
    nodes |= {"heads": heads, "origin": source.config.get("origin")}
    adopted = spec.replace({**nodes, "tokenizer": _tokenizer(spec, source)})
    adopted = keep_dropout(spec, adopted, own=[f"{path}." for path in kept])
    written = spec.provenance.written or spec
    for path in kept:  # with its references: its numbers are those of the adopted size
        part: Any = written
        for key in path.split("."):
            part = part.get(key, MISSING) if isinstance(part, Mapping) else MISSING
        if part is MISSING:
            name = path.removeprefix("model.")
            allowed = f"no part of this run's model{nearest(name, spec.model)}"
            raise ConfigError("own", name, allowed)
        adopted = adopted.with_value(path, part)
    if kept:
        try:
            model = work_out(thaw(adopted))["model"]
            adopted = adopted.replace({"model": drop_unused_cells(model)})
        except UnresolvedReference as error:
            kind = str(nodes["model"]["_target_"]).rpartition(".")[2]
            allowed = f"a model with all that {error.path} refers to; this one is {kind} without it"
            fix = "init=<a run of plmctl pretrain bert>"
            raise ConfigError("init", spec.init, allowed, fix=fix) from error
    # their layers, heads and columns are those of the adopted size, also of a generator
    sized = {name: thaw(written).get(name) for name in ("pattern", "objective")}
    found = work_out({**thaw(adopted), **sized})
    return adopted.replace({name: found[name] for name in sized})


def graft(spec: Pretrain) -> Pretrain:
    """The spec with the network that `init` names as `model.<init_into>`."""
    return _graft(spec, "init", str(spec.init), str(spec.init_into))


def _graft(spec: Training, key: str, origin: str, into: str) -> Training:
    """The spec with the network of `origin` as `model.<into>`, its size and positions for all of
    the model, and its tokenizer. Example: an encoder-decoder whose encoder is BERT (Rothe et al.,
    2020, arXiv:1907.12461).

    Parts that the config derives from that part follow (an encoder-decoder's decoder has the
    embeddings of its encoder). The rest of the model stays as it is written, and is new.

    Args:
        key: The setting that names `origin`.

    Raises:
        ConfigError: The model has no such part, or one of another kind.
    """
    path, words = f"model.{into}", spec.provenance.overrides
    refuse_another_model(words, ("size", "position", "tokenizer"), key=key)
    raise_all(
        [
            ConfigError(
                key_of(word), word.partition("=")[2], f"{key} decides {path}", fix="leave it out"
            )
            for word in words
            if word.lstrip("+~").startswith((f"{path}.", f"{path}="))
        ]
    )
    parts = networks(spec.model)
    if into not in parts:
        known = f"a network inside the model: {', '.join(parts)}{nearest(into, parts)}"
        fix = (
            f"{key}_into={next(iter(parts))}"
            if parts
            else f"model=encoder_decoder, or {key}_into=null"
        )
        raise ConfigError(f"{key}_into", into, known if parts else "null here", fix=fix)
    source = open_source(origin, thaw(spec.kept_layers), plugins=spec.plugins)
    refuse_methods(source, key)
    network = {key: node for key, node in source.config["model"].items() if key not in WHOLE}
    kind = parts[into]["_target_"]
    if network["_target_"] != kind:
        allowed = f"a model of the kind of {path}, {kind}; this one is {network['_target_']}"
        raise ConfigError(key, origin, allowed)
    if isinstance(spec, Pretrain):
        read = source.config["position"].get("max_length")
        _refuse_longer_rows(spec, Places(read, read))
    first = spec.model.get("start")
    if isinstance(first, int) and not 0 <= first < source.vocab_size:
        allowed = (
            f"0 up to {source.vocab_size - 1}, the ids of the vocabulary of {origin}, or a role"
        )
        raise ConfigError("model.start", first, allowed, fix="model.start=bos")
    # with its references: what refers to the new nodes follows them
    tree = thaw(spec.provenance.written or spec)
    tree["tokenizer"], tree["model"][into] = _tokenizer(spec, source), network
    tree |= {name: source.config[name] for name in ("size", "position")}
    verb = "pretrain" if isinstance(spec, Pretrain) else "finetune"
    grafted: Training = spec_of(verb, work_out(tree), spec.provenance)
    return grafted


def complete(spec: Finetune) -> Finetune:
    """The spec with the checkpoint's own model in it, and the heads that fit its kind of
    backbone.
    """
    if spec.kept_layers and not spec.checkpoint:
        allowed = "chooses layers of checkpoint=..., which is not set"
        fix = "checkpoint=<run>, or size.num_layers=<number> for a new model"
        raise ConfigError("kept_layers", thaw(spec.kept_layers), allowed, fix=fix)
    if spec.checkpoint_into and not spec.checkpoint:
        allowed = "maps the weights of checkpoint=..., which is not set"
        raise ConfigError("checkpoint_into", spec.checkpoint_into, allowed)
    if spec.peft and not spec.checkpoint:
        allowed = (
            "trains few weights of a trained model, and none is set; the others would be random"
        )
        fix = "checkpoint=<run>, or leave peft out to train all of a new model"
        raise ConfigError("peft", list(spec.peft), f"{allowed} would stay as they are", fix=fix)
    if spec.checkpoint_into:
        spec = _graft(spec, "checkpoint", str(spec.checkpoint), spec.checkpoint_into)
    elif spec.checkpoint is not None:
        words = [word for word in spec.provenance.overrides if not _is_dropout(key_of(word))]
        refuse_another_model(words, OF_THE_MODEL, key="checkpoint")
        source = open_source(spec.checkpoint, thaw(spec.kept_layers), plugins=spec.plugins)
        refuse_methods(source, "checkpoint")
        return keep_dropout(spec, fit_to(find_adapters(spec, source), source.config))
    return fit_row_heads(spec)


def _is_dropout(key: str) -> bool:
    """Whether a setting of a model is its dropout, a number without weights."""
    return key.startswith(("model.", "position.")) and key.endswith(".dropout")


def keep_dropout(asked: Training, spec: Training, *, own: Sequence[str] = ()) -> Training:
    """The spec of trained weights with the dropout of the user.

    The rate of the embedding holds for all parts of the model without one of their own.

    Args:
        asked: The spec as it was written.
        own: Parts of the model that the weights do not bring, each `model.<name>.`

    Raises:
        ConfigError: The model has no such part.
    """
    origin = spec.get("init") or spec.get("checkpoint")
    if origin is None:
        return spec
    keys = {key for key in asked.provenance.keys if _is_dropout(key)}
    keys = {key for key in keys if key == WHOLE_DROPOUT or not key.startswith(tuple(own))}
    rates = {key: asked.select(key) for key in keys}
    if WHOLE_DROPOUT in rates:
        rate = rates.pop(WHOLE_DROPOUT)
        nodes = {name: _with_dropout(thaw(spec[name]), rate) for name in ("model", "position")}
        spec = spec.replace(nodes)
    for key, rate in rates.items():
        if select(thaw(spec), key) is None:
            allowed = f"a part of the model of {origin}, which has no such one"
            raise ConfigError(key, rate, allowed, fix=f"{WHOLE_DROPOUT}={rate}")
        spec = spec.with_value(key, rate)
    return spec


def _with_dropout(node: Any, rate: float) -> Any:
    """A node of a config in which each dropout has this rate."""
    if isinstance(node, list):
        return [_with_dropout(child, rate) for child in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: rate if key == "dropout" and isinstance(child, float | int) else child
        for name, value in node.items()
        for key, child in [(name, _with_dropout(value, rate))]
    }


def fit_to(spec: Finetune, config: Mapping[str, Any]) -> Finetune:
    """The spec as `complete` makes it for a checkpoint that a run of `config` will have written."""
    return take_layers(fit_row_heads(_take_model(spec, config)), config.get("heads") or {})


def _take_model(spec: Finetune, config: Mapping[str, Any]) -> Finetune:
    """The spec with the model of `config`, and with how its texts were framed."""
    spec = spec.replace({name: config.get(name) for name in (*OF_THE_MODEL, "origin")})
    templates = framing(config)
    unset = [name for name in templates if spec.task.get(name, 0) is None]
    spec = spec.replace({f"task.{name}": templates[name] for name in unset})
    spec = _take_sentence_layers(spec, config)
    if "classifier" in spec.model:
        return spec
    return spec.with_value("model.classifier", find_classifier(spec, config.get("heads") or {}))


def _take_sentence_layers(spec: Finetune, config: Mapping[str, Any]) -> Finetune:
    """The spec with the pooling of a model of sentences, the layers behind it, its longest text and
    its prompts, if its task compares texts. The command line may choose others.
    """
    settings, keys = SentenceSettings.of(config), spec.provenance.keys
    if settings is None or SENTENCE not in (spec.heads or {}) or "pooling" not in spec.task:
        return spec
    own = (config.get("heads") or {}).get(SENTENCE)
    if own is not None and not any(key.startswith(f"heads.{SENTENCE}") for key in keys):
        spec = spec.with_value(f"heads.{SENTENCE}", own)
    length, former = settings.max_length, spec.task.get("max_length")
    if length and former not in (None, length) and not is_asked(spec.provenance, LENGTH):
        remark_once(f"{LENGTH}={length} instead of {former}: the longest text of {spec.checkpoint}")
        spec = spec.with_value(LENGTH, length)
    if "task.pooling" not in keys:
        spec = spec.with_value("task.pooling", settings.pooling)
    own = {"pooling": spec.task.pooling, "max_length": spec.task.get("max_length")}
    own |= {"similarity": spec.task.get("likeness", settings.similarity)}
    return spec.replace({"sentence": {**replace(settings, **own).state(), **(spec.sentence or {})}})


def refuse_another_model(words: Sequence[str], decided: Sequence[str], *, key: str) -> None:
    """`size=` and the like build from scratch; trained weights decide them, so that they would be
    ignored.
    """
    fix = f"leave it out, or {key}=null to start without weights"
    raise_all(
        [
            ConfigError(key_of(word), word.partition("=")[2], f"{key} decides this", fix=fix)
            for word in words
            if key_of(word).partition(".")[0] in decided
        ]
    )


def _tokenizer(spec: Pretrain | Finetune, source: Source) -> dict[str, Any]:
    """The node of the tokenizer with the path of the source's; DataError where it has none."""
    return {**(spec.tokenizer or {}), "path": str(source.tokenizer and source.folder)}


def _refuse_longer_rows(spec: Pretrain, places: Places) -> None:
    known, config = f"the positions that {spec.init} has learned", thaw(spec)
    texts = texts_in_rows(config, spec.plugins)
    raise_all(find_long_rows(row_lengths(config), places, known, texts))


def _check_kind(spec: Pretrain, model: Mapping[str, Any]) -> None:
    """ConfigError where `own` would add parts to a model of another kind than the run's, or than
    the plain one of that; and to layers that have other added cells.
    """
    kinds: Any = [class_of(node, spec.plugins) for node in (model, spec.model)]
    theirs, ours = (kind.__name__ for kind in kinds)
    added = [(node.get("stack") or {}).get("adds") or {} for node in (model, spec.model)]
    if added[0] and thaw(added[1]) != added[0]:
        allowed = f"a model without added cells, or with those of this run; this one is {theirs}"
        raise ConfigError("init", spec.init, allowed, fix="init=<a run of plmctl pretrain bert>")
    if kinds[0] is not kinds[1] and not ("_target_" in spec.own and issubclass(*kinds[::-1])):
        lacks = [name for name in spec.model if name not in model and name not in spec.own]
        without = f" without {', '.join(lacks)}" if lacks else ""
        allowed = (
            f"a model of the kind {ours}, to which own=[{', '.join(spec.own)}] adds;"
            f" this one is {theirs}{without}"
        )
        plain = kinds[1].__mro__[1].__name__ if "_target_" in spec.own else ours
        fix = f"init=<a run whose model is of the kind {plain}>"
        raise ConfigError("init", spec.init, allowed, fix=fix)
