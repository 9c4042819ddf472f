"""What a solution of a model says: positions, coordinates of joints, reactions, energies."""
