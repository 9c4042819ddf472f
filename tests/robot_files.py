"""MJCF files of the tests, and the accelerations of joints from those of bodies."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np

import genalpha as ga
from genalpha import multibody as mb
from genalpha.multibody.frames import axes_of

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

ARM = """
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
        <joint name="first" axis="1 0 0" pos="0 0 0.01" ref="0.3" stiffness="3" springref="0.2"
          armature="0.02"/>
        <joint name="second" axis="0 1 0" pos="0 0 0.01" ref="-0.1" stiffness="2" damping="0.4"/>
        <geom type="box" size="0.1 0.05 0.07" pos="0.02 0.01 0.1"/>
        <body name="bolt" pos="0.1 0 0.2">
          <joint name="out" type="slide" axis="1 0 1" stiffness="30" damping="1"/>
          <joint name="about" axis="1 0 1" pos="0.03 0 0" armature="0.01" ref="0.4"/>
          <geom type="cylinder" size="0.05 0.1" pos="0.06 0.02 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="second" gear="1.5"/>
    <position name="servo" joint="first" kp="4" kv="0.3"/>
  </actuator>
</mujoco>"""

MIXED = f"""
<mujoco model="inertias of geoms, also of a mesh, with bounds; springs of free and ball joints">
  <compiler angle="radian" eulerseq="XyZ" inertiafromgeom="true" boundmass="0.5" boundinertia="0.01"/>{OFF}
  <option gravity="1 2 -3"/>
  <default><general gear="2"/></default>
  <asset>
    <mesh name="t" vertex="0 0 0 1 0 0 0 1 0 0 0 1" face="0 2 1 0 1 3 0 3 2 1 2 3"
      scale="0.5 -0.25 0.375" refpos="0.125 0 0" refquat="0 0.6 0.8 0"/>
  </asset>
  <worldbody>
    <body name="a" pos="1 0 1" euler="0.3 0.2 0.7">
      <joint name="float" type="free" damping="0.7" stiffness="2"/>
      <inertial pos="0 0 0" mass="100" diaginertia="1 1 1"/>
      <geom type="mesh" mesh="t" pos="0.1 0.2 0" quat="1 0 0.5 0"/>
      <geom type="cylinder" size="0.1" fromto="0 0 0 0.3 0.2 0.1" mass="0.4"/>
      <body name="b" pos="0 0.3 0">
        <joint name="h" axis="1 2 3" pos="0.1 0 0" springref="0.5" stiffness="4"/>
        <geom size="0.05" mass="0.01"/>
        <body name="c" pos="0 0.3 0">
          <joint name="ball" type="ball" stiffness="1" damping="0.3"/>
          <geom type="box" size="0.05 0.1 0.2" density="300"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><position name="p" joint="h" kp="3"/><general name="g" joint="h" gainprm="1.5"/></actuator>
</mujoco>"""

# Defaults of actuators for other kinds, a group that is off, and joints and inertias in frames.
SERVOS = f"""
<mujoco model="servos">
  <compiler inertiafromgeom="true"/>{OFF}<option actuatorgroupdisable="2"/>
  <default>
    <general gainprm="50" biastype="affine" biasprm="0 -50 -1"/>
    <default class="soft"><position kp="7" kv="3"/><default class="softer"><velocity/></default></default>
  </default>
  <worldbody>
    <body name="one">
      <frame pos="0.1 0 0.2" euler="30 20 0"><joint name="a" pos="0 0 0.1" axis="0 1 0"/></frame>
      <frame euler="0 40 10"><inertial pos="0 0 0.3" mass="2" diaginertia="0.1 0.2 0.25"/></frame>
      <body name="two" pos="0 0 0.5">
        <joint name="b" axis="1 0 0"/><geom type="box" size="0.1 0.2 0.3"/>
        <body name="three" pos="0 0 0.4"><joint name="c" axis="0 1 0"/><geom size="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="p" joint="a"/><velocity name="v" joint="b"/><general name="g" joint="c" class="soft"/>
    <position name="s" joint="b" class="softer"/><motor name="off" joint="a" group="2"/>
  </actuator>
</mujoco>"""

CRANK = f"""
<mujoco model="slider crank">
  {OFF}
  <worldbody>
    <body name="crank">
      <joint name="drive" axis="0 1 0"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/>
      <body name="rod" pos="0.2 0 0">
        <joint name="pin" axis="0 1 0"/>
        <geom type="capsule" size="0.015" fromto="0 0 0 0.6 0 0"/>
      </body>
    </body>
    <body name="slider" pos="0.8 0 0">
      <joint name="guide" type="slide" axis="1 0 0" damping="0.5"/>
      <geom type="box" size="0.05 0.04 0.04"/>
    </body>
  </worldbody>
  <equality><connect name="eye" body1="rod" body2="slider" anchor="0.6 0 0"/></equality>
