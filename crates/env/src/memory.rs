//! Memory for what is big and read at random, advised for huge pages.
