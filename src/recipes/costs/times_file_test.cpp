#include "recipes/costs/times_file.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json/json.h"
#include "recipes/costs/known_machines.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

class TimesFile : public ::testing::Test {
 protected:
  Machine measured() const {
    Machine machine = known_machine("h200");
    machine.ops.clear();
    machine.ops[std::string(Machine::kProducts)] = {.of_flops = true, .curve = {{{1e9, 1e14}, {1e12, 7e14}}}};
    machine.ops[std::string(Machine::kMoves)] = {.curve = {{{1e6, 3e12}}}};
    machine.memory_bandwidth = 4.26e12;
    machine.launch = 7e-6;
    machine.step_share = 1.02;
    machine.host = {.bytes_per_second = 3e11, .latency = 2e-5, .slowdown = 0.75, .source = Source::kMeasured};
    return machine;
  }
  // With another value of a key, whose dots are levels.
  std::string refusal_with(const std::string& key, const Json& value) const {
    write_times(file_, measured());
    Json json = Json::parse_file(file_);
    const size_t dot = key.find('.');
    if (dot == std::string::npos) {
      json.set(key, value);
    } else {
      Json inner = json.at(key.substr(0, dot));
      inner.set(key.substr(dot + 1), value);
      json.set(key.substr(0, dot), inner);
    }
    write_file(file_, json.dump());
    return error_of([&] { read_times(file_); });
  }
  std::string expected(const std::string& what) const {
    return "[" + file_ + "] " + what + "; measure again with temper plan --measure " + file_;
  }

  TemporaryDirectory folder_;
  const std::string file_ = folder_ / "times.json";
};

TEST_F(TimesFile, ReadsWhatWasWritten) {
  write_times(file_, measured());
  const Machine read = read_times(file_);
  EXPECT_EQ(read.facts.name, "NVIDIA H200");
  EXPECT_EQ(read.dtype, DType::kBF16);
  EXPECT_EQ(read.ops_source, Source::kMeasured);
  EXPECT_EQ(read.memory_bandwidth, 4.26e12);
  EXPECT_EQ(read.launch, 7e-6);
  EXPECT_EQ(read.step_share, 1.02);
  EXPECT_EQ(read.ops.size(), 2u);
  EXPECT_EQ(read.ops.at("products").curve.points.at(1).per_second, 7e14);
  EXPECT_TRUE(read.ops.at("products").of_flops);
  EXPECT_FALSE(read.ops.at("moves").of_flops);
  EXPECT_EQ(read.host.source, Source::kMeasured);
  EXPECT_EQ(read.host.slowdown, 0.75);
  // What no two ranks measured is as published.
  EXPECT_EQ(read.network.source, Source::kComputed);
  EXPECT_EQ(read.network.bytes_per_second, known_machine("h200").network.bytes_per_second);
  EXPECT_EQ(read.peak_flops, 989e12);
}

TEST_F(TimesFile, WhatIsDamagedIsRefusedByItsKey) {
  EXPECT_EQ(refusal_with("launch", "soon"), expected("launch: expected a number"));
  EXPECT_EQ(refusal_with("launch", -1), expected("launch: expected a number above 0"));
  EXPECT_EQ(refusal_with("ops.moves", Json::Array{}), expected("ops.moves: expected an object"));
  EXPECT_EQ(refusal_with("ops.moves", Json::Object{{"unit", "miles"}}),
            expected("ops.moves.unit: expected flops or bytes"));
  EXPECT_EQ(refusal_with("ops.moves", Json::Object{{"unit", "bytes"}}),
            expected("ops.moves.speeds is missing"));
  const auto speeds = [](Json::Array list) {
    return Json(Json::Object{{"unit", "bytes"}, {"speeds", std::move(list)}});
  };
  EXPECT_EQ(refusal_with("ops.moves", speeds({})),
            expected("ops.moves.speeds: expected a list of pairs of numbers"));
  EXPECT_EQ(refusal_with("ops.moves", speeds({Json::Array{2, 1}, Json::Array{1, 1}})),
            expected("ops.moves.speeds: expected amounts that grow"));
  EXPECT_EQ(refusal_with("ops", Json::Object{}), expected("ops.products is missing"));
  EXPECT_EQ(refusal_with("dtype", "int8"), expected("dtype: expected float32 or bfloat16"));
  const Json link = Json::Object{{"bytes_per_second", 1}, {"latency", 1}, {"slowdown", 2}};
  EXPECT_EQ(refusal_with("links.host", link), expected("links.host.slowdown: expected a number from 0 to 1"));
}

TEST_F(TimesFile, OthersAreRefused) {
  EXPECT_EQ(refusal_with("version", 2), "[" + file_ +
                                            "] has version 2, and this program reads 1; measure again with "
                                            "temper plan --measure " +
                                            file_);
  EXPECT_EQ(refusal_with("format", "else"),
            "[" + file_ + "] is no file of times; write one with temper plan --measure FILE");
  EXPECT_EQ(
      refusal_with("machine.name", "NVIDIA X1"),
      "[" + file_ +
          "] was measured on 'NVIDIA X1'; nothing else is known here of such a machine; use the file there");
  write_times(file_, measured());
  Json json = Json::parse_file(file_);
  json.set("machine", Json::Object{{"name", "another processor"}, {"hardware", "cpu"}});
  write_file(file_, json.dump());
  EXPECT_EQ(
      error_of([&] { read_times(file_); }).find("[" + file_ + "] was measured on 'another processor', and"),
      0u);
}

}  // namespace
}  // namespace temper::recipes
