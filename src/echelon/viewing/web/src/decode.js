// Poses of an episode from its text, as echelon/runs/replays.py packs them: differences from frame to frame of whole
// numbers, byte planes apart, deflated, in base64. Numbers of a frame lie side by side in the result.
import { BufferAttribute, BufferGeometry } from "three";
import { toCreasedNormals } from "three/addons/utils/BufferGeometryUtils.js";
import { unzlibSync } from "fflate";

const CREASE = Math.PI / 5; // Faces that meet at a larger angle have an edge between them.
const inflate = (text) => unzlibSync(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));

/** A mesh as `pack_mesh` writes it: differences from vertex to vertex, then of the faces' corners. */
export function decodeMesh({ low, unit, counts: [vertices, faces], vertices: places, faces: corners }) {
  const [near, far] = [inflate(places), inflate(corners)];
  const [count, last] = [3 * vertices, 3 * faces];
  const [positions, index] = [new Float32Array(count), new Uint32Array(last)];
  for (let at = 0, value = 0; at < count; at++) {
    if (at % vertices === 0) value = 0;
    value = (value + (near[at] | (near[at + count] << 8))) & 65535;
    positions[(at % vertices) * 3 + Math.floor(at / vertices)] = value;
  }
  for (let at = 0, value = 0; at < last; at++) {
    value += far[at] | (far[at + last] << 8) | (far[at + 2 * last] << 16) | (far[at + 3 * last] << 24);
    index[at] = value;
  }
  const indexed = new BufferGeometry().setAttribute("position", new BufferAttribute(positions, 3)).setIndex(new BufferAttribute(index, 1));
  // Before it is scaled: vertices less than a hundredth apart would be taken for one.
  return toCreasedNormals(indexed, CREASE).scale(unit, unit, unit).translate(...low);
}

/** A series along the frames, as `pack_series` writes it. @returns {Float64Array} */
export function decodeSeries({ low, high, data }) {
  const planes = inflate(data);
  const count = planes.length / 2;
  return Float64Array.from({ length: count }, (_, i) => low + ((planes[i] | (planes[i + count] << 8)) / 65535) * (high - low));
}

const UNITS = [1e-5, 1e-5, 1e-5, 1 / 32767, 1 / 32767, 1 / 32767, 1 / 32767];

/** @returns {Float64Array} frames × bodies × 7: x y z, then w x y z. */
export function decodePoses(text, frames, bodies) {
  const planes = inflate(text);
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
