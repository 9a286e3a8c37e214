//! System calls that are counted by name, each under a variant of an enumeration.

/// Declares a structure with a count for each system call, and an enumeration of these calls. For
/// the crates of this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! counted_calls {
    (
        $(#[$meta:meta])*
        pub struct $calls:ident, $vis:vis enum $call:ident { $($(#[$doc:meta])* $name:ident $variant:ident,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $calls { $($(#[$doc])* pub $name: u64,)+ }

        impl $calls {
            /// Returns each call's name and count, in a fixed order.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Returns the number of all counted calls.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.by_name().map(|(_, count)| count).sum()
            }

            /// Returns the counts that a function has for each of the calls.
            fn read(count: impl Fn($call) -> u64) -> $calls {
                $calls { $($name: count($call::$variant),)+ }
            }
        }

        /// One of the counted calls.
        #[derive(Clone, Copy, Debug)]
        $vis enum $call { $($variant,)+ }

        impl $call {
            const COUNT: usize = [$($call::$variant),+].len();
        }
    };
}
