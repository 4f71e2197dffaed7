"""The policies that cruise is compared with: the sizing of other tools, reimplemented from their sources."""
