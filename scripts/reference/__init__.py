"""The pages of docs/reference, made from what code knows; `python -m scripts.reference` writes them."""
