#include "checkpoints/states/shared_state.h"

#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/files/manifest.h"
#include "checkpoints/states/owned_tensors.h"
#include "collectives/launch.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

using collectives::Group;

// A matrix of columns, one of rows that fewer heads than ranks share, experts, and a norm.
WeightTable table() {
  WeightTable table;
  const WeightAxis heads = WeightAxis::divided("heads*head_dim", 2);
  table.add({.name = "layers.0.output",
             .shape = {4, 16},
             .axes = {"hidden", heads},
             .sources = {{"o", 4}},
             .layer = 0});
  table.add({.name = "layers.0.qkv",
             .shape = {12, 4},
             .axes = {heads, "hidden"},
             .sources = {{"qkv", 12}},
             .segments = {{8}, {4, true}},
             .layer = 0});
  table.add({.name = "layers.0.experts",
             .shape = {16, 4},
             .axes = {WeightAxis::of_experts("experts*expert_width", 1), "hidden"},
             .sources = {{"e0", 4}, {"e1", 4}, {"e2", 4}, {"e3", 4}},
             .experts = 4,
             .layer = 0});
  table.add({.name = "norm", .shape = {4}, .axes = {"hidden"}, .sources = {{"n", 4}}});
  return table;
}

// What a rank holds of the table's tensors, each element as its number in the whole.
struct Held {
  Held(const Mesh& mesh, int rank, float start) : layout(table(), mesh, rank) {
    for (size_t i = 0; i < table().specs().size(); ++i) {
      const Tensor whole = Tensor::empty(layout[i].whole(), DType::kF32),
                   own = Tensor::zeros(layout[i].own(), DType::kF32);
      for (int64_t e = 0; e < whole.numel(); ++e) whole.data<float>()[e] = start + static_cast<float>(e);
      layout[i].take_own(whole, own);
      tensors.push_back({table().specs()[i].name, own, &layout[i]});
    }
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const PlacedTensor& tensor : tensors)
      all.emplace_back(tensor.own.values<float>().begin(), tensor.own.values<float>().end());
    return all;
  }
  Layout layout;
  std::vector<PlacedTensor> tensors;
};

class SharedStates : public testing::Test {
 protected:
  static void on_ranks(int ranks, const std::function<void(Group&)>& body) {
    collectives::launch("threads", {.ranks = ranks, .deadline = 60}, body);
  }

  void write(Group& ranks, const Mesh& mesh, int64_t step) {
    Held held(mesh, ranks.rank(), static_cast<float>(1000 * step));
    SharedState state(root, step, owner_of_states(ranks));
    state.write([&](StateWriter& writer) {
      OwnedTensors(held.tensors, ranks.rank()).add_to(writer, "optimizer", ranks.rank(), ranks.size());
      if (ranks.rank() == 0) writer.add_json("state.json", Json::Object{{"step", step}});
    });
    state.commit(ranks);
  }
  void write(const Mesh& mesh, int64_t step) {
    on_ranks(mesh.size(), [&](Group& ranks) { write(ranks, mesh, step); });
  }

  // The step that ranks of a mesh resume from, having read what is theirs.
  int64_t read(const Mesh& mesh) {
    std::mutex mutex;
    std::vector<int64_t> steps;
    on_ranks(mesh.size(), [&](Group& ranks) {
      const auto state = open_newest(root, ranks);
      Held held(mesh, ranks.rank(), -1);
      read_placed(*state, "optimizer", held.tensors);
      EXPECT_EQ(held.values(), Held(mesh, ranks.rank(), static_cast<float>(1000 * state->step())).values());
      const std::lock_guard lock(mutex);
      steps.push_back(state->step());
    });
    EXPECT_EQ(steps, std::vector<int64_t>(steps.size(), steps.front()));
    return steps.front();
  }

  TemporaryDirectory folder;
  std::string root = folder / "checkpoints";
};

const Mesh kMesh{.tensor = 4, .expert = 2};

TEST_F(SharedStates, HaveEveryElementOnceInTheFilesOfItsRanks) {
  write(kMesh, 1);
  const std::string state = root + "/step-000001/";
  int64_t elements = 0;
  for (const std::string& name : list_directory(state)) {
    if (!name.ends_with(".safetensors")) continue;
    const SafetensorsFile file(state + name);
    for (const TensorEntry& entry : file.entries()) elements += (entry.end - entry.begin) / 4;
  }
  EXPECT_EQ(elements, 64 + 48 + 64 + 4);
  // The second rank of an expert's half has no first part of anything else.
  EXPECT_EQ(SafetensorsFile(state + "optimizer-00005.safetensors").entries().size(), 1u);
  EXPECT_EQ(SafetensorsFile(state + "optimizer-00000.safetensors").find("norm")->shape,
            std::vector<int64_t>{4});
}

TEST_F(SharedStates, AreReadOnAnyMesh) {
  const std::vector<Mesh> meshes{{},
                                 {.replicate = 2},
                                 {.tensor = 2},
                                 {.expert = 4},
                                 kMesh,
                                 {.shard = 2, .tensor = 2, .shard_level = 3},
                                 {.shard = 2, .expert = 2, .shard_level = 3}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    write(meshes[i], static_cast<int64_t>(i) + 1);
    for (const Mesh& mesh : meshes) EXPECT_EQ(read(mesh), static_cast<int64_t>(i) + 1);
  }
}

