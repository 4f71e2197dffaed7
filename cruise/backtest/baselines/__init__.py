"""What cruise is compared with: each other tool's sizing, from its own sources."""
