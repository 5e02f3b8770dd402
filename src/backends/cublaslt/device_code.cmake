# See cmake/rooms.cmake.
set(device_code_together
  softmax_cluster,softmax_parts)
