"""What float32 holds of products: limits that search on this machine and on a device share."""

FLOAT32_SAFE = (1e-12, 1e15)  # norms whose squares float32 neither loses nor overflows
PRODUCT_UNDERFLOW = 1e-35  # what a float32 product may lose by underflow
