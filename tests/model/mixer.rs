//! The hash that worlds are known by.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A small hasher: the standard one is slow in a debug build. Every word is mixed through all 64 bits.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.write_u64(chunk.iter().fold(1, |word, byte| (word << 8) | u64::from(*byte)));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.unsigned_abs() as u64);
    }
    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;
