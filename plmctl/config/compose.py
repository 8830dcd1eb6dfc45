"""From a command line to one checked config: `compose` runs Hydra on conf/ and recipes/ and
reports every problem at once.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from plmctl.config.budgets import TABLE, Row, at_row, choose_row, conclude, find_given, spell_row
from plmctl.config.command import is_ours
from plmctl.config.composer import HydraComposer, open_composer, store_recipe
from plmctl.config.finish import finish
from plmctl.config.implied_task import add_task
from plmctl.config.overrides import OverrideWord, read, settle
from plmctl.config.published import asks_for_published
from plmctl.config.quoting import read_names
from plmctl.config.recipes import (
    find_graph_recipe,
    find_search,
    find_study,
    is_shipped,
    option_name,
)
from plmctl.config.schema import Pretrain
from plmctl.config.spec import Provenance, RunSpec
from plmctl.config.stated import refuse_classless, refuse_unplaced
from plmctl.config.walks import select
from plmctl.config.word_grammar import set_values
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, flatten, raise_all

SWEEPER = "hydra/sweeper"  # the word that leaves the choice of jobs to a search
# compositions of shipped files: they do not change while a process runs
_SHIPPED: dict[tuple[str, ...], bytes] = {}


@dataclass(frozen=True)
class Composition:
    """The composition of a command line, and every problem in it; a setting with one stays as it
    is.
    """

    spec: RunSpec
    words: list[OverrideWord]  # the overrides as Hydra was given them
    errors: list[PlmctlError]


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
) -> Composition:
    """The composition by `attempt`; UsageError for every problem in it together."""
    composition = attempt(given, sweep=sweep, known=known)
    raise_all(composition.errors)
    return composition


def attempt(
    given: Provenance, *, sweep: bool = False, known: dict[tuple[str, ...], bytes] | None = None
) -> Composition:
    """Compose a command line, and return all problems instead of raising one.

    Args:
        sweep: It is that of a sweep, whose first job is composed.
        known: Remembers what a user's part files made together, for callers that compose many
            configs of few choices in a row.
    """
    if given.recipe is not None and not given.recipe.strip():
        raise UsageError(
            "the name of the recipe is empty\n  fix: None, or one of plmctl recipes ls"
        )
    given = _with_study(given)
    names = [
        name for name in ((given.recipe or "").split(",") if sweep else [given.recipe]) if name
    ]
    with open_composer(given.verb, given.config_dirs, given.plugins) as composer:
        given = given if sweep else add_task(given, composer)
        words, errors = read(given.overrides, composer, sweep=sweep)
        for name in names[1:]:
            store_recipe(name, given.config_dirs)
        first = replace(given, recipe=names[0] if names else None)
        return _compose_words(first, words, errors, composer, known)


def attempt_jobs(given: Provenance) -> list[Composition | list[PlmctlError]] | None:
    """Compose every job of a sweep, each once, in the order of their numbers.

    Returns:
        The composition of each job, or what is wrong with one that cannot be composed at all; None
        where a search chooses the jobs.

    Raises:
        UsageError: Words that cannot be read, all together.
    """
    given, known = _with_study(given), dict[tuple[str, ...], bytes]()
    with open_composer(given.verb, given.config_dirs, given.plugins) as composer:
        words, errors = read(given.overrides, composer, sweep=True)
        raise_all(errors)
        of_hydra = [word for word in words if not word.sample]
        settings = sorted((word for word in words if word.sample), key=lambda word: not word.group)
        if not all(word.in_jobs for word in settings) or SWEEPER in {word.key for word in of_hydra}:
            return None
        # the second of two words for the same key counts
        settings = list({word.text.partition("=")[0]: word for word in settings}.values())
        names = [name for name in (given.recipe or "").split(",") if name]
        jobs: list[Composition | list[PlmctlError]] = []
        for *texts, name in product(*(word.in_jobs for word in settings), names or [""]):
            own = [word.of_job(text) for word, text in zip(settings, texts, strict=True)]
            job = replace(given, recipe=name or None, overrides=tuple(texts))
            try:
                jobs.append(_compose_words(job, [*own, *of_hydra], [], composer, known))
            except PlmctlError as error:
                jobs.append(flatten(error))
        return jobs


def _with_study(given: Provenance) -> Provenance:
    """The command line with the file of a study, or of a graph's recipe, as its recipe; UsageError
    for one that no command but pretrain takes.
    """
    if given.verb == "graph" and given.recipe:
        file = find_graph_recipe(given.recipe, given.config_dirs)
        return replace(given, recipe=str(file))
    if given.verb == "search":
        recipe = given.recipe and str(find_search(given.recipe, given.config_dirs))
        return replace(given, recipe=recipe)
    if given.verb == "ablate":
        # its file may have ${init}-pieces: runs/wiki/ is runs/wiki
        words = tuple(re.sub(r"^(init=.*[^/])/+$", r"\1", word) for word in given.overrides)
        study = str(find_study(given.recipe or "", given.config_dirs))
        return replace(given, recipe=study, overrides=words)
    recipe = given.recipe
    if recipe and given.verb != "pretrain" and not recipe.endswith((".yaml", ".yml")):
        raise UsageError(
            f"'{recipe}': recipes are for pretrain;"
            f" {given.verb} takes key=value settings, or your own ./file.yaml of them"
            f"\n  fix: plmctl pretrain {recipe}, or leave {recipe} out"
        )
    return given


def _compose_words(
    given: Provenance,
    words: Sequence[OverrideWord],
    errors: Sequence[PlmctlError],
    composer: HydraComposer,
    known: dict[tuple[str, ...], bytes] | None,
) -> Composition:
    """Compose the words of one command line, in which `errors` were found, and with them what
    follows from `train.minutes`.
    """
    made = _compose_given(given, words, errors, composer, known)
    spec = made.spec
    if not isinstance(spec, Pretrain) or not spec.budgets:
        return made
    undecided = replace(made, spec=spec.replace({TABLE: ()}))
    # a trained model brings its size, and what suits it is not known here
    if made.errors or spec.train.minutes is None or spec.init:
        return undecided
    table = spec.provenance.written[TABLE]  # with its references
    rows, problems = _read_table(table, composer)
    with collect(problems):  # there may be no such device
        from plmctl.config.speed import estimate_rate

        estimate_rate(spec.train, spec.data.cache_dir)
    if problems:
        return replace(undecided, errors=problems)

    @cache
    def fit(place: int) -> tuple[Composition, float]:
        """The composition with a row, and the FLOP/s that a model of its width reaches."""
        decided = [word for word in rows[place] if not find_given(word.key, made.words)]
        whole = _compose_given(given, [*decided, *words], [], composer, known)
        width = None if whole.errors else select(whole.spec, "size.width")
        return whole, estimate_rate(spec.train, spec.data.cache_dir, width or math.inf)

    parts = {word.key for row in rows for word in row if word.group}
    minutes = spec.train.minutes
    place = choose_row(table, lambda n: 60 * minutes * fit(n)[1], made.words, parts)
    whole, rate = fit(place)
    decision = conclude(minutes, rate, table, place, whole.spec, made.words, parts)
    return Composition(
        whole.spec.replace({TABLE: ()}).asked(decision=decision),
        made.words,
        [at_row(error, place, table[place]) for error in whole.errors],
    )


def _read_table(
    table: Sequence[Row], composer: HydraComposer
) -> tuple[list[list[OverrideWord]], list[PlmctlError]]:
    """The words of each row of a table of budgets, and what is wrong with them."""
    rows: list[list[OverrideWord]] = []
    problems: list[PlmctlError] = []
    for place, row in enumerate(table):
        words, wrong = read(spell_row(row), composer, sweep=False)
        problems += [at_row(error, place, row) for error in wrong]
        rows.append(words)
    return rows, problems


def _compose_given(
    given: Provenance,
    words: Sequence[OverrideWord],
    errors: Sequence[PlmctlError],
    composer: HydraComposer,
    known: dict[tuple[str, ...], bytes] | None,
) -> Composition:
    """Compose words as they stand."""
    recipe, config_dirs = given.recipe, given.config_dirs
    ours = is_ours(given.verb) and not config_dirs
    if ours and (recipe is None or is_shipped(recipe)):
        known = _SHIPPED
    published = asks_for_published(given)
    ending = "_published" if published else ""
    chosen = [f"recipe={option_name(recipe)}{ending}"] if recipe else []
    groups = [word for word in words if word.group]
    raise_all(refuse_unplaced(groups, config_dirs))
    choices = (given.verb, *chosen, *(word.sample for word in groups))
    bad: list[UsageError] = []
    if known and choices in known:
        config = pickle.loads(known[choices])
    else:
        if recipe:
            store_recipe(recipe, config_dirs, published=published)
        config, bad = composer.compose_all(chosen, [word.sample for word in groups])
        if known is not None and not bad:
            known[choices] = pickle.dumps(config)
    raise_all(refuse_classless(config, words, config_dirs))
    values, unknown = settle(
        [word for word in words if not word.group and word.sample],
        read_names(config),
        given.plugins,
        composer,
    )
    unset = set_values(config, [word.sample for word in values])
    spec, misfits = finish(read_names(config), [*groups, *values], given)
    problems = [*errors, *bad, *_no_echoes(errors, [*unknown, *unset], misfits)]
    if spec is None:
        raise_all(problems)
    assert spec is not None
    return Composition(spec, [*groups, *values, *(w for w in words if not w.sample)], problems)


def _no_echoes(
    errors: Sequence[PlmctlError], unknown: Sequence[PlmctlError], misfits: Sequence[PlmctlError]
) -> list[PlmctlError]:
    """`unknown` and `misfits`, less what follows from another problem.

    Settings of a part look unknown where the name of the part is wrong. A part or a setting that
    is needed is missing where its name is wrong.
    """
    wrong, missing = (
        {error.path for error in some if isinstance(error, ConfigError)}
        for some in (errors, misfits)
    )
    lost = tuple(f"{path}." for path in wrong)
    kept = [
        error
        for error in unknown
        if not (isinstance(error, ConfigError) and error.path.startswith(lost))
    ]
    meant = {error.fix.partition("=")[0] for error in kept if isinstance(error, ConfigError)}
    others = [
        error
        for error in misfits
        if not (isinstance(error, ConfigError) and error.value is ... and error.path in meant)
    ]
    return kept if wrong & missing else [*kept, *others]
