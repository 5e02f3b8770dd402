#include "training/objectives/gather_rows.h"

#include <cstring>
#include <tuple>

#include "collectives/at_root.h"
#include "collectives/fields.h"

namespace temper::training {
namespace {

template <class Row>
auto fields_of(Row& row) {
  auto& [ids, targets, document_lengths, sources, answers, pictures, pixels, sampled, experts] =
      row;  // pictures and pixels: below
  return std::tuple_cat(std::tie(ids, targets, document_lengths, sources, answers),
                        data::TokenColumns::all_of(sampled), std::tie(experts));
}

template <class Picture>
auto fields_of_picture(Picture& picture) {
  auto& [first, shape, file, row] = picture;  // file: below
  return std::tie(first, shape, row);
}

template <class File>
auto fields_of_file(File& file) {
  auto& [reference, folder] = file;
  auto& [place, path, content] = reference;
  return std::tie(place, path, content, folder);
}

void put_pictures(std::string& bytes, const std::vector<data::PlacedPicture>& pictures) {
  collectives::put(bytes, static_cast<int64_t>(pictures.size()));
  for (const data::PlacedPicture& picture : pictures) {
    collectives::put_fields(bytes, fields_of_picture(picture));
    collectives::put_fields(bytes, fields_of_file(*picture.file));
  }
}

void take_pictures(std::string_view& bytes, std::vector<data::PlacedPicture>& pictures) {
  int64_t count = 0;
  collectives::take(bytes, count);
  for (int64_t i = 0; i < count; ++i) {
    data::PlacedPicture& picture = pictures.emplace_back();
    collectives::take_fields(bytes, fields_of_picture(picture));
    data::PictureFile file;
    collectives::take_fields(bytes, fields_of_file(file));
    picture.file = std::make_shared<const data::PictureFile>(std::move(file));
  }
}

void put_pixels(std::string& bytes, const data::PicturePixels* pixels) {
  collectives::put(bytes, pixels != nullptr);
  if (!pixels) return;
  const auto& [memory, rows, columns, grids] = *pixels;
  collectives::put_fields(bytes, std::tie(rows, columns, grids));
  const std::span<const float> values = pixels->values();
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::shared_ptr<const data::PicturePixels> take_pixels(std::string_view& bytes) {
  bool there = false;
  collectives::take(bytes, there);
  if (!there) return nullptr;
  data::PicturePixels pixels;
  collectives::take_fields(bytes, std::tie(pixels.rows, pixels.columns, pixels.grids));
  pixels.memory = unset_array<float>(pixels.rows * pixels.columns, "the values of pictures");
  const size_t size = pixels.values().size_bytes();
  invariant(bytes.size() >= size, "a rank reads as many bytes as another wrote");
  std::memcpy(pixels.memory.get(), bytes.data(), size);
  bytes.remove_prefix(size);
  return std::make_shared<const data::PicturePixels>(std::move(pixels));
}

}  // namespace

std::string rows_to_bytes(const std::vector<data::PackedRow>& rows) {
  std::string bytes;
  for (const data::PackedRow& row : rows) {
    collectives::put_fields(bytes, fields_of(row));
    put_pictures(bytes, row.pictures);
    put_pixels(bytes, row.pixels.get());
  }
  return bytes;
}

std::vector<data::PackedRow> rows_from_bytes(std::string_view bytes) {
  std::vector<data::PackedRow> rows;
  while (!bytes.empty()) {
    data::PackedRow& row = rows.emplace_back();
    collectives::take_fields(bytes, fields_of(row));
    take_pictures(bytes, row.pictures);
    row.pixels = take_pixels(bytes);
  }
  return rows;
}

std::vector<data::PackedRow> rows_of_rank(const std::vector<data::PackedRow>& rows, int rank, int ranks) {
  int64_t all = 0;
  for (const data::PackedRow& row : rows) all += row.size();
  std::vector<data::PackedRow> mine;
  int64_t before = 0;
  for (const data::PackedRow& row : rows) {
    // The rank in whose share of the tokens the middle of the row lies.
    if ((2 * before + row.size()) * ranks / (2 * all) == rank) mine.push_back(row);
    before += row.size();
  }
  return mine;
}

std::vector<data::PackedRow> shared_rows(collectives::Group& ranks, const collectives::Group& parts,
                                         std::string_view name,
                                         const std::function<std::vector<data::PackedRow>()>& read) {
  if (ranks.is_alone()) return read();
  const std::string rows = collectives::made_at_root(ranks, name, [&] { return rows_to_bytes(read()); });
  return rows_of_rank(rows_from_bytes(rows), parts.rank(), parts.size());
}

std::vector<std::vector<data::PackedRow>> gather_rows(collectives::Group& ranks,
                                                      const std::vector<data::PackedRow>& rows) {
  if (ranks.is_alone()) return {rows};
  std::vector<std::vector<data::PackedRow>> all;
  for (const std::string& bytes : ranks.gather_objects("rows", rows_to_bytes(rows)))
    all.push_back(rows_from_bytes(bytes));
  return all;
}

}  // namespace temper::training
