// Rewards, actions and the distance to the leader along the episode, on the clock of the picture: a click goes there.
import { decodeSeries } from "./decode.js";
import { element } from "./panel.js";

const ROW = 46;
const GAP = 8;
const LEFT = 74;

export class Timeline {
  /** @param colours of policies by their place in the replay */
  constructor(replay, colours) {
    this.colours = colours;
    this.policies = replay.episodes.map((episode) => episode.policy);
    this.series = replay.episodes.map((episode) => Object.fromEntries(Object.entries(episode.series ?? {}).map(([name, packed]) => [name, decodeSeries(packed)])));
    this.known = this.series.some((one) => Object.keys(one).length);
    this.canvas = element("canvas", { role: "img", "aria-label": "Rewards, actions and distance to the leader along the episode; click to go there" });
    this.root = element("div", { class: "er-timeline" }, this.canvas);
    this.root.hidden = !this.known;
    this.shown = [];
    this.frame = 0;
    this.onseek = () => {};
    const seek = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const box = this.canvas.getBoundingClientRect();
      this.onseek(Math.round(Math.max(0, Math.min(1, (event.clientX - box.left - LEFT) / (box.width - LEFT - 8))) * this.last));
    };
    this.canvas.addEventListener("pointerdown", seek);
    this.canvas.addEventListener("pointermove", seek);
  }

  /** Episodes to draw, and the last frame. */
  show(indices, last) {
    [this.shown, this.last] = [indices, Math.max(1, last)];
    this.draw();
  }

  time(frame) {
    this.frame = frame;
    this.draw();
  }

  /** Rows of the picture: title, lines {values, colour, name}, or a map of actions. */
  rows() {
    const several = this.shown.length > 1;
    const lines = (name) => this.shown.filter((i) => this.series[i][name]).map((i) => ({ values: this.series[i][name], colour: this.colours[this.policies[i] % this.colours.length] }));
    const [one] = this.shown;
    const terms = Object.keys(this.series[one] ?? {}).filter((name) => name.startsWith("reward/"));
    const actions = Object.keys(this.series[one] ?? {}).filter((name) => name.startsWith("action/"));
    const found = [];
    if (several || !terms.length) found.push({ title: "reward", lines: lines("reward") });
    else found.push({ title: "reward", lines: terms.map((name, k) => ({ values: this.series[one][name], colour: this.colours[k % this.colours.length], name: name.slice(7) })) });
    if (!several && actions.length) found.push({ title: "actions", map: actions.map((name) => this.series[one][name]) });
    const distances = lines("kl").filter((line) => line.values.some((value) => value > 0));
    if (distances.length) found.push({ title: "KL to leader", lines: distances });
    return found.filter((row) => row.map || row.lines.length);
  }

  draw() {
    if (!this.known || !this.shown.length || !this.root.clientWidth) return;
    const rows = this.rows();
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [this.root.clientWidth, rows.length * (ROW + GAP) + 4];
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      [this.canvas.width, this.canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    }
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(this.root);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${style.fontFamily}`;
    const x = (frame) => LEFT + (frame / this.last) * (width - LEFT - 8);
    rows.forEach((row, k) => {
      const top = 4 + k * (ROW + GAP);
      pen.fillStyle = style.color;
      pen.globalAlpha = 0.75;
      pen.fillText(row.title, 6, top + 11);
      pen.globalAlpha = 1;
      if (row.map) this._map(pen, row.map, top, x);
      else this._lines(pen, row.lines, top, x, style.color);
    });
    pen.fillStyle = style.color;
    pen.fillRect(x(Math.min(this.frame, this.last)) - 0.5, 0, 1, height);
  }

  _lines(pen, lines, top, x, ink) {
    const values = lines.flatMap((line) => Array.from(line.values));
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const y = (value) => top + ROW - ((value - low) / (high - low || 1)) * ROW;
    pen.strokeStyle = ink;
    pen.globalAlpha = 0.25;
    pen.strokeRect(LEFT, y(0), x(this.last) - LEFT, 0);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.3;
    for (const { values: here, colour } of lines) {
      pen.strokeStyle = colour;
      pen.beginPath();
      here.forEach((value, frame) => pen[frame ? "lineTo" : "moveTo"](x(frame), y(value)));
      pen.stroke();
    }
    let right = 6;
    for (const { name, colour } of lines) {
      if (!name || right > LEFT * 4) continue;
      pen.fillStyle = colour;
      pen.fillText(name, LEFT + right, top + 9);
      right += pen.measureText(name).width + 10;
    }
  }

  /** A row per action: blue below zero, orange above. */
  _map(pen, rows, top, x) {
    const height = ROW / rows.length;
    const end = x(this.last);
    rows.forEach((values, k) => values.forEach((value, frame) => {
      pen.fillStyle = value > 0 ? "#e17a00" : "#0a6fd3";
      pen.globalAlpha = Math.min(1, Math.abs(value));
      pen.fillRect(x(frame), top + k * height, Math.max(0, Math.min(x(frame + 1) + 0.6, end) - x(frame)), height);
    }));
    pen.globalAlpha = 1;
  }

  destroy() {
    this.root.remove();
  }
}
