"""MJCF files of the tests, and the accelerations of joints from those of bodies."""

from __future__ import annotations

import numpy as np

from genalpha.multibody.frames import axes_of
from genalpha import multibody as mb

OFF = '<option><flag contact="disable" limit="disable" frictionloss="disable"/></option>'

PENDULUM = f"""
<mujoco model="double pendulum">
  <compiler angle="radian"/>{OFF}
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" damping="0.1" stiffness="2" springref="0.3"/>
      <inertial pos="0 0 -0.4" mass="1.2" diaginertia="0.05 0.06 0.02"/>
      <body name="lower" pos="0 0 -0.8">
        <joint name="elbow" axis="0 1 0" ref="0.2" armature="0.07"/>
        <inertial pos="0.02 0 -0.3" mass="0.7" fullinertia="0.03 0.02 0.015 0.001 -0.002 0.003"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""

ARM = f"""
<mujoco model="arm">
  <compiler eulerseq="zyx"/>
  <option gravity="0.5 0 -9.81"><flag contact="disable" limit="disable"/></option>
  <default>
    <geom type="capsule" size="0.05" density="800"/>
    <joint axis="0 1 0" damping="0.5" armature="0.02"/>
    <motor gear="3"/>
    <default class="wrist">
      <joint axis="1 0 0" damping="0.05"/>
      <default class="tip"><joint axis="0 0 1"/><geom type="box" size="0.04 0.03 0.02" mass="0.3"/></default>
    </default>
  </default>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="base" pos="0.1 0 0.2" euler="30 10 -20">
      <joint name="turn" axis="0 0 1"/>
      <geom fromto="0 0 0 0 0 0.3"/>
      <body name="upper" pos="0 0 0.3" axisangle="0 1 0 40">
        <joint name="lift" pos="0.01 0 0.02" ref="25"/>
        <geom fromto="0 0 0 0.1 0 0.5"/>
        <geom type="ellipsoid" size="0.06 0.05 0.09" pos="0 0.02 0.2" euler="0 0 30"/>
        <body name="bracket" pos="0.05 0 0.1"><geom type="sphere" size="0.04" mass="0.2"/></body>
        <frame pos="0.1 0 0.5" zaxis="0.2 0 1">
          <body name="fore" childclass="wrist">
            <joint name="reach" class="main" axis="0 1 0.1"/>
            <geom type="cylinder" size="0.04 0.2" pos="0 0 0.2"/>
            <body name="wrist" pos="0 0 0.4" xyaxes="1 0.1 0 0 1 0.2">
              <joint name="roll"/>
              <geom fromto="0 0 0 0 0 0.1"/>
              <body name="hand" pos="0 0 0.1" quat="1 0.1 0.2 0">
                <joint name="slide" type="slide" axis="0 0 2" ref="0.05" stiffness="40" damping="2"/>
                <geom type="box" size="0.05 0.05 0.05"/>
                <body name="tool" pos="0 0 0.1">
                  <joint name="spin" class="tip"/>
                  <geom class="tip" pos="0.02 0 0.03"/>
                  <site name="point" pos="0 0 0.1"/>
                </body>
              </body>
            </body>
          </body>
        </frame>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="m turn" joint="turn"/>
    <position name="m lift" joint="lift" kp="20" kv="1.5" gear="2"/>
    <velocity name="m roll" joint="roll" kv="0.3"/>
    <general name="m spin" joint="spin" gainprm="2" biastype="affine" biasprm="0.1 -3 -0.2"/>
  </actuator>
