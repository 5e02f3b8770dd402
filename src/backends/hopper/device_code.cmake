# See cmake/rooms.cmake.
set(device_code_together
  attention_backward_rows,expert_items)
