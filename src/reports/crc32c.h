#pragma once
#include <cstdint>
#include <string_view>

namespace temper::reports {

// The Castagnoli checksum (polynomial 0x1EDC6F41, reflected), as in RFC 3720 B.4.
uint32_t crc32c(std::string_view data);

// How record files store it: rotated and offset, because a checksum over data that holds checksums is weak.
uint32_t masked_crc32c(std::string_view data);

}  // namespace temper::reports
