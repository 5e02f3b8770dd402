#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/text/alignment.h"

namespace temper::tokenizers {

// One thing that happens to a text before it is split. Texts are valid UTF-8.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual AlignedText run(std::string_view text, bool aligned) const = 0;  // else without an alignment
  virtual bool keeps(std::string_view) const { return false; }             // true: it surely changes nothing
  virtual bool keeps_ascii() const { return false; }   // true: ASCII changes at most with marks behind it
  virtual bool begins_texts() const { return false; }  // true: it only puts something before a text
};

// What happens to the text before it is split: steps, one after the other.
class Normalizer {
 public:
  static Normalizer from_json(const Json& json, std::string_view where);
  bool keeps(std::string_view text) const;  // true: nothing changes; found out quickly
  bool keeps_ascii() const;
  // A text that is `continued` gets nothing put before it. Adds where the bytes come from to `alignments`,
  // unless it is null.
  std::string normalize(std::string_view text, bool continued = false,
                        Alignments* alignments = nullptr) const;

 private:
  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace temper::tokenizers
