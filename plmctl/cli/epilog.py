"""The help of a command: its options in groups, and at its end settings, and the parts that conf/
and recipes/ hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plmctl.config.command import About, Lines, find_command, find_settings
from plmctl.config.headers import describe_options
from plmctl.config.instead import INSTEAD
from plmctl.config.other_names import ours
from plmctl.config.other_values import say, say_instead
from plmctl.config.part_help import list_settings
from plmctl.config.recipes import conf_dir, recipes_dir
from plmctl.config.schema import hints
from plmctl.config.settings import settings
from plmctl.core.spelling import spell_word

SETTINGS = "Settings (key=value; plmctl help <part> explains those of a part)"
BESIDES = "Settings (besides those of plmctl pretrain, or with task=<name> of plmctl finetune)"

SCREEN = 20  # lines of settings and parts that --help shows without --all
MOST = 16  # settings that it shows where there are more
# settings of groups that most calls have; those outside of groups are a command's own
USED = (
    *("task.path", "task.columns.text", "task.columns.label", "task.max_length"),
    *("data.path", "train.minutes", "train.steps", "train.epochs", "train.batch_size"),
    *("budget.minutes", "budget.steps", "run.dir", "seed"),
)
# {slot: the setting of its part that most calls have}, whose default is that of the part
OF_PARTS = {"optim": ("optim.lr=...", "learning rate (default: of the recipe or the task)")}

# {title of a group of options in --help: their names}
GROUPS = {
    "Output": ("json", "print_config", "preview", "quiet", "verbose", "help"),
    "Parts of your own": ("config_dir", "plugin"),
}


def write_options(params: Sequence[Any], ctx: Any, formatter: Any) -> None:
    """Write the options of a command in groups, those of the command first."""
    titles = {name: title for title, names in GROUPS.items() for name in names}
    groups: dict[str, list[Any]] = {title: [] for title in ("Arguments", "Options", *GROUPS)}
    for param in params:
        is_argument = param.param_type_name == "argument"
        title = "Arguments" if is_argument else titles.get(param.name, "Options")
        if line := param.get_help_record(ctx):
            groups[title].append(line)
    for title, lines in groups.items():
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)


def write_sections(about: About, formatter: Any, *, whole: bool) -> None:
    """Write the examples of a command, its settings, and what can be chosen.

    Args:
        formatter: The formatter of Typer.
        whole: Whether sections that are longer than a screen are written, too.
    """
    with formatter.section("Examples"):
        formatter.write("".join(f"  {line}\n" for line in about.examples))
    sections = list_sections(about)
    if not whole and sum(len(lines) for _, lines in sections) > SCREEN:
        sections = _shorten(about, sections)
    for title, lines in sections:
        with formatter.section(title):
            formatter.write_dl(lines or [("-", "")])


def _shorten(about: About, sections: Sequence[tuple[str, Lines]]) -> list[tuple[str, Lines]]:
    """The settings of a command that are most used, and the commands that show the rest."""
    own = [line for title, lines in sections if title.startswith("Settings") for line in lines]
    listed = {text.partition("=")[0]: (text, meaning) for text, meaning in own}
    needed = [key for key, (text, _) in listed.items() if text.endswith("=")]
    alone = [key for key in listed if "." not in key]
    first = [key for key in dict.fromkeys([*needed, *USED, *alone]) if key in listed][:MOST]
    groups = dict.fromkeys(key.partition(".")[0] for key in listed if "." in key)
    slots = [title.rstrip("=") for title, _ in sections if title.endswith("=")]
    counts = {"settings": len(own)}
    counts |= {title.lower(): len(lines) for title, lines in sections if title.istitle()}
    whole = ", ".join(f"{count} {title}" for title, count in counts.items() if count)
    more = [
        (f"plmctl {about.name} --help --all", whole + (", all parts" if slots else "")),
        *_refer(groups, "settings of {}.*", " {}.*"),
        *_refer(slots, "parts for {}=", " {}="),
    ]
    used = [(text, meaning.partition(";")[0]) for text, meaning in map(listed.__getitem__, first)]
    used += [line for slot, line in OF_PARTS.items() if slot in slots]
    return [*([("Settings in most use", used)] if used else []), ("More", more)]


def _refer(names: Iterable[str], form: str, other: str) -> Lines:
    """The line that leads to the first of some groups or slots, and names the others."""
    first, *others = [*names, ""]
    also = f"; also{','.join(map(other.format, others[:-1]))}" if others[:-1] else ""
    return [(f"plmctl help {first}", form.format(first) + also)] if first else []


def list_sections(about: About) -> list[tuple[str, Lines]]:
    """(title, lines) of every section that ends the help of a command."""
    sections: list[tuple[str, Lines]] = []
    kind = find_settings(about.verb)
    if kind and not about.takes:
        sections.append((SETTINGS, settings(kind)))
    if about.lists:
        title = "Recipes" if about.lists == "." else about.lists.capitalize()
        sections.append((title, describe_options(recipes_dir() / about.lists)))
    if about.section:
        sections.append(about.section())
    if about.only:
        own = [
            line
            for line in settings(find_command("finetune"))
            if line[0].partition("=")[0] in about.only
        ]
        sections.append((BESIDES, own))
    if about.task:
        title = f"Settings of task={about.task} (of another: plmctl help task=<name>)"
        sections.append((title, _of_task(about.task)))
    return sections + [
        (f"{slot}=", describe_options(conf_dir() / slot)) for slot in about.slots.split()
    ]


def name_setting(option: str, value: str, command: str) -> str:
    """The setting that a user means who writes it as an option of `command`, with its value; or
    nothing.
    """
    kind = find_settings(command.rpartition(" ")[2])
    groups = set(hints(kind)) if kind else set()
    key = option.lstrip("-").replace("-", "_")
    known = key.partition(".")[0] in groups
    if key in INSTEAD and not known:
        words = say_instead(key, INSTEAD[key].typed, value, lambda _: None)
        words = words.replace("<command>", command)
        return f"{words or 'leave it out'}  # {INSTEAD[key].words}"
    setting = key if known else ours(key, lambda name: name.partition(".")[0] in groups)
    if known or not setting:
        return spell_word(f"{setting}={value}") if setting else ""
    return say(key, setting, value, lambda _: None) or f"leave it out  # {setting} is as usual"


def _of_task(name: str) -> list[tuple[str, str]]:
    """(task.key=default, meaning) of a task, without those of the parts in it."""
    listed = list_settings(conf_dir() / "task" / f"{name}.yaml", types=False)
    parts = tuple(f"{part.path}." for part in listed if part.target and part.path != "task")
    return [
        (f"{setting.path}={setting.default}", setting.meaning)
        for setting in listed
        if setting.path.startswith("task.") and setting.path != "task.name"
        if not setting.target and not setting.path.startswith(parts)
    ]
