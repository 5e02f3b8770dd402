add_floor(base)
add_floor(device)
add_floor(config)
add_floor(reports)
