"""Lists, watches and snapshot files, decoded without holding them whole."""
