"""Back-translation (Sennrich et al., 2016): the model predicts a text from its own
translation of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.models.base import Model, Once
from plmctl.models.encoder_decoder import EncoderDecoder
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.text.vocab import Vocab


@part_of("objective")
class BackTranslation(Objective):
    """`- sum_t log p(y_t | y_1 .. y_{t-1}, u(y))`: y is text of language l, u(y) what the model
    writes for it in another one.

    u is the greedy translation, made in evaluation mode and without gradient, of at most `1.3 n +
    5` tokens for a text of n. Encoder and decoder get the vector of the language. Only
    `target` of the batch is read: noise may stand in the source for another objective. With more
    than two languages, the number of a row selects one of the others. (Sennrich et al., 2016,
    arXiv:1511.06709, sec. 3; on-line, from monolingual text alone: Lample et al., 2018,
    arXiv:1804.09000, sec. 2.3; length: facebookresearch/XLM, src/trainer.py, bt_step.) ConfigError
    for a model of fewer than two languages.
    Differs: in the released code, n is that of the longest text of the batch; the count of FLOPs
    leaves out the cost of writing.
    """

    holds_cells = True
    facts = Facts(
        needs=frozenset({"source", "target", "targets.seq2seq"}),
        uses=frozenset({"tracks.language"}),
        heads=frozenset({"seq2seq"}),
        terms=frozenset({"back_translation"}),
    )

    def __init__(self, *, model: Model, vocab: Vocab) -> None:
        super().__init__()
        if not isinstance(model.backbone, EncoderDecoder):
            allowed = "back-translation writes: it needs model=encoder_decoder"
            raise ConfigError("model", type(model.backbone).__name__, allowed)
        tables = [
            end.embedding.language for end in (model.backbone.encoder, model.backbone.decoder)
        ]
        self.languages = min(0 if table is None else table.num_embeddings for table in tables)
        if self.languages < 2:
            setting = "model.encoder.embedding.languages"
            allowed = "at least 2: one vector for each language"
            raise ConfigError(setting, self.languages, allowed, fix=f"{setting}=2")
        self.vocab, self.search = vocab, Greedy()

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """All tokens of the target; ConfigError if it is not a whole text or has no language."""
        target = rows.seqs["target"]
        if "previous" in target.tracks:
            allowed = "back-translation asks for whole texts, this noise for parts of them"
            raise ConfigError("noise", ..., allowed, fix="noise=[autoencode]")
        if "document" in target.tracks:
            allowed = "back-translation asks for one text a row, not several"
            raise ConfigError("format", ..., allowed, fix="format=sentences")
        if "language" not in target.tracks:
            allowed = "back-translation needs the language of every text"
            fix = "recipe mass_translation shows sources that say so (InLanguage)"
            raise ConfigError("format", ..., allowed, fix=fix)
        return {"seq2seq": np.where(target.real, target.ids, IGNORE)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"back_translation": batch.counts["seq2seq"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        source = self.translate(model.model if isinstance(model, Once) else model, batch)
        translated = replace(batch, seqs={**batch.seqs, "source": source})
        return ask(model, translated, "seq2seq", term="back_translation")

    def translate(self, model: Model, batch: Batch) -> Seq:
        """The model's translations of `target`: [B, S] ids, each with its end token last, and
        their languages.
        """
        target = batch.seqs["target"]
        other = self._other(batch.key, target.tracks["language"][:, :1].long())
        # a spare row, which fills a batch up, has no token to read
        readable = replace(target, length=target.length.clamp(min=1))
        source = Batch(batch.key, {"source": readable})
        most = [int(1.3 * length + 5) for length in target.length.tolist()]
        places = (model.backbone.max_length, model.backbone.max_target)
        limit = min((number for number in places if number is not None), default=None)
        translations = generate(
            model,
            source,
            vocab=self.vocab,
            search=self.search,
            head="seq2seq",
            tracks={"language": other},
            max_new=max(most) if limit is None else min(max(most), limit - 1),
        )
        end = self.vocab.eos
        texts = [
            torch.tensor([*best[0].ids[:longest], *([] if end is None else [end])])
            for best, longest in zip(translations, most, strict=True)
        ]
        ids = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self.vocab.pad).to(
            target.ids.device
        )
        length = torch.tensor([len(text) for text in texts], device=target.ids.device)
        full = bool((length == ids.shape[1]).all())
        return Seq(ids, length, {"language": other.expand_as(ids)}, full=full)

    def _other(self, key: Tensor, own: Tensor) -> Tensor:
        """[B, 1] for each row a language that is not its `own` [B, 1]."""
        return (own + 1 + key[:, None] % (self.languages - 1)) % self.languages
