// The player: reads the scene, moves the camera, and handles the controls.

const element = (id) => document.getElementById(id);

// --- the scene and its motion -----------------------------------------------------------------------

function decoded(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}

function hexColor(text) {
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16) / 255);
}

class Motion {
  constructor(data) {
    this.times = decoded(data.times, Float64Array);
    this.start = this.times[0];
    this.end = this.times[this.times.length - 1];
    this.items = data.items.map((item) => this.read(item));
    this.byName = new Map(this.items.map((item) => [item.name, item]));
  }

  read(item) {
    const found = { ...item, color: hexColor(item.color) };
    for (const name of ["at", "start", "end", "vector", "point"]) {
      if (!item[name]) continue;
      found[name] = { x: decoded(item[name].x, Float32Array) };
      if (item[name].p) found[name].p = decoded(item[name].p, Float32Array);
    }
    if (item.kind === "mesh") {
      found.vertices = decoded(item.vertices, Float32Array);
      found.triangles = decoded(item.triangles, Uint32Array);
    }
    return found;
  }

  // The frame before t, and the part of the way to the next one.
  place(t) {
    const last = this.times.length - 1;
    if (last === 0 || t <= this.start) return [0, 0];
    if (t >= this.end) return [last - 1, 1];
    let low = 0, high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= t) low = middle;
      else high = middle;
    }
    const step = this.times[high] - this.times[low];
    return [low, step > 0 ? (t - this.times[low]) / step : 0];
  }

  // A row of an array at a place. Fixed values have one row.
  static row(rows, width, [i, s], between) {
    if (rows.length === width) return Array.from(rows);
    const take = (k) => Array.from(rows.subarray(k * width, (k + 1) * width));
    return s === 0 ? take(i) : between(take(i), take(i + 1), s);
  }

  point(track, place) {
    return Motion.row(track.x, 3, place, mix);
  }

  // Where an item is: its position, its rotation, and for what lies between points its length.
  pose(item, place) {
    if (item.point) return { position: this.point(item.point, place), quaternion: [1, 0, 0, 0] };
    if (item.start) {
      const a = this.point(item.start, place), b = this.point(item.end, place), along = minus(b, a);
      return { position: mix(a, b, 0.5), quaternion: fromZ(along), start: a, length: length(along) };
    }
    const position = this.point(item.at, place);
    if (item.vector) {
      const along = times(this.point(item.vector, place), item.scale);
      return { position, quaternion: fromZ(along), length: length(along) };
    }
    return { position, quaternion: Motion.row(item.at.p, 4, place, slerp) };
  }
}

// --- camera -----------------------------------------------------------------------------------------

class Camera {
  constructor(data) {
    this.data = data;
    this.flat = data.up === "y";
    this.tangent = Math.tan(((this.flat ? 16 : 30) * Math.PI) / 360);
    this.aspect = 1;
    this.moved = false; // by the user
    this.fit();
  }

  // The axes of the camera: to the right, upwards, and towards the viewer.
  axes() {
    const [c, s, d, e] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    const back = this.flat ? [d * s, e, d * c] : [d * c, d * s, e];
    const right = this.flat ? [c, 0, -s] : [-s, c, 0];
    return [right, cross(back, right), back];
  }

  // Show the space that the motion takes.
  fit() {
    [this.yaw, this.pitch] = this.flat ? [0, 0] : [-1.05, 0.34];
    this.moved = false;
    this.offset = [0, 0, 0];
    this.refit();
  }

  refit() {
    const [low, high] = this.data.bounds, [right, up, back] = this.axes();
    this.centre = mix(low, high, 0.5);
    let distance = 0;
    for (let i = 0; i < 8; i++) {
      const corner = minus([i & 1, (i >> 1) & 1, i >> 2].map((k, j) => (k ? high : low)[j]), this.centre);
      const wide = Math.max(Math.abs(dot(corner, right)) / this.aspect, Math.abs(dot(corner, up)));
      distance = Math.max(distance, wide / this.tangent + dot(corner, back));
    }
    this.distance = 1.12 * distance || 4 * this.data.size;
  }

  update(width, height, followed) {
    this.aspect = width / height;
    if (!this.moved) this.refit();
    this.target = plus(followed || this.centre, this.offset);
    const [right, up, back] = this.axes();
    this.eye = plus(this.target, back, this.distance);
    const near = Math.max(0.005 * this.distance, this.distance - 8 * this.data.size);
    const view = lookFrom(this.eye, right, up, back);
    this.matrix = multiply(perspective(this.tangent, this.aspect, near, this.distance + 12 * this.data.size), view);
  }

  turn(dx, dy) {
    this.moved = true;
    this.yaw -= 0.008 * dx;
    this.pitch = Math.max(-1.55, Math.min(1.55, this.pitch + 0.008 * dy));
  }

