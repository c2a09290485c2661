// An exported policy (.npz of `echelon export`) and what its file says about the robot. C++17, no library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using Vector = std::vector<float>;

struct Json {  // only what the metadata holds; null and words have no number
  double number = NAN;
  std::string text;
  std::vector<Json> list;
  std::map<std::string, Json> fields;

  const Json& operator[](const std::string& name) const { return fields.at(name); }
  bool empty() const { return std::isnan(number) && text.empty() && list.empty() && fields.empty(); }

  static Json parse(const char*& c) {
    Json found;
    const auto skip = [&] { while (std::strchr(" \n,:", *c) && *c) ++c; };
    skip();
    if (*c == '{') {
      for (++c, skip(); *c != '}'; skip()) { const std::string name = parse(c).text; found.fields[name] = parse(c); }
      ++c;
    } else if (*c == '[') {
      for (++c, skip(); *c != ']'; skip()) found.list.push_back(parse(c));
      ++c;
    } else if (*c == '"') {
      for (++c; *c != '"'; ++c) found.text += *c == '\\' ? *++c : *c;
      ++c;
    } else if (std::isalpha(*c)) {
      if (*c == 't' || *c == 'f') found.number = *c == 't';
      while (std::isalpha(*c)) ++c;
    } else {
      char* end;
      found.number = std::strtod(c, &end);
      if (end == c) throw std::runtime_error("the metadata is no JSON");
      c = end;
    }
    return found;
  }
};

struct Array {
  std::vector<size_t> shape;
  std::vector<double> values;
  std::string text;
};

// Arrays of a .npz: entries of a zip archive that are not compressed, as numpy.savez writes them.
inline std::map<std::string, Array> read_npz(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  const auto at16 = [&](size_t i) { return size_t(uint8_t(file.at(i)) | uint8_t(file.at(i + 1)) << 8); };
  std::map<std::string, Array> found;
  for (size_t at = 0; file.compare(at, 4, "PK\3\4") == 0;) {
    if (at16(at + 8)) throw std::runtime_error(path + " is compressed; numpy.savez writes it as it is");
    const std::string name = file.substr(at + 30, at16(at + 26) - 4);  // without .npy
    const size_t npy = at + 30 + at16(at + 26) + at16(at + 28), length = at16(npy + 8);
    const std::string header = file.substr(npy + 10, length);
    const size_t kind = header.find("descr': '") + 10, size = std::stoul(header.substr(kind + 1));
    const char* data = file.data() + npy + 10 + length;
    Array array;
    size_t count = 1;
    for (const char* c = header.c_str() + header.find('(') + 1; *c != ')';) {
      char* end;
      if (const size_t n = std::strtoul(c, &end, 10); end != c) array.shape.push_back(n), count *= n;
      c = end == c ? c + 1 : end;
    }
    if (header[kind] == 'U') {
      for (size_t i = 0; i < size; ++i) if (data[4 * i]) array.text += data[4 * i];
    } else {
      for (size_t i = 0; i < count; ++i) {
        float single; double twice;
        std::memcpy(&single, data + 4 * i, 4);
        if (size == 8) std::memcpy(&twice, data + 8 * i, 8);
        array.values.push_back(size == 8 ? twice : single);
      }
    }
    at = data - file.data() + count * (header[kind] == 'U' ? 4 * size : size);
    found[name] = std::move(array);
  }
  if (found.empty()) throw std::runtime_error(path + " is no .npz");
  return found;
}

// From quantities of the robot to controls of its actuators. Call reset() where an episode begins.
class Policy {
 public:
  using Read = std::function<std::vector<double>(const std::string& quantity, const Json& names)>;
  Json facts;
  Vector action;

  explicit Policy(const std::string& path) : arrays(read_npz(path)) {
    const char* text = arrays.at("metadata").text.c_str();
    facts = Json::parse(text);
    if (!facts.fields.count("observation") || facts["observation"].list.empty() || facts["actuators"].list[0]["scale"].empty())
      throw std::runtime_error(path + " does not say what the policy observes, or what its actions do; see docs/export.md");
    reset();
  }

  void reset() {
    action.assign(facts["actuators"].list.size(), 0);
    hidden.assign(arrays.count("recur_weight") ? arrays.at("recur_weight").shape[1] : 0, 0);
    cell = hidden;
  }

