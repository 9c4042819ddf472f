"use strict";
// Vectors, quaternions (w, x, y, z), matrices, and the surfaces of shapes.
// The page has one script: this file, then renderer.js and viewer.js.

// --- vectors and rotations ------------------------------------------------------------------------

const plus = (a, b, s = 1) => [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]];
const minus = (a, b) => plus(a, b, -1);
const times = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const length = (a) => Math.hypot(a[0], a[1], a[2]);
const unit = (a) => times(a, 1 / (length(a) || 1));
const cross = (a, b) => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];
const mix = (a, b, s) => a.map((x, i) => x + s * (b[i] - x));

// The product of two quaternions: first r, then p.
function product(p, r) {
  const [a, b, c, d] = p, [w, x, y, z] = r;
  return [
    a * w - b * x - c * y - d * z,
    a * x + b * w + c * z - d * y,
    a * y - b * z + c * w + d * x,
    a * z + b * y - c * x + d * w,
  ];
}

// The rotation between a and b, at the part s of the way, with constant angular velocity.
function slerp(a, b, s) {
  let cosine = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
  const sign = cosine < 0 ? -1 : 1;
  cosine = Math.min(1, Math.abs(cosine));
  const angle = Math.acos(cosine);
  const [u, v] = angle < 1e-4
    ? [1 - s, s]
    : [Math.sin((1 - s) * angle) / Math.sin(angle), Math.sin(s * angle) / Math.sin(angle)];
  const p = a.map((x, i) => u * x + sign * v * b[i]);
  const size = Math.hypot(...p);
  return p.map((x) => x / size);
}

// The shortest rotation that turns z into the direction of a.
function fromZ(a) {
  const d = unit(a);
  if (d[2] < -0.999999) return [0, 1, 0, 0];
  const p = [1 + d[2], -d[1], d[0], 0];
  const size = Math.hypot(...p);
  return length(a) > 0 ? p.map((x) => x / size) : [1, 0, 0, 0];
}

// Rotations that turn z into a coordinate axis.
const HALF = Math.SQRT1_2;
const TO_AXIS = { x: [HALF, 0, HALF, 0], y: [HALF, -HALF, 0, 0], z: [1, 0, 0, 0] };

// --- matrices (4, 4), stored by columns -----------------------------------------------------------

function multiply(a, b) {
  const c = new Float32Array(16);
  for (let i = 0; i < 4; i++)
    for (let j = 0; j < 4; j++)
      for (let k = 0; k < 4; k++) c[4 * j + i] += a[4 * k + i] * b[4 * j + k];
  return c;
}

function perspective(tangent, aspect, near, far) {
  const m = new Float32Array(16);
  m[0] = 1 / (tangent * aspect);
  m[5] = 1 / tangent;
  m[10] = (far + near) / (near - far);
  m[11] = -1;
  m[14] = (2 * far * near) / (near - far);
  return m;
}

// What turns the world so that the eye looks along −z. right, up and back are its axes.
function lookFrom(eye, right, up, back) {
  const m = new Float32Array(16);
  [right, up, back].forEach((a, i) => {
    for (let j = 0; j < 3; j++) m[4 * j + i] = a[j];
    m[12 + i] = -dot(a, eye);
  });
  m[15] = 1;
  return m;
}

// --- surfaces ---------------------------------------------------------------------------------------

// A surface has positions, normals and triangles. The shader draws position · scale + normal · inflate.
// So one ball serves for all radii, and one capsule for all lengths.
class Surface {
  constructor() {
    this.positions = [];
    this.normals = [];
    this.triangles = [];
  }

  point(position, normal) {
    this.positions.push(...position);
    this.normals.push(...normal);
    return this.positions.length / 3 - 1;
  }

