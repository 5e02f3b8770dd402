add_floor(base)
add_floor(device)
add_floor(tokenizers)
add_floor(templates)
