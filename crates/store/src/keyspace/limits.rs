//! Up to which size a collection has the encoding of a small one. It says what `OBJECT ENCODING` and dumps call it, not
//! where its elements lie.

use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $default:expr;)*) => {
        /// The most that a small collection has, by Redis's settings.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct CollectionLimits {
            $($(#[$doc])* pub $name: usize,)*
        }

        impl Default for CollectionLimits {
            fn default() -> CollectionLimits {
                CollectionLimits { $($name: $default,)* }
            }
        }

        /// The limits in force: they may change at any time, and hold for what is written from then on.
        #[derive(Debug)]
        pub(crate) struct Limits {
            $($name: AtomicUsize,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: AtomicUsize::new($default),)* }
            }
        }

        impl Limits {
            pub fn set(&self, limits: &CollectionLimits) {
                $(self.$name.store(limits.$name, Ordering::Relaxed);)*
            }

            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&self) -> usize {
                    self.$name.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

limits! {
    /// `hash-max-listpack-entries`
    hash_entries = 512;
    /// `hash-max-listpack-value`
    hash_value_bytes = 64;
    /// `set-max-intset-entries`
    intset_entries = 512;
    /// `zset-max-listpack-entries`
    sorted_set_entries = 128;
    /// `zset-max-listpack-value`
    sorted_set_value_bytes = 64;
    /// `stream-node-max-bytes`
    stream_node_bytes = 4096;
    /// `stream-node-max-entries`
    stream_node_entries = 100;
}
