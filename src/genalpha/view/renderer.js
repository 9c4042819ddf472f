// Drawing with WebGL. geometry.js comes before this file in the same script, viewer.js after it.

const VERTEX = `#version 300 es
uniform mat4 uCamera, uFlat;
uniform vec3 uOrigin, uScale;
uniform vec4 uTurn;
uniform float uInflate;
in vec3 aPosition, aNormal;
out vec3 vNormal, vWorld;
vec3 turned(vec4 p, vec3 v) { // p = (w, x, y, z) is stored as it is
  vec3 across = 2.0 * cross(p.yzw, v);
  return v + p.x * across + cross(p.yzw, across);
}
void main() {
  vWorld = uOrigin + turned(uTurn, aPosition * uScale + aNormal * uInflate);
  vNormal = turned(uTurn, uInflate > 0.0 ? aNormal : aNormal / max(uScale, vec3(1e-9)));
  gl_Position = uCamera * uFlat * vec4(vWorld, 1.0);
}`;

const SURFACE = `#version 300 es
precision highp float;
uniform vec3 uColor, uEye, uLight;
uniform float uShadow, uGround, uAlpha;
in vec3 vNormal, vWorld;
out vec4 color;
void main() {
  if (uShadow > 0.0) { // the surface is flattened: only its outline counts
    if (vWorld.z < uGround) discard;
    color = vec4(0.0, 0.0, 0.0, uShadow);
    return;
  }
  vec3 n = normalize(vNormal), eye = normalize(uEye - vWorld);
  if (dot(n, eye) < 0.0) n = -n;
  vec3 base = pow(uColor, vec3(2.2));
  float sun = max(dot(n, uLight), 0.0), head = max(dot(n, eye), 0.0);
  float sky = 0.5 + 0.5 * dot(n, normalize(uLight + vec3(0.0, 0.0, 0.6)));
  vec3 lit = base * (0.20 + 0.22 * sky + 0.62 * sun + 0.16 * head);
  float shine = pow(max(dot(n, normalize(uLight + eye)), 0.0), 48.0);
  lit += 0.20 * shine + 0.05 * pow(1.0 - head, 3.0);
  color = vec4(pow(lit, vec3(1.0 / 2.2)), uAlpha);
}`;

const GRID_VERTEX = `#version 300 es
uniform mat4 uCamera;
uniform vec3 uOrigin;
uniform float uSpan;
out vec2 vAt, vFrom;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
  vFrom = corner;
  vAt = uOrigin.xy + corner * uSpan;
  gl_Position = uCamera * vec4(vAt, uOrigin.z, 1.0);
}`;

const GRID = `#version 300 es
precision highp float;
uniform float uStep;
uniform vec4 uColor;
in vec2 vAt, vFrom;
out vec4 color;
float lines(float spacing, float wide) {
  vec2 at = vAt / spacing, width = fwidth(at);
  vec2 near = abs(fract(at - 0.5) - 0.5) / max(width, 1e-6);
  vec2 shown = (1.0 - smoothstep(wide - 0.5, wide + 0.5, near)) * (1.0 - smoothstep(0.2, 0.5, width));
  return max(shown.x, shown.y);
}
void main() {
  float strength = max(0.38 * lines(uStep, 0.4), 0.95 * lines(5.0 * uStep, 0.6));
  color = vec4(uColor.rgb, uColor.a * strength * (1.0 - smoothstep(0.25, 1.0, length(vFrom))));
}`;

const LINE_VERTEX = `#version 300 es
uniform mat4 uCamera;
uniform vec2 uSize;
uniform float uWidth;
in vec3 aFrom, aTo;
void main() { // each segment is a strip with a width in pixels
  vec4 a = uCamera * vec4(aFrom, 1.0), b = uCamera * vec4(aTo, 1.0);
  vec2 along = (b.xy / b.w - a.xy / a.w) * uSize;
  along = length(along) > 1e-6 ? normalize(along) : vec2(1.0, 0.0);
  bool last = (gl_VertexID & 1) == 1;
  float side = gl_VertexID >= 2 ? 1.0 : -1.0;
  vec4 at = last ? b : a;
  vec2 shift = side * vec2(-along.y, along.x) + (last ? 0.4 : -0.4) * along;
  at.xy += shift * uWidth / uSize * at.w;
  gl_Position = a.w > 0.0 && b.w > 0.0 ? at : vec4(2.0, 2.0, 2.0, 1.0);
}`;

const LINE = `#version 300 es
precision highp float;
uniform vec4 uColor;
out vec4 color;
void main() { color = uColor; }`;

const AXIS_COLORS = { x: [0.83, 0.25, 0.23], y: [0.25, 0.62, 0.32], z: [0.22, 0.44, 0.82] };
const IDENTITY = new Float32Array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);

// --- drawing ----------------------------------------------------------------------------------------

class Renderer {
  constructor(canvas, data, motion) {
    this.canvas = canvas;
    this.data = data;
    this.motion = motion;
    this.light = unit(data.up === "y" ? [-0.4, 0.65, 1.0] : [-0.45, -0.75, 1.35]);
    const options = { antialias: true, stencil: true, alpha: true, powerPreference: "low-power" };
    this.gl = canvas.getContext("webgl2", options);
    if (!this.gl) throw new Error("This browser has no WebGL 2, which draws the scene.");
    this.prepare();
  }

