"""Search for clusters of any size under any rules: a first packing, ejections, and rearrangements."""
