// The robot: one group per body, the body's primitives and meshes inside it, moved to the recorded poses.
import {
  BoxGeometry, BufferGeometry, CapsuleGeometry, Color, CylinderGeometry, DoubleSide, FrontSide, EdgesGeometry, Group, Line, LineBasicMaterial,
  LineSegments, Mesh, MeshStandardMaterial, PlaneGeometry, Quaternion, SphereGeometry, SRGBColorSpace, Vector3,
} from "three";
import { decodePoses } from "./decode.js";

/** MuJoCo's sizes are half lengths and radii, and its long axis is z where three's is y. */
const SHAPES = {
  sphere: (a) => new SphereGeometry(a, 40, 28),
  ellipsoid: (a, b, c) => new SphereGeometry(1, 40, 28).scale(a, b, c),
  capsule: (a, b) => new CapsuleGeometry(a, 2 * b, 14, 32).rotateX(Math.PI / 2),
  cylinder: (a, b) => new CylinderGeometry(a, a, 2 * b, 48).rotateX(Math.PI / 2),
  box: (a, b, c) => new BoxGeometry(2 * a, 2 * b, 2 * c),
  plane: (a, b) => new PlaneGeometry(2 * a, 2 * b),
};
/** Round shapes have no edges to draw: these have. */
const COARSE = {
  sphere: (a) => new SphereGeometry(a, 16, 8),
  ellipsoid: (a, b, c) => new SphereGeometry(1, 16, 8).scale(a, b, c),
  capsule: (a, b) => new CapsuleGeometry(a, 2 * b, 4, 12).rotateX(Math.PI / 2),
};
function geometry({ type, size }, meshes) {
  if (!meshes[type] && !SHAPES[type]) throw new Error(`the replay has a geom of an unknown type: ${type}`);
  return meshes[type] ?? SHAPES[type](...size);
}

/** A plane without end is the ground, which the stage draws. */
export function isGround(geom) {
  return geom.type === "plane" && !(geom.size[0] > 0 && geom.size[1] > 0);
}

/** Markers of goals are drawn by their edges, so that they are not taken for objects. */
function outline(geom, meshes) {
  const [r, g, b] = geom.rgba;
  const shape = geometry(geom, meshes);
  const coarse = COARSE[geom.type]?.(...geom.size);
  const colour = new Color().setRGB(r, g, b, SRGBColorSpace);
  const found = new LineSegments(new EdgesGeometry(coarse ?? shape, coarse ? 1 : 20), new LineBasicMaterial({ color: colour }));
  const opacity = coarse ? 0.35 : 0.16;
  found.add(new Mesh(shape, new MeshStandardMaterial({ color: colour, emissive: colour, emissiveIntensity: 0.4, opacity, transparent: true, depthWrite: false })));
  return placed(found, geom);
}

function placed(found, geom) {
  found.position.fromArray(geom.pos);
  const [w, x, y, z] = geom.quat;
  found.quaternion.set(x, y, z, w);
  return found;
}

function mesh(geom, meshes, tint) {
  const [r, g, b, own] = geom.rgba;
  const alpha = tint ? own * tint.opacity : own;
  const material = new MeshStandardMaterial({
    color: tint ? new Color(tint.colour) : new Color().setRGB(r, g, b, SRGBColorSpace), roughness: 0.62, metalness: 0.0,
    opacity: alpha, transparent: alpha < 1, depthWrite: alpha === 1, side: /^(plane|hfield)/.test(geom.type) ? DoubleSide : FrontSide,
  });
  const found = new Mesh(geometry(geom, meshes), material);
  found.castShadow = alpha === 1;
  found.receiveShadow = true;
  return placed(found, geom);
}

/** A body without a shape of its own to turn: its path is what one wants to see. */
export const isPath = (name) => name === "point";

export class Bodies {
  /** @param names of the bodies @param episode of the replay @param meshes geometries by name
   * @param tint {colour, opacity}: drawn in one colour, as a ghost @param trail colour of its path */
  constructor(names, episode, meshes, tint = null, trail = null) {
    this.names = names;
    this.frames = episode.frames;
    this.poses = decodePoses(episode.poses, episode.frames, names.length);
    this.root = new Group();
    this.groups = names.map(() => new Group());
    for (const group of this.groups) this.root.add(group);
    for (const geom of episode.geoms) {
      if (isGround(geom) || (tint && geom.body === 0)) continue;
      if (!geom.goal || !tint) this.groups[geom.body].add(geom.goal ? outline(geom, meshes) : mesh(geom, meshes, tint));
    }
    names.forEach((name, body) => { if (isPath(name)) this.root.add(this._trail(body, trail ?? tint.colour)); });
    [this._here, this._next] = [new Vector3(), new Vector3()];
    [this._turn, this._turned] = [new Quaternion(), new Quaternion()];
  }

  /** The whole path of a body, as a line on the ground. */
  _trail(body, colour) {
    const points = Array.from({ length: this.frames }, (_, frame) => {
      const at = (frame * this.names.length + body) * 7;
      return new Vector3(this.poses[at], this.poses[at + 1], this.poses[at + 2]);
    });
    return new Line(new BufferGeometry().setFromPoints(points), new LineBasicMaterial({ color: new Color(colour) }));
  }

  /** Where a body is at a time counted in frames; between two of them, on the straight way. */
  position(body, time, into) {
    this._read(body, Math.floor(time), into, this._turn);
    this._read(body, Math.ceil(time), this._next, this._turned);
    return into.lerp(this._next, time % 1);
  }

  /** Mean height of a body over some frames before and after a time. */
  height(body, time, about) {
    const first = Math.max(0, Math.round(time - about));
    const last = Math.min(this.frames - 1, Math.round(time + about));
    let sum = 0;
    for (let frame = first; frame <= last; frame++) sum += this.poses[(frame * this.names.length + body) * 7 + 2];
    return sum / (last - first + 1);
  }

  show(time) {
    this.groups.forEach((group, body) => {
      group.position.copy(this.position(body, time, this._here));
      group.quaternion.copy(this._turn).slerp(this._turned, time % 1);
    });
    this.root.updateMatrixWorld(true);
  }

  /** What is on the screen: position and quaternion (w x y z) of every body, from the matrices that are drawn. */
  shown() {
    return this.groups.map((group, body) => {
      const [position, turn] = [new Vector3(), new Quaternion()];
      group.matrixWorld.decompose(position, turn, new Vector3());
      return { body: this.names[body], pos: position.toArray(), quat: [turn.w, turn.x, turn.y, turn.z] };
    });
  }

  dispose() {
    this.root.traverse((item) => {
      item.geometry?.dispose();
      item.material?.dispose();
    });
  }

  _read(body, frame, position, turn) {
    const at = (Math.min(frame, this.frames - 1) * this.names.length + body) * 7;
    const [x, y, z, qw, qx, qy, qz] = this.poses.subarray(at, at + 7);
    position.set(x, y, z);
    turn.set(qx, qy, qz, qw).normalize();
  }
}
