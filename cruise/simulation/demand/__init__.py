"""The demand of simulated containers: recorded traces and generated shapes."""
