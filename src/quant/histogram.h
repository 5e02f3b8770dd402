#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "quant/format.h"

// Where an amax should be, found in how often magnitudes come (S. Migacz, "8-bit Inference with TensorRT",
// 2017; H. Wu et al., "Integer Quantization for Deep Learning Inference", 2020). nvidia-modelopt finds the
// same numbers when all values come in one batch.
namespace temper::quant {

inline constexpr int64_t kHistogramBins = 2048;

// The ends of a range, which holds 0.
struct Ends {
  float low = 0, high = 0;
};

// Of magnitudes from 0 to `largest`, or of the values in a range, in bins of equal width. Counts of several
// add up.
class Histogram {
 public:
  explicit Histogram(float largest) : largest_(largest), counts_(static_cast<size_t>(kHistogramBins)) {}
  explicit Histogram(const Ends& ends)
      : least_(ends.low),
        largest_(ends.high),
        of_values_(true),
        counts_(static_cast<size_t>(kHistogramBins)) {}

  // What is beyond the ends is in the first or the last bin, NaN in none.
  void count(std::span<const float> values);
  std::span<int64_t> counts() { return counts_; }
  std::span<const int64_t> counts() const { return counts_; }
  float least() const { return least_; }  // of magnitudes 0
  float largest() const { return largest_; }
  float width() const { return largest_ - least_; }
  float edge(int64_t bin) const;    // where a bin begins; of kHistogramBins: `largest`
  float center(int64_t bin) const;  // of a bin

 private:
  float least_ = 0, largest_;
  bool of_values_ = false;
  std::vector<int64_t> counts_;
};

// Where the bin begins in which the share `percentile` / 100 of all values is reached, but not 0.
float percentile_amax(const Histogram& histogram, double percentile);

// The center, from bin 128 on, with the least sum of squared errors of the bins' centers as the format rounds
// them. The format has no blocks of its own.
float least_error_amax(const Histogram& histogram, const Format& format);

// The same of integers with zero points, from histograms of values: what is left of the range when at most
// half of the other values, (100 - percentile) / 200, are cut off at each end; and both ends times the same
// of the 1920 numbers, with the least error.
Ends percentile_ends(const Histogram& histogram, double percentile);
Ends least_error_ends(const Histogram& histogram, const Element& element);

// The edge, from bin 128 on, below which 2^(bits - 1) levels differ least from the histogram, of which what
// is beyond is added to the last bin: by Kullback-Leibler divergence, the last of equals. The first bin
// counts as the second one does.
float least_divergence_amax(const Histogram& histogram, int bits);

}  // namespace temper::quant
