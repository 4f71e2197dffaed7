"""The composition root: settings become concrete classes, jobs and programs."""
