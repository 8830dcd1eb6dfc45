"""Import and export of published checkpoints: names (rules), family and its members, weights
(files), hf (complete folders), refusals (folders that are not read). Another layout that is read
and written is sentence_folder; read alone are elmo, fairseq (pickled) and google (tensor_bundle).
"""
