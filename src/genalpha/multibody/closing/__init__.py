"""From where bodies are to where joints close: positions, velocities, and rows that depend on others."""