  // Controls in the order of the actuators; read returns quantities in the units of the layout.
  std::vector<double> control(const Read& read) {
    Vector obs;
    for (const Json& part : facts["observation"].list) {
      const std::string& quantity = part["quantity"].text;
      std::vector<double> found;
      if (quantity == "previous action") {
        for (const Json& name : part["of"].list) found.push_back(action[index_of(name.text)]);
      } else {
        found = read(quantity, part["of"]);
      }
      const float clip = part["clip"].empty() ? INFINITY : part["clip"].number;
      for (size_t i = 0; i < found.size(); ++i) {
        const float x = float(found[i]) - float(part["offset"].list[i].number);
        obs.push_back(std::clamp(float(part["scale"].list[i].number) * x, -clip, clip));
      }
    }
    action = act(obs);
    std::vector<double> controls;
    for (size_t i = 0; i < action.size(); ++i) {
      const Json& actuator = facts["actuators"].list[i];
      controls.push_back(float(actuator["offset"].number) + float(actuator["scale"].number) * action[i]);
    }
    return controls;
  }

 private:
  std::map<std::string, Array> arrays;
  Vector hidden, cell;

  size_t index_of(const std::string& actuator) const {
    const auto& list = facts["actuators"].list;
    for (size_t i = 0; i < list.size(); ++i) if (list[i]["name"].text == actuator) return i;
    throw std::runtime_error("no actuator is called " + actuator);
  }

  Vector linear(const Vector& x, const std::string& name, bool bias = true) const {
    const Array& weight = arrays.at(name + "_weight");
    Vector found(weight.shape[0]);
    for (size_t i = 0; i < found.size(); ++i) {
      double sum = bias ? arrays.at(name + "_bias").values[i] : 0;
      for (size_t j = 0; j < x.size(); ++j) sum += weight.values[i * x.size() + j] * x[j];
      found[i] = sum;
    }
    return found;
  }

  void activate(Vector& values) const {
    const std::string& kind = facts["activation"].text;
    for (float& x : values) {
      if (kind == "elu") x = x > 0 ? x : std::expm1(x);
      else if (kind == "relu") x = std::max(x, 0.0f);
      else if (kind == "silu") x *= sigmoid(x);
      else if (kind == "tanh") x = std::tanh(x);
      else throw std::runtime_error("unknown activation " + kind);
    }
  }

  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

  // Layer normalisation, if the file has one of that name.
  void normalise(Vector& x, const std::string& name) const {
    if (!arrays.count(name + "_weight")) return;
    double mean = 0, variance = 0;
    for (float value : x) mean += value / x.size();
    for (float value : x) variance += (value - mean) * (value - mean) / x.size();
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * arrays.at(name + "_weight").values[i] + arrays.at(name + "_bias").values[i];
  }

  // One step of the LSTM.
  Vector remember(Vector gates) {
    const Vector recurrent = linear(hidden, "recur", false);
    const size_t n = hidden.size();
    for (size_t i = 0; i < 4 * n; ++i) gates[i] += recurrent[i];
    for (size_t i = 0; i < n; ++i) {
      cell[i] = sigmoid(gates[n + i]) * cell[i] + sigmoid(gates[i]) * std::tanh(gates[2 * n + i]);
      hidden[i] = sigmoid(gates[3 * n + i]) * std::tanh(cell[i]);
    }
    Vector found = hidden;
    normalise(found, "norm");
    return found;
  }

  Vector act(Vector x) {
    const float clip = arrays.at("obs_clip").values[0];
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::clamp((x[i] - float(arrays.at("obs_mean").values[i])) / float(arrays.at("obs_std").values[i]), -clip, clip);
    x = linear(x, "first");
    if (hidden.empty()) normalise(x, "first_norm"), activate(x); else x = remember(x);
    for (int layer = 0; arrays.count("layer_" + std::to_string(layer) + "_weight"); ++layer) {
      x = linear(x, "layer_" + std::to_string(layer));
      normalise(x, "layer_" + std::to_string(layer) + "_norm");
      activate(x);
    }
    x = linear(x, "mean");
    const bool squashed = facts.fields.count("squashed") && facts["squashed"].number == 1;
    for (size_t i = 0; i < x.size(); ++i) {
      if (squashed) x[i] = std::tanh(x[i]);
      const float low = arrays.at("action_low").values[i], high = arrays.at("action_high").values[i];
      if (std::isfinite(low) && std::isfinite(high)) x[i] = (low + high) / 2 + (high - low) / 2 * std::clamp(x[i], -1.0f, 1.0f);
    }
    return x;
  }
};
