"""Decoders of lists, watches and snapshot files, which are never in memory as a whole."""
