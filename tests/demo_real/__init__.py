"""The demo on a real control plane: `make demo-real`."""
