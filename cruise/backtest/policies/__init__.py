"""The policies that are compared: cruise's own passes, in columns, and the list of all."""
