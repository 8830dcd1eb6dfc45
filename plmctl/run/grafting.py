"""A trained model as one part of a new one: an encoder-decoder whose encoder is BERT (Rothe et
al., 2020, arXiv:1907.12461).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from plmctl.core.errors import ConfigError, nearest, raise_all
from plmctl.run.build import plain
from plmctl.run.loading import adopt, open_source, refuse_another_model, refuse_longer_rows

OWN = ("initializer", "classifier")  # of a whole model, none of a part's


def begun(cfg: DictConfig, words: Sequence[str] = (), plugins: Sequence[str] = ()) -> DictConfig:
    """`cfg` with all that the model of `init` decides of this run's; as it is without one."""
    if not cfg.init:
        return cfg
    return (graft if cfg.get("init_into") else adopt)(cfg, words, plugins)


def graft(cfg: DictConfig, words: Sequence[str] = (), plugins: Sequence[str] = ()) -> DictConfig:
    """`cfg` with the network that `init` names as `model.<init_into>`, its size and places for all
    of the model, its tokenizer.

    What the config derives from that part (an encoder-decoder's decoder has the embeddings of its
    encoder) follows; the rest of the model stays as it is written, and is new. ConfigError for a
    part that the model does not have, or one of another kind.
    """
    path = f"model.{cfg.init_into}"
    refuse_another_model(words, ("size", "position", "tokenizer"), key="init")
    raise_all(
        [
            ConfigError(
                word.lstrip("+~").partition("=")[0],
                word.partition("=")[2],
                f"init decides {path}",
                fix="leave it out",
            )
            for word in words
            if word.lstrip("+~").startswith((f"{path}.", f"{path}="))
        ]
    )
    parts = _networks(plain(cfg.model))
    if cfg.init_into not in parts:
        allowed = (
            f"a network inside the model: {', '.join(parts)}{nearest(cfg.init_into, parts)}"
            if parts
            else "null here"
        )
        fix = (
            f"init_into={next(iter(parts))}"
            if parts
            else "model=encoder_decoder, or init_into=null"
        )
        raise ConfigError("init_into", cfg.init_into, allowed, fix=fix)
    source = open_source(cfg.init, plain(cfg.get("kept_layers")), plugins=plugins)
    network = {key: node for key, node in source.config["model"].items() if key not in OWN}
    kind = parts[cfg.init_into]["_target_"]
    if network["_target_"] != kind:
        raise ConfigError(
            "init",
            cfg.init,
            f"a model of the kind of {path}, {kind}; this one is {network['_target_']}",
        )
    refuse_longer_rows(cfg, source.config["position"].get("max_length"))
    # unresolved: what refers to the new nodes follows them
    made = OmegaConf.create(OmegaConf.to_container(cfg))
    assert isinstance(made, DictConfig)
    start = cfg.model.get("start")
    if isinstance(start, int) and not 0 <= start < source.vocab_size:
        allowed = (
            f"0 up to {source.vocab_size - 1}, the ids of the vocabulary of {cfg.init}, or a role"
        )
        raise ConfigError("model.start", start, allowed, fix="model.start=bos")
    made.tokenizer = {
        **(plain(cfg.get("tokenizer")) or {}),
        "path": str(source.tokenizer and source.folder),
    }
    for where, node in (
        (path, network),
        *((name, source.config[name]) for name in ("size", "position")),
    ):
        OmegaConf.update(made, where, node, merge=False)
    resolved = OmegaConf.create(plain(made))
    assert isinstance(resolved, DictConfig)
    return resolved


def _networks(model: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The parts of a model that are models themselves."""
    return {
        name: node
        for name, node in model.items()
        if isinstance(node, Mapping) and "embedding" in node and "stack" in node
    }