</mujoco>"""
CONTROLS = {"m turn": 1.5, "m lift": 0.4, "m roll": -2.0, "m spin": 0.7}

TREE = f"""
<mujoco model="tree">
  <compiler angle="radian"/>{OFF}
  <worldbody>
    <body name="trunk" pos="0 0 1" quat="1 0.2 0 0.1">
      <freejoint/>
      <inertial pos="0.03 -0.02 0.05" quat="1 0 0.3 0" mass="3" diaginertia="0.2 0.25 0.1"/>
      <body name="head" pos="0 0 0.3">
        <joint name="neck" type="ball" damping="0.2" stiffness="3" pos="0 0 -0.05"/>
        <geom type="sphere" size="0.1" pos="0.02 0 0.1"/>
      </body>
      <body name="left" pos="0 0.2 0" euler="0.2 0 0.3">
        <joint name="hip" axis="1 1 0"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0 0 -0.4"/>
        <body name="foot" pos="0 0 -0.4">
          <joint name="ankle" type="slide" axis="0.1 0 1" armature="0.3"/>
          <geom type="box" size="0.1 0.05 0.02" density="1500"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>"""

COMPOUND = f"""
<mujoco model="compound">
  <compiler angle="radian"/>{OFF}
  <worldbody>
    <body name="torso" pos="0 0 1.2">
      <joint name="rootx" type="slide" axis="1 0 0" stiffness="5" ref="0.1"/>
      <joint name="rootz" type="slide" axis="0 0 1" ref="1.2" damping="0.4"/>
      <joint name="rooty" axis="0 1 0" damping="0.3" ref="-0.2" pos="0.05 0 0"/>
      <geom type="capsule" size="0.05" fromto="0 0 -0.2 0.05 0 0.2"/>
      <body name="cross" pos="0 0 0.2">
        <joint name="first" axis="1 0 0" pos="0 0 0.01" ref="0.3"/>
        <joint name="second" axis="0 1 0" pos="0 0 0.01" ref="-0.1"/>
        <geom type="box" size="0.1 0.05 0.07" pos="0.02 0.01 0.1"/>
        <body name="bolt" pos="0.1 0 0.2">
          <joint name="out" type="slide" axis="1 0 1" stiffness="30" damping="1"/>
          <joint name="about" axis="1 0 1" pos="0.03 0 0" armature="0.01" ref="0.4"/>
          <geom type="cylinder" size="0.05 0.1" pos="0.06 0.02 0"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>"""


def written(folder, text: str, name: str = "robot.xml"):
    path = folder / name
    path.write_text(text)
    return path


def states(model: mb.Model, q, v, a) -> dict[str, tuple]:
    """Rotation, centre, velocities and accelerations of every body, in space-fixed axes."""
    ground = (np.eye(3), *(np.zeros(3),) * 5)
    found = {"ground": ground}
    for name, (of_q, of_v) in model.slices().items():
        x, p, speed, spin, push, turn = *np.split(q[of_q], [3]), *np.split(v[of_v], 2), *np.split(a[of_v], 2)
        R = axes_of(p)
        found[name] = R, x, speed, R @ spin, push, R @ turn
    return found


def _frame(marker, state) -> tuple:
    """The same of a frame on a body."""
    R, x, v, w, a, dw = state
    arm = R @ marker.r
    pull = a + np.cross(dw, arm) + np.cross(w, np.cross(w, arm))
    return R @ marker.Q, x + arm, v + np.cross(w, arm), w, pull, dw


def joint_accelerations(model: mb.Model, q, v, a) -> dict[str, np.ndarray]:
    """Second derivatives of the coordinates of every joint, by formulas of relative motion.

    Ball joints: of the relative angular velocity in axes of the second body. Universal joints: about z of a
    and z of b. Free bodies: of the origin, and of the angular velocity in their axes.
    """
    bodies, found = states(model, q, v, a), {}
    held = {joint.markers[1].body.name for joint in model.joints}
    for body in (body for body in model.bodies if body.name not in held):
        R, _, _, _, pull, dw = _frame(body.frame(), bodies[body.name])
        found[body.name] = np.concatenate([pull, R.T @ dw])
    for joint in model.joints:
        if len(joint.markers) != 2:
            continue
        A, B = (_frame(marker, bodies[marker.body.name]) for marker in joint.markers)
        (Ra, xa, va, wa, aa, da), (Rb, xb, vb, wb, ab, db) = A, B
        d, w = xb - xa, wb - wa
        speed = vb - va - np.cross(wa, d)
        pull = ab - aa - np.cross(da, d) - np.cross(wa, np.cross(wa, d)) - 2 * np.cross(wa, speed)
        turn = db - da - np.cross(wa, w)  # as seen from a
        if isinstance(joint, mb.Spherical):
            found[joint.name] = Rb.T @ (db - da + np.cross(wb, wa))
        elif isinstance(joint, mb.Universal):
            # w = s z_a + r z_b, with z_b at rest in b: both rates by parts.
            s, r = w @ Ra[:, 2], w @ Rb[:, 2]
            more = np.cross(s * Ra[:, 2], r * Rb[:, 2])
            found[joint.name] = np.array([(turn - more) @ Ra[:, 2], (turn - more) @ Rb[:, 2]])
        else:
            seen = [*(Ra.T @ pull), Ra[:, 2] @ turn]
            ways = {"x": 0, "y": 1, "displacement": 2, "angle": 3}
            found[joint.name] = np.array([seen[ways[one.name]] for one in joint.coordinates])
    return found
