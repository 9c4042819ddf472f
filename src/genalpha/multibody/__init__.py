"""Mechanisms from bodies, joints and forces. See docs/multibody.md.

>>> from genalpha import multibody as mb
>>> model = mb.Model(gravity=(0, 0, -9.81))
"""

from genalpha.multibody import planar_joints  # noqa: F401 - they replace others in the plane
from genalpha.multibody.bodies import Body, PlanarBody, PointMass
from genalpha.multibody.connectors import Connector
from genalpha.multibody.contact import SphereContact
from genalpha.multibody.couplings import Driven, Gear, Mimic, Rack, Screw
from genalpha.multibody.forces import (
    AppliedForce,
    Bushing,
    Custom,
    Drag,
    DryFriction,
    Force,
    JointSpring,
    Motor,
    SpringDamper,
)
from genalpha.multibody.formats.files import load
from genalpha.multibody.frames import FrameState, Wrench
from genalpha.multibody.friction import Friction
from genalpha.multibody.inertia import Inertia, box, capsule, cylinder, mesh, rod, sphere, total
from genalpha.multibody.joints import (
    Cylindrical,
    Distance,
    Joint,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    Weld,
)
from genalpha.multibody.limits import Limit
from genalpha.multibody.markers import Marker
from genalpha.multibody.model import Model
from genalpha.multibody.motion.front import Momentum, Motion, Reaction
from genalpha.multibody.rolling import KnifeEdge, OnSurface, RollingDisk, RollingSphere, VelocityCoupling
from genalpha.multibody.rotors import Rotor

__all__ = [
    "AppliedForce",
    "Body",
    "Bushing",
    "Connector",
    "Custom",
    "Cylindrical",
    "Distance",
    "Drag",
    "Driven",
    "DryFriction",
    "Force",
    "FrameState",
    "Friction",
    "Gear",
    "Inertia",
    "Joint",
    "JointSpring",
    "KnifeEdge",
    "Limit",
    "Marker",
    "Mimic",
    "Model",
    "Momentum",
    "Motion",
    "Motor",
    "OnSurface",
    "Planar",
    "PlanarBody",
    "PointMass",
    "PointOnLine",
    "PointOnPlane",
    "Prismatic",
    "Rack",
    "Reaction",
    "Revolute",
    "RollingDisk",
    "RollingSphere",
    "Rotor",
    "Screw",
    "SphereContact",
    "Spherical",
    "SpringDamper",
    "Universal",
    "VelocityCoupling",
    "Weld",
    "Wrench",
    "box",
    "capsule",
    "cylinder",
    "load",
    "mesh",
    "rod",
    "sphere",
    "total",
]
