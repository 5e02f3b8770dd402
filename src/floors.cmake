add_floor(base)
add_floor(device)
