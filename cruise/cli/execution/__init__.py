"""The long work of commands, with its progress on standard error."""
