// Adapters that come by their names.
#include "exchange/exchange_fixture.h"
#include "models/adapter.h"

namespace temper::exchange {
namespace {

class Shelf final : public AdapterStore {
 public:
  layers::Adapter* awaited(const std::string& name) override {
    const auto found = adapters.find(name);
    if (found == adapters.end()) fail("'{}' is not awaited", name);
    return found->second.get();
  }
  void install(const std::string& name, std::unique_ptr<layers::Adapter> adapter) override {
    adapters[name] = std::move(adapter);
  }
  std::map<std::string, std::unique_ptr<layers::Adapter>> adapters;
};

class Adapters : public Exchange {
 protected:
  void begin_adapters(const char* type = "qwen3", Loading loading = Loading::kStaged) {
    begin(type);
    receiver_.reset();
    shelf_.adapters.clear();
    shelf_.adapters["math"] = nullptr;
    receiver_ = std::make_unique<Receiver>(
        socket(), store(), ReceiverOptions{.deadline_seconds = 20, .loading = loading, .adapters = &shelf_});
  }
  // With values of its own everywhere.
  std::unique_ptr<layers::Adapter> made(uint64_t seed, int64_t rank = 4) {
    LoraConfig config;
    config.rank = rank;
    config.modules_to_save = {"norm"};
    auto adapter = models::new_adapter(*model_, config, seed, "");
    adapter->parameters().initialize(seed, 0.5);
    return adapter;
  }
  SendResult send(const layers::Adapter& adapter, int64_t version, const std::string& name,
                  size_t parameters = SIZE_MAX) {
    Sender sender(socket(), table(), {.chunk_bytes = 4096});
    sender.begin(version, note_of(adapter, name));
    std::vector<PlacedTensor> placed = adapter.parameters().placed();
    placed.resize(std::min(placed.size(), parameters));
    send_owned(sender, placed, 0);
    return sender.finish();
  }
  Hashes here() { return hashes_of(shelf_.adapters.at("math")->parameters()); }

