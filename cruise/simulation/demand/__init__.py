"""What simulated containers use: recorded traces and generated shapes."""