  // Move by pixels of a picture with this height.
  pan(dx, dy, height) {
    this.moved = true;
    const [right, up] = this.axes(), pixel = (2 * this.tangent * this.distance) / height;
    this.offset = plus(plus(this.offset, right, -dx * pixel), up, dy * pixel);
  }

  zoom(factor) {
    this.moved = true;
    this.distance = Math.min(60 * this.data.size, Math.max(0.02 * this.data.size, this.distance * factor));
  }

  // Where a point is in the picture, in parts of its width and height. Null behind the viewer.
  project([x, y, z]) {
    const m = this.matrix, at = (i) => m[i] * x + m[4 + i] * y + m[8 + i] * z + m[12 + i], w = at(3);
    return w > 0 ? [0.5 + (0.5 * at(0)) / w, 0.5 - (0.5 * at(1)) / w] : null;
  }
}

// --- player -----------------------------------------------------------------------------------------

class Player {
  constructor(data) {
    this.data = data;
    this.motion = new Motion(data);
    this.canvas = element("canvas");
    this.camera = new Camera(data);
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.shown = {};
    this.followed = "";
    this.speed = data.rate;
    this.time = this.motion.start;
    this.playing = false;
    this.waiting = false; // for the next frame
    this.visible = true;
    this.renderer = new Renderer(this.canvas, data, this.motion);
    this.controls();
    this.pointer();
    this.watch();
  }

  get span() {
    return this.motion.end - this.motion.start;
  }

  seek(t) {
    this.time = Math.min(this.motion.end, Math.max(this.motion.start, t));
    this.refresh();
  }

  play(on = !this.playing) {
    this.playing = on && this.span > 0;
    if (this.playing && this.time >= this.motion.end) this.time = this.motion.start;
    this.before = null;
    element("icon").setAttribute("d", this.playing ? "M3 2h4v12H3zM9 2h4v12H9z" : "M4 2l10 6-10 6z");
    element("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.refresh();
  }

  // Draw soon, once.
  refresh() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.waiting = false;
    if (this.playing && this.visible) {
      const passed = this.before === null ? 0 : Math.min(0.1, (now - this.before) / 1000);
      this.before = now;
      this.time += passed * this.speed;
      if (this.time > this.motion.end) this.time = this.motion.start; // from the beginning again
    }
    this.draw();
    if (this.playing && this.visible) this.refresh();
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, { clientWidth, clientHeight } = this.canvas;
    const width = Math.max(1, Math.round(ratio * clientWidth)), height = Math.max(1, Math.round(ratio * clientHeight));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const item = this.motion.byName.get(this.followed);
    const followed = item ? this.motion.pose(item, this.motion.place(this.time)).position : null;
    this.camera.update(width, height, followed);
    if (!this.renderer.gl.isContextLost()) this.renderer.draw(this.camera, this.time, this.shown, this.dark.matches);
    element("scrub").value = this.span > 0 ? (this.time - this.motion.start) / this.span : 0;
    element("time").textContent = `${this.written(this.time)} / ${this.written(this.motion.end)}`;
  }

  // A time with as many digits as frames need.
  written(t) {
    const digits = this.span > 0 ? Math.min(9, Math.max(0, Math.ceil(2 - Math.log10(this.span)))) : 3;
    return t.toFixed(Math.max(digits, 2));
  }

  controls() {
    const on = (id, event, act) => element(id).addEventListener(event, act);
    on("play", "click", () => { this.play(); element("play").blur(); });
    on("fit", "click", () => { this.camera.fit(); this.refresh(); element("fit").blur(); });
    on("about", "click", () => { element("help").hidden = !element("help").hidden; element("about").blur(); });
    on("scrub", "input", () => {
      this.play(false);
      this.seek(this.motion.start + Number(element("scrub").value) * this.span);
    });
    on("speed", "input", () => this.setSpeed(Number(element("speed").value)));
    on("speed", "dblclick", () => this.setSpeed(0));
    on("follow", "change", () => { this.follow(element("follow").value); element("follow").blur(); });
    for (const item of this.motion.items) {
      if (item.group !== "bodies" || item.kind === "plane") continue;
      const option = document.createElement("option");
      option.textContent = option.value = item.name;
      element("follow").append(option);
    }
    for (const group of ["joints", "frames", "traces", "forces"]) {
      element(group).parentElement.hidden = !this.motion.items.some((item) => item.group === group);
      on(group, "change", () => { this.shown[group] = element(group).checked; this.refresh(); });
    }
    element("title").textContent = this.data.title;
    element("notice").textContent = this.data.notice;
    element("notice").hidden = !this.data.notice;
    this.setSpeed(0);
    document.addEventListener("keydown", (event) => this.key(event));
  }

  setSpeed(exponent) {
    this.speed = this.data.rate * 10 ** exponent;
    element("speed").value = exponent;
    element("rate").textContent = `${Number(this.speed.toPrecision(2))}×`;
  }

  follow(name) {
    this.followed = name;
    element("follow").value = name;
    this.camera.offset = [0, 0, 0];
    if (name) this.camera.moved = true;
    this.refresh();
  }

