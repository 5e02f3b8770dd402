# See cmake/rooms.cmake.
set(device_code_together
  attention/attention_backward_rows,expert_items)
