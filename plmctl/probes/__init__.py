"""Questions to a trained model: one module a question; `plmctl eval` picks one."""
