"""From a command line to one checked config: `compose` runs Hydra on conf/ and recipes/ and
reports every problem at once.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import ConfigError, DataError, UsageError, nearest, raise_all
from plmctl.run import schema
from plmctl.run.build import build, check
from plmctl.run.finish import finish
from plmctl.run.overrides import OverrideWord, read, settle
from plmctl.run.recipes import (
    conf_dir,
    find_study,
    is_shipped,
    option_name,
    recipes_dir,
    store_recipe,
)
from plmctl.run.resolvers import register
from plmctl.run.spec import Provenance, RunSpec
from plmctl.storage.reading import refuse_endless

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig

Flags = Provenance  # its former name, while commands are moved
__all__ = ["Composed", "Flags", "build", "check", "compose", "composed", "conf_dir", "recipes_dir"]

# what shipped files made together: they do not change while a process runs
_SHIPPED: dict[tuple[str, ...], bytes] = {}


@dataclass(frozen=True)
class Composed:
    spec: RunSpec
    words: list[OverrideWord] = field(default_factory=list)  # the overrides as Hydra was told them


def compose(
    verb: str,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    *,
    config_dirs: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> Any:
    """The settings of `plmctl <verb> [recipe] [overrides]`, a `RunSpec`.

    Raises:
        UsageError: Every problem together (exit code 2).
    """
    given = Provenance(verb, recipe, tuple(overrides), tuple(config_dirs), tuple(plugins))
    return composed(given).spec


def composed(
    given: Provenance, *, sweep: bool = False, known: dict[tuple[str, ...], bytes] | None = None
) -> Composed:
    """`compose`, with the overrides as Hydra was told them; `sweep` composes the first job of a
    sweep.

    `known` remembers what a user's part files made together, for callers that compose many configs
    of few choices in a row.
    """
    verb, recipe, config_dirs = given.verb, given.recipe, given.config_dirs
    if verb == "ablate":
        recipe = str(find_study(recipe or "", config_dirs))
    names = (recipe or "").split(",") if sweep else [recipe or ""]
    if recipe and verb != "pretrain" and not recipe.endswith((".yaml", ".yml")):
        raise UsageError(
            f"'{recipe}': recipes are for pretrain;"
            f" {verb} takes key=value settings, or your own ./file.yaml of them"
        )
    with session(verb, config_dirs) as hydra:
        if not config_dirs and all(is_shipped(name) for name in names if name):
            known = _SHIPPED
        chosen = [f"recipe={option_name(name)}" for name in names if name][:1]
        words, errors = read(given.overrides, hydra.config_loader, sweep=sweep)
        groups = [word for word in words if word.group]
        choices = (verb, *chosen, *(word.sample for word in groups))
        bad: list[UsageError] = []
        if known and choices in known:
            cfg = pickle.loads(known[choices])
        else:
            for name in filter(None, names):
                store_recipe(name, config_dirs)
            cfg, bad = _run_all(hydra, verb, chosen, groups)
            if known is not None and not bad:
                known[choices] = pickle.dumps(cfg)
        values, unknown = settle(
            [word for word in words if not word.group and word.sample],
            _plain(cfg),
            given.plugins,
            hydra.config_loader,
        )
        unset = _set(cfg, values)
    words = groups + values + [word for word in words if not word.sample]
    spec, misfits = finish(cfg, words, replace(given, recipe=names[0] or None))
    raise_all([*errors, *bad, *_no_echoes(errors, [*unknown, *unset], misfits)])
    assert spec is not None
    return Composed(spec, words)


def _no_echoes(
    errors: Sequence[UsageError], unknown: Sequence[UsageError], misfits: Sequence[UsageError]
) -> list[UsageError]:
    """`unknown` and `misfits`, less what is only so because a part that is needed was chosen by a
    name that does not exist.

    All of its settings look unknown then, and what it would have brought is missing.
    """
    wrong, missing = (
        {error.path for error in some if isinstance(error, ConfigError)}
        for some in (errors, misfits)
    )
    lost = tuple(f"{path}." for path in wrong & missing)
    if not lost:
        return [*unknown, *misfits]
    return [
        error
        for error in unknown
        if not (isinstance(error, ConfigError) and error.path.startswith(lost))
    ]


@contextlib.contextmanager
def session(verb: str, config_dirs: Sequence[str] = ()) -> Iterator[Hydra]:
    """A Hydra that reads the user's folders first, then conf/, then the plumbing of `verb`;
    leaves no global state.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra

    for folder in config_dirs:
        if not Path(folder).is_dir():
            raise UsageError(f"--config-dir {folder}: there is no such folder")
        _refuse_endless(Path(folder))
    version.setbase("1.3")
    register()
    ConfigStore.instance().store(
        group="plumbing", name=verb, node=schema.defaults(verb), package="_global_"
    )
    search = create_config_search_path(str(conf_dir()))
    for place, folder in enumerate(reversed(config_dirs)):
        search.prepend(f"user{place}", f"file://{Path(folder).resolve()}")
    running = GlobalHydra.instance()
    outer, running.hydra = running.hydra, None
    try:
        yield Hydra.create_main_hydra2(f"plmctl-{verb}", search)
    finally:
        running.hydra = outer


