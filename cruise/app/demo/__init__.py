"""The demo: the controller on a simulated cluster."""