  // Programs, surfaces and lines in the memory of the graphics card. They are made again if it loses them.
  prepare() {
    const gl = this.gl;
    this.solid = this.program(VERTEX, SURFACE, ["aPosition", "aNormal"]);
    this.gridProgram = this.program(GRID_VERTEX, GRID, []);
    this.line = this.program(LINE_VERTEX, LINE, ["aFrom", "aTo"]);
    this.empty = gl.createVertexArray();
    const capsule = this.upload(capsuleSurface());
    this.surfaces = {
      box: this.upload(boxSurface()),
      cylinder: this.upload(cylinderSurface()),
      cone: this.upload(coneSurface()),
      plane: this.upload(planeSurface()),
      capsule,
      sphere: capsule,
    };
    this.own = new Map(); // surfaces and lines of single items
    for (const item of this.motion.items) {
      if (item.kind === "spring") this.own.set(item, this.upload(springSurface(item.coils)));
      if (item.kind === "mesh") this.own.set(item, this.upload(meshSurface(item.vertices, item.triangles)));
      if (item.kind === "trace") this.own.set(item, [this.polyline(item.point.x), this.polyline(new Float32Array(6))]);
    }
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  program(vertex, fragment, attributes) {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    attributes.forEach((name, i) => gl.bindAttribLocation(program, i, name));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
      throw new Error(`The graphics driver refused a program: ${gl.getProgramInfoLog(program)}`);
    const places = {};
    for (let i = 0; i < (gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS) || 0); i++) {
      const { name } = gl.getActiveUniform(program, i);
      places[name] = gl.getUniformLocation(program, name);
    }
    return { program, places };
  }

