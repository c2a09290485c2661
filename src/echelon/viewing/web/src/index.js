// EchelonReplay.mount(element, replay, options): draw a replay that echelon/runs/replays.py wrote.
import { element as make } from "./panel.js";
import { Player } from "./player.js";
import style from "./style.css";

const STYLE_ID = "echelon-replay-style";

/**
 * @param element to fill; give it a height
 * @param replay the parsed JSON
 * @param options theme: "light" or "dark" (else the page's), policy: shown first (else the leader), autoplay: true
 * @returns a handle: play, pause, seek(frame), choose(policy), show(view), setTheme(name), poses(), frame(), destroy()
 */
export function mount(element, replay, options = {}) {
  if (!document.getElementById(STYLE_ID)) document.head.append(make("style", { id: STYLE_ID }, style));
  const root = make("div", { class: "echelon-replay" });
  element.append(root);
  let player;
  try {
    player = new Player(root, replay, options);
  } catch (problem) {
    root.replaceChildren(make("p", { class: "er-problem" }, `The replay cannot be shown here: ${problem.message}`));
    throw problem;
  }
  return {
    play: () => player.play(),
    pause: () => player.pause(),
    frame: () => player.frame,
    frames: () => player.bodies.frames,
    seek(frame) {
      player.pause();
      player.seek(frame);
    },
    choose(policy) {
      const index = player.find(policy);
      if (index === undefined) throw new Error(`the replay has no episode of policy ${policy}`);
      player.choose(index);
    },
    at: (iteration) => player.at(iteration), // the newest policies trained for at most `iteration` iterations
    show: (view) => player.show(view), // one, ghost, grid or overlay
    setTheme: (name) => player.theme(name),
    poses: () => player.bodies.shown(),
    drawn: () => player.shown.map((bodies) => bodies.shown()),
    destroy: () => player.destroy(),
  };
}
