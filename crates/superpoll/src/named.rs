//! Enumerations each of whose values has a name, as users read and write it.

/// Declares an enumeration with the name of each value: `ALL` of its values in their order, and
/// the `name` of each. For the crates of this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $kind:ident { $($(#[$attribute:meta])* $value:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        $vis enum $kind { $($(#[$attribute])* $value,)+ }

        #[allow(dead_code, reason = "an enumeration within a crate may have no use for one of them")]
        impl $kind {
            /// All of them, in the order in which they are declared.
            $vis const ALL: [$kind; [$($name),+].len()] = [$($kind::$value),+];

            /// Returns its name, as users read and write it.
            #[inline]
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name,)+
                }
            }
        }
    };
}
