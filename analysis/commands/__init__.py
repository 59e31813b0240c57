"""What `python -m analysis` can do: one module per command, each with `main(argv) -> int`."""
