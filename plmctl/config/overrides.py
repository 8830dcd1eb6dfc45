"""The words of a command line made ready for Hydra: paths quoted, shortcuts spelled out, every
mistake found and named.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plmctl.config.build import MISSING, parameters_of
from plmctl.config.command import RECIPE, find_command
from plmctl.config.instead import INSTEAD, OF_TRAINERS
from plmctl.config.named_parts import find_target, list_parts, match_name
from plmctl.config.other_names import OURS, THEIRS, guess, ours
from plmctl.config.other_values import find_option, say, say_instead
from plmctl.config.quoting import quote, read_name
from plmctl.config.recipes import recipe_names, slots
from plmctl.config.schema import MANY, OF_THE_MODEL
from plmctl.config.walks import paths, scalars_in, select
from plmctl.config.word_grammar import parse_word
from plmctl.core.errors import (
    ConfigError,
    PlmctlError,
    UsageError,
    collect,
    did_you_mean,
    find_alike,
    list_some,
    nearest,
)
from plmctl.core.spelling import quote_value, spell_setting, spell_word
from plmctl.core.used_cells import drop_unused_cells

if TYPE_CHECKING:
    from plmctl.config.composer import HydraComposer

KEY = re.compile(r"[+~]{0,2}[\w.@/:$-]+")
_DIGITS = re.compile(r"(?:%u3\d%)+(?=:)")  # a number in quotes, as `quote` spells a name
LISTED = 24  # names of parts in a message
NAMED = ("beside", "data.mixture", "data.sources")  # mappings from names that the user gives
# the same, of a study, and groups of which its file leaves settings out
IN_STUDIES = ("arms", "pretrain", "finetune", "stop", "eval", "metrics")


@dataclass(frozen=True)
class OverrideWord:
    """One override: what Hydra is given, the key it sets, and one value of it (itself, or the
    first of a sweep).
    """

    text: str
    key: str
    sample: str
    group: bool = False  # chooses a part file, rather than setting a value
    swept: bool = False
    in_jobs: tuple[str, ...] = ()  # as each job of a sweep has it; none where a search chooses

    @property
    def mark(self) -> str:
        """`+`, `++` or `~`, which stand before the key."""
        return self.text[: len(self.text) - len(self.text.lstrip("+~"))]

    @property
    def value(self) -> str:
        """The text behind the equals sign."""
        return self.text.partition("=")[2]

    def of_job(self, text: str) -> OverrideWord:
        """This word as one job of a sweep has it, one of `in_jobs`."""
        return replace(self, text=text, sample=text)

    def added(self) -> OverrideWord:
        """This word for a new key."""
        return replace(self, text=f"+{self.text}", sample=f"+{self.sample}")

    def naming(self, target: str) -> OverrideWord:
        """This word for the class of the part that it names; a sweep names one in each job."""
        key = f"{self.key}._target_"
        text = f"{key}={target}"
        return replace(self, text=self.text if self.swept else text, key=key, sample=text)

    def renamed(self, key: str) -> OverrideWord:
        """This word for another key."""
        text, sample = (given.replace(self.key, key, 1) for given in (self.text, self.sample))
        return replace(self, text=text, key=key, sample=sample)


def read(
    texts: Sequence[str], composer: HydraComposer, *, sweep: bool
) -> tuple[list[OverrideWord], list[PlmctlError]]:
    """The words that Hydra can parse and whose options exist, and what is wrong with the others."""
    words: list[OverrideWord] = []
    errors: list[PlmctlError] = []
    for text in texts:
        key, _, value = text.partition("=")
        with collect(errors):
            if key == RECIPE:
                raise _refuse_recipe(value, composer.verb)
            words.append(_read(text, composer, sweep))
    return words, errors


def _refuse_recipe(name: str, verb: str) -> ConfigError:
    """The error of a recipe that is given as a setting."""
    allowed, fix = "is the first word of the command, without recipe=", f"plmctl {verb} {name}"
    if verb not in ("pretrain", "ablate"):
        allowed, fix = "pretrain alone takes a recipe", "leave it out"
    return ConfigError(RECIPE, name, allowed, fix=fix)


def settle(
    words: Sequence[OverrideWord],
    tree: dict[str, Any],
    plugins: Sequence[str],
    composer: HydraComposer,
) -> tuple[list[OverrideWord], list[PlmctlError]]:
    """Value overrides against the composed tree: `noise.rate` becomes `noise.token_mask.rate`,
    unknown keys become errors. The tree receives the classes that the words name.
    """
    settings = _Settings(tree, plugins, composer, {word.key: word.value for word in words})
    named: list[OverrideWord] = []
    settled: list[OverrideWord] = []
    errors: list[PlmctlError] = []
    for word in words:
        with collect(errors):
            named.append(settings.name_part(word))
    for word in named:  # after all classes, since settings of these may be given
        with collect(errors):
            settled.append(settings.settle(word))
    added = {word.key: word for word in settled if word.mark == "+"}  # the last of two words counts
    return [word for word in settled if added.get(word.key, word) is word], errors


def _explain_unread(text: str, error: ValueError) -> UsageError:
    """A word that the grammar of overrides lacks."""
    key, _, value = text.partition("=")
    if not KEY.fullmatch(key):
        allowed = "on a command line a key has letters, digits, and the signs . _ - / @"
        fix = "say it in a recipe of your own; only=[...] chooses arms of a study"
        return UsageError(f"{text}: {allowed}\n  fix: {fix}")
    name = key.partition("@")[0]
    if "." in name and "/" in name:
        allowed = "names between the dots of a key have letters, digits, _ and -, and no /"
        fix = spell_word(f"{name.replace('/', '_')}={value}")
        return UsageError(f"{text}: {allowed}\n  fix: {fix}")
    why = f"cannot be read ({error}); a value with special letters stands in quotes"
    return UsageError(f"{text}: {why}\n  fix: {spell_word(f'{key}={quote_value(value)}')}")


def _read(text: str, composer: HydraComposer, sweep: bool) -> OverrideWord:
    if "=" not in text and not text.startswith("~"):
        raise UsageError(
            f"'{text}': an override is written key=value, and a recipe stands first and alone"
            f"\n  fix: {spell_word(text)}=<a value>"
        )
    text = quote(text, sweep=sweep)
    try:
        override = parse_word(text, composer)
    except ValueError as error:
        raise _explain_unread(text, error) from None
    key, value = override.key, text.partition("=")[2]
    if override.of_hydra and not sweep:
        raise UsageError(f"{text}: hydra's own settings need -m/--multirun\n  fix: add -m")
    if override.of_hydra:
        return OverrideWord(text, key, "")
    if override.sweeps and not sweep:
        fix = (
            "add -m to run each value;"
            f" write {key}=[a,b] for a list, {key}=\"'a,b'\" for a text with a comma"
        )
        raise ConfigError(key, value, "these are several values", fix=fix)
    options = composer.options(key)
    word = OverrideWord(
        text,
        key,
        next(override.words()),
        group=bool(options),
        swept=override.sweeps,
        in_jobs=override.in_jobs(),
    )
    if not options:
        return word
    chosen = override.choices()
    if len(chosen) > 1 and key not in MANY and not override.sweeps:
        allowed = f"one part, not {len(chosen)}"
        raise ConfigError(key, f"[{','.join(chosen)}]", allowed, fix=f"{key}={chosen[0]}")
    for place, option in enumerate(chosen):
        if key in MANY and option in chosen[:place] and not override.sweeps:
            fix = f"{key}=[{','.join(dict.fromkeys(chosen))}]"
            twice = f"{option} is named twice, and counts once"
            raise ConfigError(key, f"[{','.join(chosen)}]", twice, fix=fix)
        if option not in options:
            raise _explain_option(key, option, options, composer, chosen)
    if override.removes:
        # Hydra deletes no list of options, and takes no null
        text = f"{key}=[]" if key in MANY else f"~{key}"
        return replace(word, text=text, sample=text, in_jobs=(text,))
    return word


def _explain_option(
    key: str, option: str, options: Sequence[str], composer: HydraComposer, chosen: Sequence[str]
) -> ConfigError:
    """A part that a slot does not have: the recipe, or the part of another slot, of that name."""
    recipes = recipe_names() if composer.verb == "pretrain" else []
    owners = [group for group in slots() if group != key and option in composer.options(group)]
    known = f"there are {list_some(options, LISTED)}"
    if option == "null":
        allowed, fix = "null is no part", f"{key}=[]" if key in MANY else "leave it out"
    elif option in recipes:
        allowed, fix = f"{option} is a recipe, not a {key}", f"plmctl pretrain {option}"
    elif owners:
        allowed, fix = f"{option} is a part of '{owners[0]}'", f"{owners[0]}={option}"
    else:
        allowed = f"there is no such {key}{nearest(option, options)}"
        other = find_option(key, option)
        meant = [other] if other else find_alike(option, options)
        right = [meant[0] if meant and each == option else each for each in chosen]
        value = f"[{','.join(right)}]" if key in MANY else "".join(meant)
        fix = f"{key}={value}" if meant else f"plmctl help {key.partition('@')[0]}"
        fix = composer.find_lost_folder(key.partition("@")[0], option) or fix
        known += composer.hint_at_own()
    return ConfigError(key, option, f"{allowed}; {known}", fix=fix)


@dataclass(frozen=True)
class _Settings:
    """The settings that a command takes as its parts are chosen."""

    tree: Mapping[str, Any]  # as they were composed
    plugins: Sequence[str]
    composer: HydraComposer
    given: Mapping[str, str]  # {setting of the command line: its value}

    @property
    def starts(self) -> bool:
        """Whether the command starts from a checkpoint, which brings a model."""
        return "checkpoint" in self.tree and self.given.get("checkpoint", "null") != "null"

    def settle(self, word: OverrideWord) -> OverrideWord:
        """The word for an existing setting, or for a new name; ConfigError for any other."""
        self._refuse_part(word)
        if not word.mark and self._gives_names(word):
            return word.added()
        word = self._by_number(word)
        if word.mark.startswith("+") or self._has(word.key):
            return word
        return self._lengthen(word)

    def _by_number(self, word: OverrideWord) -> OverrideWord:
        """The word for numbers that are names in a mapping, as Hydra's grammar has them:
        `task.label_names={12:a}` for `task.label_names.12=a`, and for a 12 in quotes.
        """
        slot, _, name = word.key.rpartition(".")
        outer = select(self.tree, slot) if slot and name.isdigit() else None
        if isinstance(outer, Mapping) and int(name) in outer and not (word.mark or word.swept):
            sample = f"{slot}={{{name}:{word.value}}}"
            return replace(word, text=sample, key=slot, sample=sample)
        node = select(self.tree, word.key)
        if not isinstance(node, Mapping) or not any(isinstance(key, int) for key in node):
            return word
        text, sample = (_DIGITS.sub(lambda e: read_name(e[0]), t) for t in (word.text, word.sample))
        return replace(word, text=text, sample=sample)

    def name_part(self, word: OverrideWord) -> OverrideWord:
        """The word for the class of the part that it names, which the tree receives; a word about
        anything else as it is.
        """
        key, sample = word.key, word.sample.partition("=")[2]
        part, _, last = key.rpartition(".")
        node = select(self.tree, key)
        options = self.composer.options(key.rpartition(".")[2])
        if not (word.mark or part in MANY) and _is_part(node) and sample not in options:
            outer = select(self.tree, part) if part else None
            target = find_target(sample, node, self.plugins, path=key, outer=outer)
            word = word.naming(target) if target else word
            part, last = (key, "_target_") if target else (part, last)
        if last == "_target_" and _is_part(select(self.tree, part)):
            select(self.tree, part)["_target_"] = word.sample.partition("=")[2].strip("'\"")
        return word

    def _has(self, key: str) -> bool:
        slot, _, name = key.rpartition(".")
        parent = select(self.tree, slot) if slot else self.tree
        if isinstance(parent, list):
            return name.isdigit() and int(name) < len(parent)
        return isinstance(parent, Mapping) and name in parent

    def _refuse_part(self, word: OverrideWord) -> None:
        """ConfigError for `task.search=beam`, the name of a part file as the value of a part, and
        for `task.pair_loss=cosent`, its group as a setting.
        """
        group = word.key.rpartition(".")[2]
        if not self._has(word.key) and (slot := self._find_slot(word.key)):
            choice = f"{group}@{slot}"
            allowed = f"a group of parts; one of them is chosen by {choice}"
            raise ConfigError(
                word.key, word.value, allowed, fix=spell_word(f"{choice}={word.value}")
            )
        if _is_part(select(self.tree, word.key)) and word.value in self.composer.options(group):
            choice = f"{group}@{word.key}"
            allowed = f"a part, not a value; parts inside of others are chosen by {choice}"
            raise ConfigError(
                word.key, word.value, allowed, fix=spell_word(f"{choice}={word.value}")
            )

    def _find_slot(self, key: str) -> str:
        """`task.loss` for `task.pair_loss`: the only part next to the key that is of the group with
        its name.
        """
        outer, _, group = key.rpartition(".")
        node = select(self.tree, outer) if outer else None
        options = self.composer.options(group) if _is_part(node) else ()
        if node is None or not options:
            return ""
        kinds = {self.composer.settings_in(group, each).get("_target_") for each in options}
        found = [n for n, part in node.items() if _is_part(part) and part["_target_"] in kinds]
        return f"{outer}.{found[0]}" if len(found) == 1 else ""

    def _gives_names(self, word: OverrideWord) -> bool:
        """Whether the word gives new names to a mapping of `NAMED`, to an empty mapping of a part,
        or to an entry of either.
        """
        named = (*NAMED, *IN_STUDIES) if "arms" in self.tree else NAMED
        named = (*named, *self._find_empty(word.key))
        if not f"{word.key}.".startswith(tuple(f"{name}." for name in named)):
            return False
        return word.value.startswith("{") or not (word.key in named or self._has(word.key))

    def _find_empty(self, key: str) -> list[str]:
        """The part of a dotted key that leads to an empty mapping of a part: `optim.scales`."""
        keys = list(itertools.accumulate(key.split("."), "{}.{}".format))
        return [
            inner
            for outer, inner in itertools.pairwise(keys)
            if _is_part(select(self.tree, outer)) and select(self.tree, inner) == {}
        ][:1]

    def _lengthen(self, word: OverrideWord) -> OverrideWord:
        """The word for the only part of a slot that has its key, or for a parameter that a file
        leaves out; else an error.
        """
        slot, _, name = word.key.rpartition(".")
        node = select(self.tree, slot) if slot else None
        parts = node if isinstance(node, Mapping) and not _is_part(node) else {}
        owners = [
            f"{slot}.{part}.{name}"
            for part, inner in parts.items()
            if _is_part(inner) and name in inner
        ]
        if len(owners) == 1:
            return word.renamed(owners[0])
        if owners:
            raise ConfigError(word.key, word.value, f"several have it: {', '.join(owners)}")
        takes = parameters_of(node, self.plugins) or ()
        if name in takes and not word.mark:
            return word.added()
        known = [key for key in paths(self.tree) if key != RECIPE]
        known += [f"{slot}.{parameter}" for parameter in takes]
        raise self._explain_unknown(word, known)

    def _explain_unknown(self, word: OverrideWord, known: Sequence[str]) -> ConfigError:
        """A setting that the command does not take."""

        def is_settable(key: str) -> bool:
            choice = not self._is_idle(key) and self._find_choice(key)
            return self._is_settable(key, known) or bool(choice)

        allowed, value = "there is no such setting", word.value
        if self.starts and word.key.partition(".")[0] in OF_THE_MODEL:
            fix = "leave it out, or checkpoint=null to start without weights"
            raise ConfigError(word.key, value, "checkpoint decides this", fix=fix)
        if re.fullmatch(r"""(['"])[\w.+/-]+\1""", value):  # no letter in it needs them
            value = value[1:-1]
        if self._is_idle(word.key):
            allowed = "without effect: this command trains nothing"
            return ConfigError(word.key, value, allowed, fix="leave it out")
        if unchosen := self._find_unchosen(word):
            return unchosen
        slot, _, name = word.key.rpartition(".")
        if slot in OF_TRAINERS and (instead := INSTEAD.get(name)):
            words = say_instead(name, instead.typed, value, self._look)
            fix = self._if_taken(words.replace("<command>", self.composer.verb)) or "leave it out"
            raise ConfigError(word.key, value, f"{allowed}: {instead.words}", fix=fix)
        choice = self._find_choice(word.key)
        other = ours(word.key, self._is_needed) or ours(word.key, is_settable)
        # a setting of another part in the same slot is no foreign name of a setting elsewhere
        elsewhere = bool(choice and slot) and not other.startswith(f"{slot}.")
        if other and other != word.key and not elsewhere:
            return self._rename(word.key, value, other, known)
        if inside := self._find_inside(word.key):
            fix = spell_word(f"{inside}={value}")
            return ConfigError(word.key, value, f"{allowed} (did you mean '{inside}'?)", fix=fix)
        if choice:
            node = select(self.tree, slot)  # {}: the file `none` of a slot is empty
            chosen = "" if node else f"={'null' if node is None else 'none'}, and has no settings"
            allowed = f"{slot}{chosen or ' has no such setting as it is chosen'}"
            fix = f"{choice} {spell_word(word.text)}"
            return ConfigError(word.key, value, allowed, fix=fix)
        node = select(self.tree, slot) if slot else None
        if name.isdigit() and isinstance(node, Mapping) and node and not _is_part(node):
            allowed = f"{allowed}; {slot} has names, not numbers: {', '.join(map(str, node))}"
            path, first = next(scalars_in(node, slot))
            raise ConfigError(word.key, value, allowed, fix=spell_setting(path, first))
        meant = guess(word.key, known)
        if name in THEIRS and not any(key.endswith(f".{name}") for key in meant):
            theirs = [key for key, names in OURS.items() if name in names.split()]
            here = f"{allowed}: it is {' or '.join(theirs)}, and this command has none"
            return ConfigError(word.key, value, here, fix="leave it out")
        fix = spell_word(f"{meant[0]}={value}") if len(meant) == 1 else ""
        fix = fix or self._name_all(meant, value)
        beside = select(self.tree, slot)
        if word.value.startswith("{") and isinstance(beside, Mapping) and not _is_part(beside):
            allowed, fix = f"{allowed}; a + before it adds one", spell_word(f"+{word.text}")
        fix = fix or ("" if meant else "leave it out")
        return ConfigError(word.key, value, f"{allowed}{did_you_mean(meant)}", fix=fix)

    def _rename(self, key: str, value: str, other: str, known: Sequence[str]) -> ConfigError:
        """The error of a name of another trainer that means our setting `other`."""
        before = "" if self._is_settable(other, known) else self._find_choice(other)
        words = say(key.rpartition(".")[2], other, value, self._look)
        fix = f"{before} {words}{self._list_namesakes(other)}".strip() if words else "leave it out"
        meant = other if other in words else words.partition("=")[0]
        allowed = f"there is no such setting{did_you_mean([meant or other])}"
        return ConfigError(key, value, allowed, fix=fix)

    def _look(self, key: str) -> Any:
        """A setting of the command line, by the name that stands there, else as it is composed."""
        return self.given.get(key, select(self.tree, key))

    def _if_taken(self, words: str) -> str:
        """Words that begin with a setting of the command, an option or a program; else ""."""
        first, equals, _ = words.partition("=")
        slot = first.partition(".")[0]
        taken = not equals or " " in first or slot in (*self.tree, "launcher")
        return words if taken else ""

    def _name_all(self, keys: Sequence[str], value: str) -> str:
        """The words that replace the used parts at `keys` by the one with the name `value`;
        "" where there is no such part.
        """
        used = drop_unused_cells(self.tree)
        nodes = {key: node for key in keys if _is_part(node := select(used, key))}
        known = all(match_name(value, list_parts(node, self.plugins)) for node in nodes.values())
        return " ".join(spell_word(f"{key}={value}") for key in nodes) if known else ""

    def _is_needed(self, key: str) -> bool:
        """Whether the command line lacks a setting that must be given."""
        return key not in self.given and select(self.tree, key) == MISSING

    def _is_idle(self, key: str) -> bool:
        """Whether the command composes the setting and does not read it."""
        return key.partition(".")[0] in find_command(self.composer.verb, self.plugins).idle

    def _is_settable(self, key: str, known: Sequence[str]) -> bool:
        """Whether the command takes the setting as its parts are chosen."""
        slot, _, name = key.rpartition(".")
        if self._is_idle(key):
            return False
        parts = select(self.tree, slot) if slot else None
        inner = parts.values() if isinstance(parts, Mapping) and not _is_part(parts) else ()
        named = any(isinstance(part, Mapping) and name in part for part in inner)
        return key in known or named or self._has(key)

    def _find_inside(self, key: str) -> str:
        """The only setting of the name of `key` in the parts inside of its part, in lists, too."""
        slot, _, name = key.rpartition(".")
        node = select(self.tree, slot) if slot else None
        inner = scalars_in(node, slot) if _is_part(node) else ()
        same = [path for path, _ in inner if path.endswith(f".{name}")]
        return same[0] if len(same) == 1 else ""

    def _find_unchosen(self, word: OverrideWord) -> ConfigError | None:
        """The error of `rule.length.least` with `rule=[html]`: a setting of a part that is not
        among those of its slot.
        """
        slot, _, rest = word.key.partition(".")
        part, _, name = rest.partition(".")
        node = select(self.tree, slot)
        if not name or not isinstance(node, Mapping) or _is_part(node) or part in node:
            return None
        if not all(_is_part(each) for each in node.values()):
            return None
        if part not in self.composer.options(slot):
            return None
        allowed = f"{slot}=[{','.join(node)}] does not choose {part}"
        if name not in (settings := self.composer.settings_in(slot, part)):
            near = [f"{slot}.{part}.{each}" for each in settings if each != "_target_"]
            return ConfigError(word.key, word.value, f"{allowed}; there are {', '.join(near)}")
        fix = f"{slot}=[{','.join([*node, part])}] {spell_word(word.text)}"
        return ConfigError(word.key, word.value, allowed, fix=fix)

    def _list_namesakes(self, key: str) -> str:
        """A comment behind a fix: the settings of the same slot that follow `key`, of used cells
        alone.
        """
        slot = key.partition(".")[0]
        node = drop_unused_cells(select(self.tree, slot)) if slot != key else None
        values = scalars_in(node, slot) if isinstance(node, Mapping) else ()
        follow = [path for path, value in values if value == f"${{{key}}}"]
        return f"  # {', '.join(follow)} follow{'s' * (len(follow) == 1)} it" if follow else ""

    def _find_choice(self, key: str) -> str:
        """`search=sample`: the choices of another part for the slot of `key` whose files have this
        setting; as a choice in a fix.
        """
        slot, _, name = key.rpartition(".")
        node = select(self.tree, slot) if slot else {}
        if not (_is_part(node) or (not node and slot in self.tree)):
            return ""
        group = slot.rpartition(".")[2]
        owners = [
            option
            for option in self.composer.options(group)
            if name in self.composer.settings_in(group, option)
        ]
        several = f"<{' or '.join(owners)}>" if len(owners) < 8 else f"<{owners[0]}, ...>"
        one = owners[0] if len(owners) == 1 else several
        return f"{group if group == slot else f'{group}@{slot}'}={one}" if owners else ""


def _is_part(node: Any) -> bool:
    return isinstance(node, Mapping) and "_target_" in node
