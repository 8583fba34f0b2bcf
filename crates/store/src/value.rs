use crate::Encoding;

/// A string value, read in place under the latch of its page; it may lie in several chunks.
pub struct StrRef<'a> {
    pub(crate) repr: Repr<'a>,
    pub(crate) raw: bool,
}

pub(crate) enum Repr<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

impl StrRef<'_> {
    /// Bytes of the value as `STRLEN` counts them.
    pub fn len(&self) -> u64 {
        match self.repr {
            Repr::Int(i) => decimal_len(i),
            Repr::Bytes(b) => b.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn encoding(&self) -> Encoding {
        match self.repr {
            Repr::Int(_) => Encoding::Int,
            Repr::Bytes(b) if self.raw || b.len() > 44 => Encoding::Raw,
            Repr::Bytes(_) => Encoding::Embstr,
        }
    }

    /// The integer, if the value is stored as one.
    pub fn as_int(&self) -> Option<i64> {
        match self.repr {
            Repr::Int(i) => Some(i),
            Repr::Bytes(_) => None,
        }
    }

    /// Calls `f` with the value's bytes from `start` (inclusive) to `end` (exclusive), chunk by chunk;
    /// both are clamped to the value's length.
    pub fn chunks(&self, start: u64, end: u64, mut f: impl FnMut(&[u8])) {
        let mut give = |bytes: &[u8]| {
            let end = end.min(bytes.len() as u64) as usize;
            let start = (start as usize).min(end);
            f(&bytes[start..end])
        };
        match self.repr {
            Repr::Int(i) => give(i.to_string().as_bytes()),
            Repr::Bytes(b) => give(b),
        }
    }

    /// Appends the whole value to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.chunks(0, u64::MAX, |chunk| out.extend_from_slice(chunk));
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() as usize);
        self.append_to(&mut out);
        out
    }
}

fn decimal_len(value: i64) -> u64 {
    let digits = value.unsigned_abs().checked_ilog10().map_or(1, |d| d + 1);
    u64::from(digits) + u64::from(value < 0)
}
