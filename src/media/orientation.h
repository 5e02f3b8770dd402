#pragma once
#include <string_view>

#include "media/picture.h"

// How a camera was held. Numbers are those of EXIF's tag 0x0112 (EXIF 2.32, 4.6.4): 1 upright, 2 mirrored,
// 3 upside down, 4 upside down and mirrored, 5 to 8 with rows and columns exchanged.
namespace temper::media {

constexpr int kUpright = 1;

// What a file's metadata say, in the order in which they count. Where they contradict each other, EXIF is
// right, as in Pillow's exif_transpose.
class Orientation {
 public:
  void add_exif(std::string_view tiff);   // a block of EXIF: TIFF, without "Exif\0\0" in front of it
  void add_xmp(std::string_view packet);  // tiff:Orientation in it
  int value() const;                      // 1 to 8; metadata that are damaged or say another number: 1

 private:
  int exif_ = 0, xmp_ = 0;  // 0: not said
};

// The size of the picture that turn() makes.
Size turned_size(Size stored, int orientation);
Picture turn(Picture stored, int orientation);

}  // namespace temper::media
