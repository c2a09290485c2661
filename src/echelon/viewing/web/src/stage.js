// Everything around the robot: renderer, lights with soft shadows, ground with a faint grid, camera.
import {
  CanvasTexture, Color, DirectionalLight, Fog, HemisphereLight, Mesh, MeshStandardMaterial, PCFSoftShadowMap, PerspectiveCamera,
  PlaneGeometry, RepeatWrapping, Scene, SRGBColorSpace, Vector3, WebGLRenderer,
} from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

const GROUND_TILES = 120;
const SUN = new Vector3(-0.45, -0.75, 1.5).normalize();

/** One tile of the grid: a line along two sides, a fainter one in the middle. */
function gridTexture(ground, line) {
  const size = 512;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const pen = canvas.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = line;
  for (const [at, width, alpha] of [[0, 6, 1], [size / 2, 3, 0.55]]) {
    [pen.globalAlpha, pen.lineWidth] = [alpha, width];
    pen.stroke(new Path2D(`M${at} 0V${size}M0 ${at}H${size}`));
  }
  const texture = new CanvasTexture(canvas);
  texture.wrapS = texture.wrapT = RepeatWrapping;
  texture.repeat.set(GROUND_TILES, GROUND_TILES);
  texture.colorSpace = SRGBColorSpace;
  texture.anisotropy = 8;
  return texture;
}

export class Stage {
  /** @param view the replay's camera @param ground height of the ground, or null where there is none */
  constructor(canvas, view, ground) {
    this.view = view;
    this.renderer = new WebGLRenderer({ canvas, antialias: true });
    this.renderer.setPixelRatio(Math.min(window.devicePixelRatio || 1, 2));
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = PCFSoftShadowMap;
    this.scene = new Scene();

    this.distance = new Vector3().fromArray(view.eye).distanceTo(new Vector3().fromArray(view.target));
    this.camera = new PerspectiveCamera(view.fovy, 1.5, this.distance / 50, this.distance * 30);
    this.camera.up.set(0, 0, 1);
    this.controls = new OrbitControls(this.camera, canvas);
    const near = { minDistance: this.distance / 20, maxDistance: this.distance * 8 };
    Object.assign(this.controls, { enableDamping: true, dampingFactor: 0.12, ...near });

    this.sky = new HemisphereLight(0xffffff, 0xb9bec8, 1.6);
    this.sky.position.set(0, 0, 1);
    this.sun = new DirectionalLight(0xffffff, 1.9);
    this.sun.castShadow = true;
    this.sun.shadow.mapSize.set(2048, 2048);
    Object.assign(this.sun.shadow, { radius: 5, bias: -0.0002, normalBias: this.distance * 0.002 });
    const reach = this.distance * 0.75;
    const [from, to] = [this.distance * 0.1, this.distance * 6];
    Object.assign(this.sun.shadow.camera, { left: -reach, right: reach, top: reach, bottom: -reach, near: from, far: to });
    this.scene.add(this.sky, this.sun, this.sun.target);

    this.tile = this.distance < 0.4 ? 0.05 : this.distance < 2 ? 0.2 : 1;
    if (ground !== null) {
      const side = this.tile * GROUND_TILES;
      this.ground = new Mesh(new PlaneGeometry(side, side), new MeshStandardMaterial({ roughness: 0.95 }));
      this.ground.position.z = ground;
      this.ground.receiveShadow = true;
      this.scene.add(this.ground);
    }
    this.home();
  }

  /** The camera back to where it was at first, relative to what it follows. */
  home(offset = new Vector3()) {
    this.camera.position.fromArray(this.view.eye).add(offset);
    this.controls.target.fromArray(this.view.target).add(offset);
    this.controls.update();
  }

  /** Take the camera along. */
  move(offset) {
    this.camera.position.add(offset);
    this.controls.target.add(offset);
  }

  colours({ sky, ground, line }) {
    this.scene.background = new Color(sky);
    this.scene.fog = new Fog(sky, this.distance * 2.5, this.distance * 13);
    if (!this.ground) return;
    this.ground.material.map?.dispose();
    this.ground.material.map = gridTexture(ground, line);
    this.ground.material.needsUpdate = true;
  }

