"""Configuration spaces: where q lives, and how a velocity moves it."""

from genalpha.spaces._base import Space
from genalpha.spaces.euclidean import Euclidean
from genalpha.spaces.product import Product
from genalpha.spaces.rotations import SE3, SO3, R3xSO3

__all__ = ["SE3", "SO3", "Euclidean", "Product", "R3xSO3", "Space"]
