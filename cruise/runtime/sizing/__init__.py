"""The node pass, and the headroom model that it learns."""