</mujoco>"""

FOUR_BAR = f"""
<mujoco model="four-bar">
  <compiler angle="radian"/>{OFF}
  <default><joint axis="0 1 0"/><geom type="capsule" size="0.02"/></default>
  <worldbody>
    <body name="crank">
      <joint name="A"/>
      <geom fromto="0 0 0 0.2 0 0.3"/>
      <body name="coupler" pos="0.2 0 0.3">
        <joint name="B"/>
        <geom fromto="0 0 0 0.8 0 0.4"/>
        <body name="half" pos="0.8 0 0.4">
          <joint name="C"/>
          <geom fromto="0 0 0 0.1 0 -0.35"/>
        </body>
      </body>
    </body>
    <body name="rocker" pos="1.2 0 0">
      <joint name="D"/>
      <geom fromto="0 0 0 -0.1 0 0.35"/>
    </body>
    <body name="follower" pos="0 0.3 0">
      <joint name="F" ref="0.1"/>
      <geom fromto="0 0 0 0.3 0 0"/>
    </body>
  </worldbody>
  <equality>
    <weld name="closure" body1="half" body2="rocker"/>
    <joint name="cam" joint1="F" joint2="A" polycoef="0.05 -0.7 0.3 0.1 0"/>
  </equality>
</mujoco>"""

URDF = """
<robot name="planner">
  <link name="base"><visual><geometry><box size="0.3 0.3 0.1"/></geometry></visual></link>
  <link name="column">
    <inertial>
      <origin xyz="0.01 0.02 0.25" rpy="0.1 0.2 0.3"/><mass value="4"/>
      <inertia ixx="0.09" iyy="0.08" izz="0.03" ixy="0.002" ixz="-0.003" iyz="0.001"/>
    </inertial>
    <visual><origin xyz="0 0 0.25"/><geometry><cylinder radius="0.05" length="0.5"/></geometry></visual>
    <collision><geometry><sphere radius="0.1"/></geometry></collision>
  </link>
  <link name="boom">
    <inertial>
      <origin xyz="0.3 0 0"/><mass value="2"/>
      <inertia ixx="0.005" iyy="0.06" izz="0.06" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="lamp">
    <inertial>
      <origin xyz="0 0 0.05" rpy="0.4 0 0"/><mass value="0.5"/>
      <inertia ixx="0.001" iyy="0.002" izz="0.0015" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="tool0"/>
  <link name="rail">
    <inertial>
      <mass value="1.5"/><inertia ixx="0.01" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <joint name="yaw" type="continuous">
    <parent link="base"/><child link="column"/>
    <origin xyz="0 0 0.1" rpy="0.1 0 0.5"/><axis xyz="0 0 1"/><dynamics damping="0.3" friction="0.2"/>
  </joint>
  <joint name="pitch" type="revolute">
    <parent link="column"/><child link="boom"/>
    <origin xyz="0.05 0 0.5" rpy="0 -0.3 0"/><axis xyz="0 1 0.2"/>
    <limit lower="-1" upper="2" effort="10" velocity="3"/>
  </joint>
  <joint name="mount" type="fixed">
    <parent link="boom"/><child link="lamp"/><origin xyz="0.6 0 0" rpy="0 0.7 0"/>
  </joint>
  <joint name="flange" type="fixed"><parent link="lamp"/><child link="tool0"/><origin xyz="0 0 0.1"/></joint>
  <joint name="shift" type="prismatic">
    <parent link="lamp"/><child link="rail"/>
    <origin xyz="0 0.1 0.2" rpy="0 0 1"/><axis xyz="1 0.5 0"/><dynamics damping="1.5"/>
    <limit lower="0" upper="0.4" effort="0" velocity="0"/>
  </joint>
</robot>"""

SMOOTH_URDF = URDF.replace(' friction="0.2"', "")


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


def coordinates(model: mb.Model, names: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Values and rates of joints where the model is."""
    row = SimpleNamespace(t=np.zeros(1), q=model.q0[None], v=model.v0[None])
    motion = model.motion(row)
    return {x: motion.coordinate(x).item() for x in names}, {x: motion.rate(x).item() for x in names}


def accelerations(model: mb.Model) -> np.ndarray:
    """Those of all bodies where the model is."""
    return np.asarray(ga.consistent(model.system, 0.0, model.q0, model.v0).a)


def read(folder, text: str, name: str = "robot.xml", **options) -> mb.Model:
    """The model of a file, without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return mb.load(written(folder, text, name), **options)


def _closed(model: mb.Model, names: list[str], values: dict, rates: dict) -> tuple:
    """The model with its loops closed, starting from values of joints."""
    q, v = model.pose(values)
    model.place(q, v)
    model.assemble(hold=["crank"], redundant="drop")
    now, _ = coordinates(model, names)
    model.place(*model.pose(now, rates))
    model.assemble(redundant="drop", rates={names[0]: rates[names[0]]})  # the loop says the others
    return model, names, *coordinates(model, names)


def closed_crank(folder) -> tuple:
    """The slider crank away from its dead point, moving: model, joints, values and rates."""
    model = read(folder, CRANK)
    return _closed(model, ["drive", "pin", "guide"], {"drive": 0.7, "pin": -0.9}, {"drive": 3.0, "pin": -4.0})


def closed_four_bar(folder) -> tuple:
    """The four-bar linkage with its follower, moving."""
    model = read(folder, FOUR_BAR)
    names = ["A", "B", "C", "D", "F"]
    return _closed(model, names, {"A": 0.3}, {"A": 2.0, "B": -1.0})
