# See cmake/rooms.cmake.
set(device_code_together
  expert_plan,expert_rows,expert_updates,sums,swiglu_rows)
