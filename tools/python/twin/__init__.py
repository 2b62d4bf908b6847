"""The twin: Clover in PyTorch, written from SPEC.md alone. README.md in this folder says what is where."""
