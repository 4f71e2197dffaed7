"""One pass of `cruise serve --once`, as table and document."""
