"""`plmctl inject`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.storage.resumable import new_folder
from plmctl.text.injected import InjectedToken


@dataclass(frozen=True)
class Inject(Command):
    """Give a model tokens of whole words, with vectors from elsewhere.

    The new model adds them to these words, or replaces the words by them, in every text that it
    reads.
    """

    about = About(
        "inject",
        place=105,
        examples=(
            (
                "plmctl inject checkpoint=runs/first word_vectors=pieces words=rare-words"
                " out=with-words"
            ),
            (
                "plmctl inject checkpoint=runs/first word_vectors=one_token words=rare-words"
                " word_vectors.steps=10 form=replace out=one-token"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="word_vectors",
    )

    # a run, a checkpoint or a Hugging Face folder; word_vectors=mimic: a run of bertram
    checkpoint: str = MISSING
    word_vectors: Any = MISSING
    # the model that receives the tokens, with the same tokenizer and heads that predict words, such
    # as bertram's first model; null: checkpoint
    into: str | None = None
    # a folder of plmctl data contexts, or a table of words; null: all that word_vectors has
    words: str | None = None
    # position of a new token in a text: none; that of the word; after the word and a slash; before
    # a slash and the word
    form: Literal["plain", "replace", "slash", "before"] = "slash"
    cased: bool = False  # a word is one only with the same capital letters
    out: str = MISSING  # a new folder
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one

    def perform(self) -> Result:
        """Write `out`, a model that any command reads, and print what is in it."""
        from plmctl.artifacts.inject import build_maker, open_target, read_words, write_words
        from plmctl.artifacts.loading import load
        from plmctl.training.processes.world import device_of

        out, device = new_folder(self.out), device_of(self.device, "device")
        loaded = load(self.checkpoint, plugins=self.plugins)
        maker = build_maker(self.word_vectors, loaded.config, self.plugins)
        wanted, target = read_words(self.words, maker), loaded.source
        if self.into is not None:
            target = open_target(self.into, loaded, checkpoint=self.checkpoint)
        maker.check(wanted)
        known = set(loaded.tokenizer.pieces(range(loaded.vocab.size)))
        added = [
            InjectedToken(word, f"<word:{word}>", self.form, self.cased) for word in wanted.words
        ]
        if twice := [entry.text for entry in added if entry.token in known]:
            raise ConfigError("words", self.words, f"new words: {twice[0]} has a token already")
        loaded.model.to(device)
        vectors = maker.make(loaded.model, loaded.tokenizer, wanted).cpu()
        write_words(target, loaded.tokenizer.inject(added), vectors, out)
        without = sum(word not in wanted.contexts for word in wanted.words)
        if self.provenance.json:
            tell(json.dumps({"out": self.out, "tokens": len(added), "without contexts": without}))
            return 0
        tell(f"{self.out}: {len(added):,} tokens, {without:,} of them of words without contexts")
        checkpoint = spell_setting("checkpoint", self.out)
        tell(f"next: plmctl finetune task=<name> task.path=<folder> {checkpoint}")
        return 0
