#include "preprocessing/resample.h"

#include <algorithm>

#include "base/error.h"

namespace temper::preprocessing {

using media::Picture;
using media::Size;

namespace {

Picture copied(const Picture& picture) {
  Picture copy(picture.size());
  std::copy_n(picture.row(0), picture.bytes(), copy.row(0));
  return copy;
}

}  // namespace

Picture resample(const Picture& picture, Size size, Filter filter) {
  const auto& rooms = registry<ResamplePasses>().entries();
  invariant(!rooms.empty(), "no room resamples");
  return resample(picture, size, filter, rooms.back().value);
}

Picture resample(const Picture& picture, Size size, Filter filter, const ResamplePasses& passes) {
  if (size == picture.size()) return copied(picture);
  const Picture* from = &picture;
  Picture narrowed;
  if (size.width != picture.width()) {
    narrowed = Picture({size.width, picture.height()});
    passes.horizontal(picture, resample_weights(picture.width(), size.width, filter), narrowed);
    from = &narrowed;
  }
  if (size.height == picture.height()) return narrowed;
  Picture out(size);
  passes.vertical(*from, resample_weights(picture.height(), size.height, filter), out);
  return out;
}

}  // namespace temper::preprocessing