  upload(surface) {
    const gl = this.gl, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    [surface.positions, surface.normals].forEach((values, i) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(values), gl.STATIC_DRAW);
      gl.enableVertexAttribArray(i);
      gl.vertexAttribPointer(i, 3, gl.FLOAT, false, 0, 0);
    });
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, new Uint32Array(surface.triangles), gl.STATIC_DRAW);
    return { array, count: surface.triangles.length };
  }

  // A line through points (K, 3). One segment is one instance, with two neighbouring points.
  polyline(points) {
    const gl = this.gl, array = gl.createVertexArray(), buffer = gl.createBuffer();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, points, gl.DYNAMIC_DRAW);
    for (let i = 0; i < 2; i++) {
      gl.enableVertexAttribArray(i);
      gl.vertexAttribPointer(i, 3, gl.FLOAT, false, 12, 12 * i);
      gl.vertexAttribDivisor(i, 1);
    }
    return { array, buffer, count: points.length / 3 - 1 };
  }

  draw(camera, t, shown, dark) {
    const gl = this.gl, { canvas, data } = this, place = this.motion.place(t);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    const items = this.motion.items.filter((item) => shown[item.group] !== false);
    const parts = items.flatMap((item) => this.parts(item, place));
    gl.useProgram(this.solid.program);
    const { places } = this.solid;
    gl.uniformMatrix4fv(places.uCamera, false, camera.matrix);
    gl.uniformMatrix4fv(places.uFlat, false, IDENTITY);
    gl.uniform3fv(places.uEye, camera.eye);
    gl.uniform3fv(places.uLight, this.light);
    gl.uniform1f(places.uShadow, 0);
    gl.uniform1f(places.uGround, data.ground ?? 0);
    gl.uniform1f(places.uAlpha, 1);
    parts.forEach((part) => this.part(part));
    gl.enable(gl.BLEND);
    gl.depthMask(false);
    this.hidden(parts.filter((part) => part.group !== "bodies"));
    if (data.ground !== null) {
      this.shadows(parts.filter((part) => part.shadow), dark);
      this.grid(camera, dark);
    }
    gl.depthMask(true);
    this.traces(items, camera, place);
    gl.disable(gl.BLEND);
    gl.bindVertexArray(null);
  }

  // What an item is made of: surfaces with a place, a rotation, a scale and a colour.
  parts(item, place) {
    const pose = this.motion.pose(item, place), { position, quaternion } = pose, own = this.surfaces[item.kind];
    const make = (surface, scale, inflate = 0, more = {}) => ({
      surface, scale, inflate, origin: position, turn: quaternion, color: item.color, group: item.group, shadow: true, ...more,
    });
    const turn = item.axis ? product(quaternion, TO_AXIS[item.axis]) : quaternion;
    const r = item.radius;
    switch (item.kind) {
      case "box": return [make(own, item.size)];
      case "plane": return [make(own, [...item.size, 1], 0, { shadow: false })];
      case "mesh": return [make(this.own.get(item), [1, 1, 1])];
      case "sphere": return [make(own, [0, 0, 0], r)];
      case "cylinder": return [make(own, [r, r, item.length], 0, { turn })];
      case "capsule": return [make(own, [0, 0, item.length], r, { turn })];
      case "rod": return [make(this.surfaces.cylinder, [r, r, pose.length])];
      case "spring":
        return [make(this.own.get(item), [r, r, pose.length], item.wire, { origin: pose.start })];
      case "arrow": return this.arrow(make, pose, item.width / 2);
      case "frame":
        return ["x", "y", "z"].flatMap((axis) => {
          const along = { ...pose, quaternion: product(quaternion, TO_AXIS[axis]), length: item.size };
          return this.arrow(make, along, 0.022 * item.size, { color: AXIS_COLORS[axis] });
        });
      default: return [];
    }
  }

  // A shaft and a head. The head is smaller if the arrow is short.
  arrow(make, pose, r, more = {}) {
    if (!(pose.length > 0)) return [];
    const turn = pose.quaternion, head = Math.min(7 * r, 0.45 * pose.length), wide = Math.min(r, head / 5);
    const shaft = pose.length - head, out = this.direction(turn);
    const extra = { turn, shadow: false, ...more };
    return [
      make(this.surfaces.cylinder, [wide, wide, shaft], 0, { ...extra, origin: plus(pose.position, out, shaft / 2) }),
      make(this.surfaces.cone, [2.6 * wide, 2.6 * wide, head], 0, { ...extra, origin: plus(pose.position, out, shaft) }),
    ];
  }

  direction([w, x, y, z]) {
    return [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)];
  }

  part({ surface, origin, turn, scale, inflate, color }) {
    const gl = this.gl, { places } = this.solid;
    gl.bindVertexArray(surface.array);
    gl.uniform3fv(places.uOrigin, origin);
    gl.uniform4fv(places.uTurn, turn);
    gl.uniform3fv(places.uScale, scale);
    gl.uniform1f(places.uInflate, inflate);
    gl.uniform3fv(places.uColor, color);
    gl.drawElements(gl.TRIANGLES, surface.count, gl.UNSIGNED_INT, 0);
  }

  // Frames and forces inside of bodies can be seen through them.
  hidden(parts) {
    const gl = this.gl;
    gl.depthFunc(gl.GREATER);
    gl.uniform1f(this.solid.places.uAlpha, 0.3);
    parts.forEach((part) => this.part(part));
    gl.depthFunc(gl.LEQUAL);
  }

  // Shadows on the grid: the surfaces again, flattened along the light. The stencil keeps each point of the
  // grid from getting dark twice.
  shadows(parts, dark) {
    const gl = this.gl, { places } = this.solid, [x, y, z] = this.light, h = this.data.ground;
    const flat = new Float32Array([1, 0, 0, 0, 0, 1, 0, 0, -x / z, -y / z, 0, 0, (x / z) * h, (y / z) * h, h, 1]);
    gl.uniformMatrix4fv(places.uFlat, false, flat);
    gl.uniform1f(places.uShadow, dark ? 0.38 : 0.13);
    gl.enable(gl.STENCIL_TEST);
    gl.stencilFunc(gl.EQUAL, 0, 255);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    parts.forEach((part) => this.part(part));
    gl.disable(gl.STENCIL_TEST);
  }

  grid(camera, dark) {
    const gl = this.gl, { data } = this, { program, places } = this.gridProgram;
    const unitStep = 10 ** Math.floor(Math.log10(data.size / 4)), ratio = data.size / 4 / unitStep;
    const step = unitStep * (ratio >= 5 ? 5 : ratio >= 2 ? 2 : 1) / 2.5;
    const middle = mix(data.bounds[0], data.bounds[1], 0.5);
    gl.useProgram(program);
    gl.bindVertexArray(this.empty);
    gl.uniformMatrix4fv(places.uCamera, false, camera.matrix);
    gl.uniform3f(places.uOrigin, middle[0], middle[1], data.ground);
    gl.uniform1f(places.uSpan, 2.6 * data.size);
    gl.uniform1f(places.uStep, step);
    gl.uniform4fv(places.uColor, dark ? [0.75, 0.82, 0.9, 0.22] : [0.25, 0.32, 0.4, 0.26]);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  traces(items, camera, place) {
    const gl = this.gl, { program, places } = this.line;
    gl.useProgram(program);
    gl.uniformMatrix4fv(places.uCamera, false, camera.matrix);
    gl.uniform2f(places.uSize, this.canvas.width, this.canvas.height);
    for (const item of items) {
      if (item.kind !== "trace") continue;
      const [path, tail] = this.own.get(item), [i, s] = place;
      gl.uniform4f(places.uColor, ...item.color, 0.9);
      gl.uniform1f(places.uWidth, item.width * (window.devicePixelRatio || 1));
      gl.bindVertexArray(path.array);
      const count = item.whole ? path.count : Math.min(i, path.count);
      if (count > 0) gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, count);
      if (item.whole || s === 0 || path.count < 1) continue;
      const ends = [...item.point.x.subarray(3 * i, 3 * i + 3), ...this.motion.point(item.point, place)];
      gl.bindBuffer(gl.ARRAY_BUFFER, tail.buffer);
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(ends), gl.DYNAMIC_DRAW);
      gl.bindVertexArray(tail.array);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, 1);
    }
  }
}
