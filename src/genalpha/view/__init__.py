"""Moving pictures of solutions: shapes, scenes, a page with a player, and animated GIFs."""
