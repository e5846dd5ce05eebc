//! Who liked this video, under today's privacy.