  key(event) {
    const { target, key } = event;
    if (target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1 }, frames = this.motion.times.length - 1;
    if (key === " " && target.type !== "checkbox") this.play();
    else if (key in steps && target.type !== "range" && frames > 0) {
      this.play(false);
      this.seek(this.time + (steps[key] * this.span) / frames);
    } else if (key === "Home") this.seek(this.motion.start);
    else if (key === "End") this.seek(this.motion.end);
    else return;
    event.preventDefault();
  }

  // Mouse and fingers: one turns, two (or shift, or the right button) move and zoom.
  pointer() {
    const { canvas } = this, held = new Map();
    const on = (event, act) => canvas.addEventListener(event, act, { passive: false });
    const spread = () => {
      const [a, b] = [...held.values()];
      return Math.hypot(a.x - b.x, a.y - b.y) || 1;
    };
    on("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      canvas.focus();
      canvas.classList.add("held");
      element("label").hidden = true;
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    on("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return this.hover(event);
      const dx = event.clientX - before.x, dy = event.clientY - before.y, wide = held.size > 1 ? spread() : 0;
      Object.assign(before, { x: event.clientX, y: event.clientY });
      if (held.size > 1) {
        this.camera.zoom(wide / spread());
        this.camera.pan(dx / held.size, dy / held.size, canvas.clientHeight);
      } else if (event.shiftKey || event.buttons & 6) this.camera.pan(dx, dy, canvas.clientHeight);
      else this.camera.turn(dx, dy);
      this.refresh();
    });
    for (const name of ["pointerup", "pointercancel"])
      on(name, (event) => {
        held.delete(event.pointerId);
        if (!held.size) canvas.classList.remove("held");
      });
    on("contextmenu", (event) => event.preventDefault());
    on("dblclick", () => { this.camera.fit(); this.refresh(); });
    on("pointerleave", () => { element("label").hidden = true; canvas.blur(); });
    on("wheel", (event) => {
      // In a notebook the wheel scrolls, unless the picture has been clicked.
      if (window.parent !== window && document.activeElement !== canvas) return;
      event.preventDefault();
      this.camera.zoom(Math.exp(0.0012 * Math.max(-240, Math.min(240, event.deltaY))));
      this.refresh();
    });
  }

  // Show the name of the body whose middle is near the mouse.
  hover(event) {
    const { clientWidth, clientHeight } = this.canvas, box = this.canvas.getBoundingClientRect();
    const place = this.motion.place(this.time), label = element("label");
    let nearest = null, best = 26;
    for (const item of this.motion.items) {
      if (this.shown[item.group] === false || !this.camera.matrix) continue;
      const at = this.camera.project(this.motion.pose(item, place).position);
      if (!at) continue;
      const [x, y] = [at[0] * clientWidth, at[1] * clientHeight];
      const far = Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top);
      if (far < best) [best, nearest] = [far, { x, y, name: this.label(item, place) }];
    }
    label.hidden = !nearest;
    if (!nearest) return;
    label.textContent = nearest.name;
    Object.assign(label.style, { left: `${nearest.x}px`, top: `${nearest.y}px` });
  }

  // The name of an item, with the size of its vector if it is an arrow.
  label(item, place) {
    return item.vector ? `${item.name}: ${Number(length(this.motion.point(item.vector, place)).toPrecision(4))}` : item.name;
  }

  // What changes from outside: size, colours, visibility, and the graphics card.
  watch() {
    new ResizeObserver(() => this.draw()).observe(this.canvas); // at once, so that nothing is stretched
    this.dark.addEventListener("change", () => this.refresh());
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      this.before = null;
      if (this.visible) this.refresh();
    }).observe(this.canvas);
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => { this.renderer.prepare(); this.refresh(); });
  }
}

// --- start ------------------------------------------------------------------------------------------

function begin() {
  const player = new Player(JSON.parse(element("data").textContent));
  window.genalpha = {
    // The position and the quaternion (w, x, y, z) of an item at a time.
    poseAt(name, t) {
      const item = player.motion.byName.get(name);
      if (!item) throw new Error(`There is no item ${name}`);
      const { position, quaternion } = player.motion.pose(item, player.motion.place(t));
      return { position, quaternion };
    },
    get time() { return player.time; },
    get playing() { return player.playing; },
    seek: (t) => player.seek(t),
    play: () => player.play(true),
    pause: () => player.play(false),
    follow: (name) => player.follow(name),
  };
  // page.html#t=0.5 opens the page at this time, and stands still.
  const asked = new URLSearchParams(location.hash.slice(1)).get("t");
  if (asked !== null && Number.isFinite(Number(asked))) player.seek(Number(asked));
  else player.play(!window.matchMedia("(prefers-reduced-motion: reduce)").matches);
  player.refresh();
}

try {
  begin();
} catch (error) {
  element("notice").textContent = error.message;
  element("notice").hidden = false;
  console.error(error);
}
