"""Hydra, for all of plmctl: it reads part files and recipes, and starts the jobs of a sweep. The
words of a command line are of word_grammar.py.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.config.command import RECIPE, Command, find_command, list_commands
from plmctl.config.plain_composition import (
    PartFile,
    Unusual,
    compose_plainly,
    read_package,
    read_part,
)
from plmctl.config.published import take_published_form
from plmctl.config.quoting import read_names
from plmctl.config.reached import KEY as REACHED
from plmctl.config.recipes import conf_dir, find_recipe, hint_at_own, is_shipped, load, option_name
from plmctl.config.references import register
from plmctl.config.spec import thaw
from plmctl.config.walks import references_in
from plmctl.core.errors import UsageError, nearest
from plmctl.storage.paths import find_near
from plmctl.storage.settings_file import refuse_endless_files

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig


@dataclass(frozen=True)
class LauncherJob:
    """The job of a sweep that runs in this process."""

    number: int | None
    folder: Path
    words: list[str]  # its overrides, without those of Hydra
    choices: Mapping[str, Any]  # {group: the part file that is chosen}


class HydraComposer:
    """Reads the part files and recipes of one command.

    Usual files and words are composed in plain values; Hydra is made for the others, and for the
    jobs of a sweep.
    """

    def __init__(
        self, verb: str, config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
    ) -> None:
        self.verb = verb
        self._config_dirs, self._plugins = config_dirs, plugins
        self._made: Hydra | None = None
        self._outer: Any = None  # the Hydra of before

    @property
    def _hydra(self) -> Hydra:
        """Hydra, which knows all recipes that were stored until now."""
        if self._made is None:
            self._make()
        _tell_hydra()
        assert self._made is not None
        return self._made

    @property
    def loader(self) -> Any:
        """Hydra's loader of configs."""
        return self._hydra.config_loader

    def _make(self) -> None:
        from hydra import version
        from hydra._internal.hydra import Hydra
        from hydra._internal.utils import create_config_search_path
        from hydra.core.global_hydra import GlobalHydra

        from plmctl.config.part_files import PartFiles

        version.setbase("1.3")
        register()
        _store_plumbing(self.verb, find_command(self.verb))
        search = create_config_search_path(str(conf_dir()))
        for place, folder in enumerate(reversed(self._config_dirs)):
            search.prepend(f"user{place}", f"file://{Path(folder).resolve()}")
        running = GlobalHydra.instance()
        self._outer, running.hydra = running.hydra, None
        self._made = Hydra.create_main_hydra2(f"plmctl-{self.verb}", search)
        self._made.config_loader.repository = PartFiles(search)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Restore the Hydra of before."""
        if self._made is not None:
            from hydra.core.global_hydra import GlobalHydra

            GlobalHydra.instance().hydra = self._outer

    def hint_at_own(self) -> str:
        """A hint at the folder of a user's own parts, if no folder is named; else ""."""
        return hint_at_own(self._config_dirs)

    def find_lost_folder(self, group: str, option: str) -> str:
        """The option that names the folder of a plug-in's part, where the command line has the
        plug-in without a folder; else "".
        """
        if self._config_dirs or not self._plugins:
            return ""
        file = Path(group, f"{option}.yaml")
        near = (Path(), *Path().glob("*"), *Path().glob("*/*"))
        found = next((folder for folder in near if (folder / file).is_file()), None)
        return f"--config-dir {found or f'<the folder with {file}>'}"

    def options(self, group: str) -> list[str]:
        """The names of the part files of a group."""
        if group.startswith("hydra") or group in _STORED:
            return list(self.loader.repository.get_group_options(group))
        own = {name for folder in self._config_dirs for name in _list_files(Path(folder), group)}
        return sorted(own.union(_list_shipped(group)))

    def settings_in(self, group: str, option: str) -> Mapping[str, Any]:
        """The settings in the file of one part, its references as they stand."""
        try:
            return self._read(f"{group}/{option}").settings
        except Unusual:
            repository = self.loader.repository
            return to_plain(repository.load_config(f"{group}/{option}").config)

    def _read(self, path: str) -> PartFile:
        """The file at a path of groups: of a recipe, of the user's folders, of conf/."""
        group, _, name = path.rpartition("/")
        if group in _STORED:
            return _read_stored(group, name)
        for folder in self._config_dirs:
            if (file := Path(folder, f"{path}.yaml")).is_file():
                return _read_file(file)
        if path == self.verb and not (conf_dir() / f"{path}.yaml").is_file():
            return read_part(_make_primary(path), None)
        return _read_shipped(path)

    def compose(self, words: Sequence[str]) -> dict[str, Any]:
        """One composition, its references as they stand.

        Raises:
            UsageError: Hydra's reason, with the nearest name of an option that does not exist.
        """
        try:
            return self._compose_own(words)
        except Unusual:
            pass
        from hydra.errors import HydraException
        from hydra.types import RunMode
        from omegaconf.errors import OmegaConfBaseException

        try:
            return to_plain(
                self._hydra.compose_config(self.verb, list(words), RunMode.RUN, from_shell=False)
            )
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UsageError(self._explain(error)) from None

    def _compose_own(self, words: Sequence[str]) -> dict[str, Any]:
        """A composition of usual words without Hydra."""
        return compose_plainly(self.verb, words, self._read)

    def compose_all(
        self, fixed: list[str], words: Sequence[str]
    ) -> tuple[dict[str, Any], list[UsageError]]:
        """The composition with every word that works; Hydra stops at the first bad one, so each
        is then tried alone.
        """
        try:
            return self.compose([*fixed, *words]), []
        except UsageError as error:
            good: list[str] = []
            bad: list[UsageError] = []
            for word in words:
                try:
                    self.compose([*fixed, word])
                    good.append(word)
                except UsageError as alone:
                    bad.append(alone)
            if not good or not bad:
                raise error
            return self.compose([*fixed, *good]), bad

    def sweep_folder(self, words: Sequence[str]) -> tuple[str, set[str]]:
        """Where the jobs of a sweep stand, and the settings that the sweeper itself varies."""
        from hydra.types import RunMode

        with self._reworded():
            own = self._hydra.compose_config(self.verb, list(words), RunMode.MULTIRUN).hydra
        return str(own.sweep.dir), {str(key) for key in own.sweeper.get("params") or ()}

    def multirun(
        self, task: Callable[[Any], Any], words: Sequence[str], *, plain: bool = False
    ) -> bool:
        """Have Hydra's sweeper and launcher run a task; whether a signal interrupted it.

        Args:
            task: Is called with each job's composition, in a process of the launcher's.
            words: The sweep, and the settings of sweeper and launcher.
            plain: The jobs have these words alone, and no settings of the command.
        """
        with self._reworded():
            try:
                self._hydra.multirun(None if plain else self.verb, task, list(words))
            except KeyboardInterrupt:
                return True
        return False

    @contextlib.contextmanager
    def _reworded(self) -> Iterator[None]:
        """Hydra's complaints as ours."""
        from hydra.errors import HydraException

        try:
            yield
        except HydraException as error:
            raise UsageError(self._explain(error)) from None

    def _explain(self, error: Exception) -> str:
        """Hydra's complaint in one or two lines, with the nearest option where one is unknown."""
        place = re.search(r"(?:In '(.+?)': )?Could not (?:find|load) '(.+)/([^/]+?)'", str(error))
        if group := re.search(r"Could not override '([\w/@.]+)'", str(error)):
            return _name_owners(group[1], self.verb)
        if place is None:
            return f"{error}\n  {error.__cause__}".removesuffix("\n  None").strip()
        file, slot, option = place.groups()
        options = self.loader.get_group_options(slot)
        listed = f"; there are {', '.join(options)}" if options else ""
        hint = listed + self.hint_at_own()
        return f"{file or 'config'}: there is no {slot} '{option}'{nearest(option, options)}{hint}"