def _refuse_endless(folder: Path) -> None:
    """UsageError for a file of parts that Hydra would read without end; all else is said of a
    part that is chosen.
    """
    import yaml

    for file in (*folder.glob("*.yaml"), *folder.glob("*/*.yaml"), *folder.glob("*/*/*.yaml")):
        try:
            refuse_endless(
                file.read_text(encoding="utf-8", errors="replace"),
                file=file,
                fix="write its values without aliases",
            )
        except DataError as error:
            raise UsageError(str(error)) from None
        except (yaml.YAMLError, OSError, RecursionError):
            continue


def _run_all(
    hydra: Hydra, verb: str, fixed: list[str], words: Sequence[OverrideWord]
) -> tuple[DictConfig, list[UsageError]]:
    """The config with every choice that works; Hydra stops at the first bad one, so each is then
    tried alone.
    """
    try:
        return _run(hydra, verb, fixed + [word.sample for word in words]), []
    except UsageError as error:
        good: list[str] = []
        bad: list[UsageError] = []
        for word in words:
            try:
                _run(hydra, verb, [*fixed, word.sample])
                good.append(word.sample)
            except UsageError as alone:
                bad.append(alone)
        if not good or not bad:
            raise error
        return _run(hydra, verb, fixed + good), bad


def _set(cfg: DictConfig, words: Sequence[OverrideWord]) -> list[UsageError]:
    """Apply value overrides as Hydra does, one by one, so that each bad one is reported."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    bad: list[UsageError] = []
    for override in OverridesParser.create().parse_overrides([word.sample for word in words]):
        try:
            ConfigLoaderImpl._apply_overrides_to_config([override], cfg)
        except HydraException as error:
            unknown = re.search(r"Key '(.+?)' is not in struct", str(error.__cause__))
            why = (
                f"there is no '{unknown[1]}' there"
                if unknown
                else f"{error} {error.__cause__ or ''}".strip()
            )
            bad.append(UsageError(f"{override.input_line}: {why}"))
    return bad


def _run(hydra: Hydra, verb: str, overrides: list[str]) -> DictConfig:
    """One composition; Hydra's exceptions become ours, with the nearest name of an option that
    does not exist.
    """
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    try:
        return hydra.compose_config(verb, overrides, RunMode.RUN, from_shell=False)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(reason(error, hydra, verb)) from None


def reason(error: Exception, hydra: Hydra, verb: str) -> str:
    """Hydra's complaint in one or two lines, with the nearest option where one is unknown."""
    place = re.search(r"(?:In '(.+?)': )?Could not (?:find|load) '(.+)/([^/]+?)'", str(error))
    if found := re.search(r"Could not override '([\w/@.]+)'", str(error)):
        return _elsewhere(found[1], verb)
    if place is None:
        return f"{error}\n  {error.__cause__}".removesuffix("\n  None").strip()
    file, group, option = place.groups()
    options = hydra.config_loader.get_group_options(group)
    listed = f"; there are {', '.join(options)}" if options else ""
    return f"{file or 'config'}: there is no {group} '{option}'{nearest(option, options)}{listed}"


def _elsewhere(group: str, verb: str) -> str:
    """A choice of parts that another command has: which one, and how a study says it."""
    slot = re.compile(rf"^  - (?:override /)?{re.escape(group)}:", re.MULTILINE)
    owners = [
        file.stem
        for file in sorted(conf_dir().glob("*.yaml"))
        if slot.search(file.read_text(encoding="utf-8"))
    ]
    known = f"it belongs to plmctl {', '.join(owners)}" if owners else "no command has it"
    fix = (
        f"\n  fix: pretrain.overrides=[{group}=...], which takes the place of the study's own list"
        if verb == "ablate"
        else ""
    )
    return f"{group}=: plmctl {verb} chooses no such part; {known}{fix}"


def _plain(cfg: DictConfig) -> dict[str, Any]:
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(cfg)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items() if key != "hydra"}


def work_out(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with the value of everything that they refer to (${size.width})."""
    from omegaconf import OmegaConf

    register()
    found = OmegaConf.to_container(OmegaConf.create(dict(tree)), resolve=True)
    return {str(key): value for key, value in dict(found).items()}  # type: ignore[arg-type]
