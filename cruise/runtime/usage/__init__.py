"""The usage pass, and its state between passes."""
