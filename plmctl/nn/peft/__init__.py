"""Parameter-efficient fine-tuning: small trained parts in a model that itself stays as it is.

LowRank (LoRA), LearnedScales (IA3), Bottleneck (adapters), PrefixTuning, PromptTuning, Subset
(BitFit, cells of one kind), AdapterFusion and TrainedAdapters. `routed` has those of several tasks
in one model.
"""
