//! Lengths and strings as bytes, the inverse of `source`.

use super::format::{string_encoding, StringRef};
use super::lzf::Compressor;

/// Longest text that is tried as an integer: "-2147483648".
const MAX_INTEGER_TEXT_BYTES: usize = 11;

/// Shorter strings are not worth compressing, says Redis.
const MIN_COMPRESSED_STRING_BYTES: usize = 21;

/// Bytes that compression must save.
pub(super) const MIN_SAVED_BYTES: usize = 4;

pub(super) fn put_length(out: &mut Vec<u8>, length: u64) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend_from_slice(&(length as u16 | 1 << 14).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(0x80);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(0x81);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

/// Appends what precedes an LZF stream of `packed_bytes` that stands for `length_bytes`.
pub(super) fn put_packed_head(out: &mut Vec<u8>, packed_bytes: u64, length_bytes: u64) {
    out.push(0xc0 | string_encoding::LZF);
    put_length(out, packed_bytes);
    put_length(out, length_bytes);
}

/// What to append for a string: all that precedes its bytes, and the bytes to append verbatim.
pub(super) enum Body<'a> {
    /// Nothing more is to be appended.
    Complete,
    Verbatim(&'a [u8]),
    Packed(Vec<u8>),
}

/// Appends the head of a string, or the whole if it is an integer. `compressor` is absent if strings are not to be
/// compressed.
pub(super) fn put_string_head<'a>(
    out: &mut Vec<u8>,
    string: StringRef<'a>,
    compressor: Option<&mut Compressor>,
) -> Body<'a> {
    let bytes = match string {
        StringRef::Int(value) => {
            if !put_integer(out, value) {
                let text = value.to_string();
                put_length(out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
            return Body::Complete;
        }
        StringRef::Bytes(bytes) => bytes,
    };
    if bytes.len() <= MAX_INTEGER_TEXT_BYTES
        && parse_canonical(bytes).is_some_and(|value| put_integer(out, value))
    {
        return Body::Complete;
    }
    let packed = match compressor {
        Some(compressor) if bytes.len() >= MIN_COMPRESSED_STRING_BYTES => {
            compressor.compress(bytes, bytes.len() - MIN_SAVED_BYTES)
        }
        _ => None,
    };
    match packed {
        Some(packed) => {
            put_packed_head(out, packed.len() as u64, bytes.len() as u64);
            Body::Packed(packed)
        }
        None => {
            put_length(out, bytes.len() as u64);
            Body::Verbatim(bytes)
        }
    }
}

/// Appends the integer form, if the value has one.
fn put_integer(out: &mut Vec<u8>, value: i64) -> bool {
    if let Ok(value) = i8::try_from(value) {
        out.push(0xc0 | string_encoding::INT8);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xc0 | string_encoding::INT16);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xc0 | string_encoding::INT32);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// The integer whose decimal text `bytes` is: no sign but a minus, no leading zeros, no minus zero.
pub(super) fn parse_canonical(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        [] => false,
        [b'0'] => bytes.len() == 1,
        [b'0', ..] => false,
        _ => digits.iter().all(u8::is_ascii_digit),
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(string: StringRef<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match put_string_head(&mut out, string, Some(&mut Compressor::new())) {
            Body::Complete => (),
            Body::Verbatim(bytes) => out.extend_from_slice(bytes),
            Body::Packed(bytes) => out.extend_from_slice(&bytes),
        }
        out
    }

    #[test]
    fn lengths_take_the_shortest_form() {
        for (length, bytes) in [
            (0, &b"\x00"[..]),
            (63, b"\x3f"),
            (64, b"\x40\x40"),
            (16_383, b"\x7f\xff"),
            (16_384, b"\x80\x00\x00\x40\x00"),
            (0xffff_ffff, b"\x80\xff\xff\xff\xff"),
            (1 << 32, b"\x81\x00\x00\x00\x01\x00\x00\x00\x00"),
        ] {
            let mut out = Vec::new();
            put_length(&mut out, length);
            assert_eq!(out, bytes, "{length}");
        }
    }

    #[test]
    fn integers_and_their_texts_take_the_shortest_form() {
        for (value, bytes) in [
            (0, &b"\xc0\x00"[..]),
            (-128, b"\xc0\x80"),
            (128, b"\xc1\x80\x00"),
            (-32_769, b"\xc2\xff\x7f\xff\xff"),
            (i64::from(i32::MIN), b"\xc2\x00\x00\x00\x80"),
            (2_147_483_648, b"\x0a2147483648"),
            (i64::MIN, b"\x14-9223372036854775808"),
        ] {
            assert_eq!(encoded(StringRef::Int(value)), bytes, "{value}");
            assert_eq!(encoded(StringRef::Bytes(value.to_string().as_bytes())), bytes, "{value}");
        }
    }

    #[test]
    fn texts_that_are_not_canonical_integers_stay_bytes() {
        for text in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1.0", "99999999999", "--1", "-01"] {
            let expected: Vec<u8> = [&[text.len() as u8], text.as_bytes()].concat();
            assert_eq!(encoded(StringRef::Bytes(text.as_bytes())), expected, "{text:?}");
        }
    }

    #[test]
    fn only_strings_that_shrink_are_compressed() {
        assert_eq!(encoded(StringRef::Bytes(&[b'a'; 20]))[0], 20);
        assert_eq!(encoded(StringRef::Bytes(&[b'a'; 21]))[0], 0xc3);
        let distinct: Vec<u8> = (0..60).collect();
        assert_eq!(encoded(StringRef::Bytes(&distinct))[0], 60);
    }
}
