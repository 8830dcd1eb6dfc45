"""Complete folders in Hugging Face's layout: config.json and weights, to and from a plmctl config
and its tensors.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import ConfigError, DataError, list_some, nearest
from plmctl.core.terminal import remark
from plmctl.generation import published
from plmctl.interop import labels, weights
from plmctl.interop.albert import AlbertFamily
from plmctl.interop.bart import BartFamily
from plmctl.interop.bert import BertFamily
from plmctl.interop.big_bird import BigBirdFamily
from plmctl.interop.bigbird_pegasus import BigBirdPegasusFamily
from plmctl.interop.blenderbot_small import BlenderbotSmallFamily
from plmctl.interop.classes import architecture_for, architecture_of, bare_in
from plmctl.interop.convbert import ConvBertFamily
from plmctl.interop.deberta import DebertaFamily, DebertaV2Family
from plmctl.interop.difference import fold_layers, spell_layouts
from plmctl.interop.distilbert import DistilBertFamily
from plmctl.interop.electra import ElectraFamily
from plmctl.interop.ernie import ErnieFamily
from plmctl.interop.eurobert import EuroBertFamily
from plmctl.interop.family import (
    TOKENS,
    Architecture,
    Family,
    compare_heads,
    drop_aliases,
    find_token_tables,
)
from plmctl.interop.flaubert import FlaubertFamily
from plmctl.interop.fnet import FNetFamily
from plmctl.interop.funnel import FunnelBaseFamily, FunnelFamily
from plmctl.interop.gpt1 import GPTFamily
from plmctl.interop.gpt2 import GPT2Family
from plmctl.interop.gpt_neo import GPTNeoFamily
from plmctl.interop.led import LEDFamily
from plmctl.interop.longformer import LongformerFamily
from plmctl.interop.luke import LukeFamily
from plmctl.interop.m2m_100 import M2M100Family
from plmctl.interop.marian import MarianFamily
from plmctl.interop.mbart import MBartFamily
from plmctl.interop.mobilebert import MobileBertFamily
from plmctl.interop.modernbert import ModernBertFamily
from plmctl.interop.modernbert_decoder import ModernBertDecoderFamily
from plmctl.interop.mpnet import MPNetFamily
from plmctl.interop.mt5 import MT5EncoderFamily, MT5Family
from plmctl.interop.names import Tensors, Weights, to_ours, to_theirs
from plmctl.interop.neobert import NeoBertFamily
from plmctl.interop.nezha import NezhaFamily
from plmctl.interop.pegasus import PegasusFamily
from plmctl.interop.reformer import ReformerFamily
from plmctl.interop.refusals import (
    LIST,
    UNNAMED,
    describe_nearest,
    find_nearest,
    find_unread,
    is_complete,
    refuse_code,
    refuse_quantised,
)
from plmctl.interop.roberta import RobertaFamily
from plmctl.interop.roformer import RoFormerFamily
from plmctl.interop.settings import Config, Numbers, refuse_huge
from plmctl.interop.sizes import Explain, explain, find_other_vocabulary
from plmctl.interop.t5 import T5EncoderFamily, T5Family
from plmctl.interop.transfo_xl import TransfoXLFamily
from plmctl.interop.umt5 import UMT5EncoderFamily, UMT5Family
from plmctl.interop.weights import modernize_names
from plmctl.interop.xlm import XLMFamily
from plmctl.interop.xlm_roberta import CamembertFamily, XLMRobertaFamily
from plmctl.interop.xlnet import XLNetFamily
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.storage.reading import fit_stored, read_json

FAMILIES: tuple[Family, ...] = (
    BertFamily(),
    RobertaFamily(),
    GPT2Family(),
    GPTNeoFamily(),
    GPTFamily(),
    ElectraFamily(),
    AlbertFamily(),
    BartFamily(),
    MarianFamily(),
    MBartFamily(),
    PegasusFamily(),
    M2M100Family(),
    BlenderbotSmallFamily(),
    BigBirdPegasusFamily(),
    T5Family(),
    T5EncoderFamily(),
    MT5Family(),
    MT5EncoderFamily(),
    UMT5Family(),
    UMT5EncoderFamily(),
    XLNetFamily(),
    ReformerFamily(),
    LongformerFamily(),
    LukeFamily(),
    LEDFamily(),
    BigBirdFamily(),
    TransfoXLFamily(),
    DistilBertFamily(),
    XLMRobertaFamily(),
    CamembertFamily(),
    MPNetFamily(),
    ErnieFamily(),
    ModernBertFamily(),
    ModernBertDecoderFamily(),
    EuroBertFamily(),
    NeoBertFamily(),
    RoFormerFamily(),
    DebertaFamily(),
    DebertaV2Family(),
    NezhaFamily(),
    ConvBertFamily(),
    FNetFamily(),
    MobileBertFamily(),
    FunnelFamily(),
    FunnelBaseFamily(),
    XLMFamily(),
    FlaubertFamily(),
)


NAMED = 20  # tensors that one message names


@dataclass(frozen=True)
class Imported:
    """A published model as a plmctl config and tensors."""

    config: dict[
        str, Any
        # size, pattern, position, model, heads; origin: {family, pad}; labels: names of classes, if
        # it has any
    ]
    tensors: Tensors
    unused: list[str]  # tensors of the folder that we do not use
    # finds the settings that differ from the shapes of the tensors
    explain: Explain = lambda *_: ("", "")


@dataclass(frozen=True)
class Exported:
    """Our model as a published class."""

    architecture: str
    settings: dict[str, Any]
    tensors: Tensors
    # heads and other parts that the published class lacks
    left_out: list[str] = field(default_factory=list)
    # on tensors that differ from the imported ones
    notes: list[str] = field(default_factory=list)
    # further settings of `generation_config.json`; None: the class does not write
    writing: Config | None = None


def read(
    folder: Path,
    *,
    over: Weights = MappingProxyType({}),
    end: str = "",
    stated: Config = MappingProxyType({}),
) -> Imported:
    """Read config and weights of a Hugging Face folder.

    Args:
        over: Tensors that replace or extend those of the folder, by their published names.
        stated: Settings that replace or extend those of config.json.
        end: The end of the name of the published class as which they are read; "": as config.json
            says.

    Raises:
        ConfigError: for a class or a setting that our parts cannot express.
        DataError: for missing or damaged files.
    """
    settings = {**_settings(folder), **stated}
    return understand(settings, lambda: weights.read(folder), folder, over=over, end=end)


def understand(
    settings: Config,
    read_tensors: Callable[[], Tensors],
    folder: Path,
    *,
    over: Weights = MappingProxyType({}),
    end: str = "",
) -> Imported:
    """A model by the settings and the names of transformers, wherever they are from.

    Args:
        settings: Its config.json.
        folder: Its folder, for messages.
        over: Tensors that replace or extend these, as for `read`.
        end: The end of the name of the published class, as for `read`.
    """
    family, name, numbers, settings = _read_numbers(settings, folder)
    published = modernize_names({**read_tensors(), **over})
    name = _choose_class(family, name, end)
    published = drop_aliases(published, family.ties, family.prefix, tied=numbers.tied)
    with _blame_settings(folder):
        numbers, published = family.adapt(numbers, published)
    architecture, published = _find_architecture(family, name, published)
    rules = family.table(numbers, architecture)
    absent = family.find_absent(published, rules, numbers)
    if absent:
        raise DataError(
            f"{architecture.name} without its tensors {list_some(absent, NAMED)}",
            file=folder,
            fix="download the whole model",
        )
    ours, unused = to_ours(published, rules)
    problem, fix = find_other_vocabulary(family, numbers, ours)
    if problem and not over:
        raise DataError(problem, file=folder, fix=fix)
    heads = {
        head: family.head(head, numbers, labels.count(head, ours)) for head in architecture.heads
    }
    origin = {"family": family.model_type, "pad": numbers.pad, **family.remember(numbers)}
    if _writes(heads) and (stated := _read_writing(settings, folder)):
        origin["writing"] = stated
    config = {
        **family.nodes(numbers),
        "heads": heads,
        "origin": origin,
        **labels.read_names(settings, architecture),
    }
    if line := family.describe_reading(numbers):
        _tell_once(f"{folder}: {line}")
    config, ours = labels.read_several(settings, config, ours)
    return Imported(config, ours, unused, functools.partial(explain, family, numbers))


def _read_numbers(
    settings: Config, folder: Path
) -> tuple[Family, str | None, Numbers, Mapping[str, Any]]:
    """The family, its class if one is named, its numbers, and the settings as they fit it."""
    file = folder / "config.json"
    settings = fit_stored(dict(settings), _Named, file=file, fix=weights.AGAIN)
    family, name = _family_of(settings, folder)
    refuse_code(settings, file, family)
    refuse_quantised(settings, file)
    settings = fit_stored(settings, family.schema, file=file, fix=weights.AGAIN)
    if unread := find_unread(settings, family):
        shown = list_some([f"{key}={value!r}" for key, value in unread.items()])
        _tell_once(f"{file}: {family.model_type} has no such settings; they are not read: {shown}")
    with _blame_settings(folder):
        numbers = family.numbers(settings)
    refuse_huge(numbers, file)
    return family, name, numbers, settings


def _find_architecture(
    family: Family, name: str | None, published: Tensors
) -> tuple[Architecture, Tensors]:
    """The class of tensors, and these with the prefix of that class."""
    architecture = architecture_of(family, name, published)
    # the name of a class with heads, but only the backbone
    if not architecture.bare and not any(key.startswith(family.prefix) for key in published):
        if architecture.tensors:
            architecture = bare_in(family, published)
        else:  # its heads are tied to the table and have no tensors
            own = {part for rule in architecture.rules for part in rule.theirs}
            published = {
                key if key in own else family.prefix + key: tensor
                for key, tensor in published.items()
            }
    if architecture.bare and any(key.startswith(family.prefix) for key in published):
        published = {key.removeprefix(family.prefix): tensor for key, tensor in published.items()}
    return architecture, published


@contextlib.contextmanager
def _blame_settings(folder: Path) -> Iterator[None]:
    """Name the folder of a setting that our parts cannot express, and what is read."""
    try:
        yield
    except ConfigError as error:
        place = error.path.replace("config.json", str(folder / "config.json"), 1)
        raise ConfigError(place, error.value, error.allowed, fix=error.fix or LIST) from error


@functools.cache  # a command opens a folder several times
def _tell_once(line: str) -> None:
    remark(line)


def _choose_class(family: Family, name: str | None, end: str) -> str | None:
    """The class of a family with this end of its name; `name` where it has it, or none has."""
    known = [architecture.name for architecture in family.architectures]
    chosen = next((each for each in known if each.endswith(end)), name) if end else name
    return name if name and end and name.endswith(end) else chosen


class _Writing(TypedDict):
    """Settings that version 5 writes into `generation_config.json`, earlier ones into
    `config.json`.
    """

    decoder_start_token_id: NotRequired[int | None]
    forced_bos_token_id: NotRequired[int | None]


# ids that both files state
_WRITING_IDS = tuple(f"{role}_token_id" for role in ("pad", "bos", "eos"))
_WRITING_IDS += tuple(_Writing.__annotations__)


class _Named(TypedDict):
    """How a `config.json` names its class."""

    architectures: NotRequired[list[str] | None]
    model_type: NotRequired[str | None]
    auto_map: NotRequired[dict[str, Any] | None]
    quantization_config: NotRequired[dict[str, Any] | None]
    compression_config: NotRequired[dict[str, Any] | None]


def export(config: Config, tensors: Weights, *, pad: int | None = None) -> Exported:
    """Convert a plmctl model to a published class.

    Args:
        config: The config as plain data, whose position states its own `max_length`
            (`run.assemble.settle_lengths`).
        pad: The id of the padding token.
    """
    several = labels.has_several(config)
    if counted := next((name for name in tensors if name.endswith(".counted")), ""):
        allowed = "norms that count all columns: no published class leaves some out"
        raise ConfigError("model", counted, allowed, fix="--compact --to hf")
    config, tensors, unread = _simplify(config, tensors)
    family, numbers, misfits = _match_family(config, tensors, _pad_of(config, pad))
    heads = [name for name, node in (config.get("heads") or {}).items() if node is not None]
    architecture, lost = architecture_for(family, [name for name in heads if name not in misfits])
    lost += misfits
    kept = {
        name: t
        for name, t in tensors.items()
        if not any(name.startswith(f"heads.{head}.") for head in lost)
    }
    rules = family.table(numbers, architecture)
    theirs, left = to_theirs(kept, rules)
    if left:
        raise ConfigError("model", ", ".join(left), f"only tensors that {architecture.name} has")
    theirs = family.complete(theirs, numbers, architecture)
    if not numbers.tied:
        theirs |= {
            alias: theirs[home].clone()
            for alias, home in family.ties.items()
            if alias.endswith(".bias") and home in theirs
        }
    settings = family.settings(numbers) | {"architectures": [architecture.name], "dtype": "float32"}
    ours = {"class": labels.SEVERAL} if several else {}
    writes = _writes({name: family.head(name, numbers, 0) for name in architecture.heads})
    left_out = [
        *(f"heads.{ours.get(head, head)}" for head in lost),
        *unread,
        *family.list_unexpressed(config),
    ]
    notes = [
        f"{name}: {rule.note}"
        for rule in rules
        for name in rule.theirs
        if rule.note and name in theirs
    ]
    return Exported(
        architecture.name,
        settings | labels.spell(config, architecture, tensors, several=several),
        theirs,
        left_out,
        notes,
        (config.get("origin") or {}).get("writing", {}) if writes else None,
    )


def write(folder: Path, exported: Exported, *, tokens: Mapping[str, int | None]) -> None:
    """Write config.json (with the ids of special tokens), generation_config.json of a class that
    writes, and the weights.
    """
    admit(folder).mkdir(parents=True, exist_ok=True)
    ids = {
        f"{role}_token_id": tokens[role]
        for role in ("pad", "bos", "eos")
        if tokens.get(role) is not None
    }
    settings = {
        **exported.settings,
        **{key: number for key, number in ids.items() if key not in exported.settings},
    }
    start = settings.get("decoder_start_token_id")
    if isinstance(start, str):
        if tokens.get(start) is None:
            allowed = "an id, since there is no tokenizer to give the id of this role"
            raise ConfigError("model.start", start, allowed, fix="model.start=2")
        settings["decoder_start_token_id"] = tokens[start]
    if settings.get("sep_token_id") == "sep":  # the role, which has an id where there is one
        separator = tokens.get("sep")
        settings = {key: value for key, value in settings.items() if key != "sep_token_id"}
        settings |= {} if separator is None else {"sep_token_id": separator}
    write_text(folder / "config.json", json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    if exported.writing is not None:
        own = {key: settings[key] for key in _WRITING_IDS if settings.get(key) is not None}
        text = json.dumps(own | {**exported.writing}, indent=2)
        write_text(folder / published.FILE, text + "\n")
    weights.write(folder, exported.tensors)


def _writes(heads: Mapping[str, Any]) -> bool:
    """Whether a head predicts next tokens."""
    return any((node or {}).get("about") == "next" for node in heads.values())


def _read_writing(settings: Config, folder: Path) -> dict[str, Any]:
    """The settings of writing that say something: those of config.json, where no other file states
    them.
    """
    file = folder / published.FILE
    return published.find_stated(read_json(file, fix=weights.AGAIN) if file.is_file() else settings)


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise DataError("no config.json here", file=folder, fix=weights.CONFIG)
    settings: dict[str, Any] = read_json(file, fix=weights.AGAIN)
    own = folder / published.FILE
    written = read_json(own, _Writing, fix=weights.AGAIN) if own.is_file() else {}
    known = _Writing.__annotations__.keys()
    return settings | {
        key: value for key, value in written.items() if key in known and settings.get(key) is None
    }


def _family_of(settings: Config, folder: Path) -> tuple[Family, str | None]:
    """The family, and the published class if config.json names one."""
    name = next(iter(settings.get("architectures") or []), None)
    stated, file = settings.get("model_type"), folder / "config.json"
    known = [family for family in FAMILIES if any(a.name == name for a in family.architectures)]
    family = next((family for family in (*known, *FAMILIES) if family.model_type == stated), None)
    family = next(iter(known), family)
    if name is None and stated is None:
        near = find_nearest(settings, FAMILIES)
        if near.model_type == UNNAMED and is_complete(settings, near):
            _tell_once(f"{file}: it names no model_type, and is read as {UNNAMED}")
            return near, None
        what = f"it has no model_type; {describe_nearest(settings, FAMILIES)}"
        fix = f'add "model_type": "{near.model_type}", if it is one'
        raise DataError(what, file=file, fix=fix)
    if family is None or (name is not None and not known):
        if family is None:
            refuse_code(settings, file, None)
            refuse_quantised(settings, file)
            kinds = sorted({family.model_type for family in FAMILIES})
            allowed = (
                "a family that plmctl reads:"
                f" {', '.join(kinds)}{nearest(str(stated), kinds)};"
                f" {describe_nearest(settings, FAMILIES)}"
            )
            raise ConfigError(f"{file}: model_type", stated, allowed)
        classes = list(dict.fromkeys(architecture.name for architecture in family.architectures))
        allowed = f"one of {', '.join(classes)}{nearest(str(name), classes)}"
        raise ConfigError(f"{file}: architectures", name, allowed)
    if known and stated not in (None, *(each.model_type for each in known)):
        said = f"model_type is {stated}, and {name} is a class of {family.model_type}"
        _tell_once(f"{file}: {said}: it is read as {family.model_type}")
    return family, name


@dataclass(frozen=True)
class _Comparison:
    """Our model as a member of one family."""

    family: Family
    numbers: Numbers
    differences: list[str]  # differences of the structure
    unstated: list[str]  # settings
    misfits: list[str]  # heads of another shape, which are left out
    unknown: list[str]  # heads that no class of the family has

    @property
    def distance(self) -> tuple[bool, bool, int, int]:
        """Another kind of model is further away than another structure. That is further than a lost
        head, and a lost head is further than any number of other settings.
        """
        another = any(line.startswith("model=") for line in self.differences)
        different = len(self.differences) + len(self.unstated)
        lost = len(self.misfits) + len(self.unknown)
        return another, bool(self.differences), lost, different


def check_class(config: Config, tensors: Weights, *, pad: int | None = None) -> None:
    """Raise ConfigError where no published class has the structure of a model; as for `export`."""
    config, tensors, _ = _simplify(config, tensors)
    _match_family(config, tensors, _pad_of(config, pad))


def _pad_of(config: Config, pad: int | None) -> int:
    return int((config.get("origin") or {}).get("pad", 0) if pad is None else pad)


def _simplify(config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
    """A model as the families compare it, and its settings that no published class reads."""
    kind = config["model"].get("_target_", "").rpartition(".")[2]
    if kind == "BiLM":
        fix = "--to plmctl, which keeps the model; plmctl embed writes its vectors"
        raise ConfigError(
            "model", kind, "ELMo has no class in transformers, so there is no such folder", fix=fix
        )
    config, tensors = labels.spell_several(config, tensors)
    unread: list[str] = []
    for each in FAMILIES:
        config, tensors, unused = each.simplify(config, tensors)
        unread += unused
    model = fold_layers(spell_layouts(config["model"]), config["size"]["width"])
    return {**config, "model": model}, tensors, unread


def _match_family(config: Config, tensors: Weights, pad: int) -> tuple[Family, Numbers, list[str]]:
    """The family with the structure and the heads of `config`, and the heads of another shape. The
    family of origin comes first. Otherwise a ConfigError with the differences.
    """
    if not find_token_tables(tensors):
        allowed = f"a model that a published class has: this one has neither {' nor '.join(TOKENS)}"
        raise ConfigError("model", config["model"].get("_target_"), allowed)
    origin = (config.get("origin") or {}).get("family")
    candidates = sorted(FAMILIES, key=lambda family: family.model_type != origin)
    nearest_one = min(
        (_compare(family, config, tensors, pad) for family in candidates),
        key=lambda comparison: comparison.distance,
    )
    if differences := nearest_one.differences + nearest_one.unstated:
        kind = nearest_one.family.model_type
        names = ", ".join(dict.fromkeys(family.model_type for family in FAMILIES))
        raise ConfigError(
            "model",
            config["model"].get("_target_", "").rpartition(".")[2],
            f"no published family ({names}) has this structure; the nearest, {kind}, "
            "differs in\n    " + "\n    ".join(differences),
            fix="--to plmctl keeps this model, and --to onnx lets other programs run its task;"
            " or train without these settings",
        )
    return nearest_one.family, nearest_one.numbers, nearest_one.misfits


def _compare(family: Family, config: Config, tensors: Weights, pad: int) -> _Comparison:
    """The losses of the model and its heads in one family."""
    numbers = family.measure(config, tensors, pad)
    compared = compare_heads(family, config, numbers)
    heads = [name for name, node in (config.get("heads") or {}).items() if node is not None]
    return _Comparison(
        family,
        numbers,
        differences=family.find_differences(config, numbers),
        unstated=family.find_unstated(config, numbers),
        misfits=[name for name, lines in compared.items() if lines and name in family.unread],
        unknown=[name for name in heads if name not in family.heads],
    )