  resize(width, height) {
    if (!width || !height) return;
    this.renderer.setSize(width, height, false);
    [this.width, this.height] = [width, height];
    this._lens(width, height);
  }

  _lens(width, height) {
    this.camera.aspect = width / height;
    // On a narrow screen the field of view is kept across instead of down, or the robot would be cut off.
    const tangent = Math.tan((this.view.fovy * Math.PI) / 360) * Math.max(1, 1.2 / this.camera.aspect);
    this.camera.fov = (Math.atan(tangent) * 360) / Math.PI;
    this.camera.updateProjectionMatrix();
  }

  /** Columns and rows for a number of pictures side by side, as square as the window allows. */
  static grid(count, width, height) {
    const columns = Math.max(1, Math.min(count, Math.round(Math.sqrt((count * width) / (1.3 * height)))));
    return { columns, rows: Math.ceil(count / columns) };
  }

  /** Draw the scene, or with `cells` {root, offset} one root in each part of the picture, the camera shifted by its offset.
   * @returns whether the camera still moves, so that another picture is due. */
  draw(cells = null) {
    const moving = this.controls.update();
    if (!cells) {
      this._light();
      this.renderer.render(this.scene, this.camera);
      return moving;
    }
    const { columns, rows } = Stage.grid(cells.length, this.width, this.height);
    const [width, height] = [Math.floor(this.width / columns), Math.floor(this.height / rows)];
    this._lens(width, height);
    this.renderer.setScissorTest(true);
    cells.forEach(({ root, offset }, i) => {
      for (const other of cells) other.root.visible = other.root === root;
      const [x, y] = [(i % columns) * width, this.height - (Math.floor(i / columns) + 1) * height];
      this.renderer.setViewport(x, y, width - 1, height - 1);
      this.renderer.setScissor(x, y, width - 1, height - 1);
      this.move(offset);
      this.camera.updateMatrixWorld();
      this._light();
      this.renderer.render(this.scene, this.camera);
      this.move(offset.clone().negate());
    });
    this.renderer.setScissorTest(false);
    this.renderer.setViewport(0, 0, this.width, this.height);
    this._lens(this.width, this.height);
    return moving;
  }

  /** Sun and ground go along with what is looked at. */
  _light() {
    const target = this.controls.target;
    this.sun.target.position.copy(target);
    this.sun.position.copy(target).addScaledVector(SUN, this.distance * 2.5);
    for (const axis of this.ground ? ["x", "y"] : []) this.ground.position[axis] = Math.round(target[axis] / this.tile) * this.tile;
  }

  /** Turn around the target, in radians. */
  orbit(sideways, upwards) {
    const arm = this.camera.position.clone().sub(this.controls.target);
    const length = arm.length();
    const height = Math.min(Math.max(Math.asin(arm.z / length) + upwards, -1.5), 1.5);
    const heading = Math.atan2(arm.y, arm.x) + sideways;
    arm.set(Math.cos(height) * Math.cos(heading), Math.cos(height) * Math.sin(heading), Math.sin(height));
    this.camera.position.copy(this.controls.target).addScaledVector(arm, length);
  }

  /** Shift the view by shares of the distance. */
  pan(right, up) {
    const length = this.camera.position.distanceTo(this.controls.target);
    const x = new Vector3().setFromMatrixColumn(this.camera.matrix, 0).multiplyScalar(right * length);
    const y = new Vector3().setFromMatrixColumn(this.camera.matrix, 1).multiplyScalar(up * length);
    this.move(x.add(y));
  }

  zoom(factor) {
    const arm = this.camera.position.clone().sub(this.controls.target);
    const length = Math.min(Math.max(arm.length() * factor, this.controls.minDistance), this.controls.maxDistance);
    this.camera.position.copy(this.controls.target).addScaledVector(arm.normalize(), length);
  }

  dispose() {
    this.controls.dispose();
    this.ground?.geometry.dispose();
    this.ground?.material.map?.dispose();
    this.ground?.material.dispose();
    this.sun.dispose();
    this.renderer.dispose();
  }
}
