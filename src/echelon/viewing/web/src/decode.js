// Poses of an episode from its text, as echelon/runs/replays.py packs them: differences from frame to frame of whole
// numbers, byte planes apart, deflated, in base64. Numbers of a frame lie side by side in the result.
import { unzlibSync } from "fflate";

/** A series along the frames, as `pack_series` writes it. @returns {Float64Array} */
export function decodeSeries({ low, high, data }) {
  const planes = unzlibSync(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)));
  const count = planes.length / 2;
  return Float64Array.from({ length: count }, (_, i) => low + ((planes[i] | (planes[i + count] << 8)) / 65535) * (high - low));
}

const UNITS = [1e-5, 1e-5, 1e-5, 1 / 32767, 1 / 32767, 1 / 32767, 1 / 32767];

/** @returns {Float64Array} frames × bodies × 7: x y z, then w x y z. */
export function decodePoses(text, frames, bodies) {
  const planes = unzlibSync(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
  const columns = bodies * 7;
  const count = columns * frames;
  if (planes.length !== 4 * count) throw new Error("the replay's poses are cut short");
  const poses = new Float64Array(count);
  for (let column = 0; column < columns; column++) {
    let value = 0;
    for (let frame = 0; frame < frames; frame++) {
      const at = column * frames + frame;
      value += planes[at] | (planes[at + count] << 8) | (planes[at + 2 * count] << 16) | (planes[at + 3 * count] << 24);
      poses[frame * columns + column] = value * UNITS[column % 7];
    }
  }
  return poses;
}
