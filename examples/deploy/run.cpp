// Run an exported policy on MuJoCo at its control rate, from C++: `run.py` in another language.
//
//   echelon export runs/walk --out policy.npz
//   mujoco=$(python -c "import mujoco, os; print(os.path.dirname(mujoco.__file__))")   # headers and library of the wheel
//   g++ -std=c++17 -O2 run.cpp -I$mujoco/include $mujoco/libmujoco.so.* -Wl,-rpath,$mujoco -o run
//   ./run policy.npz model.xml [starts.npz] [--fast]
//
// Replace Simulation by your robot's driver and nothing else changes.
#include <chrono>
#include <cstdio>
#include <thread>

#include <mujoco/mujoco.h>

#include "policy.hpp"

struct Simulation {  // a robot in MuJoCo, with the quantities that policies observe
  mjModel* model;
  mjData* data;
  std::vector<double> command{0, 0, 0};
  std::vector<int> actuators;

  Simulation(const std::string& path, const Policy& policy) {
    char error[1000] = "";
    const bool binary = path.size() > 4 && path.substr(path.size() - 4) == ".mjb";
    model = binary ? mj_loadModel(path.c_str(), nullptr) : mj_loadXML(path.c_str(), nullptr, error, sizeof error);
    if (!model) throw std::runtime_error(path + " cannot be loaded: " + error);
    data = mj_makeData(model);
    for (const Json& actuator : policy.facts["actuators"].list) actuators.push_back(find(mjOBJ_ACTUATOR, actuator["name"].text));
  }

  int find(mjtObj kind, const std::string& name) const {
    const int id = mj_name2id(model, kind, name.c_str());
    if (id < 0) throw std::runtime_error("the model has no " + name);
    return id;
  }

  std::vector<double> to_base(const double* vector) const {  // of a floating base, whose joint is the model's first
    const double inverse[4] = {data->qpos[3], -data->qpos[4], -data->qpos[5], -data->qpos[6]};
    std::vector<double> found(3);
    mju_rotVecQuat(found.data(), vector, inverse);
    return found;
  }

  std::vector<double> read(const std::string& quantity, const Json& names) const {
    const double down[3] = {0, 0, -1};
    std::vector<double> vector, found;
    if (quantity == "base linear velocity") vector = to_base(data->qvel);
    if (quantity == "base angular velocity") vector = {data->qvel + 3, data->qvel + 6};
    if (quantity == "gravity direction") vector = to_base(down);
    if (quantity == "command") vector = command;
    if (!vector.empty()) {
      const std::map<std::string, int> axes{{"x", 0}, {"y", 1}, {"z", 2}, {"forward", 0}, {"left", 1}, {"turn", 2}};
      for (const Json& name : names.list) found.push_back(vector[axes.at(name.text)]);
      return found;
    }
    for (const Json& name : names.list) {
      const int joint = find(mjOBJ_JOINT, name.text);
      const double position = data->qpos[model->jnt_qposadr[joint]];
      if (quantity == "joint position") found.push_back(position);
      else if (quantity == "joint velocity") found.push_back(data->qvel[model->jnt_dofadr[joint]]);
      else if (quantity == "sine of joint position") found.push_back(std::sin(position));
      else if (quantity == "cosine of joint position") found.push_back(std::cos(position));
      else throw std::runtime_error("this robot does not measure the " + quantity);
    }
    return found;
  }

  double sensor(const std::string& name) const { return data->sensordata[model->sensor_adr[find(mjOBJ_SENSOR, name)]]; }
};

struct Score { double reward; bool failed; };

