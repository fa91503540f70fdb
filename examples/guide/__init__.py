"""The programs that the guides show; the tests run each of them."""