  // A grid of points: f(i, j) is a pair (position, normal) for i = 0..n and j = 0..m.
  grid(n, m, f) {
    const first = this.positions.length / 3;
    for (let i = 0; i <= n; i++) for (let j = 0; j <= m; j++) this.point(...f(i, j));
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++) {
        const a = first + i * (m + 1) + j, b = a + m + 1;
        this.triangles.push(a, b, a + 1, a + 1, b, b + 1);
      }
    return this;
  }

  // A disk of radius 1 at the height z.
  disk(z, sign) {
    const n = 40, centre = this.point([0, 0, z], [0, 0, sign]);
    for (let i = 0; i <= n; i++) {
      const angle = (2 * Math.PI * i) / n;
      const at = this.point([Math.cos(angle), Math.sin(angle), z], [0, 0, sign]);
      if (i) this.triangles.push(centre, at - 1, at);
    }
    return this;
  }
}

const around = (i, n) => [Math.cos((2 * Math.PI * i) / n), Math.sin((2 * Math.PI * i) / n)];

function boxSurface() {
  const surface = new Surface();
  for (const side of [-1, 1])
    for (let axis = 0; axis < 3; axis++)
      surface.grid(1, 1, (i, j) => {
        const position = [0, 0, 0], normal = [0, 0, 0];
        position[axis] = side / 2;
        position[(axis + 1) % 3] = i - 0.5;
        position[(axis + 2) % 3] = j - 0.5;
        normal[axis] = side;
        return [position, normal];
      });
  return surface;
}

function cylinderSurface() {
  const side = (i, j) => {
    const [c, s] = around(j, 40);
    return [[c, s, i - 0.5], [c, s, 0]];
  };
  return new Surface().grid(1, 40, side).disk(0.5, 1).disk(-0.5, -1);
}

// A cone with its base at z = 0 and its tip at z = 1.
function coneSurface() {
  const side = (i, j) => {
    const [c, s] = around(j, 40);
    return [[(1 - i) * c, (1 - i) * s, i], [c, s, 1]];
  };
  return new Surface().grid(1, 40, side).disk(0, -1);
}

// A capsule, with its length in the positions and its round ends in the normals. A ball has the scale zero.
function capsuleSurface() {
  const n = 24;
  return new Surface().grid(n + 1, 40, (i, j) => {
    const half = i > n / 2, angle = (Math.PI * (half ? i - 1 : i)) / n;
    const [c, s] = around(j, 40), across = Math.sin(angle);
    return [[0, 0, half ? -0.5 : 0.5], [c * across, s * across, Math.cos(angle)]];
  });
}

// A helix from z = 0 to z = 1 about the z axis. Its ends lie on the axis. The wire is in the normals.
function springSurface(coils) {
  const n = 28 * coils, m = 10, lead = 0.4 / (coils + 1);
  const smooth = (x) => (x <= 0 ? 0 : x >= 1 ? 1 : x * x * (3 - 2 * x));
  const centre = (s) => {
    const inner = Math.min(1, Math.max(0, (s - lead) / (1 - 2 * lead)));
    const radius = smooth(s / lead) * smooth((1 - s) / lead);
    const angle = 2 * Math.PI * coils * inner;
    return [radius * Math.cos(angle), radius * Math.sin(angle), s];
  };
  const stretch = (a) => [a[0], a[1], 8 * a[2]]; // a usual ratio of length and radius
  return new Surface().grid(n, m, (i, j) => {
    const s = i / n, at = centre(s), step = 1e-3;
    const tangent = unit(stretch(minus(centre(Math.min(1, s + step)), centre(Math.max(0, s - step)))));
    const first = unit(cross(tangent, [0.3, 0.2, 1]));
    const second = cross(tangent, first), [c, d] = around(j, m);
    return [at, plus(times(first, c), second, d)];
  });
}

function planeSurface() {
  return new Surface().grid(1, 1, (i, j) => [[i - 0.5, j - 0.5, 0], [0, 0, 1]]);
}

// Triangles with a normal for each of them.
function meshSurface(vertices, triangles) {
  const surface = new Surface();
  for (let i = 0; i < triangles.length; i += 3) {
    const at = [0, 1, 2].map((j) => Array.from(vertices.subarray(3 * triangles[i + j], 3 * triangles[i + j] + 3)));
    const normal = unit(cross(minus(at[1], at[0]), minus(at[2], at[0])));
    surface.triangles.push(...at.map((position) => surface.point(position, normal)));
  }
  return surface;
}
