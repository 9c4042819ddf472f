"""Configuration spaces: where q lives, and how a velocity moves it."""

from genalpha.spaces._base import Space
from genalpha.spaces.euclidean import Euclidean

__all__ = ["Euclidean", "Space"]
