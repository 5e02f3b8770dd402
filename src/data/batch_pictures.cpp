#include "data/batch_pictures.h"

#include <algorithm>
#include <atomic>
#include <future>

#include "base/error.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"

namespace temper::data {
namespace {

void run(int64_t count, int64_t threads, const std::function<void(int64_t)>& task) {
  if (threads == 0) return parallel_for(count, task);
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::future<void>> others;  // each waits for its thread when it goes
  for (int64_t thread = 1; thread < std::min(threads, count); ++thread)
    others.push_back(std::async(std::launch::async, [&] {
      leave_core();
      work();
    }));
  work();
  for (std::future<void>& other : others) other.get();
}

LoadedPicture open_picture(const PlacedPicture& placed, const PictureLoader& loader) {
  const auto& [reference, folder] = *placed.file;
  LoadedPicture loaded = loader.load(reference, folder);
  if (loaded.shape != placed.shape)
    fail(
        "{}: [{}] has another size than when the row was read, and {} tokens instead of {}; files must not "
        "change "
        "during a run",
        reference.place, reference.name(), loaded.shape.tokens, placed.shape.tokens);
  return loaded;
}

struct Opening {
  const PlacedPicture* placed;
  LoadedPicture* loaded;
  std::string error = {};
};

struct Writing {
  const LoadedPicture* picture;
  const PicturePixels* pixels;
  int64_t row;
};

}  // namespace

std::vector<std::vector<DocumentPictures>> open_pictures(const std::vector<DocumentGroup>& groups,
                                                         const PictureLoader& loader, int64_t threads) {
  std::vector<std::vector<DocumentPictures>> opened(groups.size());
  std::vector<Opening> openings;
  for (size_t g = 0; g < groups.size(); ++g) {
    opened[g].resize(groups[g].size());
    for (size_t d = 0; d < groups[g].size(); ++d) {
      const std::vector<PlacedPicture>& placed = groups[g][d].example.pictures;
      opened[g][d].pictures.resize(placed.size());
      for (size_t i = 0; i < placed.size(); ++i) openings.push_back({&placed[i], &opened[g][d].pictures[i]});
    }
  }
  run(std::ssize(openings), threads, [&](int64_t i) {
    Opening& opening = openings[static_cast<size_t>(i)];
    try {
      *opening.loaded = open_picture(*opening.placed, loader);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      opening.error = error.what();
    }
  });
  size_t next = 0;
  for (std::vector<DocumentPictures>& documents : opened)
    for (DocumentPictures& document : documents)
      for (size_t i = 0; i < document.pictures.size(); ++i, ++next)
        if (document.error.empty()) document.error = openings[next].error;
  return opened;
}

std::vector<BrokenDocument> take_broken(std::vector<DocumentGroup>& groups,
                                        std::vector<std::vector<DocumentPictures>>& opened) {
  std::vector<BrokenDocument> broken;
  for (size_t g = 0; g < groups.size(); ++g) {
    DocumentGroup whole;
    for (size_t d = 0; d < groups[g].size(); ++d)
      if (opened[g][d].error.empty())
        whole.push_back(std::move(groups[g][d]));
      else
        broken.push_back({std::move(groups[g][d]), opened[g][d].error});
    groups[g] = std::move(whole);
    std::erase_if(opened[g], [](const DocumentPictures& document) { return !document.error.empty(); });
  }
  return broken;
}

std::vector<std::shared_ptr<const PicturePixels>> make_pixels(
    std::vector<std::vector<DocumentPictures>> opened, const PictureLoader& loader, int64_t threads) {
  std::vector<std::shared_ptr<const PicturePixels>> out(opened.size());
  std::vector<std::vector<LoadedPicture>> pictures(opened.size());
  std::vector<Writing> writings;
  for (size_t g = 0; g < opened.size(); ++g) {
    for (DocumentPictures& document : opened[g])
      std::move(document.pictures.begin(), document.pictures.end(), std::back_inserter(pictures[g]));
    if (pictures[g].empty()) continue;
    out[g] = std::make_shared<const PicturePixels>(unset_pixels(pictures[g]));
    int64_t row = 0;
    for (const LoadedPicture& picture : pictures[g]) {
      writings.push_back({&picture, out[g].get(), row});
      row += picture.shape.rows;
    }
  }
  run(std::ssize(writings), threads, [&](int64_t i) {
    const auto& [picture, pixels, row] = writings[static_cast<size_t>(i)];
    write_picture(*picture, loader.settings(), *pixels, row);
  });
  return out;
}

}  // namespace temper::data
