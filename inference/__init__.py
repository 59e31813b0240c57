"""The torch-facing side: load a model, run it eagerly or as a graph, time it, prove it equal. No analysis."""
