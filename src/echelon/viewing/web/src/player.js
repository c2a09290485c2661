// One replay on a page: the clock, what the controls do, and the pictures that are due.
import { Vector3 } from "three";
import { Bodies, isGround, isPath } from "./bodies.js";
import { decodeMesh } from "./decode.js";
import { element, Panel } from "./panel.js";
import { Stage } from "./stage.js";
import { Timeline } from "./timeline.js";

const COLOURS = ["#e12f00", "#0a96f3", "#438c6c", "#d760ad", "#b47f04", "#8167f2", "#8a8f98", "#3dc3ff"]; // of policies, told apart by colour-blind people too
const VIEWS = ["one", "ghost", "grid", "overlay"];
const ROOM_FOR_PLOTS = 460; // Height in pixels from which on they are shown at first.
const HOLD_S = 0.8; // The last frame stays this long before the episode starts over.

export class Player {
  constructor(root, replay, options) {
    this.root = root;
    this.replay = replay;
    this.panel = new Panel(replay);
    Object.assign(this, { frame: 0, speed: 1, running: false, due: true, bodies: null, view: "one" });
    this._made = new Map(); // bodies by episode and tint
    this._meshes = Object.fromEntries(Object.entries(replay.meshes ?? {}).map(([name, packed]) => [name, decodeMesh(packed)]));
    const label = `${replay.task}: drag to turn, scroll to zoom, space to play or pause`;
    this.canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": label });
    this._labels = element("div", { class: "er-labels" });
    this._view = element("div", { class: "er-view" }, this.canvas, this._labels, this.panel.caption, this.panel.title, this.panel.keys);
    this.timeline = new Timeline(replay, COLOURS);
    root.replaceChildren(this._view, this.timeline.root, this.panel.bar);
    this.panel.plots.hidden = !this.timeline.known;
    this.plots(this.timeline.known && root.clientHeight >= ROOM_FOR_PLOTS);

    const ground = replay.episodes[0].geoms.find((geom) => geom.body === 0 && isGround(geom));
    this.stage = new Stage(this.canvas, replay.camera, ground ? ground.pos[2] : null);
    [this._start, this._offset, this._moved] = [new Vector3(), new Vector3(), new Vector3()];
    this.follow(replay.camera.follow !== null);
    this.moments = [...new Set(replay.episodes.map((_, index) => this._iteration(index)))].sort((a, b) => a - b);
    this.moment = this.moments.at(-1);
    if (replay.bodies.some(isPath) && this.here().length > 1) [this.view, this.panel.view.value] = ["overlay", "overlay"];
    this.at(this.moment, options.policy ?? replay.leader);
    this._listen();
    this.theme(options.theme);
    this._tick = this._tick.bind(this);
    this._request = requestAnimationFrame(this._tick);
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (options.autoplay ?? !still) this.play();
  }

  _iteration(index) {
    return this.replay.episodes[index].iteration ?? this.replay.iteration;
  }

  /** Episodes of the chosen moment of training, as indices. */
  here() {
    return this.replay.episodes.map((_, index) => index).filter((index) => this._iteration(index) === this.moment);
  }

  /** The newest policies that were trained for at most `iteration` iterations. */
  at(iteration, policy = this.replay.episodes[this.index].policy) {
    this.moment = this.moments.findLast((moment) => moment <= iteration) ?? this.moments[0];
    this.panel.moment.value = this.moment;
    this.panel.policies(this.here().map((index) => [index, this.replay.episodes[index].name]));
    this.choose(this.find(policy) ?? this.here()[0]);
  }

  /** The episode of a policy at the chosen moment. */
  find(policy) {
    return this.here().find((index) => this.replay.episodes[index].policy === policy);
  }

  choose(index) {
    this.index = index;
    const episode = this.replay.episodes[index];
    this.bodies = this._bodies(index);
    this.panel.policy.value = index;
    this.panel.episode(episode);
    if (this.replay.camera.follow !== null) this.bodies.position(this.replay.camera.follow, 0, this._start);
    this._arrange();
  }

  /** One policy, with the leader as a ghost, or all of them side by side or in one place. */
  show(view) {
    this.view = view;
    this.panel.view.value = view;
    this._arrange();
  }

  /** Bodies of an episode, made when they are first needed; `tint` draws them in one colour. */
  _bodies(index, tint = null) {
    const key = `${index} ${tint ? `${tint.colour} ${tint.opacity}` : ""}`;
    if (!this._made.has(key)) {
      const made = new Bodies(this.replay.bodies, this.replay.episodes[index], this._meshes, tint, this._colour(index));
      this._made.set(key, made);
      this.stage.scene.add(made.root);
    }
    return this._made.get(key);
  }