@contextlib.contextmanager
def open_composer(
    verb: str, config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> Iterator[HydraComposer]:
    """A composer that reads the user's folders first, then conf/, then the plumbing of `verb`;
    leaves no global state. `plugins`: those of the command line.
    """
    for folder in config_dirs:
        if not Path(folder).is_dir():
            near = find_near(Path(folder))
            fix = f"--config-dir {near or '<a folder with parts or recipes>'}"
            raise UsageError(f"--config-dir {folder}: there is no such folder\n  fix: {fix}")
        refuse_endless_files(Path(folder))
    composer = HydraComposer(verb, config_dirs, plugins)
    try:
        yield composer
    finally:
        composer.close()


@functools.cache
def _store_plumbing(verb: str, kind: type[Command]) -> None:
    """Register with Hydra the settings that `verb` has without any part, and the empty slots of a
    command without a file in conf/.
    """
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(group="plumbing", name=verb, node=thaw(kind()), package="_global_")
    if not (conf_dir() / f"{verb}.yaml").is_file():
        store.store(name=verb, node=_make_primary(verb))


def _make_primary(verb: str) -> dict[str, Any]:
    """The primary config of a command whose slots are empty, which has no file in conf/."""
    slots: list[Any] = [{slot: None} for slot in find_command(verb).about.slots.split()]
    return {"defaults": [{"plumbing": verb}, *slots, "_self_", {RECIPE: None}]}


def store_recipe(name: str, config_dirs: Sequence[str] = (), *, published: bool = False) -> str:
    """Make a recipe an option of the group `recipe`, wherever its file lies; the name of that
    option. `published`: of a study, in its published form.
    """
    from omegaconf.errors import OmegaConfBaseException

    option, file = option_name(name), find_recipe(name, config_dirs)
    settings = load(file)
    settings.pop(REACHED, None)  # a fact of the recipe, and no setting of a run
    if published:
        settings, option = take_published_form(settings, file), f"{option}_published"
    _RECIPES[option] = settings
    _UNTOLD.add(option)
    if any(references_in(settings)) and not is_shipped(str(file)):  # Hydra may not know them
        from omegaconf.errors import OmegaConfBaseException

        try:
            _tell_hydra()
        except OmegaConfBaseException as error:
            raise UsageError(f"{file}: {str(error).splitlines()[0]}") from None
    return option


# the groups of settings that are no files: those of commands without any part, and recipes
_STORED = ("plumbing", "recipe")
_RECIPES: dict[str, dict[str, Any]] = {}
_UNTOLD: set[str] = set()  # recipes that Hydra does not know yet


def _tell_hydra() -> None:
    """Make the recipes known to Hydra."""
    if not _UNTOLD:
        return
    from hydra.core.config_store import ConfigStore

    while _UNTOLD:
        option = _UNTOLD.pop()
        ConfigStore.instance().store(
            group="recipe", name=option, node=_RECIPES[option], package="_global_"
        )


def _read_stored(group: str, name: str) -> PartFile:
    """The settings of a recipe, or those of a command without any part."""
    try:
        return read_part(_RECIPES[name] if group == "recipe" else thaw(find_command(name)()), "")
    except KeyError:
        raise Unusual from None


@functools.cache
def _read_shipped(path: str) -> PartFile:
    """A file of conf/, which does not change while a process runs."""
    return _read_file(conf_dir() / f"{path}.yaml")


def _read_file(file: Path) -> PartFile:
    """A part file, with the package that its header states."""
    try:
        settings = load(file)
        text = file.read_text(encoding="utf-8")
    except (UsageError, OSError, ValueError):  # Hydra says what is wrong with it
        raise Unusual from None
    return read_part(settings, read_package(text))


@functools.cache
def _list_shipped(group: str) -> frozenset[str]:
    return frozenset(_list_files(conf_dir(), group))


def _list_files(folder: Path, group: str) -> Iterator[str]:
    place = folder / group
    if place.is_dir():
        yield from (file.stem for file in place.iterdir() if file.suffix == ".yaml")


def to_plain(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """The settings of a composition as plain values, references as they stand, without Hydra's
    own.
    """
    if not isinstance(config, dict):
        from omegaconf import OmegaConf

        config = OmegaConf.to_container(config)  # type: ignore[assignment]
    content = read_names(config)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items() if key != "hydra"}


def current_job() -> LauncherJob:
    """The job that a launcher runs here."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    own: Any = HydraConfig.get()
    return LauncherJob(
        number=OmegaConf.select(own, "job.num", throw_on_missing=False),
        folder=Path(own.runtime.output_dir),
        words=list(own.overrides.task),
        choices=dict(own.runtime.choices),
    )


def _name_owners(group: str, verb: str) -> str:
    """A choice of parts that another command has: which one, and how a study says it."""
    slot = re.compile(rf"^  - (?:override /)?{re.escape(group)}:", re.MULTILINE)
    owners = [
        file.stem
        for file in sorted(conf_dir().glob("*.yaml"))
        if slot.search(file.read_text(encoding="utf-8"))
    ]
    names = {name.rpartition(" ")[2]: name for name in list_commands()}
    owners = [names.get(owner, owner) for owner in owners]
    known = f"it belongs to plmctl {', '.join(owners)}" if owners else "no command has it"
    fix = (
        f"\n  fix: pretrain.overrides=[{group}=...], which replaces the study's own list"
        if verb == "ablate"
        else ""
    )
    return f"{group}=: plmctl {verb} chooses no such part; {known}{fix}"