Score score(const Simulation& robot, const Policy& policy) {  // for the tasks whose reward is here
  const std::string& task = policy.facts["task"].text;
  const double *q = robot.data->qpos, *v = robot.data->qvel;
  const auto setting = [&](const char* name) { return policy.facts["settings"][name].number; };
  if (task == "CartpoleSwingup") {
    const double height = 0.5 + 0.5 * std::cos(q[1]), calm = std::max(0.0, 1 - setting("spin_cost") * v[1] * v[1]);
    const double raised = (0.25 * height + 0.75 * std::pow(height, 4)) * (1 - 0.8 * std::abs(q[0]) / 1.9);
    return {raised * calm - setting("action_cost") * policy.action[0] * policy.action[0], false};
  }
  if (task == "Hopper") {
    double squares = 0;
    for (float a : policy.action) squares += a * a / policy.action.size();
    const double height = q[1] + robot.model->body_pos[3 * robot.find(mjOBJ_BODY, "torso") + 2];
    const double reward = std::min(v[0], setting("target_velocity")) + setting("alive_reward") - setting("action_cost") * squares;
    return {reward, height < setting("min_height") || std::abs(q[2]) > setting("max_pitch")};
  }
  if (task != "Anymal") return {0, false};
  const auto velocity = robot.to_base(v);
  const double x = robot.command[0] - velocity[0], y = robot.command[1] - velocity[1], turn = robot.command[2] - v[5];
  double torques = 0;
  bool fell = robot.sensor("base") > setting("contact_force");
  for (const std::string leg : {"LF", "LH", "RF", "RH"}) {
    for (const char* joint : {"_HAA", "_HFE", "_KFE"}) torques += std::pow(robot.sensor(leg + joint), 2);
    fell |= robot.sensor(leg + "_THIGH") > setting("contact_force");
  }
  const double linear = std::exp(-(x * x + y * y) / 0.25), angular = std::exp(-turn * turn / 0.25);
  return {std::max(0.0, setting("linear_reward") * linear + setting("angular_reward") * angular - setting("torque_cost") * torques), fell};
}

int main(int count, char** words) try {
  std::vector<std::string> given(words + 1, words + count);
  const auto flag = std::find(given.begin(), given.end(), "--fast");
  const bool fast = flag != given.end();
  if (fast) given.erase(flag);
  if (given.size() < 2) throw std::runtime_error("usage: run POLICY.npz MODEL [STARTS.npz] [--fast]");
  Policy policy(given[0]);
  Simulation robot(given[1], policy);
  const mjModel* model = robot.model;
  std::map<std::string, Array> starts;
  if (given.size() > 2) starts = read_npz(given[2]);
  else for (const Json& joint : policy.facts["joints"].list) for (const Json& x : joint["default"].list) starts["qpos"].values.push_back(x.number);
  const double rate = policy.facts["control_rate"].number;
  const int substeps = std::lround(1 / (rate * model->opt.timestep)), limit = policy.facts["settings"]["episode_length"].number;
  const auto period = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(1 / rate));
  const auto copy = [&](const char* name, double* to, size_t size, size_t row) {
    if (starts.count(name)) std::copy_n(&starts[name].values[row * size], size, to);
  };
  for (size_t row = 0; row < starts["qpos"].values.size() / model->nq; ++row) {
    mj_resetData(model, robot.data);
    copy("qpos", robot.data->qpos, model->nq, row);
    copy("qvel", robot.data->qvel, model->nv, row);
    copy("command", robot.command.data(), 3, row);
    policy.reset();
    double total = 0;
    int steps = 0;
    auto tick = std::chrono::steady_clock::now();
    for (Score last{0, false}; steps < limit && !last.failed; ++steps, total += last.reward) {
      const auto control = policy.control([&](const auto& quantity, const Json& names) { return robot.read(quantity, names); });
      for (size_t i = 0; i < control.size(); ++i) robot.data->ctrl[robot.actuators[i]] = control[i];
      for (int i = 0; i < substeps; ++i) mj_step(model, robot.data);
      last = score(robot, policy);
      if (!fast) std::this_thread::sleep_until(tick += period);
    }
    std::printf("{\"return\": %.9g, \"length\": %d}\n", total, steps);
    std::fflush(stdout);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