  _colour(index) {
    return COLOURS[this.replay.episodes[index].policy % COLOURS.length];
  }

  /** Who is on the stage. */
  _arrange() {
    const everybody = this.here();
    const leader = this.find(this.replay.leader) ?? everybody[0];
    if (this.view === "grid") this.shown = everybody.map((index) => this._bodies(index));
    else if (this.view === "overlay") {
      // The chosen one as it is, the others in their colours.
      this.shown = everybody.map((index) => (index === this.index ? this.bodies : this._bodies(index, { colour: this._colour(index), opacity: 0.55 })));
    } else if (this.view === "ghost" && leader !== this.index) this.shown = [this.bodies, this._bodies(leader, { colour: "#7d8794", opacity: 0.35 })];
    else this.shown = [this.bodies];
    for (const made of this._made.values()) made.root.visible = this.shown.includes(made);
    this._label();
    this.panel.slider.max = this.last;
    this.timeline.show(this.view === "one" ? [this.index] : this.view === "ghost" ? [...new Set([this.index, leader])] : everybody, this.last);
    this.seek(this.frame);
  }

  /** Names over the pictures of a grid. */
  _label() {
    const episodes = this.here().map((index) => this.replay.episodes[index]);
    this._labels.hidden = this.view !== "grid";
    this.panel.caption.hidden = this.view === "grid";
    if (this.view !== "grid") return;
    const { columns, rows } = Stage.grid(episodes.length, this._view.clientWidth || 3, this._view.clientHeight || 2);
    this._labels.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${columns}, 1fr)`;
    this._labels.replaceChildren(...episodes.map(({ policy, name, total_return: total }) => element("span", {},
      element("i", { style: `background: ${COLOURS[policy % COLOURS.length]}` }), `${name} ${Number(total.toPrecision(4)).toLocaleString("en")}`)));
  }

  get last() {
    return Math.max(...this.shown.map((bodies) => bodies.frames)) - 1;
  }

  seek(frame) {
    this.frame = Math.min(Math.max(frame, 0), this.last);
    this._held = 0;
    this._show();
  }

  play() {
    if (this.frame >= this.last) this.seek(0);
    this.running = true;
    this._then = null;
    this.panel.playing(true);
  }

  pause() {
    this.running = false;
    this.panel.playing(false);
  }

  toggle() {
    this[this.running ? "pause" : "play"]();
  }

  follow(yes) {
    this.follows = yes;
    this.panel.follow.setAttribute("aria-pressed", String(yes));
    if (this.bodies) this._show();
  }

  plots(yes) {
    this.timeline.root.hidden = !yes;
    this.panel.plots.setAttribute("aria-pressed", String(yes));
    this.timeline.draw();
  }

  home() {
    this.stage.home(this._offset);
    this.due = true;
  }

  /** Colours come from the page: an option, `data-theme` of the document, or what the system prefers. */
  theme(name) {
    if (name) this._theme = name;
    const page = document.documentElement.dataset.theme;
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.root.dataset.theme = this._theme ?? page ?? system;
    const style = getComputedStyle(this.root);
    const colour = (variable) => style.getPropertyValue(variable).trim();
    this.timeline.draw();
    this.stage.colours({ sky: colour("--er-sky"), ground: colour("--er-ground"), line: colour("--er-line") });
    this.due = true;
  }

  destroy() {
    cancelAnimationFrame(this._request);
    this._ending.abort();
    for (const watcher of [this._sizes, this._sights, this._themes]) watcher.disconnect();
    for (const made of this._made.values()) made.dispose();
    this.timeline.destroy();
    this.stage.dispose();
    this.root.remove();
  }

  _show() {
    for (const bodies of this.shown) bodies.show(this.frame);
    this.panel.time(this.frame);
    this.timeline.time(this.frame);
    if (this.replay.camera.follow !== null) {
      const where = this.bodies.position(this.replay.camera.follow, this.frame, this._moved).sub(this._start);
      const about = 0.5 / this.replay.frame_s; // A camera that hops along makes one dizzy: a second's mean height.
      where.z = this.bodies.height(this.replay.camera.follow, this.frame, about) - this._start.z;
      if (!this.follows) where.copy(this._offset);
      this.stage.move(where.clone().sub(this._offset));
      this._offset.copy(where);
    }
    this.due = true;
  }

  _tick(now) {
    this._request = requestAnimationFrame(this._tick);
    if (this.running && !this.hidden) this._advance(this._then == null ? 0 : (now - this._then) / 1000);
    this._then = this.hidden ? null : now;
    if (this.due && !this.hidden) this.due = this.stage.draw(this.view === "grid" ? this._cells() : null);
  }

  /** Every policy's part of the grid: the camera follows each as it follows the chosen one. */
  _cells() {
    const { follow } = this.replay.camera;
    return this.shown.map((bodies) => {
      const offset = new Vector3();
      if (follow !== null && this.follows && bodies !== this.bodies) {
        bodies.position(follow, this.frame, offset).sub(this.bodies.position(follow, this.frame, new Vector3()));
        offset.z = 0;
      }
      return { root: bodies.root, offset };
    });
  }

  _advance(seconds) {
    if (this.frame >= this.last) {
      this._held += seconds;
      if (this._held > HOLD_S) this.seek(0);
      return;
    }
    const held = this._held;
    this.seek(this.frame + (Math.min(seconds, 0.25) * this.speed) / this.replay.frame_s);
    this._held = held;
  }

  _listen() {
    const { panel } = this;
    this._ending = new AbortController();
    const on = (target, event, act) => target.addEventListener(event, act, { signal: this._ending.signal });
    on(panel.play, "click", () => this.toggle());
    const stopAt = (frame) => {
      this.pause();
      this.seek(frame);
    };
    on(panel.slider, "input", () => stopAt(Number(panel.slider.value)));
    on(panel.speed, "change", () => (this.speed = Number(panel.speed.value)));
    on(panel.policy, "change", () => this.choose(Number(panel.policy.value)));
    on(panel.moment, "change", () => this.at(Number(panel.moment.value)));
    on(panel.view, "change", () => this.show(panel.view.value));
    on(panel.plots, "click", () => this.plots(this.timeline.root.hidden));
    on(panel.help, "click", () => this._help());
    this.timeline.onseek = stopAt;
    on(panel.follow, "click", () => this.follow(!this.follows));
    on(panel.home, "click", () => this.home());
    on(this.canvas, "keydown", (event) => this._key(event));
    this.stage.controls.addEventListener("change", () => (this.due = true));
    for (const event of ["pointerdown", "pointermove", "wheel"]) on(this.canvas, event, () => (this.due = true));

    this._sizes = new ResizeObserver(() => {
      this.stage.resize(this._view.clientWidth, this._view.clientHeight);
      this.timeline.draw();
      this._label();
      this.due = true;
    });
    this._sizes.observe(this._view);
    this._sights = new IntersectionObserver(([seen]) => (this.hidden = !seen.isIntersecting));
    this._sights.observe(this.root);
    this._themes = new MutationObserver(() => this.theme());
    this._themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
    on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => this.theme());
  }

  _help() {
    this.panel.keys.hidden = !this.panel.keys.hidden;
    this.panel.help.setAttribute("aria-expanded", String(!this.panel.keys.hidden));
  }

  /** Keys of the picture: arrows turn, with shift they shift, + and - zoom, space plays, comma and full stop step. */
  _key(event) {
    const here = this.here();
    const count = here.length;
    const place = here.indexOf(this.index);
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const acts = {
      " ": () => this.toggle(),
      "-": () => this.stage.zoom(1 / 0.9),
      ",": () => this.seek(Math.round(this.frame) - 1),
      ".": () => this.seek(Math.round(this.frame) + 1),
      "[": () => this.choose(here[(place + count - 1) % count]),
      "]": () => this.choose(here[(place + 1) % count]),
      Home: () => this.seek(0),
      End: () => this.seek(this.last),
      f: () => this.follow(!this.follows),
      v: () => count > 1 && this.show(VIEWS[(VIEWS.indexOf(this.view) + 1) % VIEWS.length]),
      p: () => this.timeline.known && this.plots(this.timeline.root.hidden),
      "?": () => this._help(),
      r: () => this.home(),
    };
    acts["+"] = acts["="] = () => this.stage.zoom(0.9);
    const arrow = arrows[event.key];
    if (arrow && event.shiftKey) this.stage.pan(0.06 * arrow[0], 0.06 * arrow[1]);
    else if (arrow) this.stage.orbit(0.12 * arrow[0], 0.08 * arrow[1]);
    else if (acts[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) acts[event.key]();
    else return;
    event.preventDefault();
    this.due = true;
  }
}
