//! What `encode` and `decode` are told.

/// What the functions `encode_...` and `decode_...` set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Arrays with many gaps become objects.
    pub(super) converts_sparse: bool,
    /// An array may be so many times as long as it has elements; 0: as long as it is.
    pub(super) sparse_ratio: i32,
    /// Up to so many elements it may have any gaps.
    pub(super) sparse_safe: i32,
    pub(super) encode_depth_max: i32,
    pub(super) decode_depth_max: i32,
    pub(super) invalid_numbers: InvalidNumbers,
    pub(super) decodes_invalid_numbers: bool,
    /// Digits.
    pub(super) precision: i32,
    pub(super) keeps_buffer: bool,
}

/// How infinities and NaN are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidNumbers {
    Refused,
    AsTheyAre,
    Null,
}

pub(super) const DEFAULTS: Options = Options {
    converts_sparse: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth_max: 1_000,
    decode_depth_max: 1_000,
    invalid_numbers: InvalidNumbers::Refused,
    decodes_invalid_numbers: true,
    precision: 14,
    keeps_buffer: true,
};

/// Deeper values are refused whatever a script allows: it bounds the stack of the thread.
pub(super) const DEPTH_MAX: i32 = 1_000;
