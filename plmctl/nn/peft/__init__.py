"""Parameter-efficient fine-tuning: small parts that are trained in or beside a model that stays as
it is.

LowRank (LoRA), LearnedScales (IA3), Bottleneck (adapters), PrefixTuning, Subset (BitFit, cells of
one kind).
"""
