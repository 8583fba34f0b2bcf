//! Dumps put together by hand.

use crc::{Crc, CRC_64_REDIS};

/// A header of `version`, `body`, the end mark and, from version 5, the checksum.
pub fn dump(version: u32, body: &[u8]) -> Vec<u8> {
    sealed(format!("REDIS{version:04}"), version, body)
}

/// The same, of a Valkey from 9 on.
pub fn valkey_dump(version: u32, body: &[u8]) -> Vec<u8> {
    sealed(format!("VALKEY{version:03}"), version, body)
}

fn sealed(magic: String, version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.into_bytes();
    bytes.extend_from_slice(body);
    bytes.push(0xff);
    if version >= 5 {
        let checksum = Crc::<u64>::new(&CRC_64_REDIS).checksum(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// A string shorter than 64 bytes.
pub fn string(text: &str) -> Vec<u8> {
    assert!(text.len() < 64);
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// A type, a key and the bytes of a value.
pub fn entry(code: u8, key: &str, value: &[u8]) -> Vec<u8> {
    [&[code][..], &string(key), value].concat()
}
