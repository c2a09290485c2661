// Buttons, slider and choices below the picture, as plain HTML that works with a keyboard and a screen reader.

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const PLAY = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 2.5v11l9-5.5z"/></svg>';
const PAUSE = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 2.5h3v11H4zM9 2.5h3v11H9z"/></svg>';

const KEYS = [
  ["space", "play or pause"], [", .", "a frame back, on"], ["Home End", "first, last frame"], ["[ ]", "policy before, next"], ["v", "one, ghost, all"],
  ["drag, arrows", "turn"], ["right drag, shift arrows", "shift"], ["wheel, + -", "zoom"], ["p", "plots"], ["f", "camera follows"], ["r", "first view"],
];

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const choice = (name, options) =>
  element("select", { "aria-label": name, title: name }, ...options.map(([value, text]) => element("option", { value }, text)));

export class Panel {
  constructor(replay) {
    this.frame_s = replay.frame_s;
    this.play = element("button", { type: "button", class: "er-play" });
    this.slider = element("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "frame" });
    this.clock = element("span", { class: "er-clock" });
    this.speed = choice("speed", SPEEDS.map((speed) => [speed, `${speed}×`]));
    this.speed.value = 1;
    this.policy = choice("policy", []);
    const moments = [...new Set(replay.episodes.map((episode) => episode.iteration ?? replay.iteration))];
    this.moment = choice("iterations of training", moments.map((iteration) => [iteration, `after ${iteration.toLocaleString("en")}`]));
    this.moment.hidden = moments.length < 2;
    this.view = choice("view", [["one", "one policy"], ["ghost", "leader as ghost"], ["grid", "all side by side"], ["overlay", "all in one place"]]);
    this.plots = element("button", { type: "button", "aria-pressed": "true", title: "rewards, actions, distance to the leader (p)" }, "plots");
    this.help = element("button", { type: "button", "aria-expanded": "false", title: "keys and mouse (?)" }, "?");
    this.keys = element("div", { class: "er-keys", hidden: "" }, ...KEYS.map(([key, does]) => element("div", {}, element("kbd", {}, key), ` ${does}`)));
    this.follow = element("button", { type: "button", "aria-pressed": "false", title: "camera follows (f)" }, "follow");
    this.follow.hidden = replay.camera.follow === null;
    this.home = element("button", { type: "button", title: "first view (r)" }, "reset view");
    this.caption = element("div", { class: "er-caption", "aria-live": "polite" });
    const right = [this.moment, this.policy, this.view, this.speed, this.follow, this.home, this.plots, this.help];
    this.bar = element("div", { class: "er-bar" }, this.play, this.slider, this.clock, ...right);
    this.title = element("div", { class: "er-title" }, `${replay.task}, ${replay.algo}, iteration ${replay.iteration.toLocaleString("en")}`, element("small", {}, replay.run));
    this.playing(false);
  }

  /** The policies there are, [index, name]. */
  policies(options) {
    this.policy.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
    this.policy.hidden = this.view.hidden = options.length < 2;
  }

  episode(episode) {
    this.frames = episode.frames;
    this.slider.max = episode.frames - 1;
    const score = Number(episode.total_return.toPrecision(4)).toLocaleString("en");
    this.caption.replaceChildren(element("b", {}, episode.name), ` return ${score}${this.end(episode)}`);
  }

  /** How it ended, unless by its time limit. */
  end({ outcome, frames, length }) {
    if (outcome === "cut") return `, cut after ${Number((frames * this.frame_s).toPrecision(3))} s`;
    return outcome === "time limit" ? "" : `, ${outcome} after ${length === 1 ? "1 step" : `${length} steps`}`;
  }

  time(frame) {
    this.slider.value = Math.round(frame);
    this.clock.textContent = `${(frame * this.frame_s).toFixed(2)} s`;
    this.slider.setAttribute("aria-valuetext", this.clock.textContent);
  }

  playing(yes) {
    this.play.innerHTML = yes ? PAUSE : PLAY;
    this.play.setAttribute("aria-label", yes ? "pause" : "play");
    this.play.title = `${yes ? "pause" : "play"} (space)`;
  }
}
