"""Files of models: our own, URDF and MJCF."""