// As states of one rank are, and as all were once.
TEST_F(SharedStates, OfWholeTensorsAreReadByRanks) {
  write({}, 3);
  const SafetensorsFile file(root + "/step-000003/optimizer.safetensors");
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_EQ(file.find("layers.0.qkv")->shape, (std::vector<int64_t>{12, 4}));
  EXPECT_EQ(read(kMesh), 3);
}

TEST_F(SharedStates, AreNotWrittenWhereOneRankFails) {
  write(kMesh, 1);
  std::mutex mutex;
  std::vector<std::string> errors;
  on_ranks(8, [&](Group& ranks) {
    SharedState state(root, 2, owner_of_states(ranks));
    state.write([&](StateWriter& writer) {
      writer.add_file(fmt::format("{}.txt", ranks.rank()), "some");
      if (ranks.rank() == 3 || ranks.rank() == 6)
        fail_resources("[disk {}] cannot write: No space left on device", ranks.rank());
    });
    const std::string error = error_of([&] { state.commit(ranks); }, ErrorKind::kResources);
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  });
  EXPECT_EQ(errors, std::vector<std::string>(8, "rank 3: [disk 3] cannot write: No space left on device"));
  EXPECT_EQ(list_directory(root), std::vector<std::string>{"step-000001"});
  EXPECT_EQ(read(kMesh), 1);
}

TEST_F(SharedStates, NeedTheFilesOfAllRanks) {
  on_ranks(2, [&](Group& ranks) {
    SharedState state(root, 1, owner_of_states(ranks));
    state.write([&](StateWriter& writer) { writer.add_file(fmt::format("{}.txt", ranks.rank()), "some"); });
    ranks.barrier("written");
    if (ranks.rank() == 0)
      for (const std::string& name : list_directory(root)) remove_all(root + "/" + name + "/1.txt");
    ranks.barrier("as if it were on another machine");
    expect_has(error_of([&] { state.commit(ranks); }),
               "1.txt] found no such file, manifest.json says 4 bytes; rank 1 wrote it: "
               "all machines must share the output folder");
  });
  EXPECT_EQ(list_directory(root), std::vector<std::string>{});
}

// Whichever rank looks at the file that is damaged.
TEST_F(SharedStates, DamagedFilesOfAnyRankAreFoundByAll) {
  write(kMesh, 1);
  for (const char* name : {"optimizer-00001.safetensors", "optimizer-00006.safetensors"})
    for (const std::string damage : {"cut", "flipped", "missing"}) {
      write(kMesh, 2);
      const std::string file = root + "/step-000002/" + name;
      std::string bytes = read_file(file);
      if (damage == "cut") bytes.pop_back();
      if (damage == "flipped") bytes[bytes.size() - 9] ^= 4;
      damage == "missing" ? remove_all(file) : write_file(file, bytes);
      for (const Mesh& mesh : {kMesh, Mesh{}, Mesh{.tensor = 2}}) {
        testing::internal::CaptureStderr();
        EXPECT_EQ(read(mesh), 1) << name << " " << damage;
        const std::string warning = testing::internal::GetCapturedStderr();
        expect_has(warning, std::string(name) + "] found ");
        expect_has(warning, "this checkpoint is damaged and is skipped");
      }
    }
}

// A manifest may be right about files that do not belong together.
TEST_F(SharedStates, RefuseTensorsThatAreNotWhole) {
  const Mesh halves{.tensor = 2};
  const auto state_of = [&](std::vector<int> parts, int64_t step) {
    StateWriter writer(root, step);
    for (size_t i = 0; i < parts.size(); ++i) {
      Held held(halves, parts[i], 0);
      OwnedTensors(held.tensors, parts[i]).add_to(writer, "optimizer", static_cast<int>(i), 2);
    }
    return StateReader::open(writer.commit());
  };
  const auto error = [&](const StateReader& state, const std::vector<PlacedTensor>& tensors) {
    return error_of([&] { read_placed(state, "optimizer", tensors); });
  };
  Held whole({}, 0, 0), half(halves, 0, 0);
  expect_has(error(state_of({0}, 1), whole.tensors),
             "step-000001] no file has element 8 of 'layers.0.output': the files of a rank are missing");
  EXPECT_EQ(error(state_of({0}, 1), half.tensors), "");
  expect_has(error(state_of({0, 0}, 2), whole.tensors),
             "step-000002] two files have element 0 of 'layers.0.output'");
  const Placement other({4, 8});
  expect_has(error(state_of({0, 1}, 3), {{"layers.0.output", Tensor::zeros({4, 8}, DType::kF32), &other}}),
             "'layers.0.output' is [4, 16], expected [4, 8]");
  expect_has(error(state_of({0, 1}, 3), {{"layers.0.outputs", Tensor::zeros({4, 8}, DType::kF32), &other}}),
             "has no tensor 'layers.0.outputs'; the nearest name is 'layers.0.output'");
  expect_has(error_of([&] {
               read_placed(state_of({0, 1}, 3), "moments", whole.tensors);
             }),
             "found no 'moments.safetensors', expected one of: optimizer-00000.safetensors");
}

}  // namespace
}  // namespace temper::checkpoints
