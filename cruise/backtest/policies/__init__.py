"""The policies that are compared: cruise's own passes, asked in columns, and the list of all."""
