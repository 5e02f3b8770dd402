#include "backends/cublaslt/memory_of_choices.h"

#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "device/cuda/stream.h"

namespace temper::backends {
namespace {

std::string file() { return join_path(cache_folder(), "cublaslt.json"); }

std::string gpu_and_library(Device device) {
  static std::map<int, std::string> names;
  std::string& name = names[device.index];
  if (name.empty()) {
    cudaDeviceProp properties{};
    device::check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
    name = fmt::format("{}, cuBLASLt {}", properties.name, cublaslt().version());
  }
  return name;
}

Json& choices() {
  static Json known = [] {
    try {
      if (exists(file())) return Json::parse_file(file());
    } catch (const Error& error) {
      log_warning(fmt::format("measured product algorithms are ignored: {}", error.what()));
    }
    return Json(Json::Object{});
  }();
  if (!known.is_object()) known = Json(Json::Object{});
  return known;
}

constexpr size_t kWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t);

}  // namespace

bool recall_algorithm(Device device, const std::string& shape, cublasLtMatmulAlgo_t* algorithm) {
  const Json* shapes = choices().find(gpu_and_library(device));
  const Json* words = shapes != nullptr && shapes->is_object() ? shapes->find(shape) : nullptr;
  if (words == nullptr || !words->is_array() || words->as_array().size() != kWords) return false;
  for (size_t i = 0; i < kWords; ++i) {
    const Json& word = words->as_array()[i];
    if (!word.is_string()) return false;
    algorithm->data[i] = std::strtoull(word.as_string().c_str(), nullptr, 16);
  }
  return true;
}

void remember_algorithm(Device device, const std::string& shape, const cublasLtMatmulAlgo_t& algorithm) {
  Json::Array words;
  for (const uint64_t word : algorithm.data) words.push_back(Json(fmt::format("{:x}", word)));
  const std::string name = gpu_and_library(device);
  const Json* known = choices().find(name);
  Json shapes = known != nullptr && known->is_object() ? *known : Json(Json::Object{});
  shapes.set(shape, std::move(words));
  choices().set(name, std::move(shapes));
  static bool writable = true;
  if (!writable) return;
  try {
    make_directories(cache_folder());
    write_file(file(), choices().dump(1) + "\n");
  } catch (const Error& error) {
    writable = false;
    log_warning(fmt::format("measured product algorithms are not kept: {}", error.what()));
  }
}

}  // namespace temper::backends