  Shelf shelf_;
};

TEST_F(Adapters, ComeByTheirNamesAndAreReplacedInTheirPlaces) {
  for (const Loading loading : {Loading::kStaged, Loading::kDirect})
    for (const char* type : {"qwen3", "qwen3_moe"}) {
      begin_adapters(type, loading);
      const auto first = made(1), second = made(2);
      EXPECT_EQ(during_passes([&] { EXPECT_TRUE(send(*first, 5, "math").published); }), "");
      ASSERT_NE(shelf_.adapters.at("math"), nullptr);
      EXPECT_EQ(here(), hashes_of(first->parameters()));
      EXPECT_TRUE(is_alike(*shelf_.adapters.at("math"), *first));
      const layers::Adapter* const place = shelf_.adapters.at("math").get();
      const uint64_t version = place->parameters().version();
      Hashes reported;
      EXPECT_EQ(during_passes([&] {
                  send(*second, 6, "math");
                  Sender sender(socket(), table(), {});
                  reported = sender.hashes("math");
                }),
                "");
      EXPECT_EQ(shelf_.adapters.at("math").get(), place);  // requests that run keep it
      EXPECT_NE(place->parameters().version(), version);
      EXPECT_EQ(here(), hashes_of(second->parameters()));
      EXPECT_EQ(reported, here());
      ASSERT_EQ(taken_.size(), 2u);
      EXPECT_EQ(taken_[1].version, 6);
      EXPECT_EQ(taken_[1].adapter, "math");
      EXPECT_EQ(old_, hashes_of(store()));  // the model's own
      taken_.clear();
    }
}

TEST_F(Adapters, AnErrorLeavesTheOldOne) {
  begin_adapters();
  const auto first = made(1), second = made(2), wide = made(3, 8);
  EXPECT_EQ(during_passes([&] { send(*first, 5, "math"); }), "");
  for (const size_t parameters : {size_t{0}, size_t{1}, second->parameters().size() - 1}) {
    const std::string error = during_passes([&] { send(*second, 6, "math", parameters); });
    EXPECT_NE(error.find("tensors did not come"), std::string::npos) << error;
    EXPECT_EQ(here(), hashes_of(first->parameters()));
  }
  const auto refused = [&](const layers::Adapter& adapter, const std::string& name, const char* part) {
    const std::string error = during_passes([&] { send(adapter, 6, name); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(here(), hashes_of(first->parameters()));
  };
  refused(*wide, "math", "adapter 'math' here has other targets, ranks or scales");
  refused(*second, "law", "'law' is not awaited");
  EXPECT_NE(during_passes([&] { Sender(socket(), table(), {}).hashes("law"); }).find("'law' is not awaited"),
            std::string::npos);
  EXPECT_EQ(during_passes([&] { send(*second, 7, "math"); }), "");
  EXPECT_EQ(here(), hashes_of(second->parameters()));
}

// Of an adapter's folder, whose names and forms are PEFT's: also of an embedding, whose rows it holds as
// columns, and of stacked experts.
TEST_F(Adapters, OfAFolderComeAsTheyAreInMemory) {
  for (const auto& [type, names, parameters] :
       std::vector<std::tuple<const char*, std::vector<std::string>, std::vector<std::string>>>{
           {"qwen3", {"q_proj", "embed_tokens"}, {}},
           {"qwen3_moe", {"q_proj"}, {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}}) {
    begin_adapters(type);
    LoraConfig config;
    config.rank = 4;
    config.targets = {.names = names};
    config.parameters = parameters;
    const auto adapter = models::new_adapter(*model_, config, 1, "");
    adapter->parameters().initialize(1, 0.5);
    const std::string path = files_ / "adapter";
    remove_all(path);
    models::save_adapter(*adapter, path, "");
    const auto folder = checkpoints::ModelFolder::open_adapter(path, table());
    const NotedFolder noted = note_of(folder, table(), "math");
    EXPECT_EQ(noted.note.fingerprint, note_of(*adapter, "math").fingerprint);
    for (const Names form : {Names::kCheckpoint, Names::kPacked}) {
      shelf_.adapters["math"] = nullptr;
      EXPECT_EQ(during_passes([&] {
                  Sender sender(socket(), table(), {.names = form, .chunk_bytes = 4096});
                  sender.begin(5, noted.note);
                  send_folder(sender, folder, noted.table, form);
                  EXPECT_TRUE(sender.finish().published);
                }),
                "")
          << type;
      ASSERT_NE(shelf_.adapters.at("math"), nullptr);
      EXPECT_EQ(differences(hashes_of(adapter->parameters()), here()), std::vector<std::string>());
    }
  }
}

TEST_F(Adapters, AreAlikeWithTheirTargetsRanksAndScales) {
  begin_adapters();
  const auto first = made(1);
  const auto other = [&](const std::function<void(LoraConfig&)>& change) {
    LoraConfig config;
    config.rank = 4;
    config.modules_to_save = {"norm"};
    change(config);
    return models::new_adapter(*model_, config, 1, "");
  };
  EXPECT_TRUE(is_alike(*first, *other([](LoraConfig&) {})));
  EXPECT_FALSE(is_alike(*first, *other([](LoraConfig& config) { config.alpha = 4; })));
  EXPECT_FALSE(is_alike(*first, *other([](LoraConfig& config) { config.rank = 2; })));
  EXPECT_FALSE(is_alike(*first, *other([](LoraConfig& config) { config.targets = {.names = {"q_proj"}}; })));
}

TEST_F(Adapters, AnotherProgramsTableIsRefused) {
  begin_adapters();
  const auto adapter = made(1);
  AdapterNote note = note_of(*adapter, "math");
  note.fingerprint = "0123";
  expect_has(during_passes([&] {
               Sender sender(socket(), table(), {});
               sender.begin(5, note);
             }),
             "adapter 'math' has other names, shapes or dtypes where it comes from (fingerprint 0123, here ");
  expect_has(during_passes([&] { Sender(socket(), table(), {}).hashes("math"); }),
             "adapter 'math' has not come yet");
  EXPECT_EQ(shelf_.adapters.at("math"), nullptr);
}

TEST_F(Adapters, AProcessWithoutAShelfTakesNone) {
  begin();
  const auto adapter = made(1);
  expect_old(during_passes([&] { send(*adapter, 5, "math"); }), "this process takes no adapters");
}

}  // namespace
}  // namespace temper::exchange
