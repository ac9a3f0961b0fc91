"""What builds, checks and measures the project itself. A clone has it; the wheel leaves it out."""
