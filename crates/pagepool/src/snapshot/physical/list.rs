//! The algorithms, and what each wants of a pool.

use stillframe_algorithms::physical::{Cou, Hourglass, Naive, Piggyback, PingPong, Zigzag};
use stillframe_algorithms::Algorithm;

use super::copies::Access;
use super::wants::{Places, Wants};

/// An algorithm as the pool makes it.
pub trait PoolAlgorithm: Wants + for<'a> Algorithm<Access<'a, Self>> + Send + Sync + Sized {
    /// For at most `row_limit` rows.
    fn for_rows(row_limit: u32) -> Self;
}

macro_rules! pool_algorithms {
    ($($algorithm:ident: $places:ident,)*) => {
        $(
            impl Wants for $algorithm {
                const PLACES: Places = Places::$places;
            }

            impl PoolAlgorithm for $algorithm {
                fn for_rows(row_limit: u32) -> Self {
                    $algorithm::new(row_limit)
                }
            }
        )*
    };
}

pool_algorithms! {
    Naive: Shadow,
    Cou: Shadow,
    Zigzag: Two,
    PingPong: Updates,
    Hourglass: Two,
    Piggyback: TwoKept,
}
