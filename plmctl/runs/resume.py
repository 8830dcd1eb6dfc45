"""`--resume`: the saved config of a run is what counts; what is given again is compared with it."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from plmctl.config.budgets import NONE, TABLE
from plmctl.config.compose import composed
from plmctl.config.first_session import first_lines, read_first_session, refuse_elsewhere
from plmctl.config.groups import LENGTHS
from plmctl.config.keys import is_path
from plmctl.config.plugins import Unconfirmed, confirm, hash_code, option, recorded
from plmctl.config.recipes import recipe_names
from plmctl.config.saved import CONFIG, read_spec, refuse_former_settings, spec_text
from plmctl.config.spec import Provenance, RunSpec, key_of, thaw
from plmctl.config.walks import leaves
from plmctl.core.errors import ConfigError, DataError, UsageError, flatten, raise_all
from plmctl.core.spelling import spell, spell_setting
from plmctl.storage.atomic import write_text
from plmctl.storage.paths import find_near
from plmctl.training.averaged import read_average
from plmctl.training.processes.parallel import count_teams

Change = tuple[str, Any, Any]  # a setting, its value in the run, and the new one

LENGTH_KEYS = frozenset(f"train.{name}" for name in LENGTHS)
MAY_CHANGE = {
    *LENGTH_KEYS,
    *("train.eval_every", "train.save_every", "train.log_every", "train.patience"),
    "train.pause_at",
    *("train.save_async", "train.save_at"),
    *("train.device", "train.processes", "train.threads", "train.micro_batch_size"),
    *("train.checkpoint_activations", "train.profile", "train.timeout", "train.restarts"),
    *("train.parallel", "train.shard_size", "train.tensor_parallel", "train.offload"),
    *("run.dir", "run.name", "run.resume"),
}

# sums are added up in another order, so their last bits are others
ROUNDING = (
    *("train.micro_batch_size", "train.device"),
    *("train.parallel", "train.shard_size", "train.tensor_parallel"),
)


def take_up(given: Provenance) -> Provenance:
    """The command line of a run that has begun in its folder, as one types it to go on with it; as
    it is, where nothing has begun.
    """
    place = next((word for word in given.overrides if key_of(word) == "run.dir"), "")
    file = Path(place.partition("=")[2]).expanduser() / CONFIG
    if given.resume or not place or not file.is_file() or not file.stat().st_size:
        return given
    return dataclasses.replace(given, resume=True, recipe=None, overrides=(place,))


def resume_spec(given: Provenance) -> RunSpec:
    """The spec to go on with, in which every allowed change is noted as "key: old -> new"."""
    folder = run_dir(given)
    only_where = all(text.startswith("run.") for text in given.overrides)
    _refuse_average(folder, given)
    saved = read_spec(folder, given)
    if saved is None:  # nothing was saved yet: the run starts at 0
        _refuse_lost_config(folder)
        if only_where and not given.recipe:
            empty = f" ({CONFIG} is empty)" if (folder / CONFIG).is_file() else ""
            raise UsageError(
                f"--resume: {folder} holds no config{empty}; its run was stopped before anything"
                " was saved\n  fix: the command that started it, without --resume; if the folder"
                " has other files, with another run.dir"
            )
        spec = composed(dataclasses.replace(given, resume=False)).spec
        return spec.replace({"run.resume": True})
    maker = saved.provenance.verb
    if maker != given.verb:
        fix = f"plmctl {maker} --resume {spell_setting('run.dir', folder)}"
        raise UsageError(
            f"--resume: {folder} is a run of plmctl {maker}, not of plmctl {given.command}\n"
            f"  fix: {fix}"
        )
    _refuse_other_recipe(saved, given, folder)
    _confirm_plugins(saved, given, folder)
    model = {"model": thaw(saved).get("model")}
    refuse_former_settings(model, given.plugins, file=folder / CONFIG)
    refuse_elsewhere(saved, folder, given)
    given = _with_its_folders(given, folder)
    changes = [] if only_where else list(_differences(saved, given, folder))
    raise_all(_refuse_changes(changes, given))
    noted = tuple(_note([change for change in changes if not change[0].startswith("run.")]))
    spec = saved.replace({key: new for key, _, new in changes})
    spec = spec.replace({"run.dir": str(folder), "run.resume": True})
    return dataclasses.replace(spec, provenance=dataclasses.replace(given, changes=noted))


def _note(changes: Sequence[Change]) -> Iterator[str]:
    """A text for each change; a new kind of length names the former one."""
    former = [f"{key}: {old}" for key, old, new in changes if key in LENGTH_KEYS and new is None]
    for key, old, new in changes:
        if key in LENGTH_KEYS and former and new is not None:
            yield f"{key}: {new} instead of {', '.join(former)}"
        else:
            yield f"{key}: {spell(old)} -> {spell(new)}"


def list_told(changes: Sequence[str]) -> list[str]:
    """The changes that a run prints: not the end of a length, which the new one names."""
    ends = tuple(f"{key}: " for key in LENGTH_KEYS)
    return [each for each in changes if not (each.startswith(ends) and each.endswith("-> null"))]


def list_changed_code(spec: RunSpec, folder: Path) -> list[str]:
    """A line on the files of plug-ins that were edited since a run began; none where its start is
    not known.
    """
    before, now = read_first_session(folder).code, hash_code(thaw(spec))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not before or not changed:
        return []
    return [
        f"the code has changed since this run began: {', '.join(changed)}; its results are of both"
    ]


def _confirm_plugins(saved: RunSpec, given: Provenance, folder: Path) -> None:
    """Raise for a plug-in that is not named again, with the line that names it."""
    try:
        confirm(recorded(saved), given.plugins, of=f"run.dir={folder}")
    except Unconfirmed as error:
        own = option([*given.plugins, *error.names], given.config_dirs)
        line = f"plmctl {given.command} --resume {spell_setting('run.dir', folder)}{own}"
        raise Unconfirmed(error.of, error.names, line=line) from None


def _with_its_folders(given: Provenance, folder: Path) -> Provenance:
    """With the --config-dir that the run was started with, unless another is given."""
    there = (each for each in read_first_session(folder).config_dirs if Path(each).is_dir())
    return dataclasses.replace(given, config_dirs=given.config_dirs or tuple(there))


def _refuse_other_recipe(saved: RunSpec, given: Provenance, folder: Path) -> None:
    """Raise ConfigError where the command line names another recipe than the run has."""
    old, new = saved.get("recipe"), given.recipe
    if new is None or new == old or (old and Path(new).resolve() == Path(old).resolve()):
        return
    started = f"the run was started with {f'{old!r}' if old else 'none'}; --resume keeps it"
    line = f"plmctl {given.command} --resume {spell_setting('run.dir', folder)}"
    fix = f"{line}, or a new run.dir"
    raise ConfigError("recipe", new, started, fix=fix)


def _refuse_average(folder: Path, given: Provenance) -> None:
    """Raise UsageError for the mean of checkpoints, of which no training can go on."""
    if made := read_average(folder):
        key = "init" if given.verb == "pretrain" else "checkpoint"
        raise UsageError(
            f"--resume: {folder} is {made['what']}, without the state of an optimizer;"
            f" a new run may start from it ({spell_setting(key, folder)})"
            f"\n  fix: plmctl {given.command} --resume {spell_setting('run.dir', made['run'])}"
        )


def _refuse_lost_config(folder: Path) -> None:
    """Raise DataError where a run has checkpoints, but its own config is empty or gone."""
    copies = {
        int(step): file
        for file in folder.glob(f"checkpoints/step-*/{CONFIG}")
        if (step := file.parent.name.removeprefix("step-")).isdecimal() and file.stat().st_size
    }
    if copies:
        file = folder / CONFIG
        what = "the file is empty" if file.exists() else "there is no such file"
        problem = f"{what}, without which the run cannot go on; its newest checkpoint has a copy"
        fix = shlex.join(["cp", str(copies[max(copies)]), str(file)])
        raise DataError(problem, file=file, fix=fix)


def _refuse_changes(changes: Sequence[Change], given: Provenance) -> Iterator[ConfigError]:
    """An error for each word of the command line that changes what may not change.

    A setting that only follows from a word is counted: `size=mini` changes the model, too.
    """
    refused = {key: (old, new) for key, old, new in changes if key not in MAY_CHANGE}
    words = [word for word in given.overrides if not word.startswith("run.")] if refused else []
    causes = {
        word: names
        for word in words
        if (names := [name for name in refused if f"{name}.".startswith(f"{key_of(word)}.")])
        or len(words) == 1
    }
    rest = [name for name in refused if name not in {*itertools.chain(*causes.values())}]
    of_groups = [word for word in causes if key_of(word) not in refused]  # size=, optim=
    followed = next(iter([*of_groups, *causes]), "")
    for word, names in causes.items():
        key = key_of(word)
        first, *others = [*names, *rest] if word == followed else names
        old, new = refused[first]
        if (first, others) == (key, []):
            yield _keeps(key, old, new)
            continue
        many = f" and {len(others)} other setting{'s' * (len(others) > 1)}" if others else ""
        values = f"from {_name(old)} to {_name(new)}"
        change = f"changes {first} {values}{many}; --resume keeps those of the run"
        fix = f"leave out {word}, or start a new run.dir"
        yield ConfigError(key, word.partition("=")[2] or ..., change, fix=fix)
    if not causes:
        for name in rest:
            yield _keeps(name, *refused[name])


def _name(value: Any) -> str:
    """A value of a setting in a message."""
    return "its default (null)" if value is None else repr(value)


def _keeps(key: str, old: Any, new: Any) -> ConfigError:
    """A setting that differs from that of the run."""
    started = f"the run was started with {_name(old)}; --resume keeps it"
    return ConfigError(key, new, started, fix=f"leave out {key}, or start a new run.dir")


def compare_with_checkpoint(checkpoint: Path, spec: RunSpec) -> list[str]:
    """The settings of `spec`, edited by hand since, that change the last bits, compared with the
    spec in the checkpoint: "key old -> new".

    UsageError for all that would make another run. Where the data lie may change: they are known by
    their content.
    """
    old, new = _flatten(read_spec(checkpoint, spec.provenance)), _flatten(spec)
    errors: list[ConfigError] = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        of_data = key.startswith(("data.", "task.")) and is_path(key)
        if before == after or key in MAY_CHANGE or key.startswith("run.") or of_data:
            continue
        trained = f"{checkpoint} was trained with {_name(before)}; --resume keeps it"
        fix = f"{key}: {before} in config.yaml of the run, or a new run.dir"
        errors.append(ConfigError(key, after, trained, fix=fix))
    raise_all(errors)
    return [
        f"{key} {before} -> {after}"
        for key in ROUNDING
        if (before := _rows(old, key)) != (after := _rows(new, key))
    ]


def _rows(values: Mapping[str, Any], key: str) -> Any:
    """The value of a setting; of micro-batches, the rows that null means."""
    if key != "train.micro_batch_size" or values.get(key) is not None:
        return values.get(key)
    teams = count_teams(values["train.processes"], values.get("train.tensor_parallel", 1))
    if tokens := values.get("train.batch_tokens"):
        return f"{tokens // teams} tokens"
    return values["train.batch_size"] // teams


def keep_changes(spec: RunSpec) -> None:
    """Write the changes by `--resume` into the folder of a run, in its config and among the words
    that started it. The next start goes on with them.
    """
    given, folder = spec.provenance, Path(str(spec.select("run.dir")))
    if not given.changes:
        return
    words = [word for word in given.overrides if not word.startswith("run.")]
    replaced = _replaced({key_of(word) for word in words})
    first = [line for line in first_lines(folder) if key_of(line) not in replaced]
    saved = read_spec(folder)
    kept = spec if saved is None else spec.replace({"run": saved.select("run")})
    write_text(folder / "overrides.txt", "".join(f"{line}\n" for line in [*first, *words]))
    write_text(folder / CONFIG, spec_text(kept))


def _replaced(keys: AbstractSet[str]) -> AbstractSet[str]:
    """The settings that words with these keys replace: one length clears the others."""
    return keys | (LENGTH_KEYS if keys & LENGTH_KEYS else set())


def run_dir(given: Provenance) -> Path:
    """The folder that --resume names; UsageError if it is missing."""
    folders = [text.partition("=")[2] for text in given.overrides if text.startswith("run.dir=")]
    start = f"plmctl {given.command} --resume"
    if not folders and (given.recipe is None or given.recipe in recipe_names(given.config_dirs)):
        raise UsageError(f"--resume needs the run\n  fix: {start} run.dir=runs/<name>/<id>")
    named = folders[-1] if folders else str(given.recipe)  # a bare word is the folder, or none
    folder = Path(named).expanduser()
    if not (folders and folder.is_dir()):
        near = find_near(folder)
        near = near if near and (near / CONFIG).is_file() else None  # an empty one is no run
        fix = f"{start} {spell_setting('run.dir', near) if near else 'run.dir=runs/<name>/<id>'}"
        raise UsageError(f"--resume: there is no folder {named}\n  fix: {fix}")
    return folder


def _differences(saved: RunSpec, given: Provenance, folder: Path) -> Iterator[Change]:
    """(key, old, new) for every setting that the words of this command line change, and that is not
    as saved.

    The changes are found by composing the words that started the run, with and without these after
    them.
    """
    recipe = given.recipe or saved.get("recipe")
    first = read_first_session(folder).words
    fixed = (NONE,) if TABLE in saved else ()  # the decision is among the first words
    replaced = _replaced(given.keys)
    kept = [text for text in first if key_of(text) not in replaced]
    asked = dataclasses.replace(given, recipe=recipe, overrides=(*first, *fixed), resume=False)
    try:
        before = _flatten(composed(asked).spec)
    except UsageError as error:
        raise _explain_lost_parts(error, given, folder) from None
    changed = dataclasses.replace(asked, overrides=(*kept, *given.overrides, *fixed))
    after, old = _flatten(composed(changed).spec), _flatten(saved)
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key) != old.get(key):
            yield key, old.get(key), after.get(key)


def _explain_lost_parts(error: UsageError, given: Provenance, folder: Path) -> UsageError:
    """The words that started the run do not compose: a recipe or parts of its own are not found.

    One of them stands for all; the names nearest to them are of no use, since the words were right.
    """
    started, first = read_first_session(folder), flatten(error)[0]
    lost = str(first).partition("\n")[0]
    if isinstance(first, ConfigError):
        lost = f"{first.path}={first.value}"
    gone = [each for each in started.config_dirs if not Path(each).is_dir()]
    fix = "give run.dir alone"
    if gone:
        fix += f", or --config-dir <folder>, where {gone[0]} is now"
    elif started.folder not in (None, Path.cwd()):
        fix += f", or {started.spell_resume(folder, given)} with the change"
    elif started.folder is None:
        fix += (
            "; or go to the folder where the run was started, with the same --config-dir and"
            " --plugin"
        )
    what = "for a change, --resume reads the first words of the run again, which do not hold here"
    return UsageError(f"{what}: {lost}\n  fix: {fix}")


def _flatten(spec: RunSpec | None) -> dict[str, Any]:
    """{dotted key: value} of a spec."""
    return dict(leaves(spec.used() if spec else {}))
