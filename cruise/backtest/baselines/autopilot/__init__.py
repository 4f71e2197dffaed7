"""Google's Autopilot, from its paper."""
