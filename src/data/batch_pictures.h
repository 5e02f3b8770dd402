#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/pictures/picture_pixels.h"
#include "data/rows/pack.h"

// The pictures of a step's documents, decoded only when the step is made: documents that wait to be packed
// hold none.
namespace temper::data {

// Of a document: its pictures, or what is wrong with the first that is broken.
struct DocumentPictures {
  std::vector<LoadedPicture> pictures;
  std::string error;  // names the picture's place in its row
};

// Of each document of each group, on `threads` threads of its own, or (0) on the pool. A picture whose file
// changed its shape since its row was read is broken: the row has another number of tokens for it.
std::vector<std::vector<DocumentPictures>> open_pictures(const std::vector<DocumentGroup>& groups,
                                                         const PictureLoader& loader, int64_t threads);

struct BrokenDocument {
  Document document;
  std::string error;
};

// Takes the documents with broken pictures out of both.
std::vector<BrokenDocument> take_broken(std::vector<DocumentGroup>& groups,
                                        std::vector<std::vector<DocumentPictures>>& opened);

// Of each group of documents what the tower reads; null for groups without pictures.
std::vector<std::shared_ptr<const PicturePixels>> make_pixels(
    std::vector<std::vector<DocumentPictures>> opened, const PictureLoader& loader, int64_t threads);

}  // namespace temper::data
